//! Grants: for a while, calls like one that a person approved need no approval.
//!
//! A grant covers only what it states: one tool, one agent, the same subject (a command or a narrow pattern of commands, a
//! path, a host, a recipient, or exactly these arguments), and a context no less trusted than the one that the person saw. A
//! command is granted together with the hashes of the files that it runs, except those of the system. A grant answers a
//! permission request; it never overrides a denial.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_constitution::CallArgs;
use tribune_constitution::labels::Labels;
use tribune_ledger::Timestamp;

use super::action::{ABSENT, Files};
use super::approver::Approver;
use super::call_args::args_of;
use super::call_roots::CallRoots;
use super::decision::{DecisionRequest, GrantError};
use super::grant_subject::GrantSubject;
use super::record::{DecisionKind, Requested};

/// The longest that a grant may last: 90 days.
const MAX_GRANT: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// The rule that asks about files that programs of this machine run or load by their names.
const AUTORUN_RULE: &str = "path.obeyed";

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
    /// Whether the question named its path as an autorun file. Only such a grant covers one, and only by its exact path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub autorun: bool,
    /// The labels of the session when the grant was given.
    pub labels: Labels,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Only for a path in this workspace, or in sessions that work there; without one, only in agents' own workspaces. And
    /// only in sessions with exactly these additional directories, unless the subject is a path: a command can access
    /// every directory of its session.
    #[serde(flatten)]
    pub roots: CallRoots,
}

/// A grant with the time at which it was given.
#[derive(Debug, Clone, PartialEq)]
pub struct Granted {
    pub at: String,
    pub grant: Grant,
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
    pub roots: &'a CallRoots,
}

/// What a decision needs from the call to make a grant.
#[derive(Debug, Clone)]
pub struct GrantTerms {
    pub schema: String,
    /// `None` if the content is shredded: then only this one call can be decided.
    pub input: Option<Value>,
    /// The files that its outcome depended on when it was asked for.
    pub files: Files,
    /// What decides what it runs and is not among the files.
    pub not_bound: Vec<String>,
    /// The labels that the call itself adds to its session: the next call like it runs with them.
    pub output: Labels,
    /// Whether a text contains a secret. Such a text is not written into a grant.
    pub holds_secret: fn(&str) -> bool,
}

impl Grant {
    /// The grant that a decision requests, if it requests one.
    pub fn from_request(
        requested: &Requested,
        request: &DecisionRequest,
        who: &Approver,
        terms: GrantTerms,
        now: Timestamp,
    ) -> Result<Option<Self>, GrantError> {
        check_options(request)?;
        if !request.decision.allows() || request.decision == DecisionKind::AllowOnce {
            return Ok(None);
        }
        if requested.needs > 1 {
            return refuse("this needs several people each time: allow it once, or deny it");
        }
        let Some(input) = &terms.input else {
            return refuse("what the call was about has been forgotten: allow it once, or deny it");
        };
        if let Some(open) = terms.not_bound.first() {
            return Err(GrantError::new(format!(
                "what this line runs is not known before it runs ({open}): allow it once, or deny it"
            )));
        }
        check_expiry(request, now)?;
        let subject = GrantSubject::from_request(requested, request, input)?;
        let autorun = requested.rules.iter().any(|rule| rule == AUTORUN_RULE);
        if autorun && subject.has_wildcard() {
            return refuse(
                "this is an autorun file, which no pattern covers: allow exactly this path, or allow it once",
            );
        }
        let files = if requested.tool == "exec" { pinned_files(terms.files) } else { Files::default() };
        if !files.is_empty() && subject.has_wildcard() {
            return refuse(
                "this runs a file that is not one of the system's programs, and a pattern does not say what is in it: allow exactly this line, or allow it once",
            );
        }
        if (terms.holds_secret)(subject.text()) {
            return refuse(
                "this call contains what looks like a secret, which must not be stored in a grant: allow it once",
            );
        }
        let mut roots = requested.roots.clone();
        if subject.is_path() {
            roots.additional_directories.clear();
        }
        let is_for_session = request.decision == DecisionKind::AllowSession;
        let grant = Self {
            id: format!("g{}", requested.id),
            approval: requested.id.clone(),
            by: who.id.clone(),
            agent: requested.agent.clone(),
            session: is_for_session.then(|| requested.session.clone()),
            tool: requested.tool.clone(),
            schema: terms.schema,
            subject,
            files,
            autorun,
            labels: requested.labels.meet(terms.output),
            until: request.until.map(|until| until.to_string()),
            roots,
        };
        if !grant.covers_approved(requested, input) {
            return refuse(
                "the pattern does not cover the call that is to be approved: allow it once, or widen the pattern",
            );
        }
        Ok(Some(grant))
    }

