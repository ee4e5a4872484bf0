//! The newest calls that the law denied.

use serde_json::{Value, json};
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::last_denials;

use super::rules;
use crate::error::CliError;
use crate::output::{Paint, cell, excerpt, short_cid};

/// Characters of a reason that are shown.
const REASON_CHARS: usize = 200;

/// The newest denied calls of one session or of all, newest last.
pub(crate) fn last(reader: &Reader, session: Option<&str>) -> Result<Vec<Value>, CliError> {
    Ok(last_denials(reader, session)?.iter().map(|denial| json!(denial)).collect())
}

/// The denials as text, one line each.
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
