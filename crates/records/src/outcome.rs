//! The outcome of a call: its answer, or an error code, and the resources that it accessed.
//!
//! Labels follow data, so a call records every read and write in its [`AccessLog`] before it does it. When no caller waits for
//! the call any more, the log is closed: an access that is not recorded by then fails and does not happen.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tribune_runtime::ToolOutcome;

use super::text::bounded;
use super::workspace_roots::WorkspaceRoots;
use crate::ledger_payloads::{CallOutcome, SandboxRecord};

/// A call that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRun {
    pub outcome: ToolOutcome,
    /// Why there is no answer, if there is none.
    pub code: Option<ToolErrorCode>,
    /// The accesses, sorted, each once.
    pub touched: Vec<Access>,
    /// The sandbox in which a command ran.
    pub sandbox: Option<SandboxRecord>,
}

/// An access to a resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    Read(Resource),
    Wrote(Resource),
}

/// A source or a destination of data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A file or folder of the agent's workspace: its path there, without links, `.` and `..`.
    File(String),
    /// The whole of the agent's workspace.
    Workspace,
    /// A file or folder of an additional directory of the session: the directory's name, and the path there, without links, `.`
    /// and `..`.
    FileIn(Arc<str>, String),
    /// The whole of an additional directory of the session.
    Folder(Arc<str>),
    /// A key of the agent's memory.
    Memory(String),
    /// A mailbox message to another agent.
    MailboxMessage(String),
    Schedule(String),
    /// The host of an address, in lowercase.
    Url(String),
    /// The key of another session.
    Session(String),
}

/// The error code of a call that has no answer, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorCode {
    /// The input of the call is invalid; nothing was done.
    InvalidInput,
    NotFound,
    /// It is not allowed here for any caller.
    Refused,
    /// The state is not what the call expects.
    Conflict,
    /// A limit of the host is reached.
    TooLarge,
    /// This host does not provide it or is not configured for it.
    Unavailable,
    TimedOut,
    /// The program that it started was killed before it ended.
    Killed,
    /// Its turn ended before the call did.
    Cancelled,
    Failed,
}

/// The error of a call: its code, and a sentence that tells the model what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    pub code: ToolErrorCode,
    pub sentence: String,
}

/// The answer of a call, or its error.
pub type ToolAnswer = Result<String, ToolError>;

/// The accesses of a call so far; clones share them.
#[derive(Debug, Clone, Default)]
pub struct AccessLog {
    steps: Arc<Mutex<AccessLogState>>,
    /// The additional directory that contains the call's path, if one does.
    folder: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct AccessLogState {
    touched: BTreeSet<Access>,
    sandbox: Option<SandboxRecord>,
    closed: bool,
}

/// The accesses of a call that is over, and the sandbox in which its command ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallAccesses {
    pub touched: Vec<Access>,
    pub sandbox: Option<SandboxRecord>,
}

/// Closes the log when it is dropped, because no caller waits for the call any more.
#[derive(Debug)]
pub struct ClosedOnDrop(AccessLog);

impl ToolRun {
    pub fn new(answer: ToolAnswer, accesses: CallAccesses) -> Self {
        let CallAccesses { touched, sandbox } = accesses;
        let (outcome, code) = match answer {
            Ok(text) => (ToolOutcome::good(bounded(text)), None),
            Err(ToolError { code, sentence }) => (ToolOutcome::error(bounded(sentence)), Some(code)),
        };
        Self { outcome, code, touched, sandbox }
    }
}

impl ToolRun {
    /// How the call ended, for its ledger record.
    pub fn how(&self) -> CallOutcome {
        match self.code {
            Some(ToolErrorCode::TimedOut) => CallOutcome::TimedOut,
            Some(ToolErrorCode::Killed) => CallOutcome::Killed,
            Some(ToolErrorCode::Cancelled) => CallOutcome::Cancelled,
            Some(
                ToolErrorCode::InvalidInput
                | ToolErrorCode::NotFound
                | ToolErrorCode::Refused
                | ToolErrorCode::Conflict
                | ToolErrorCode::TooLarge
                | ToolErrorCode::Unavailable
                | ToolErrorCode::Failed,
            )
            | None => CallOutcome::Ran,
        }
    }

    /// A call that failed, with a sentence for the model.
    pub fn failed(sentence: &str) -> Self {
        Self::new(Err(ToolError::new(ToolErrorCode::Failed, sentence)), CallAccesses::default())
    }
}

