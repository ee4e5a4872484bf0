//! What a daemon says of its agents when it has started: which model each of them thinks with, and that a rehearsal is one.

use serde_json::Value;
use tribune_agents::rehearsal::BACKEND;
use tribune_host::Home;

use crate::output::{Paint, clean};
use crate::providers::inventory::{keys_to_set, usable_model};
use crate::up::next_command;

/// Agents of a kind that are named; a house with more knows what it has.
const MAX_NAMED: usize = 5;

/// The agents that only rehearse.
pub(crate) fn rehearsing(survey: &Value) -> Vec<String> {
    let rehearsing = agents(survey).filter(|agent| agent["backend"] == BACKEND);
    rehearsing.filter_map(|agent| agent["agent_id"].as_str()).map(clean).collect()
}

/// Who thinks with what, and what is to be done about those who cannot.
pub(crate) fn minds(survey: &Value, home: &Home, paint: Paint) -> Vec<String> {
    let mut lines = thinking(survey, paint);
    let rehearsing = rehearsing(survey);
    if let Some(said) = rehearsal(&rehearsing) {
        lines.push(paint.unsure(&said));
        lines.extend(way_out(survey, home));
    }
    lines
}

fn agents(survey: &Value) -> impl Iterator<Item = &Value> {
    survey["agents"].as_array().into_iter().flatten()
}

fn thinking(survey: &Value, paint: Paint) -> Vec<String> {
    let others: Vec<&Value> = agents(survey).filter(|agent| agent["backend"] != BACKEND).collect();
    let word = |value: &Value| clean(value.as_str().unwrap_or_default());
    let line = |agent: &&Value| {
        let id = word(&agent["agent_id"]);
        match (agent["model"].as_str(), agent["fault"].as_str()) {
            (Some(model), None) => format!("agent `{id}` uses {}", clean(model)),
            (Some(model), Some(fault)) => paint.unsure(&format!(
                "agent `{id}` is to use {}, and cannot: {}",
                clean(model),
                clean(fault)
            )),
            (None, Some(fault)) => paint.unsure(&format!("agent `{id}` cannot think: {}", clean(fault))),
            (None, None) => format!("agent `{id}` runs on {}", word(&agent["backend"])),
        }
    };
    let mut lines: Vec<String> = others.iter().take(MAX_NAMED).map(line).collect();
    if others.len() > MAX_NAMED {
        lines.push(format!("and {} more: `tribune models` lists who uses what", others.len() - MAX_NAMED));
    }
    lines
}

fn rehearsal(agents: &[String]) -> Option<String> {
    let named: Vec<String> = agents.iter().take(MAX_NAMED).map(|id| format!("`{id}`")).collect();
    let more = agents.len() - named.len();
    let names = if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) };
    match agents.len() {
        0 => None,
        1 => Some(format!("agent {names} is the rehearsal agent: scripted, no model, no key, no network")),
        _ => Some(format!("agents {names} are rehearsal agents: scripted, no model, no key, no network")),
    }
}

/// How to get from a rehearsal to a model.
fn way_out(survey: &Value, home: &Home) -> Option<String> {
    if let Some(model) = usable_model(survey) {
        let chat = next_command(home, &format!("chat --model {}", clean(model)));
        return Some(format!("for a real model: {chat}"));
    }
    let keys = keys_to_set(survey);
    (!keys.is_empty()).then(|| format!("for a real model: {keys}, and start again"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(survey: &Value) -> String {
        minds(survey, &Home::at("/srv/home"), Paint::OFF).join("\n")
    }

    #[test]
    fn each_agent_is_told_with_what_it_uses_or_lacks() {
        let survey = json!({
            "providers": [
                { "provider": "a", "key_env": "A_KEY", "key_set": false, "enabled": true, "models": [{ "model": "a:m" }] },
                { "provider": "b", "key_env": "B_KEY", "key_set": false, "enabled": true, "models": [{ "model": "b:m" }] },
                { "provider": "off", "key_env": "C_KEY", "key_set": false, "enabled": false, "models": [{}] },
                { "provider": "bare", "key_env": "D_KEY", "key_set": false, "enabled": true, "models": [] },
                { "provider": "here", "key_env": null, "key_set": false, "enabled": true, "models": [] },
            ],
            "agents": [
                { "agent_id": "main", "backend": "rehearsal", "model": null, "fault": null },
                { "agent_id": "ada", "backend": "native", "model": "a:m", "fault": null },
                { "agent_id": "bob", "backend": "native", "model": "b:m", "fault": "Missing B_KEY\u{1b}[2J" },
                { "agent_id": "eve", "backend": "native", "model": null, "fault": "it has no model" },
                { "agent_id": "zoe", "backend": "puppet", "model": null, "fault": null },
            ],
        });
        let wanted = "agent `ada` uses a:m\n\
             agent `bob` is to use b:m, and cannot: Missing B_KEY\\u{1b}[2J\n\
             agent `eve` cannot think: it has no model\n\
             agent `zoe` runs on puppet\n\
             agent `main` is the rehearsal agent: scripted, no model, no key, no network\n\
             for a real model: export A_KEY for a or B_KEY for b, and start again";
        assert_eq!(said(&survey), wanted);
    }

    #[test]
    fn a_model_that_is_there_is_pointed_at() {
        let survey = json!({
            "providers": [{ "provider": "a", "key_env": "A_KEY", "key_set": true, "enabled": true,
                "models": [{ "model": "a:l" }, { "model": "a:m", "default": true }] }],
            "agents": [{ "agent_id": "main", "backend": "rehearsal" }],
        });
        assert!(said(&survey).ends_with("for a real model: tribune chat --model a:m --home /srv/home"));
        assert_eq!(said(&json!({})), "");
    }
}