    /// Whether it covers the very call that was approved.
    fn covers_approved(&self, requested: &Requested, input: &Value) -> bool {
        self.covers(&GrantQuery {
            agent: &self.agent,
            session: &requested.session,
            tool: &self.tool,
            schema: &self.schema,
            input,
            args: &args_of(&self.tool, input, &requested.roots.additional_directories),
            labels: requested.labels,
            roots: &requested.roots,
        })
    }

    /// Whether it has not expired.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.as_ref().is_none_or(|until| now.to_string() < *until)
    }

    /// Whether this call needs no approval, provided that it runs the same files.
    pub fn covers(&self, call: &GrantQuery<'_>) -> bool {
        let is_autorun_write = call.args.is_autorun && !["read", "search"].contains(&call.tool);
        self.agent == call.agent
            && self.tool == call.tool
            && self.schema == call.schema
            && self.session.as_ref().is_none_or(|session| session == call.session)
            && self.roots.workspace == call.roots.workspace
            && (self.subject.is_path()
                || self.roots.additional_directories == call.roots.additional_directories)
            && call.labels.trust >= self.labels.trust
            && (self.labels.private || !call.labels.private)
            && (!is_autorun_write || (self.autorun && !self.subject.has_wildcard()))
            && self.subject.covers(call.tool, call.input, call.args)
    }
}

/// The files of a command that a grant pins: those in the workspace and in every other place that is not reserved to the
/// system's owner. Programs of the system change with its updates, and a name without a file is a builtin of the shell.
pub fn pinned_files(files: Files) -> Files {
    let is_systems = |path: &str| SYSTEM.iter().any(|folder| path.starts_with(folder));
    let is_name = |path: &str, hash: &str| hash == ABSENT && !path.contains('/');
    files.into_iter().filter(|(path, hash)| !is_systems(path) && !is_name(path, hash)).collect()
}

/// Checks that `until` and `pattern` are given only with a decision that has them.
fn check_options(request: &DecisionRequest) -> Result<(), GrantError> {
    let has_time = matches!(request.decision, DecisionKind::AllowUntil | DecisionKind::AllowPattern);
    if request.until.is_some() && !has_time {
        return refuse(
            "`until` belongs to allow_until and allow_pattern: leave it out, or choose one of these",
        );
    }
    if request.pattern.is_some() && request.decision != DecisionKind::AllowPattern {
        return refuse("`pattern` belongs to allow_pattern: leave it out, or choose that");
    }
    Ok(())
}

fn check_expiry(request: &DecisionRequest, now: Timestamp) -> Result<(), GrantError> {
    match request.until {
        Some(until) if until <= now => refuse("`until` is in the past: give a later time"),
        Some(until) if until > now.plus(MAX_GRANT) => {
            refuse("a grant lasts 90 days at most: give an earlier time")
        }
        None if request.decision == DecisionKind::AllowUntil => {
            refuse("allow_until needs `until`: give a time such as 2030-01-31T18:00:00Z")
        }
        _ => Ok(()),
    }
}

fn refuse<T>(sentence: &str) -> Result<T, GrantError> {
    Err(GrantError::new(sentence))
}
