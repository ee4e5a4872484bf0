//! The lines of the mailbox file: `{"id","to","from","text","at"}` and `{"ack","at"}`.
//!
//! Other programs write lines too, so unknown fields are ignored; known fields must be valid.

use serde::{Deserialize, Serialize};
use tribune_ledger::Timestamp;
use tribune_runtime::AgentId;

use super::{MAX_NAME_BYTES, MAX_TEXT_BYTES, MailboxMessage};

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Message(MailboxMessage),
    /// The message with this id was read.
    Ack(String),
}

/// The fields of both kinds of line; the `ack` field decides which kind it is.
#[derive(Debug, Serialize, Deserialize)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    ack: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    at: String,
}

impl Line {
    /// Parses a line; `None` if it is malformed.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let Fields { ack, id, to, from, text, at } = serde_json::from_slice(line).ok()?;
        // Other programs may write timestamps with another precision; they are normalized here.
        let at = Timestamp::new(at.parse().ok()?);
        if let Some(ack) = ack {
            return is_name(&ack).then_some(Self::Ack(ack));
        }
        let to: AgentId = to?.parse().ok()?;
        let (id, from, text) = (id?, from?, text?);
        let fits = is_name(&id) && is_name(&from) && !text.is_empty() && text.len() <= MAX_TEXT_BYTES;
        fits.then_some(Self::Message(MailboxMessage { id, to, from, text, at }))
    }
}

/// Serializes a message to a line with newline.
pub(super) fn of_message(message: MailboxMessage) -> serde_json::Result<Vec<u8>> {
    let MailboxMessage { id, to, from, text, at } = message;
    let (id, to, from, text) = (Some(id), Some(to.into()), Some(from), Some(text));
    ended(&Fields { ack: None, id, to, from, text, at: at.to_string() })
}

/// Serializes an acknowledgement to a line with newline.
pub(super) fn of_ack(id: &str, at: Timestamp) -> serde_json::Result<Vec<u8>> {
    let ack = Some(id.to_owned());
    ended(&Fields { ack, id: None, to: None, from: None, text: None, at: at.to_string() })
}

fn ended(fields: &Fields) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(fields)?;
    line.push(b'\n');
    Ok(line)
}

/// Whether a text is a valid id or sender. A sender is printed in front of its message, so brackets, spaces and line breaks
/// are forbidden, because they could fake another message.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+@=:/-".contains(&byte))
}
