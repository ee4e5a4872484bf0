//! Slash commands that Tribune answers itself, without sending them to the agent. They only show information and never decide
//! anything, because a program may have written the prompt.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use tribune_records::spend::report::{SpendGrouping, SpendLine};
use tribune_runtime::ContentBlock;

use super::connection::Connection;
use super::wire::Fault;
use crate::api_types::ApprovalList;
use crate::principal::Principal;

/// Maximum lines of an answer.
const MAX_LINES: usize = 50;

/// Answered in a turn of the session, as on every other channel.
const TURN_COMMAND: (&str, &str) = ("tribune", "Show the rules and permissions of this session");

const COMMANDS: [(&str, &str); 3] = [
    ("agents", "List the agents of this daemon"),
    ("approvals", "List the calls that wait for approval"),
    ("spend", "Show the model costs per day"),
];

/// The agent's own `available_commands_update`, with the other members of its message.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OfAgent {
    pub(super) said: Map<String, Value>,
    pub(super) beside: Map<String, Value>,
}

/// The `available_commands_update` with Tribune's commands (for the operator only) and the agent's, and with the other members of
/// the agent's update. A Tribune command hides an agent's command of the same name.
pub(super) fn update(who: &Principal, of_agent: &OfAgent) -> Value {
    let tribune = || std::iter::once(&TURN_COMMAND).chain(&COMMANDS);
    let own = tribune().filter(|_| who.operator().is_ok());
    let own = own.map(|(name, description)| json!({ "name": name, "description": description }));
    let others = of_agent.said.get("availableCommands").and_then(Value::as_array).into_iter().flatten();
    let others = others.filter(|command| tribune().all(|(name, _)| command["name"] != *name));
    let all: Vec<Value> = own.chain(others.cloned()).collect();
    let mut update = of_agent.said.clone();
    update.insert("sessionUpdate".to_owned(), "available_commands_update".into());
    update.insert("availableCommands".to_owned(), all.into());
    Value::Object(update)
}

/// The answer to a prompt that is exactly one of Tribune's commands.
pub(super) async fn answer(
    connection: &Connection,
    content: &[ContentBlock],
) -> Result<Option<String>, Fault> {
    let [ContentBlock::Text { text }] = content else { return Ok(None) };
    let Some(word) = text.trim().strip_prefix('/') else { return Ok(None) };
    let (api, who) = (&connection.gateway.api, &connection.who);
    if who.operator().is_err() || !COMMANDS.iter().any(|(name, _)| *name == word) {
        return Ok(None);
    }
    let mut text = String::new();
    match word {
        "agents" => {
            let list = api.agents(who).await?;
            for agent in list.agents.iter().take(MAX_LINES) {
                let backend = agent.profile.as_deref().or(agent.backend.as_deref()).unwrap_or("unknown");
                let _ = writeln!(text, "- `{}`: {backend}, mandate {}", agent.agent_id, agent.mandate);
            }
        }
        "approvals" => {
            let list = ApprovalList { limit: Some(MAX_LINES), ..ApprovalList::default() };
            let page = api.approvals(who, list).await?;
            for waiting in &page.approvals {
                let _ = writeln!(
                    text,
                    "- `{}`: {} wants {} ({})",
                    waiting.id, waiting.agent_id, waiting.tool, waiting.reason
                );
            }
            match page.pending {
                0 => text.push_str("No call waits for approval."),
                _ => text
                    .push_str("\nDecide with `tribune approvals allow ID` or `tribune approvals deny ID`."),
            }
        }
        _ => {
            let report = api
                .readers
                .read(|reader| reader.spend_report(SpendGrouping::Day, None))
                .await
                .map_err(crate::error::ApiError::from)?;
            for line in report.lines.iter().rev().take(MAX_LINES) {
                let _ = writeln!(text, "- {}", spent(line));
            }
            if report.lines.is_empty() {
                text.push_str("No model requests yet.");
            }
        }
    }
    Ok(Some(text))
}

/// Formats one day of the spend report.
fn spent(line: &SpendLine) -> String {
    let input = line.input.saturating_add(line.cache_written);
    let SpendLine { name, requests, output, cache_read, .. } = line;
    let cost = if line.without_price == *requests { "no price".to_owned() } else { line.cost.to_string() };
    format!(
        "{name}: {cost} for {requests} requests ({input} tokens in, {cache_read} from a cache, {output} out)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spend_line_is_formatted() {
        let line = SpendLine {
            name: "2026-11-15".into(),
            requests: 3,
            input: 90,
            output: 20,
            cache_read: 7,
            cache_written: 10,
            cost: "0.25".parse().unwrap(),
            without_price: 1,
            estimated: 0,
        };
        assert_eq!(spent(&line), "2026-11-15: 0.25 for 3 requests (100 tokens in, 7 from a cache, 20 out)");
        let free = SpendLine { without_price: 3, ..line };
        assert!(spent(&free).starts_with("2026-11-15: no price for 3 requests"));
    }
}
