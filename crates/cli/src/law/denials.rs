//! The last calls that the law refused, for whoever wonders.

use serde_json::{Value, json};
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::last_denials;

use crate::chat::rules;
use crate::error::CliError;
use crate::output::{Paint, excerpt, short_cid};
use crate::sessions::cell;

/// Characters of a reason.
const REASON_CHARS: usize = 200;

/// The last calls that were refused, in one session or in all, newest last.
pub(crate) fn last(reader: &Reader, session: Option<&str>) -> Result<Vec<Value>, CliError> {
    Ok(last_denials(reader, session)?.iter().map(|denial| json!(denial)).collect())
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
