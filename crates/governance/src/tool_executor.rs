//! The trait through which governance calls the tools. The tools implement it, so that nothing here names them.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tribune_records::approval::action::{Files, TreeStamp};
use tribune_records::outcome::{Access, ToolError, ToolRun};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::{SessionKey, Terminal, ToolCall, ToolSpec};

use crate::gate::Admission;

/// Executes the calls that the gate allows, and predicts what a call would do before it is allowed.
///
/// Decides nothing: [`run`](Self::run) takes an [`Admission`], which only the gate issues.
#[async_trait]
pub trait ToolExecutor: Send + Sync {
    /// The built-in tools, as they are described to agents.
    fn specs(&self) -> &[ToolSpec];

    /// The tools that only this session has: those of its MCP servers.
    fn dynamic_specs(&self, session: &SessionKey) -> Vec<ToolSpec>;

    /// Translates a call of a dynamic tool into the call that the law decides about. Other calls stay as they are.
    fn to_policy_call(&self, session: &SessionKey, call: ToolCall) -> ToolCall;

    /// Executes an allowed call. A client may follow its output on `terminal`. Dropping the future ends the command.
    async fn run(&self, admission: Admission, terminal: Option<Arc<Terminal>>) -> ToolRun;

    /// What the result of a call depends on beside its input. Blocks on the disk, until `stop` is cancelled.
    fn dependencies(
        &self,
        ground: &WorkspaceRoots,
        call: &ToolCall,
        stop: &CancellationToken,
    ) -> CallDependencies;

    /// The files of a call that a grant is bound to; `None` if what the call runs is not known, so that no grant covers
    /// it. Blocks on the disk.
    fn granted_files(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<Files>;

    /// What a call would touch if the agent executed it itself, for its labels. Blocks on the disk.
    fn predict_access(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Vec<Access>;

    /// Why the gate cannot decide about the path of a call that the agent executes itself: it is another name of a
    /// file, such as a link. Blocks on the disk.
    fn path_alias(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<String>;

    /// Why the tool would refuse this call in any case, so that no person is asked about it. Blocks on the disk.
    fn precheck(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<ToolError>;

    /// Ends what runs for a closed session: its MCP servers.
    fn end_session(&self, session: &SessionKey);
}

/// What the result of a call depends on beside its input: the programs and scripts that a command runs, the file that a
/// write replaces. An approval covers these too, so they are read again when the call is about to start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallDependencies {
    /// Paths, in the workspace or absolute, with the hash of their content.
    pub files: BTreeMap<String, String>,
    /// What decides what a command runs and is not among the files, in words.
    pub not_bound: Vec<String>,
    /// The stamp of all files of the session's folders, if the command may run or load any of them.
    pub tree: Option<TreeStamp>,
    /// The content of these files, where it is text within the size limits.
    pub texts: BTreeMap<String, String>,
    pub cwd: Option<String>,
    /// Names of the variables that a command is given.
    pub env: Vec<String>,
}
