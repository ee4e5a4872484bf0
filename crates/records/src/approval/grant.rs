//! Grants: for a while, calls like one that a person approved need no approval.
//!
//! A grant covers only what it states: one tool, one agent, the same subject (a command or a narrow pattern of commands, a
//! path, a host, a recipient, or exactly these arguments), and a context no less trusted than the one that the person saw. A
//! command is granted together with the hashes of the files that it runs, except those of the system. A grant answers a
//! permission request; it never overrides a denial.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_constitution::labels::Labels;
use tribune_constitution::{CallArgs, command};
use tribune_ledger::cid::Domain;
use tribune_ledger::{Cid, Timestamp, jcs};
use tribune_runtime::ToolCall;

use super::action::Files;
use super::approver::Approver;
use super::decision::DecisionRequest;
use super::record::{DecisionKind, Requested};
use crate::approval::action::ABSENT;
use crate::workspace_roots::{WorkspaceRoots, beneath};

/// The longest that a grant may last: 90 days.
const MAX_GRANT: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Largest size of a pattern in bytes.
const MAX_PATTERN_BYTES: usize = 1024;

/// Tools whose path may be in an additional directory.
const PATH_TOOLS: [&str; 4] = ["read", "search", "write", "edit"];

/// The folders of the system's programs, which only the system's owner changes.
const SYSTEM: [&str; 9] =
    ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/", "/opt/", "/etc/", "/nix/store/", "/gnu/store/"];

/// A standing permission for calls like an approved one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    pub id: String,
    /// The approval from which it results.
    pub approval: String,
    pub by: String,
    pub agent: String,
    /// If set, only calls in this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub tool: String,
    /// Hash of the tool's description and schema at that time. A tool that has changed needs a new approval.
    pub schema: String,
    pub subject: GrantSubject,
    /// The files that its command runs beside the system's programs, with their hashes at that time. A command whose files have
    /// changed needs a new approval.
    #[serde(default, skip_serializing_if = "Files::is_empty")]
    pub files: Files,
    /// The labels of the session when the grant was given.
    pub labels: Labels,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Only for a path in this folder, or in sessions that work there. Without one, only in agents' own workspaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Only in sessions with exactly these additional directories, unless the subject is a path: a command can access every
    /// directory of its session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<String>,
}

/// Why a decision cannot result in the grant that it requests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GrantError(pub String);

/// A grant with the time at which it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    pub at: String,
    pub grant: Grant,
}

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

/// The properties of a call that a grant is matched against.
#[derive(Debug, Clone, Copy)]
pub struct GrantQuery<'a> {
    pub agent: &'a str,
    pub session: &'a str,
    pub tool: &'a str,
    pub schema: &'a str,
    pub input: &'a Value,
    pub args: &'a CallArgs,
    pub labels: Labels,
    /// The additional directory of its path, or else the folder that the session works in, if that is not its agent's own
    /// workspace.
    pub folder: Option<&'a str>,
    /// The session's additional directories.
    pub further: &'a [String],
}

/// What a decision needs from the call to make a grant.
#[derive(Debug, Clone)]
pub struct GrantTerms {
    pub schema: String,
    /// `None` if the content is shredded: then only this one call can be decided.
    pub input: Option<Value>,
    /// The files that its outcome depended on when it was asked for.
    pub files: Files,
    /// The labels that the call itself adds to its session: the next call like it runs with them.
    pub output: Labels,
    /// Whether a text contains a secret. Such a text is not written into a grant.
    pub holds_secret: fn(&str) -> bool,
}

