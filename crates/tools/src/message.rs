//! `message`: sends a message to another agent or to an outside channel.
//!
//! A recipient has a type: `agent:ID` is another agent of this instance, `channel:NAME` leads out of it. A text may be one of
//! the operator's templates; rules may be milder for those, so the tool checks byte for byte that the text equals the template
//! it names.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};
use tribune_records::outcome::{AccessLog, ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_registry::mailbox::{MAX_TEXT_BYTES, MailboxError};
use tribune_runtime::{AgentId, ToolSpec};

use super::input::Input;
use super::send_message::{Post, unknown};

pub(super) const NAME: &str = "message";

/// Maximum bytes of a template's or channel's name.
const MAX_NAME_BYTES: usize = 64;

/// Maximum number of attachments.
const MAX_ATTACHMENTS: usize = 16;

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Message {
    to: Recipient,
    text: String,
    template: Option<String>,
}

/// The recipient.
#[derive(Debug)]
enum Recipient {
    Agent(AgentId),
    Channel(String),
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Send a message to an agent of this instance (`agent:ID`) or to a channel that the operator has set \
                      up (`channel:NAME`). An agent finds it at the beginning of its next turn. With `template` the \
                      text must be exactly the operator's template of that name."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "to": {
                    "type": "string",
                    "description": "`agent:ID` or `channel:NAME`; a bare name is that of an agent."
                },
                "text": {
                    "type": "string",
                    "minLength": 1,
                    "description": format!("What to say, at most {MAX_TEXT_BYTES} bytes.")
                },
                "template": { "type": "string", "description": "Name of the template that the text is." },
                "attachments": {
                    "type": "array",
                    "items": { "type": "string" },
                    "maxItems": MAX_ATTACHMENTS,
                    "description": "Files to send along, relative to the workspace. Messages to agents take none."
                }
            },
            "required": ["to", "text"],
            "additionalProperties": false
        }),
    }
}

impl Message {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["to", "text", "template", "attachments"])?;
        let to = Recipient::new(input.text("to")?)?;
        let text = input.text("text")?;
        if text.len() > MAX_TEXT_BYTES {
            return Err(MailboxError::TextTooLong(text.len()).to_string());
        }
        let template = input.optional_text("template")?;
        if let Some(name) = template.filter(|name| !is_name(name)) {
            return Err(format!(
                "`template` is a name of lowercase letters, digits, `-` and `_`, not `{}`",
                shown(name)
            ));
        }
        let attachments = input.optional_texts("attachments", MAX_ATTACHMENTS)?.unwrap_or_default();
        if matches!(to, Recipient::Agent(_)) && !attachments.is_empty() {
            return Err(
                "a message to an agent takes no `attachments`: say what is needed in `text`".to_owned()
            );
        }
        Ok(Self { to, text: text.to_owned(), template: template.map(str::to_owned) })
    }

    pub(super) fn run(&self, from: &AgentId, home: &Path, post: &Post<'_>, trail: &AccessLog) -> ToolAnswer {
        if let Some(name) = &self.template {
            self.check(name, home)?;
        }
        match &self.to {
            Recipient::Agent(to) => post.send(from, to, &self.text, trail),
            Recipient::Channel(name) => Err(no_channel(name)),
        }
    }

    /// Refuses a recipient that does not exist.
    pub(super) fn check_recipient(&self, known: &dyn Fn(&AgentId) -> bool) -> Result<(), ToolError> {
        match &self.to {
            Recipient::Agent(to) if known(to) => Ok(()),
            Recipient::Agent(to) => Err(unknown(to)),
            Recipient::Channel(name) => Err(no_channel(name)),
        }
    }

    /// Checks that the text equals the template it names.
    fn check(&self, name: &str, home: &Path) -> Result<(), ToolError> {
        let missing = || {
            let sentence = format!(
                "there is no template `{name}` here: leave `template` out, or ask the operator, who keeps them as \
                 templates/NAME.txt"
            );
            ToolError::new(ToolErrorCode::NotFound, sentence)
        };
        let file = File::open(home.join("templates").join(format!("{name}.txt"))).map_err(|_| missing())?;
        let mut template = String::new();
        file.take(MAX_TEXT_BYTES as u64 + 2).read_to_string(&mut template).map_err(|_| missing())?;
        if template.trim_end_matches('\n') != self.text.trim_end_matches('\n') {
            let sentence =
                format!("`text` is not the template `{name}`: send it exactly, or leave `template` out");
            return Err(ToolError::new(ToolErrorCode::Conflict, sentence));
        }
        Ok(())
    }
}

impl Recipient {
    fn new(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("channel", name)) if is_name(name) => Ok(Self::Channel(name.to_owned())),
            Some(("agent", id)) => id.parse().map(Self::Agent).map_err(|_| ()),
            None => text.parse().map(Self::Agent).map_err(|_| ()),
            Some(_) => Err(()),
        }
        .map_err(|()| format!("`to` is `agent:ID` or `channel:NAME`, and `{}` is neither", shown(text)))
    }
}

fn no_channel(name: &str) -> ToolError {
    let sentence = format!(
        "no channel of this name is configured here (`{name}`): write to an agent, or ask the operator"
    );
    ToolError::new(ToolErrorCode::Unavailable, sentence)
}

fn is_name(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(word)
}
