//! One line of the roster, and its possible faults.

use serde::{Deserialize, Serialize};
use tribune_constitution::ApprovalMode;
use tribune_records::agents::is_unregistered;
use tribune_runtime::AgentId;
use tribune_runtime::session::NameError;

use super::{EVERY_AGENT, MAX_LINE_BYTES, RosterAgent};

/// Longest display name or model in characters.
const MAX_NAME_CHARS: usize = 128;

/// A fault of one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    #[error("the line has more than {MAX_LINE_BYTES} bytes: shorten it")]
    TooLong,
    #[error("this is not a valid agent: {what} (column {column})")]
    Form { what: String, column: usize },
    #[error("{0}: choose another id")]
    Id(NameError),
    #[error("`{0}` is reserved for callers that are not in the roster: choose another id")]
    Reserved(AgentId),
    #[error(
        "`{text}` cannot be a {field}: use lowercase letters, digits, `-` and `_`, beginning with a letter or digit"
    )]
    Word { field: &'static str, text: String },
    #[error("the {0} is empty, too long or holds control characters: use one short line")]
    Name(&'static str),
    #[error(
        "the pubkey does not have the form `ed25519:` and 64 lowercase hex digits: print it again with the agent's own tool"
    )]
    PublicKey,
    #[error(
        "`{0}` in `accepts_from` is not the id of an agent: name agents, or `{EVERY_AGENT}` for all of the roster"
    )]
    Sender(String),
    #[error("agent `{id}` is already on line {line}: remove one of the two, or choose another id")]
    SameId { id: AgentId, line: usize },
    #[error("agent `{id}` on line {line} has the same pubkey: give each agent a key of its own")]
    SameKey { id: AgentId, line: usize },
}

/// An agent as it is in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default = "default_backend")]
    backend: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default = "default_mandate")]
    mandate: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<ApprovalMode>,
    #[serde(default)]
    standing: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pubkey: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    accepts_from: Vec<String>,
}

fn default_backend() -> String {
    "rehearsal".to_owned()
}

fn default_mandate() -> String {
    "default".to_owned()
}

impl From<RosterAgent> for Line {
    fn from(agent: RosterAgent) -> Self {
        let RosterAgent { id, name, backend, profile, model, mandate, mode, standing, pubkey, accepts_from } =
            agent;
        Self { id: id.into(), name, backend, profile, model, mandate, mode, standing, pubkey, accepts_from }
    }
}

/// Serializes an agent to a line without newline.
pub(super) fn print(agent: RosterAgent) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Line::from(agent))
}

/// Parses the agent on a line without newline.
pub(super) fn parse(line: &[u8]) -> Result<RosterAgent, LineFault> {
    if line.len() > MAX_LINE_BYTES {
        return Err(LineFault::TooLong);
    }
    let Line { id, name, backend, profile, model, mandate, mode, standing, pubkey, accepts_from } =
        serde_json::from_slice(line).map_err(form)?;
    let id: AgentId = id.parse().map_err(LineFault::Id)?;
    // Otherwise an unregistered caller could act as this agent without proving its identity.
    if is_unregistered(id.as_str()) {
        return Err(LineFault::Reserved(id));
    }
    for (field, text) in [("backend", &backend), ("mandate", &mandate)] {
        if !is_word(text) {
            return Err(LineFault::Word { field, text: text.chars().take(MAX_NAME_CHARS).collect() });
        }
    }
    if let Some(text) = profile.as_ref().filter(|text| !is_word(text)) {
        return Err(LineFault::Word { field: "profile", text: text.chars().take(MAX_NAME_CHARS).collect() });
    }
    for (field, text) in [("name", &name), ("model", &model)] {
        if text.as_ref().is_some_and(|text| !is_name(text)) {
            return Err(LineFault::Name(field));
        }
    }
    if pubkey.as_ref().is_some_and(|pubkey| !is_pubkey(pubkey)) {
        return Err(LineFault::PublicKey);
    }
    if let Some(text) = accepts_from.iter().find(|text| *text != EVERY_AGENT && !is_word(text)) {
        return Err(LineFault::Sender(text.chars().take(MAX_NAME_CHARS).collect()));
    }
    Ok(RosterAgent { id, name, backend, profile, model, mandate, mode, standing, pubkey, accepts_from })
}

/// The message of serde without its line number, which counts within this one line.
fn form(error: serde_json::Error) -> LineFault {
    let (line, column) = (error.line(), error.column());
    let what = error.to_string();
    let what = what.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&what);
    LineFault::Form { what: what.to_owned(), column }
}

/// Whether the text has the form of an agent id, which is safe as a file name.
fn is_word(text: &str) -> bool {
    text.parse::<AgentId>().is_ok()
}

fn is_name(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MAX_NAME_CHARS && !text.chars().any(char::is_control)
}

fn is_pubkey(text: &str) -> bool {
    text.strip_prefix("ed25519:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}