impl Grant {
    /// The grant that a decision requests, if it requests one.
    pub fn from_wish(
        requested: &Requested,
        wish: &DecisionRequest,
        who: &Approver,
        terms: GrantTerms,
        now: Timestamp,
    ) -> Result<Option<Self>, GrantError> {
        let no = |what: &str| Err(GrantError(what.to_owned()));
        let takes_time = matches!(wish.decision, DecisionKind::AllowUntil | DecisionKind::AllowPattern);
        if wish.until.is_some() && !takes_time {
            return no(
                "`until` belongs to allow_until and allow_pattern: leave it out, or choose one of these",
            );
        }
        if wish.pattern.is_some() && wish.decision != DecisionKind::AllowPattern {
            return no("`pattern` belongs to allow_pattern: leave it out, or choose that");
        }
        if !wish.decision.allows() || wish.decision == DecisionKind::AllowOnce {
            return Ok(None);
        }
        if requested.needs > 1 {
            return no("this needs several people each time: allow it once, or deny it");
        }
        let Some(input) = &terms.input else {
            return no("what the call was about has been forgotten: allow it once, or deny it");
        };
        if let Some(until) = wish.until {
            if until <= now {
                return no("`until` is in the past: give a later time");
            }
            if until > now.plus(MAX_GRANT) {
                return no("a grant lasts 90 days at most: give an earlier time");
            }
        } else if wish.decision == DecisionKind::AllowUntil {
            return no("allow_until needs `until`: give a time such as 2030-01-31T18:00:00Z");
        }
        let subject = match &wish.pattern {
            Some(pattern) => GrantSubject::from_pattern(&requested.tool, pattern)?,
            None if wish.decision == DecisionKind::AllowPattern => {
                return no("allow_pattern needs `pattern`: say what it covers");
            }
            None => GrantSubject::exactly(&requested.tool, input, &requested.further)?,
        };
        let further = if subject.is_path() { Vec::new() } else { requested.further.clone() };
        let files = if requested.tool == "exec" { held(terms.files) } else { Files::default() };
        if !files.is_empty() && subject.has_wildcard() {
            return no(
                "this runs a file that is not one of the system's programs, and a pattern does not say what is in it: allow exactly this line, or allow it once",
            );
        }
        if (terms.holds_secret)(subject.text()) {
            return no(
                "this call contains what looks like a secret, which must not be stored in a grant: allow it once",
            );
        }
        let session = (wish.decision == DecisionKind::AllowSession).then(|| requested.session.clone());
        let grant = Self {
            id: format!("g{}", requested.id),
            approval: requested.id.clone(),
            by: who.id.clone(),
            agent: requested.agent.clone(),
            session,
            tool: requested.tool.clone(),
            schema: terms.schema,
            subject,
            files,
            labels: requested.labels.meet(terms.output),
            until: wish.until.map(|until| until.to_string()),
            workspace: requested.workspace.clone(),
            further,
        };
        let args = args_of(&grant.tool, input, &requested.further);
        let call = GrantQuery {
            agent: &grant.agent,
            session: &requested.session,
            tool: &grant.tool,
            schema: &grant.schema,
            input,
            args: &args,
            labels: requested.labels,
            folder: requested.workspace.as_deref(),
            further: &requested.further,
        };
        if !grant.covers(&call) {
            return no(
                "the pattern does not cover the call that is to be approved: allow it once, or widen the pattern",
            );
        }
        Ok(Some(grant))
    }

    /// Whether it has not expired.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.as_ref().is_none_or(|until| now.to_string() < *until)
    }

    /// Whether this call needs no approval, provided that it runs the same files.
    pub fn covers(&self, call: &GrantQuery<'_>) -> bool {
        self.agent == call.agent
            && self.tool == call.tool
            && self.schema == call.schema
            && self.session.as_ref().is_none_or(|session| session == call.session)
            && self.workspace.as_deref() == call.folder
            && (self.subject.is_path() || self.further == call.further)
            && call.labels.trust >= self.labels.trust
            && (self.labels.private || !call.labels.private)
            && self.subject.covers(call)
    }
}

