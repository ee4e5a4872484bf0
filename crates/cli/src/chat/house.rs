//! `/tribune` (and `/clawos`): how the law stands, and what it did in this conversation.

use serde_json::{Value, json};
use tribune_host::Reader;
use tribune_host::store::Filter;
use tribune_ledger::EntryQuality;

use super::talk::Talk;
use super::view::{View, rules};
use crate::approvals::{self, card};
use crate::error::CliError;
use crate::law::state::LawState;
use crate::output::{Paint, excerpt, short_cid};
use crate::sessions::cell;

/// Verdicts of the session that are looked through, and denials that are shown.
const LOOKED_AT: usize = 500;
const SHOWN: usize = 5;

/// Calls that wait, at most.
const MAX_WAITING: u32 = 20;

/// Characters of a reason.
const REASON_CHARS: usize = 200;

pub(super) async fn show(talk: &mut Talk<'_>, view: &mut View<'_>) -> Result<(), CliError> {
    let home = talk.home();
    let status = talk.call("daemon.status", &json!({})).await?;
    let law = LawState::ask(home, &status, talk.client().await?).await?;
    let mut page = talk.call("approval.list", &json!({ "limit": MAX_WAITING })).await?;
    for row in page["approvals"].as_array_mut().into_iter().flatten() {
        let shown = talk.call("approval.show", &json!({ "id": approvals::id_of(row) })).await?;
        row["what"] = card::what(&shown).into();
    }
    let denials = denials(&Reader::open(home)?, talk.key().as_str())?;
    let value = json!({ "law": law.value(), "denials": denials, "approvals": page["approvals"] });
    view.output().result(|paint| text(&law, &denials, &page, paint), &value)?;
    Ok(())
}

/// The last calls of a session that the law refused, newest last.
fn denials(reader: &Reader, session: &str) -> Result<Vec<Value>, CliError> {
    let filter = Filter { entity_id: Some(session.to_owned()), quality: Some(EntryQuality::PolicyVerdict) };
    let denied = |stored: &tribune_host::store::Stored| {
        let verdict: Value = serde_json::from_str(&stored.entry.payload).ok()?;
        // Those about the list of tools belong to no call.
        let is_one = verdict["decision"] == "deny" && !verdict["input_hash"].is_null();
        is_one.then(|| {
            json!({
                "cid": stored.entry.cid, "at": stored.entry.timestamp, "tool": verdict["tool"],
                "rules": verdict["rules"], "reason": verdict["reason"],
            })
        })
    };
    let mut found: Vec<Value> = reader.tail(&filter, LOOKED_AT)?.iter().filter_map(denied).collect();
    Ok(found.split_off(found.len().saturating_sub(SHOWN)))
}

fn text(law: &LawState, denials: &[Value], page: &Value, paint: Paint) -> String {
    let row = |(name, value): &(&str, String)| format!("{}{value}", paint.faint(&format!("{name:<13}")));
    let mut lines: Vec<String> = law.rows(paint).iter().map(row).collect();
    lines.push(paint.faint("denied here"));
    lines.extend(denials.iter().map(|denial| {
        let reason = excerpt(denial["reason"].as_str().unwrap_or_default(), REASON_CHARS);
        let cid = short_cid(denial["cid"].as_str().unwrap_or_default());
        format!("  {} ({}): {reason}  {}", cell(&denial["tool"]), rules(denial), paint.faint(&cid))
    }));
    if denials.is_empty() {
        lines.push("  nothing".to_owned());
    } else {
        lines.push(paint.faint("  why: tribune law explain ENTRY"));
    }
    if approvals::rows(page).next().is_some() {
        lines.push(paint.faint("waiting"));
        let table = approvals::list_text(page, "pending", paint);
        lines.extend(table.lines().map(|line| format!("  {line}")));
    }
    lines.join("\n")
}
