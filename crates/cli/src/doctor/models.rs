//! Whether every agent has what it thinks with, as far as that is known without asking a provider.

use serde_json::json;
use tribune_agents::rehearsal::BACKEND;
use tribune_host::Home;

use super::{Found, fine, warn};
use crate::daemon;
use crate::providers::inventory;
use crate::up::count;

/// With a running daemon, its keys count; otherwise those of this shell.
pub(super) fn check(home: &Home) -> Found {
    let asked = daemon::ask(home, "provider.list", &json!({}));
    let survey = match asked.or_else(|_| inventory::from_here(home).map(|(_, survey)| json!(survey))) {
        Ok(survey) => survey,
        Err(_) => return warn("they cannot be looked at before the settings and the roster can"),
    };
    let agents = || survey["agents"].as_array().into_iter().flatten();
    let faulty = agents().find_map(|agent| Some((agent["agent_id"].as_str()?, agent["fault"].as_str()?)));
    if let Some((id, fault)) = faulty {
        return warn(format!("agent `{id}` cannot think: {fault}"));
    }
    let thinking = agents().filter(|agent| agent["backend"] != BACKEND).count() as u64;
    if thinking > 0 {
        let have = count(thinking, "agent has its model", "agents have their models");
        return fine(format!("{have} (`tribune providers test` asks them)"));
    }
    let way = match inventory::usable_model(&survey) {
        Some(model) => format!("`tribune chat --model {model}` talks to one"),
        None => match inventory::keys_to_set(&survey) {
            keys if keys.is_empty() => "`tribune providers add` adds one".to_owned(),
            keys => format!("for a real one {keys}"),
        },
    };
    fine(format!("every agent rehearses, without a model; {way}"))
}
