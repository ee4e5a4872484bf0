//! The sandboxes of a session's commands: mode, limits and how each command ended, from the ledger.

use serde_json::{Map, Value, json};
use tribune_client::{ClientError, RpcClient};

use crate::output::{Paint, cell, table};
use crate::workspace::bytes;

/// Commands that are listed.
const MAX_ENTRIES: u32 = 20;

/// The newest commands of a session with their sandboxes, oldest first.
pub(crate) async fn of_session(client: &mut RpcClient, key: &str) -> Result<Value, ClientError> {
    let mut entries = Vec::new();
    for quality in ["session_lifecycle", "tool_result"] {
        let params = json!({ "entity_id": key, "quality": quality, "limit": MAX_ENTRIES });
        let page = client.call("ledger.tail", &params).await?;
        let newest = page["entries"].as_array().into_iter().flatten();
        entries.extend(newest.filter_map(|entry| sandbox_entry(&entry["entry"]["payload"])));
    }
    Ok(Value::Array(entries))
}

/// The sandbox that a ledger entry records, if it records one.
fn sandbox_entry(payload: &Value) -> Option<Value> {
    if payload["event"] == "run_started" {
        let limits =
            [("memoryBytes", "memory_bytes"), ("processes", "processes"), ("cpuPercent", "cpu_percent")];
        let limits: Map<String, Value> =
            limits.iter().map(|(name, own)| ((*name).to_owned(), payload[*own].clone())).collect();
        return Some(json!({
            "tool": "run", "ended": null, "mode": payload["sandbox"], "limited_by": payload["limited_by"], "limits": limits,
        }));
    }
    let sandbox = &payload["sandbox"];
    // For a command that was abandoned, the sandbox is unknown.
    let is_given_up =
        payload["tool"] == "exec" && matches!(payload["outcome"].as_str(), Some("cancelled" | "interrupted"));
    if sandbox.is_null() && !is_given_up {
        return None;
    }
    Some(json!({
        "tool": payload["tool"], "ended": payload["outcome"], "mode": sandbox["mode"], "limited_by": sandbox["limited_by"],
        "limits": sandbox.get("limits").cloned().unwrap_or(json!({})),
    }))
}

/// The entries as a table; `None` if there are none.
pub(crate) fn text(entries: &Value, paint: Paint) -> Option<String> {
    let row = |one: &Value| {
        let words = LIMITS.iter().filter_map(|name| limit(name, one["limits"][name].as_u64()?));
        let words: Vec<String> = words.collect();
        let limits = if words.is_empty() { "-".to_owned() } else { words.join(", ") };
        let ended = cell(&one["ended"]).replace('_', " ");
        vec![cell(&one["tool"]), ended, cell(&one["mode"]), cell(&one["limited_by"]), limits]
    };
    let rows: Vec<Vec<String>> = entries.as_array()?.iter().map(row).collect();
    (!rows.is_empty()).then(|| table(&["COMMAND", "ENDED", "SANDBOX", "LIMITED BY", "LIMITS"], &rows, paint))
}

/// The limits that are shown, in this order.
const LIMITS: [&str; 4] = ["memoryBytes", "processes", "cpuPercent", "wallMs"];

/// A limit in words. Limits that are the same for every command are left out.
fn limit(name: &str, most: u64) -> Option<String> {
    match name {
        "memoryBytes" => Some(format!("{} of memory", bytes(most))),
        "processes" => Some(format!("{most} processes")),
        "cpuPercent" => Some(format!("{most} % of a core")),
        "wallMs" => Some(format!("{} s", most / 1000)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_runs_are_listed_in_one_form() {
        let command = json!({ "tool": "exec", "outcome": "timed_out", "sandbox": {
            "mode": "full", "limited_by": "cgroup v2", "limits": { "memoryBytes": 1 << 30, "wallMs": 9000, "openFiles": 9 },
        } });
        let run = json!({
            "event": "run_started", "sandbox": "full", "limited_by": "rlimits only", "memory_bytes": 1 << 20, "processes": 5,
            "cpu_percent": 100,
        });
        let bare = json!({ "tool": "exec", "sandbox": { "mode": "off" } });
        let given_up = json!({ "tool": "exec", "outcome": "cancelled" });
        let denied = json!({ "tool": "exec", "outcome": "denied" });
        let others = [json!({ "tool": "read", "outcome": "cancelled" }), json!({ "event": "opened" })];
        let all = [&run, &command, &bare, &given_up, &denied, &others[0], &others[1]];
        let entries: Vec<Value> = all.into_iter().filter_map(sandbox_entry).collect();
        let shown = text(&Value::Array(entries), Paint::OFF).unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 5, "{shown}");
        assert!(lines[1].ends_with("1024 KiB of memory, 5 processes, 100 % of a core"), "{shown}");
        assert!(lines[2].starts_with("exec") && lines[2].ends_with("1024 MiB of memory, 9 s"), "{shown}");
        assert!(lines[2].contains("timed out") && lines[4].contains("cancelled"), "{shown}");
        assert!(lines[3].contains("off") && lines[3].ends_with('-'), "{shown}");
        assert_eq!(text(&json!([]), Paint::OFF), None);
    }
}
