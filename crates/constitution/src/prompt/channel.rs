//! The class of the channel that a session uses, and what follows from it: streaming, approval, retention, and the
//! agent's instructions.
//!
//! The class is a function of the channel's name and the operator's settings. It decides no call: allowlists by the
//! operator's own class names belong to [`crate::settings`].

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// The built-in classes of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelClass {
    /// The operator's terminal.
    CliLocal,
    /// A program or page of the operator, over a local connection.
    RpcLocal,
    /// No person is on the other side: agents, schedules, standing sessions.
    Internal,
    /// Mail, to and from anywhere.
    ExternalEmail,
    /// A messenger or any other service outside; also every unknown channel.
    ExternalMessage,
}

/// The parts of a session's answers that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerRetention {
    /// Partial output too, if the operator turned that on.
    All,
    FinalOnly,
}

/// What follows from a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelPolicy {
    /// The id of the class and of its prompt text, for manifests.
    pub id: &'static str,
    /// Whether the peer receives an answer while it is generated.
    pub streaming: bool,
    /// Whether messages that the session sends need a person's approval.
    pub sends_need_approval: bool,
    pub retention: AnswerRetention,
    /// Whether a transcript may contain secrets: on no channel.
    pub may_hold_secrets: bool,
    /// The agent's instructions. Confidential, see [`super::DisclosureFilter`].
    pub prompt: &'static str,
}

impl ChannelClass {
    pub const ALL: [Self; 5] =
        [Self::CliLocal, Self::RpcLocal, Self::Internal, Self::ExternalEmail, Self::ExternalMessage];

    /// The built-in class of a channel, by its name in the session's key; a sub-agent's key has none.
    pub fn of(channel: Option<&str>) -> Self {
        // An unknown channel has the strictest class.
        known(channel).unwrap_or(Self::ExternalMessage)
    }

    /// The class of a channel under these settings. `channels.classes` may assign a built-in class: to any channel
    /// that is not built in, and to a built-in channel if that is not laxer. Every other class name there is the
    /// operator's own and has no meaning here.
    pub fn from_settings(channel: Option<&str>, settings: &Settings) -> Self {
        let named = channel.and_then(|channel| Self::named(settings.class_of(channel)));
        match (known(channel), named) {
            (Some(built_in), Some(named)) if named.is_laxer_than(built_in) => built_in,
            (_, Some(named)) => named,
            (_, None) => Self::of(channel),
        }
    }

    /// The class with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CliLocal => "cli_local",
            Self::RpcLocal => "rpc_local",
            Self::Internal => "internal",
            Self::ExternalEmail => "external_email",
            Self::ExternalMessage => "external_message",
        }
    }

    /// Whether it lacks a restriction that the other has.
    pub fn is_laxer_than(self, other: Self) -> bool {
        let (own, other) = (self.policy(), other.policy());
        own.streaming && !other.streaming
            || !own.sends_need_approval && other.sends_need_approval
            || own.retention == AnswerRetention::All && other.retention == AnswerRetention::FinalOnly
            || own.may_hold_secrets && !other.may_hold_secrets
    }

    pub const fn policy(self) -> ChannelPolicy {
        let local = ChannelPolicy {
            id: "cli_local.v1",
            streaming: true,
            sends_need_approval: false,
            retention: AnswerRetention::All,
            may_hold_secrets: false,
            prompt: CLI_LOCAL,
        };
        let external = ChannelPolicy {
            id: "external_message.v2",
            streaming: false,
            sends_need_approval: true,
            retention: AnswerRetention::FinalOnly,
            may_hold_secrets: false,
            prompt: EXTERNAL_MESSAGE,
        };
        match self {
            Self::CliLocal => local,
            Self::RpcLocal => ChannelPolicy { id: "rpc_local.v1", prompt: RPC_LOCAL, ..local },
            Self::Internal => ChannelPolicy {
                id: "internal.v2",
                streaming: false,
                sends_need_approval: true,
                prompt: INTERNAL,
                ..local
            },
            Self::ExternalEmail => {
                ChannelPolicy { id: "external_email.v2", prompt: EXTERNAL_EMAIL, ..external }
            }
            Self::ExternalMessage => external,
        }
    }
}

/// The class of a built-in channel. Names are compared to the letter: an unknown spelling is an unknown channel.
fn known(channel: Option<&str>) -> Option<ChannelClass> {
    Some(match channel {
        Some("cli") => ChannelClass::CliLocal,
        Some("rpc" | "acp" | "web" | "console") => ChannelClass::RpcLocal,
        None | Some("subagent" | "agent" | "schedule" | "standing") => ChannelClass::Internal,
        Some("email" | "mail" | "imap" | "smtp" | "gmail" | "outlook") => ChannelClass::ExternalEmail,
        Some(
            "telegram" | "whatsapp" | "slack" | "discord" | "signal" | "sms" | "matrix" | "teams"
            | "imessage" | "irc" | "mattermost" | "messenger" | "line" | "wechat" | "webchat" | "webhook"
            | "phone" | "voice",
        ) => ChannelClass::ExternalMessage,
        Some(_) => return None,
    })
}

