//! The subject of a grant: a command, a path, a host, a recipient, or exactly some arguments.
//!
//! A subject comes from a call, from a pattern that a person wrote, or from a suggestion. It says which arguments are
//! covered; agent, session, labels and files are matched by the grant itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_constitution::{CallArgs, command};
use tribune_ledger::cid::Domain;
use tribune_ledger::{Cid, jcs};

use super::call_args::{args_of, parse_command};
use super::decision::{DecisionRequest, GrantError};
use super::record::{DecisionKind, Requested};

/// Largest size of a pattern in bytes.
const MAX_PATTERN_BYTES: usize = 1024;

/// The subject of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GrantSubject {
    /// A command line, or a narrow pattern of them.
    Command {
        pattern: String,
    },
    /// A path in the workspace, or everything below a folder with `/**`.
    Path {
        path: String,
    },
    /// A host, or everything below a domain with `*.`.
    Host {
        host: String,
    },
    Recipient {
        recipient: String,
    },
    /// Exactly these arguments.
    Arguments {
        digest: String,
    },
}

impl GrantSubject {
    /// The subject that a decision names with its pattern, or else exactly the pending call.
    pub(super) fn from_request(
        requested: &Requested,
        request: &DecisionRequest,
        input: &Value,
    ) -> Result<Self, GrantError> {
        match &request.pattern {
            Some(pattern) => Self::from_pattern(&requested.tool, pattern),
            None if request.decision == DecisionKind::AllowPattern => {
                Err(GrantError::new("allow_pattern needs `pattern`: say what it covers"))
            }
            None => Self::exactly(&requested.tool, input, &requested.roots.additional_directories),
        }
    }

    /// The subject that covers exactly this call.
    fn exactly(tool: &str, input: &Value, additional_directories: &[String]) -> Result<Self, GrantError> {
        let args = args_of(tool, input, additional_directories);
        if let Some(parsed) = parse_command(tool, input) {
            return Ok(Self::Command { pattern: command::CommandGrant::exact(&parsed).to_string() });
        }
        match (tool, &args.path, args.outside, args.host) {
            ("read" | "search" | "write" | "edit", Some(path), Some(false), _) => {
                return Ok(Self::Path { path: path.clone() });
            }
            ("web_fetch" | "browser", _, _, Some(host)) => return Ok(Self::Host { host }),
            _ => {}
        }
        arguments_digest(input).map(|digest| Self::Arguments { digest })
    }

    fn from_pattern(tool: &str, pattern: &str) -> Result<Self, GrantError> {
        let no = |what: String| Err(GrantError::new(what));
        if pattern.len() > MAX_PATTERN_BYTES {
            return no(format!("the pattern is too long: keep it to {MAX_PATTERN_BYTES} bytes"));
        }
        match tool {
            "exec" => match command::CommandGrant::parse(pattern) {
                Ok(_) => Ok(Self::Command { pattern: pattern.to_owned() }),
                Err(error) => no(error.to_string()),
            },
            "read" | "search" | "write" | "edit" => {
                let folder = pattern.strip_suffix("/**").unwrap_or(pattern);
                let plain = !folder.is_empty()
                    && folder.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
                    && !folder.contains(['*', '?', '[', '\\']);
                if !plain {
                    return no("a path pattern is a path in the workspace, or a folder and `/**`".to_owned());
                }
                Ok(Self::Path { path: pattern.to_owned() })
            }
            "web_fetch" | "browser" => {
                let host = pattern.strip_prefix("*.").unwrap_or(pattern);
                if !is_host(host) || (host.len() != pattern.len() && !host.contains('.')) {
                    return no(
                        "a host pattern is a host, or `*.` and a domain of two parts or more".to_owned()
                    );
                }
                Ok(Self::Host { host: pattern.to_owned() })
            }
            "message" | "send_message" => Ok(Self::Recipient { recipient: pattern.to_owned() }),
            _ => no(format!(
                "there are no patterns for `{tool}`: allow it once, for this session, or until a time"
            )),
        }
    }

