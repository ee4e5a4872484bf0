//! The lines about agents that a daemon prints after its start: which model each uses, and which are scripted.

use serde_json::Value;
use tribune_runtime::rehearsal::BACKEND;
use tribune_storage::home::Home;

use crate::hints::next_command;
use crate::output::{Paint, clean};
use crate::providers::inventory::{keys_to_set, usable_model};

/// Agents that are listed by name; the rest is counted.
const MAX_NAMED: usize = 5;

/// The rehearsal agents.
pub(crate) fn rehearsing(inventory: &Value) -> Vec<String> {
    let rehearsing = agents(inventory).filter(|agent| agent["backend"] == BACKEND);
    rehearsing.filter_map(|agent| agent["agent_id"].as_str()).map(clean).collect()
}

/// The model of each agent, and what to do for agents that lack one.
pub(crate) fn model_lines(inventory: &Value, home: &Home, paint: Paint) -> Vec<String> {
    let mut lines = agent_lines(inventory, paint);
    let rehearsing = rehearsing(inventory);
    if let Some(text) = rehearsal(&rehearsing) {
        lines.push(paint.unsure(&text));
        lines.extend(real_model_hint(inventory, home));
    }
    lines
}

fn agents(inventory: &Value) -> impl Iterator<Item = &Value> {
    inventory["agents"].as_array().into_iter().flatten()
}

fn agent_lines(inventory: &Value, paint: Paint) -> Vec<String> {
    let others: Vec<&Value> = agents(inventory).filter(|agent| agent["backend"] != BACKEND).collect();
    let word = |value: &Value| clean(value.as_str().unwrap_or_default());
    let line = |agent: &&Value| {
        let id = word(&agent["agent_id"]);
        match (agent["model"].as_str(), agent["fault"].as_str()) {
            (Some(model), None) => format!("agent `{id}` uses {}", clean(model)),
            (Some(model), Some(fault)) => {
                paint.unsure(&format!("agent `{id}` cannot use its model {}: {}", clean(model), clean(fault)))
            }
            (None, Some(fault)) => {
                paint.unsure(&format!("agent `{id}` has no usable model: {}", clean(fault)))
            }
            (None, None) => format!("agent `{id}` runs on {}", word(&agent["backend"])),
        }
    };
    let mut lines: Vec<String> = others.iter().take(MAX_NAMED).map(line).collect();
    if others.len() > MAX_NAMED {
        lines.push(format!(
            "and {} more: `tribune models` lists the agents of each model",
            others.len() - MAX_NAMED
        ));
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

/// What to do to use a real model.
fn real_model_hint(inventory: &Value, home: &Home) -> Option<String> {
    if let Some(model) = usable_model(inventory) {
        let chat = next_command(home, &format!("chat --model {}", clean(model)));
        return Some(format!("for a real model: {chat}"));
    }
    let keys = keys_to_set(inventory);
    (!keys.is_empty()).then(|| format!("for a real model: {keys}, and start again"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(inventory: &Value) -> String {
        model_lines(inventory, &Home::at("/srv/home"), Paint::OFF).join("\n")
    }

    #[test]
    fn summary_lists_model_or_fault_of_each_agent() {
        let inventory = json!({
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
             agent `bob` cannot use its model b:m: Missing B_KEY\\u{1b}[2J\n\
             agent `eve` has no usable model: it has no model\n\
             agent `zoe` runs on puppet\n\
             agent `main` is the rehearsal agent: scripted, no model, no key, no network\n\
             for a real model: export A_KEY for a or B_KEY for b, and start again";
        assert_eq!(summary(&inventory), wanted);
    }

    #[test]
    fn summary_suggests_a_usable_model() {
        let inventory = json!({
            "providers": [{ "provider": "a", "key_env": "A_KEY", "key_set": true, "enabled": true,
                "models": [{ "model": "a:l" }, { "model": "a:m", "default": true }] }],
            "agents": [{ "agent_id": "main", "backend": "rehearsal" }],
        });
        assert!(summary(&inventory).ends_with("for a real model: tribune chat --model a:m --home /srv/home"));
        assert_eq!(summary(&json!({})), "");
    }
}