impl ToolErrorCode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid_input",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::Conflict => "conflict",
            Self::TooLarge => "too_large",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed_out",
            Self::Killed => "killed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl ToolError {
    pub fn new(code: ToolErrorCode, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into() }
    }
}

impl Resource {
    /// Every resource that a command of a session can access: the workspace and each additional directory.
    pub fn all_of(ground: &WorkspaceRoots) -> impl Iterator<Item = Self> {
        let folders = ground.additional_directories().iter();
        let folders = folders.map(|folder| Self::Folder(folder.as_str().into()));
        std::iter::once(Self::Workspace).chain(folders)
    }

    /// The same resource, in an additional directory.
    fn within(self, folder: &Arc<str>) -> Self {
        match self {
            Self::File(path) => Self::FileIn(Arc::clone(folder), path),
            Self::Workspace => Self::Folder(Arc::clone(folder)),
            other => other,
        }
    }
}

impl AccessLog {
    /// The same log, for a call whose path is in this additional directory.
    pub fn within(&self, folder: Option<Arc<str>>) -> Self {
        Self { steps: Arc::clone(&self.steps), folder }
    }

    /// Records a read before it happens. Fails if the log is closed.
    pub fn read(&self, resource: Resource) -> Result<(), ToolError> {
        self.note(Access::Read(self.placed(resource)))
    }

    /// Records a write before it happens. Fails if the log is closed.
    pub fn write(&self, resource: Resource) -> Result<(), ToolError> {
        self.note(Access::Wrote(self.placed(resource)))
    }

    fn placed(&self, resource: Resource) -> Resource {
        match &self.folder {
            Some(folder) => resource.within(folder),
            None => resource,
        }
    }

    /// Records the sandbox in which a command runs.
    pub fn ran_in(&self, sandbox: SandboxRecord) {
        self.steps().sandbox = Some(sandbox);
    }

    pub fn closing(&self) -> ClosedOnDrop {
        ClosedOnDrop(self.clone())
    }

    fn note(&self, touched: Access) -> Result<(), ToolError> {
        let mut steps = self.steps();
        if steps.closed {
            return Err(ToolError::new(ToolErrorCode::TimedOut, "the call was abandoned: ask again"));
        }
        steps.touched.insert(touched);
        Ok(())
    }

    fn close(&self) -> CallAccesses {
        let mut steps = self.steps();
        steps.closed = true;
        let touched = std::mem::take(&mut steps.touched).into_iter().collect();
        CallAccesses { touched, sandbox: steps.sandbox.take() }
    }

    /// Ignores a poisoned lock: a thread that panicked leaves a consistent set.
    fn steps(&self) -> MutexGuard<'_, AccessLogState> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClosedOnDrop {
    /// Closes the log. Returns all accesses, and the sandbox in which a command ran.
    pub fn close(self) -> CallAccesses {
        self.0.close()
    }
}

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_log_refuses_further_accesses() {
        let trail = AccessLog::default();
        let closing = trail.closing();
        for _ in 0..2 {
            trail.write(Resource::Workspace).unwrap();
            trail.read(Resource::File("a".to_owned())).unwrap();
        }
        assert_eq!(
            closing.close().touched,
            [Access::Read(Resource::File("a".to_owned())), Access::Wrote(Resource::Workspace)]
        );
        assert_eq!(trail.read(Resource::Workspace).unwrap_err().code, ToolErrorCode::TimedOut);
        let trail = AccessLog::default();
        let closing = trail.closing();
        let within = trail.within(Some("/srv/lib".into()));
        within.read(Resource::File("a".to_owned())).unwrap();
        within.write(Resource::Workspace).unwrap();
        let folder: Arc<str> = "/srv/lib".into();
        let read = Access::Read(Resource::FileIn(Arc::clone(&folder), "a".to_owned()));
        assert_eq!(closing.close().touched, [read, Access::Wrote(Resource::Folder(folder))]);
        let dropped = AccessLog::default();
        drop(dropped.closing());
        assert!(dropped.write(Resource::Workspace).is_err());
    }

    #[test]
    fn a_code_prints_as_it_serialises() {
        for code in [ToolErrorCode::InvalidInput, ToolErrorCode::TimedOut, ToolErrorCode::Refused] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
