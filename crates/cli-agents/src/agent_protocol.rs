//! What a protocol brings: how lines are read and written, the first words, and how a turn goes.

use async_trait::async_trait;
use serde_json::Value;

use crate::connection::Link;
use crate::mcp_bridge::Served;
use crate::pool::Live;
use crate::profile::{Profile, Protocol};
use tribune_runtime::EventKind;
use tribune_runtime::content::ContentBlock;
use tribune_runtime::{RuntimeError, TurnInput};

/// A protocol that agents speak over their standard streams, one message per line.
#[async_trait]
pub(crate) trait Tongue: Send + Sync {
    /// The name of the backend that speaks it.
    fn backend(&self) -> &'static str;

    fn protocol(&self) -> Protocol;

    /// Bytes of one line of the agent's.
    fn max_line_bytes(&self) -> usize;

    /// The message on a line, if there is one.
    fn parse(&self, line: &str) -> Option<Message>;

    /// A line that asks the agent for something.
    fn request(&self, id: u64, method: &str, params: &Value) -> String;

    /// The line that refuses a question of the agent's to which nobody listens.
    fn refuse_unheard(&self, id: &Value, method: &str) -> String;

    /// Whether what is told is work that should not be done between two turns.
    fn is_work(&self, told: &Value) -> bool;

    /// The call of which something is told, by the agent's own id, and how far it is. None where calls cannot be told apart so.
    fn call<'a>(&self, _told: &'a Value) -> Option<(&'a str, Told)> {
        None
    }

    /// Speaks the first words with an agent that was just started.
    async fn shake_hands(&self, link: &Link, first: FirstWords<'_>) -> Result<Conversation, Unmet>;

    /// Begins a turn by saying `prompt`.
    fn begin(&self, live: &Live, input: &TurnInput, prompt: &[ContentBlock]) -> Box<dyn Turn>;
}

/// How far a call is, of which something is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing was done yet.
    ToCome,
    /// It was asked about, is under way or over.
    UnderWay,
}

/// What the first words need to know.
pub(crate) struct FirstWords<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) workspace: &'a str,
    /// The agent's own name for what was said before.
    pub(crate) before: Option<&'a str>,
    /// MCP servers that the house runs for it.
    pub(crate) servers: &'a [Served],
}

/// Why an agent that was started cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unmet {
    /// It was started to take up a conversation that it does not have, and has to be started again without it.
    NotTakenUp,
    Failed(RuntimeError),
}

/// A turn under way.
#[async_trait]
pub(crate) trait Turn: Send {
    /// Waits for the next thing that happens. Nobody waits again after the end.
    async fn next(&mut self) -> Step;
}

/// What happened in a turn.
#[derive(Debug)]
pub(crate) enum Step {
    Said(Vec<EventKind>),
    /// The agent's own name for the conversation.
    Named(String),
    /// The agent ended the turn, and can be used for the next.
    Over(Vec<EventKind>, Result<(), RuntimeError>),
    /// The agent did what it had no leave for.
    Ungoverned {
        id: String,
        tool: String,
        what: String,
    },
    /// There is no going on with this agent.
    Failed(RuntimeError),
}

impl Step {
    #[expect(clippy::unnecessary_wraps, reason = "one of several that may say nothing")]
    pub(crate) fn said(kind: EventKind) -> Option<Self> {
        Some(Self::Said(vec![kind]))
    }
}

/// A line of the agent's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    /// It asks for something. The id goes back as it came.
    Asked {
        id: Value,
        method: String,
        params: Value,
    },
    Told(Value),
    /// To a request of ours.
    Answer {
        id: u64,
        result: Result<Value, Refusal>,
    },
    /// To no request that we could have made.
    Stray,
    /// Something beside the protocol that a client may know, by its method.
    Aside(String),
    /// Nothing that anyone here needs.
    Idle,
}

/// An error that the agent answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: i64,
    pub(crate) message: String,
}

/// Characters of an error message of the agent's that are shown.
const MAX_MESSAGE_CHARS: usize = 300;

impl Refusal {
    pub(crate) fn new(code: i64, message: &str) -> Self {
        Self { code, message: shown(message) }
    }
}

/// Words of the agent's for a sentence of ours.
pub(crate) fn shown(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE_CHARS).collect()
}

/// What an agent does for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// The agent's own name for it; none if it tells that with its first turn.
    pub(crate) id: Option<String>,
    pub(crate) began: Began,
    pub(crate) takes: Takes,
    /// What became of the session's MCP servers.
    pub(crate) servers: Offered,
}

/// Whether an agent can be told of the session's MCP servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It was, if there are any.
    Told,
    /// It takes none that are reached over HTTP.
    NotTaken,
}

/// How a conversation came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Began {
    /// There was none before.
    New,
    /// The agent knows what was said before.
    TakenUp,
    /// There was one before, and the agent knows nothing of it.
    Lost,
}

/// Content that an agent takes beside text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Takes {
    pub(crate) image: bool,
    pub(crate) audio: bool,
    pub(crate) resource: bool,
}

impl Takes {
    /// The content as the agent is sent it.
    pub(crate) fn check(self, content: &[ContentBlock]) -> Result<(), RuntimeError> {
        for block in content {
            let (what, is_taken) = match block {
                ContentBlock::Text { .. } => continue,
                ContentBlock::Image { .. } => ("images", self.image),
                ContentBlock::Audio { .. } => ("audio", self.audio),
                ContentBlock::Resource { .. } => ("attachments", self.resource),
            };
            if !is_taken {
                return Err(RuntimeError::new(
                    "unsupported",
                    format!("this agent takes no {what}: say it in text"),
                ));
            }
        }
        Ok(())
    }
}
