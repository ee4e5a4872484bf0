//! Whether the gate holds the agents of other makes, as the running daemon found out.

use serde_json::{Value, json};
use tribune_registry::{CLI_BACKENDS, Roster};
use tribune_storage::home::Home;

use super::{Found, fail, fine, warn};
use crate::daemon;

/// Nothing where there is nobody to try.
pub(super) fn check(home: &Home) -> Option<Found> {
    let Ok(status) = daemon::ask(home, "daemon.status", &json!({})) else { return at_rest(home) };
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
            "UNGOVERNED: `{subject}` is not run, because it did what nobody allowed ({detail}): look at its settings, then run \
             `tribune agents test {agent}`"
        )));
    }
    let others: Vec<&Value> = all.iter().filter(|canary| canary["backend"] != canary["subject"]).collect();
    if others.is_empty() {
        return None;
    }
    if let Some(unknown) = others.iter().find(|canary| canary["state"] == "not_tried") {
        let (subject, detail) = (word(unknown, "subject"), word(unknown, "detail"));
        return Some(warn(format!(
            "`{subject}` is not run, because whether the gate holds it is not known: {detail}"
        )));
    }
    if let Some(unknown) = others.iter().find(|canary| canary["state"] == "untried") {
        let (subject, detail) = (word(unknown, "subject"), word(unknown, "detail"));
        return Some(warn(format!(
            "`{subject}` is run because canary.untried names it, and whether the gate holds it is not known: {detail}"
        )));
    }
    if others.iter().any(|canary| canary["state"] == "off") {
        return Some(warn(
            "nobody tries whether the gate holds the agents of other makes: canary.every in config.json5 is \"off\"",
        ));
    }
    let live = names("live");
    let waiting = others.len() - live.len();
    Some(match (live.is_empty(), waiting) {
        (false, 0) => fine(format!("the gate holds {}", live.join(", "))),
        _ => fine(format!("{} of {} tried so far; the rest is on the way", live.len(), others.len())),
    })
}

fn at_rest(home: &Home) -> Option<Found> {
    let roster = Roster::load(&home.root().join("data").join("agent-roster.jsonl")).ok()?;
    let has_others = roster.iter().any(|agent| CLI_BACKENDS.contains(&agent.backend.as_str()));
    has_others.then(|| fine("the daemon tries whether the gate holds the agents of other makes when it runs"))
}
