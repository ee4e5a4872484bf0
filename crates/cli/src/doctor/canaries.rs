//! Whether the gate holds the CLI agents, as the canaries of the running daemon found out.

use serde_json::{Value, json};
use tribune_registry::{CLI_BACKENDS, Roster};
use tribune_storage::home::Home;

use super::{Diagnosis, fail, fine, warn};
use crate::daemon;

/// `None` if the home has no CLI agent.
pub(super) fn check(home: &Home) -> Option<Diagnosis> {
    let Ok(status) = daemon::ask(home, "daemon.status", &json!({})) else { return without_daemon(home) };
    let all = status["canaries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let word = |canary: &Value, name: &str| canary[name].as_str().unwrap_or_default().to_owned();
    let names = |state: &str| -> Vec<String> {
        all.iter().filter(|canary| canary["state"] == state).map(|canary| word(canary, "subject")).collect()
    };
    let with = |state: &str| all.iter().find(|canary| canary["state"] == state);
    if let Some(bad) = with("ungoverned") {
        let (subject, detail) = (word(bad, "subject"), word(bad, "detail"));
        let agent = bad["agents"][0].as_str().unwrap_or("NAME");
        return Some(fail(format!(
            "UNGOVERNED: `{subject}` is not run, because it acted without permission ({detail}): check its settings, then run \
             `tribune agents test {agent}`"
        )));
    }
    let cli_agents: Vec<&Value> =
        all.iter().filter(|canary| canary["backend"] != canary["subject"]).collect();
    if cli_agents.is_empty() {
        return None;
    }
    if let Some(unknown) = cli_agents.iter().find(|canary| canary["state"] == "not_tried") {
        let (subject, detail) = (word(unknown, "subject"), word(unknown, "detail"));
        return Some(warn(format!(
            "`{subject}` is not run, because it is not known whether the gate holds it: {detail}"
        )));
    }
    if let Some(unknown) = cli_agents.iter().find(|canary| canary["state"] == "untried") {
        let (subject, detail) = (word(unknown, "subject"), word(unknown, "detail"));
        return Some(warn(format!(
            "`{subject}` is run because canary.untried names it, but it is not known whether the gate holds it: {detail}"
        )));
    }
    if cli_agents.iter().any(|canary| canary["state"] == "off") {
        return Some(warn(
            "no canary tests whether the gate holds the CLI agents: canary.every in config.json5 is \"off\"",
        ));
    }
    let live = names("live");
    let waiting = cli_agents.len() - live.len();
    Some(match (live.is_empty(), waiting) {
        (false, 0) => fine(format!("the gate holds {}", live.join(", "))),
        _ => fine(format!("{} of {} tested so far; the others follow", live.len(), cli_agents.len())),
    })
}

fn without_daemon(home: &Home) -> Option<Diagnosis> {
    let roster = Roster::load(&home.root().join("data").join("agent-roster.jsonl")).ok()?;
    let has_cli_agents = roster.iter().any(|agent| CLI_BACKENDS.contains(&agent.backend.as_str()));
    has_cli_agents.then(|| fine("the daemon tests whether the gate holds the CLI agents when it runs"))
}
