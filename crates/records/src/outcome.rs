//! What came of a call: the answer, a word for programs if there is none, and what the call touched.
//!
//! Labels follow data, so everything a call reads or writes is noted on its [`Trail`] before it is done. When nobody waits
//! for the call any more the trail is closed, and what is not on it then does not happen.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tribune_runtime::ToolOutcome;

use super::text::bounded;
use super::workspace_roots::WorkspaceRoots;
use crate::ledger_payloads::{CallOutcome, SandboxRecord};

/// A call that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRun {
    pub outcome: ToolOutcome,
    /// Why there is no answer, if there is none.
    pub code: Option<ToolErrorCode>,
    /// In order, each once.
    pub touched: Vec<Access>,
    /// What a command ran in.
    pub sandbox: Option<SandboxRecord>,
}

/// How something was touched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    Read(Resource),
    Wrote(Resource),
}

/// Something that data comes from or goes to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A file or folder of the agent's workspace: its path there, without links, `.` and `..`.
    File(String),
    /// Anything in the agent's workspace.
    Workspace,
    /// A file or folder of a further folder of the session: the folder's name, and the path there, without links, `.` and `..`.
    FileIn(Arc<str>, String),
    /// Anything in a further folder of the session.
    Folder(Arc<str>),
    /// A key of the agent's memory.
    Memory(String),
    /// A letter to another agent.
    Letter(String),
    Schedule(String),
    /// The host of an address, in lowercase.
    Url(String),
    /// The key of another session.
    Session(String),
}

/// Why a call has no answer, in one word for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolErrorCode {
    /// The input of the call is wrong; nothing was done.
    InvalidInput,
    NotFound,
    /// It is not allowed here, whoever asks.
    Refused,
    /// Something is not as the call expects it.
    Conflict,
    /// A bound of the host is reached.
    TooLarge,
    /// This host does not provide it, or is not set up for it.
    Unavailable,
    TimedOut,
    /// What it started was ended before it was done.
    Killed,
    /// Its turn ended before it did.
    Cancelled,
    Failed,
}

/// Why a call has no answer: the word, and a sentence for the model that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    pub code: ToolErrorCode,
    pub sentence: String,
}

/// The answer, or why there is none.
pub type ToolAnswer = Result<String, ToolError>;

/// What a call has touched so far.
#[derive(Debug, Clone, Default)]
pub struct AccessLog {
    steps: Arc<Mutex<AccessLogState>>,
    /// The further folder that the call is about, if it is about one.
    folder: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct AccessLogState {
    touched: BTreeSet<Access>,
    sandbox: Option<SandboxRecord>,
    closed: bool,
}

/// Closes the trail when nobody waits for the call any more.
#[derive(Debug)]
pub struct ClosedOnDrop(AccessLog);

impl ToolRun {
    pub fn new(answer: ToolAnswer, (touched, sandbox): (Vec<Access>, Option<SandboxRecord>)) -> Self {
        let (outcome, code) = match answer {
            Ok(text) => (ToolOutcome::good(bounded(text)), None),
            Err(ToolError { code, sentence }) => (ToolOutcome::error(bounded(sentence)), Some(code)),
        };
        Self { outcome, code, touched, sandbox }
    }
}

impl ToolRun {
    /// How it ended, for the record.
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

    /// A call that came to nothing.
    pub fn failed(sentence: &str) -> Self {
        Self::new(Err(ToolError::new(ToolErrorCode::Failed, sentence)), (Vec::new(), None))
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
    /// Everything that a command of a session reaches.
    pub fn all_of(ground: &WorkspaceRoots) -> impl Iterator<Item = Self> {
        let further = ground.further().iter().map(|folder| Self::Folder(folder.as_str().into()));
        std::iter::once(Self::Workspace).chain(further)
    }

    /// The same in a further folder.
    fn within(self, folder: &Arc<str>) -> Self {
        match self {
            Self::File(path) => Self::FileIn(Arc::clone(folder), path),
            Self::Workspace => Self::Folder(Arc::clone(folder)),
            other => other,
        }
    }
}

impl AccessLog {
    /// The same trail, of a call whose path is in this further folder.
    pub fn within(&self, folder: Option<Arc<str>>) -> Self {
        Self { steps: Arc::clone(&self.steps), folder }
    }

    /// Notes what is about to be read.
    pub fn read(&self, resource: Resource) -> Result<(), ToolError> {
        self.note(Access::Read(self.placed(resource)))
    }

    /// Notes what is about to be written.
    pub fn write(&self, resource: Resource) -> Result<(), ToolError> {
        self.note(Access::Wrote(self.placed(resource)))
    }

    fn placed(&self, resource: Resource) -> Resource {
        match &self.folder {
            Some(folder) => resource.within(folder),
            None => resource,
        }
    }

    /// Notes what a command runs in.
    pub fn ran_in(&self, sandbox: SandboxRecord) {
        self.steps().sandbox = Some(sandbox);
    }

    pub fn closing(&self) -> ClosedOnDrop {
        ClosedOnDrop(self.clone())
    }

    fn note(&self, touched: Access) -> Result<(), ToolError> {
        let mut steps = self.steps();
        if steps.closed {
            return Err(ToolError::new(ToolErrorCode::TimedOut, "the call was given up: ask again"));
        }
        steps.touched.insert(touched);
        Ok(())
    }

    fn close(&self) -> (Vec<Access>, Option<SandboxRecord>) {
        let mut steps = self.steps();
        steps.closed = true;
        (std::mem::take(&mut steps.touched).into_iter().collect(), steps.sandbox.take())
    }

    /// A thread that panicked left a whole set behind.
    fn steps(&self) -> MutexGuard<'_, AccessLogState> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClosedOnDrop {
    /// Everything that was touched, nothing else will be; and what a command ran in.
    pub fn close(self) -> (Vec<Access>, Option<SandboxRecord>) {
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
    fn nothing_is_touched_behind_a_closed_trail() {
        let trail = AccessLog::default();
        let closing = trail.closing();
        for _ in 0..2 {
            trail.write(Resource::Workspace).unwrap();
            trail.read(Resource::File("a".to_owned())).unwrap();
        }
        assert_eq!(
            closing.close().0,
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
        assert_eq!(closing.close().0, [read, Access::Wrote(Resource::Folder(folder))]);
        let dropped = AccessLog::default();
        drop(dropped.closing());
        assert!(dropped.write(Resource::Workspace).is_err());
    }

    #[test]
    fn a_code_has_one_spelling() {
        for code in [ToolErrorCode::InvalidInput, ToolErrorCode::TimedOut, ToolErrorCode::Refused] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
