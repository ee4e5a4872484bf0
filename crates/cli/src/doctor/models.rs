//! Whether every agent has a usable model, as far as that is known without a request to a provider.

use serde_json::json;
use tribune_runtime::rehearsal::BACKEND;
use tribune_storage::home::Home;

use super::{Diagnosis, fine, warn};
use crate::daemon;
use crate::output::count;
use crate::providers::inventory;

/// Uses the keys of the running daemon; without one, those of this shell.
pub(super) fn check(home: &Home) -> Diagnosis {
    let asked = daemon::ask(home, "provider.list", &json!({}));
    let inventory = match asked.or_else(|_| inventory::from_here(home).map(|(_, inventory)| json!(inventory)))
    {
        Ok(inventory) => inventory,
        Err(_) => return warn("they cannot be checked until the settings and the roster can be read"),
    };
    let agents = || inventory["agents"].as_array().into_iter().flatten();
    let faulty = agents().find_map(|agent| Some((agent["agent_id"].as_str()?, agent["fault"].as_str()?)));
    if let Some((id, fault)) = faulty {
        return warn(format!("agent `{id}` has no usable model: {fault}"));
    }
    let thinking = agents().filter(|agent| agent["backend"] != BACKEND).count() as u64;
    if thinking > 0 {
        let have = count(thinking, "agent has its model", "agents have their models");
        return fine(format!("{have} (test them with `tribune providers test`)"));
    }
    let way = match inventory::usable_model(&inventory) {
        Some(model) => format!("`tribune chat --model {model}` talks to one"),
        None => match inventory::keys_to_set(&inventory) {
            keys if keys.is_empty() => "`tribune providers add` adds one".to_owned(),
            keys => format!("for a real one {keys}"),
        },
    };
    fine(format!("every agent is a rehearsal agent, without a model; {way}"))
}
