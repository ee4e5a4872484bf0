//! `send_message`: puts a message into the mailbox of another agent.

use serde_json::{Value, json};
use tribune_ledger::Timestamp;
use tribune_records::outcome::{AccessLog, Resource, ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_registry::mailbox::{MAX_TEXT_BYTES, Mailbox, MailboxError};
use tribune_runtime::{AgentId, ToolSpec};

use super::input::Input;

pub(super) const NAME: &str = "send_message";

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct SendMessage {
    to: AgentId,
    text: String,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Send a message to another agent. It is kept until that agent's next turn, which begins with \
                      it; there is no answer before that. The other agent sees your id as the sender and nothing \
                      of your conversation, so say everything it needs to know."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "to": { "type": "string", "description": "Id of the agent, such as `main`." },
                "text": {
                    "type": "string",
                    "minLength": 1,
                    "description": format!("What to say, at most {MAX_TEXT_BYTES} bytes.")
                }
            },
            "required": ["to", "text"],
            "additionalProperties": false
        }),
    }
}

impl SendMessage {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["to", "text"])?;
        let to = input.text("to")?;
        let to =
            to.parse().map_err(|_| format!("`to` is the id of an agent, and `{}` is none", shown(to)))?;
        let text = input.text("text")?;
        // Checked before the text is copied.
        if text.len() > MAX_TEXT_BYTES {
            return Err(MailboxError::TextTooLong(text.len()).to_string());
        }
        Ok(Self { to, text: text.to_owned() })
    }

    pub(super) const fn to(&self) -> &AgentId {
        &self.to
    }

    pub(super) fn run(&self, from: &AgentId, post: &Post<'_>, trail: &AccessLog) -> ToolAnswer {
        post.send(from, &self.to, &self.text, trail)
    }
}

/// What it takes to deliver a mailbox message.
pub(super) struct Post<'a> {
    pub(super) mailbox: &'a Mailbox,
    pub(super) at: Timestamp,
    pub(super) known: &'a dyn Fn(&AgentId) -> bool,
}

impl Post<'_> {
    pub(super) fn send(&self, from: &AgentId, to: &AgentId, text: &str, trail: &AccessLog) -> ToolAnswer {
        if !(self.known)(to) {
            return Err(unknown(to));
        }
        let id = fresh_id()?;
        trail.write(Resource::MailboxMessage(id.clone()))?;
        match self.mailbox.send(from.as_str(), to, text, self.at, &id) {
            Ok(_) => Ok(format!("sent to {to}")),
            // The error text for the operator names a file of the host, so the agent gets another one.
            Err(MailboxError::Io { .. }) => Err(ToolError::new(
                ToolErrorCode::Failed,
                "the mailbox cannot be written at the moment: try again later, or tell the operator",
            )),
            Err(refused @ (MailboxError::AgentFull(_) | MailboxError::Full)) => {
                Err(ToolError::new(ToolErrorCode::TooLarge, refused.to_string()))
            }
            Err(refused) => Err(ToolError::new(ToolErrorCode::InvalidInput, refused.to_string())),
        }
    }
}

/// The error for an agent that does not exist.
pub(super) fn unknown(to: &AgentId) -> ToolError {
    ToolError::new(ToolErrorCode::NotFound, format!("there is no agent `{to}` to send to: check the id"))
}

/// A unique id: 16 random bytes in hex.
pub(super) fn fresh_id() -> Result<String, ToolError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| {
        ToolError::new(ToolErrorCode::Failed, "the system gave no random bytes: try again later")
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
