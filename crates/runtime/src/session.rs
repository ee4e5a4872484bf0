//! Names and states of sessions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Bytes of a session key: it is also a file name, which most file systems limit to 255 bytes with our suffix.
pub const MAX_SESSION_KEY_BYTES: usize = 200;

/// Bytes of an agent id: a word, not a sentence.
pub const MAX_AGENT_ID_BYTES: usize = 64;

/// Names that the ledger uses for the daemon and its operator, beside the agents'.
const RESERVED: [&str; 4] = ["operator", "(operator)", "house", "tribune"];

/// The roster id of an agent: lowercase letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId(Box<str>);

/// The key of a conversation: `agent:{agentId}:{channel}:{accountId}:dm:{peerId}`, or a sub-agent's, which has a
/// `subagent` segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionKey {
    text: Box<str>,
    agent: AgentId,
}

/// The reason for which a text names no agent or session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "`{0}` is not an agent id: lowercase letters, digits, `-` and `_`, beginning with a letter or digit, at most {MAX_AGENT_ID_BYTES}"
    )]
    Agent(String),
    #[error(
        "`{0}` is reserved: the ledger uses it for the daemon or its operator, so choose another name for the agent"
    )]
    Reserved(String),
    #[error("`{0}` is not a session key: the form is agent:AGENT:CHANNEL:ACCOUNT:dm:PEER")]
    SessionForm(String),
    #[error(
        "`{0}` is not a session key: the parts between the colons hold letters, digits and `._+@=-` only"
    )]
    SessionCharacters(String),
    #[error("a session key has at most {MAX_SESSION_KEY_BYTES} bytes")]
    SessionLength,
}

impl AgentId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let word =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        let begins =
            text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if RESERVED.contains(&text) {
            return Err(NameError::Reserved(text.to_owned()));
        }
        if begins && text.len() <= MAX_AGENT_ID_BYTES && text.bytes().all(word) {
            Ok(Self(text.into()))
        } else {
            Err(NameError::Agent(text.chars().take(MAX_AGENT_ID_BYTES).collect()))
        }
    }
}

impl SessionKey {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub const fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// The channel of the peer; a sub-agent has none.
    pub fn channel(&self) -> Option<&str> {
        if self.is_subagent() { None } else { self.text.split(':').nth(2) }
    }

    pub fn is_subagent(&self) -> bool {
        is_subagent(&self.text.split(':').collect::<Vec<_>>())
    }

    /// The key of a direct conversation.
    pub fn direct(agent: &AgentId, channel: &str, account: &str, peer: &str) -> Result<Self, NameError> {
        format!("agent:{agent}:{channel}:{account}:dm:{peer}").parse()
    }
}

/// Whether there is a `subagent` segment with another segment behind it. A peer may be called `subagent`.
fn is_subagent(parts: &[&str]) -> bool {
    let direct = matches!(parts, ["agent", _, _, _, "dm", _]) && parts[2] != "subagent";
    !direct && parts.len() >= 4 && parts[0] == "agent" && parts[2..parts.len() - 1].contains(&"subagent")
}

impl FromStr for SessionKey {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() > MAX_SESSION_KEY_BYTES {
            return Err(NameError::SessionLength);
        }
        let form = || NameError::SessionForm(text.to_owned());
        let parts: Vec<&str> = text.split(':').collect();
        let direct = matches!(parts.as_slice(), ["agent", _, _, _, "dm", _]);
        if !direct && !is_subagent(&parts) || parts.iter().any(|part| part.is_empty()) {
            return Err(form());
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._+@=-".contains(&byte);
        // A leading dot would hide the file, or name the parent folder.
        if parts.iter().any(|part| part.starts_with('.') || !part.bytes().all(fits)) {
            return Err(NameError::SessionCharacters(text.to_owned()));
        }
        let agent = parts[1].parse()?;
        Ok(Self { text: text.into(), agent })
    }
}

macro_rules! text_form {
    ($type:ty, $field:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.$field.into_string()
            }
        }
    };
}
text_form!(SessionKey, text);

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl TryFrom<String> for AgentId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<AgentId> for String {
    fn from(id: AgentId) -> Self {
        id.0.into_string()
    }
}

/// How long a session lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// Never evicted: for standing roles.
    Persistent,
    /// Closed after a time without a turn.
    #[default]
    Domain,
    /// Closed after its turn.
    Oneshot,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    Idle,
    Running,
    /// Idle, and its last turn was cancelled.
    Cancelled,
    Closed,
}

/// The reason for which a session was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// On request.
    Requested,
    /// No turn for longer than its time to live.
    Evicted,
    /// A oneshot session, after its turn.
    Finished,
}

macro_rules! words {
    ($type:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}
words!(SessionMode { Persistent => "persistent", Domain => "domain", Oneshot => "oneshot" });
words!(SessionState { Idle => "idle", Running => "running", Cancelled => "cancelled", Closed => "closed" });
words!(CloseReason { Requested => "requested", Evicted => "evicted", Finished => "finished" });

/// What a backend knows of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    pub state: SessionState,
    pub backend: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_daemon_and_its_operator_are_reserved() {
        for name in RESERVED {
            assert_eq!(name.parse::<AgentId>(), Err(NameError::Reserved(name.to_owned())));
        }
        for name in ["operator", "house"] {
            let key = format!("agent:{name}:cli:local:dm:x");
            assert!(matches!(key.parse::<SessionKey>(), Err(NameError::Reserved(_))), "{key}");
        }
        assert!("operators".parse::<AgentId>().is_ok());
    }

    #[test]
    fn session_key_format_stable() {
        for good in [
            "agent:main:telegram:123456789:dm:987654321",
            "agent:main:whatsapp:+15551234567:dm:+15559876543",
            "agent:main:subagent:01J",
            "agent:main:cli:local:dm:op:subagent:7",
        ] {
            let key: SessionKey = good.parse().unwrap();
            assert_eq!((key.as_str(), key.agent().as_str()), (good, "main"));
        }
        for bad in [
            "",
            "main",
            "agent:main",
            "agent:main:cli:local:dm",
            "agent:main:cli:local:group:x",
            "agent:main:cli:local:dm:",
            "agent::cli:local:dm:x",
            "agent:Main:cli:local:dm:x",
            "agent:main:cli:local:dm:../../etc/passwd",
            "agent:main:cli:..:dm:x",
            "agent:main:cli:a b:dm:x",
            "agent:main:cli:local:dm:x\n",
            "agent:main:subagent",
            "user:main:cli:local:dm:x",
        ] {
            assert!(bad.parse::<SessionKey>().is_err(), "{bad}");
        }
        let named: SessionKey = "agent:main:tg:1:dm:subagent".parse().unwrap();
        assert!(!named.is_subagent(), "a peer may be called that");
        assert_eq!("agent:main:tg:1:dm:2".parse::<SessionKey>().unwrap().channel(), Some("tg"));
        assert!("a".repeat(300).parse::<SessionKey>().is_err());
    }
}