impl GrantSubject {
    /// The subject that covers exactly this call.
    fn exactly(tool: &str, input: &Value, further: &[String]) -> Result<Self, GrantError> {
        let args = args_of(tool, input, further);
        if let Some(parsed) = parsed(tool, input) {
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
        let no = |what: String| Err(GrantError(what));
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
    const fn is_path(&self) -> bool {
        matches!(self, Self::Path { .. })
    }

    /// Whether it covers more than one command line.
    fn has_wildcard(&self) -> bool {
        match self {
            Self::Command { pattern } => {
                command::CommandGrant::parse(pattern).is_ok_and(|grant| grant.has_wildcard())
            }
            Self::Path { .. } | Self::Host { .. } | Self::Recipient { .. } | Self::Arguments { .. } => false,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Command { pattern } => pattern,
            Self::Path { path } => path,
            Self::Host { host } => host,
            Self::Recipient { recipient } => recipient,
            Self::Arguments { digest } => digest,
        }
    }

    fn covers(&self, call: &GrantQuery<'_>) -> bool {
        match self {
            Self::Command { pattern } => {
                match (parsed(call.tool, call.input), command::CommandGrant::parse(pattern)) {
                    // A command means something else in another folder.
                    (Some(parsed), Ok(grant)) => call.input.get("cwd").is_none() && grant.covers(&parsed),
                    _ => false,
                }
            }
            Self::Path { path } => {
                call.args.outside == Some(false)
                    && call.args.path.as_ref().is_some_and(|own| match path.strip_suffix("/**") {
                        Some(folder) => own.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')),
                        None => own == path,
                    })
            }
            Self::Host { host } => call.args.host.as_ref().is_some_and(|own| match host.strip_prefix("*.") {
                Some(domain) => own.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
                None => own == host,
            }),
            Self::Recipient { recipient } => call.args.recipient.as_ref() == Some(recipient),
            Self::Arguments { digest } => arguments_digest(call.input).is_ok_and(|own| own == *digest),
        }
    }
}

/// The files of a command that a grant pins: those in the workspace and in every other place that is not reserved to the
/// system's owner. Programs of the system change with its updates, and a name without a file is a builtin of the shell.
pub fn held(files: Files) -> Files {
    let is_systems = |path: &str| SYSTEM.iter().any(|folder| path.starts_with(folder));
    let is_name = |path: &str, hash: &str| hash == ABSENT && !path.contains('/');
    files.into_iter().filter(|(path, hash)| !is_systems(path) && !is_name(path, hash)).collect()
}

/// Patterns that would cover a call, narrowest first.
pub fn suggestions(tool: &str, input: &Value, further: &[String]) -> Vec<String> {
    if let Some(parsed) = parsed(tool, input) {
        return command::suggest_grants(&parsed);
    }
    let args = args_of(tool, input, further);
    let own = match tool {
        "read" | "search" | "write" | "edit" => args.path.filter(|_| args.outside == Some(false)),
        "web_fetch" | "browser" => args.host,
        "message" | "send_message" => args.recipient,
        _ => None,
    };
    let folder = own.as_ref().filter(|_| args.outside == Some(false)).and_then(|path| {
        let (folder, _) = path.rsplit_once('/')?;
        Some(format!("{folder}/**"))
    });
    own.into_iter().chain(folder).collect()
}

/// How many of these calls of `tool`, each with the arguments that the policy sees, a pattern would have covered.
pub fn covered(tool: &str, pattern: &str, calls: &[(Value, CallArgs)]) -> usize {
    let Ok(subject) = GrantSubject::from_pattern(tool, pattern) else { return 0 };
    let covers = |(input, args): &&(Value, CallArgs)| {
        let labels = Labels::FRESH;
        let (folder, further) = (None, &[][..]);
        subject.covers(&GrantQuery {
            agent: "",
            session: "",
            tool,
            schema: "",
            input,
            args,
            labels,
            folder,
            further,
        })
    };
    calls.iter().filter(covers).count()
}

/// The name of the additional directory of a call's path, or else of the folder that its session works in.
pub fn folder_of(ground: &WorkspaceRoots, call: &ToolCall) -> Option<String> {
    let folder = args_of(&call.name, &call.input, ground.further()).folder;
    folder.or_else(|| ground.folder_name().map(str::to_owned))
}

/// The arguments of a call as the policy sees them, in a session with these additional directories. A path in one of them is
/// relative to it, as in a session that works there.
pub fn args_of(tool: &str, input: &Value, further: &[String]) -> CallArgs {
    let path = input.get("path").and_then(Value::as_str).filter(|_| PATH_TOOLS.contains(&tool));
    let Some((folder, inner)) = path.and_then(|path| beneath(further, path)) else {
        return plain_args(tool, input);
    };
    let mut from_there = input.clone();
    from_there["path"] = inner.into();
    CallArgs { folder: Some(folder.to_owned()), ..plain_args(tool, &from_there) }
}

fn plain_args(tool: &str, input: &Value) -> CallArgs {
    let facts = parsed(tool, input).map(|parsed| {
        let mut programs = command::programs(&parsed);
        if !parsed.is_plain() {
            // It does more than start programs, so a list of programs does not describe it.
            programs.push(command::UNKNOWN.to_owned());
        }
        tribune_constitution::CommandFacts { programs, parsed: true }
    });
    let mut args = CallArgs::derive(tool, input, facts.as_ref());
    args.is_autorun = args.path.as_deref().is_some_and(tribune_contract::is_autorun_path);
    args
}

/// The command line of a call that runs one, if it can be parsed.
fn parsed(tool: &str, input: &Value) -> Option<command::ParsedCommand> {
    (tool == "exec")
        .then(|| input.get("command")?.as_str())
        .flatten()
        .and_then(|line| command::parse(line).ok())
}

fn arguments_digest(input: &Value) -> Result<String, GrantError> {
    let canonical = jcs::to_vec(input).map_err(|error| GrantError(error.to_string()))?;
    Ok(Cid::from_bytes(Domain::Action.hash(&[b"arguments", &canonical])).to_string())
}

fn is_host(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:".contains(&byte))
}
