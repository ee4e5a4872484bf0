//! The last calls that the law refused, for whoever wonders.

use serde_json::{Value, json};
use tribune_host::Reader;
use tribune_host::store::{Filter, Stored};
use tribune_ledger::EntryQuality;

use crate::chat::rules;
use crate::error::CliError;
use crate::output::{Paint, excerpt, short_cid};
use crate::sessions::cell;

/// Verdicts that are looked through, and denials that are shown.
const LOOKED_AT: usize = 500;
const SHOWN: usize = 5;

/// Characters of a reason.
const REASON_CHARS: usize = 200;

/// The last calls that were refused, in one session or in all, newest last.
pub(crate) fn last(reader: &Reader, session: Option<&str>) -> Result<Vec<Value>, CliError> {
    let entity_id = session.map(str::to_owned);
    let filter = Filter { entity_id, quality: Some(EntryQuality::PolicyVerdict) };
    let denied = |stored: &Stored| {
        let verdict: Value = serde_json::from_str(&stored.entry.payload).ok()?;
        // Those about the list of tools belong to no call.
        let is_one = verdict["decision"] == "deny" && !verdict["input_hash"].is_null();
        is_one.then(|| {
            json!({
                "cid": stored.entry.cid, "at": stored.entry.timestamp, "session_key": stored.entry.entity_id,
                "tool": verdict["tool"], "rules": verdict["rules"], "reason": verdict["reason"],
            })
        })
    };
    let mut found: Vec<Value> = reader.tail(&filter, LOOKED_AT)?.iter().filter_map(denied).collect();
    Ok(found.split_off(found.len().saturating_sub(SHOWN)))
}

/// The same for people, a line for each.
pub(crate) fn lines(denials: &[Value], paint: Paint) -> Vec<String> {
    if denials.is_empty() {
        return vec!["  nothing".to_owned()];
    }
    let line = |denial: &Value| {
        let reason = excerpt(denial["reason"].as_str().unwrap_or_default(), REASON_CHARS);
        let cid = short_cid(denial["cid"].as_str().unwrap_or_default());
        format!("  {} ({}): {reason}  {}", cell(&denial["tool"]), rules(denial), paint.faint(&cid))
    };
    let why = paint.faint("  why: tribune law explain ENTRY");
    denials.iter().map(line).chain(std::iter::once(why)).collect()
}