    /// Whether the subject is a path.
    pub(super) const fn is_path(&self) -> bool {
        matches!(self, Self::Path { .. })
    }

    /// Whether it covers more than one command line, or more than one path.
    pub(super) fn has_wildcard(&self) -> bool {
        match self {
            Self::Command { pattern } => {
                command::CommandGrant::parse(pattern).is_ok_and(|grant| grant.has_wildcard())
            }
            Self::Path { path } => path.ends_with("/**"),
            Self::Host { .. } | Self::Recipient { .. } | Self::Arguments { .. } => false,
        }
    }

    /// The text that a person reads and that the ledger stores.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Command { pattern } => pattern,
            Self::Path { path } => path,
            Self::Host { host } => host,
            Self::Recipient { recipient } => recipient,
            Self::Arguments { digest } => digest,
        }
    }

    /// Whether it covers a call with this input, from which `args` were derived.
    pub(super) fn covers(&self, tool: &str, input: &Value, args: &CallArgs) -> bool {
        match self {
            Self::Command { pattern } => {
                match (parse_command(tool, input), command::CommandGrant::parse(pattern)) {
                    // A command means something else in another folder.
                    (Some(parsed), Ok(grant)) => {
                        input.get("cwd").is_none() && grant.covers(&parsed) && is_bound(input)
                    }
                    _ => false,
                }
            }
            Self::Path { path } => {
                args.outside == Some(false)
                    && args.path.as_ref().is_some_and(|own| match path.strip_suffix("/**") {
                        Some(folder) => own.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')),
                        None => own == path,
                    })
            }
            Self::Host { host } => args.host.as_ref().is_some_and(|own| match host.strip_prefix("*.") {
                Some(domain) => own.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
                None => own == host,
            }),
            Self::Recipient { recipient } => args.recipient.as_ref() == Some(recipient),
            Self::Arguments { digest } => arguments_digest(input).is_ok_and(|own| own == *digest),
        }
    }
}

/// Patterns that would cover a call, narrowest first.
pub fn suggestions(tool: &str, input: &Value, additional_directories: &[String]) -> Vec<String> {
    if let Some(parsed) = parse_command(tool, input) {
        return if is_bound(input) { command::suggest_grants(&parsed) } else { Vec::new() };
    }
    let args = args_of(tool, input, additional_directories);
    let own = match tool {
        "read" | "search" | "write" | "edit" => args.path.filter(|_| args.outside == Some(false)),
        "web_fetch" | "browser" => args.host,
        "message" | "send_message" => args.recipient,
        _ => None,
    };
    let has_folder = args.outside == Some(false) && !args.is_autorun;
    let folder = own.as_ref().filter(|_| has_folder).and_then(|path| {
        let (folder, _) = path.rsplit_once('/')?;
        Some(format!("{folder}/**"))
    });
    own.into_iter().chain(folder).collect()
}

/// How many of these calls of `tool`, each with the arguments that the policy sees, a pattern would have covered.
pub fn covered(tool: &str, pattern: &str, calls: &[(Value, CallArgs)]) -> usize {
    let Ok(subject) = GrantSubject::from_pattern(tool, pattern) else { return 0 };
    calls.iter().filter(|(input, args)| subject.covers(tool, input, args)).count()
}

/// Whether the line of a command says everything that it runs.
fn is_bound(input: &Value) -> bool {
    input.get("command").and_then(Value::as_str).is_some_and(command::is_bound)
}

fn arguments_digest(input: &Value) -> Result<String, GrantError> {
    let canonical = jcs::to_vec(input).map_err(|error| GrantError::new(error.to_string()))?;
    Ok(Cid::from_bytes(Domain::Action.hash(&[b"arguments", &canonical])).to_string())
}

fn is_host(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:".contains(&byte))
}