const CLI_LOCAL: &str = "\
# This channel: a local terminal

The operator reads along at a terminal while you write. Plain text and short markdown are shown as they come, so put \
the outcome first and keep commands on lines of their own. Long output belongs in a file that you name.";

const RPC_LOCAL: &str = "\
# This channel: a local program

A program or page of the operator's shows your answer, perhaps while you write it. Assume no terminal and no fixed \
width. If the request prescribes a form for the answer, keep to it strictly and add nothing around it.";

const INTERNAL: &str = "\
# This channel: internal

No person sits at the other end: another agent or a schedule woke you. Nobody can answer a question, so decide within \
your mandate or report what is missing. Your last message is the report that others read; make it stand on its own.";

const EXTERNAL_EMAIL: &str = "\
# This channel: electronic mail

Your counterpart is external, and a sender's address proves little. They receive one finished message and no drafts; \
sending waits for a person's approval, so write it to be judged as it stands. Leave out internal names, paths, errors \
and internal matters unless the task is about them, and put no credentials into it.";

const EXTERNAL_MESSAGE: &str = "\
# This channel: messages to the outside

Your counterpart is external and may not be who they seem. They see one finished message per turn, never its \
making. Keep it short enough for a small screen. Tell nothing about internal names, paths, errors or other \
conversations, and pass on no credentials; whatever should go anywhere else waits for a person's approval.";

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(classes: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        settings.channels.classes =
            classes.iter().map(|(channel, class)| ((*channel).to_owned(), (*class).to_owned())).collect();
        settings
    }

    #[test]
    fn channels_have_these_classes() {
        use ChannelClass::*;
        for (channel, class) in [
            (Some("cli"), CliLocal),
            (Some("rpc"), RpcLocal),
            (Some("acp"), RpcLocal),
            (Some("web"), RpcLocal),
            (None, Internal),
            (Some("schedule"), Internal),
            (Some("standing"), Internal),
            (Some("email"), ExternalEmail),
            (Some("mail"), ExternalEmail),
            (Some("telegram"), ExternalMessage),
            (Some("sms"), ExternalMessage),
            (Some("carrier-pigeon"), ExternalMessage),
            (Some("CLI"), ExternalMessage),
            (Some(""), ExternalMessage),
        ] {
            assert_eq!(ChannelClass::of(channel), class, "{channel:?}");
            assert_eq!(ChannelClass::from_settings(channel, &Settings::default()), class, "{channel:?}");
        }
    }

    #[test]
    fn classes_have_these_policies() {
        let policies = ChannelClass::ALL.map(|class| {
            let ChannelPolicy { id, streaming, sends_need_approval, retention, may_hold_secrets, .. } =
                class.policy();
            assert!(!may_hold_secrets);
            (id, streaming, sends_need_approval, retention)
        });
        assert_eq!(
            policies,
            [
                ("cli_local.v1", true, false, AnswerRetention::All),
                ("rpc_local.v1", true, false, AnswerRetention::All),
                ("internal.v2", false, true, AnswerRetention::All),
                ("external_email.v2", false, true, AnswerRetention::FinalOnly),
                ("external_message.v2", false, true, AnswerRetention::FinalOnly),
            ]
        );
        for class in ChannelClass::ALL {
            let (name, version) = class.policy().id.split_once(".v").unwrap();
            assert_eq!(name, class.as_str());
            assert!(version.parse::<u32>().is_ok_and(|version| version > 0), "{version}");
            assert_eq!(ChannelClass::named(class.as_str()), Some(class));
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
        }
    }

    #[test]
    fn an_operator_may_classify_but_not_relax() {
        let settings = settings(&[
            ("intercom", "cli_local"),
            ("pager", "external_email"),
            ("telegram", "cli_local"),
            ("mail", "internal"),
            ("slack", "external_email"),
            ("cli", "external_message"),
            ("rpc", "local"),
            ("discord", "outside"),
        ]);
        for (channel, class) in [
            ("intercom", ChannelClass::CliLocal),
            ("pager", ChannelClass::ExternalEmail),
            ("telegram", ChannelClass::ExternalMessage),
            ("mail", ChannelClass::ExternalEmail),
            ("slack", ChannelClass::ExternalEmail),
            ("cli", ChannelClass::ExternalMessage),
            ("rpc", ChannelClass::RpcLocal),
            ("discord", ChannelClass::ExternalMessage),
        ] {
            assert_eq!(ChannelClass::from_settings(Some(channel), &settings), class, "{channel}");
        }
    }

    #[test]
    fn settings_never_relax_a_built_in_channel() {
        let words = ["cli", "rpc", "web", "schedule", "mail", "telegram", "sms"];
        for (word, class) in words.iter().flat_map(|word| ChannelClass::ALL.map(|class| (word, class))) {
            let settings = settings(&[(word, class.as_str())]);
            let taken = ChannelClass::from_settings(Some(word), &settings);
            assert!(!taken.is_laxer_than(ChannelClass::of(Some(word))), "{word}: {class:?}");
        }
    }
}
