//! [`ToolExecutor`] for [`HostTools`], through which governance uses the tools.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tribune_governance::gate::Admission;
use tribune_governance::turn::{CallDependencies, ToolExecutor};
use tribune_records::approval::action::Files;
use tribune_records::outcome::{Access, ToolError, ToolRun};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::{SessionKey, Terminal, ToolCall, ToolSpec};

use super::HostTools;

#[async_trait]
impl ToolExecutor for HostTools {
    fn specs(&self) -> &[ToolSpec] {
        Self::specs()
    }

    fn dynamic_specs(&self, session: &SessionKey) -> Vec<ToolSpec> {
        self.mcp.as_ref().map(|mcp| mcp.specs(session)).unwrap_or_default()
    }

    fn to_policy_call(&self, session: &SessionKey, call: ToolCall) -> ToolCall {
        match &self.mcp {
            Some(mcp) => mcp.to_policy_call(session, call),
            None => call,
        }
    }

    async fn run(&self, admission: Admission, terminal: Option<Arc<Terminal>>) -> ToolRun {
        self.run_followed(admission, terminal).await
    }

    fn dependencies(
        &self,
        ground: &WorkspaceRoots,
        call: &ToolCall,
        stop: &CancellationToken,
    ) -> CallDependencies {
        self.dependencies_of(ground, call, stop)
    }

    fn granted_files(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<Files> {
        self.granted_files_of(ground, call)
    }

    fn predict_access(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Vec<Access> {
        self.predict_access_of(ground, call)
    }

    fn path_alias(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<String> {
        self.other_name(ground, call)
    }

    fn precheck(&self, ground: &WorkspaceRoots, call: &ToolCall) -> Option<ToolError> {
        self.precheck_of(ground, call)
    }

    fn end_session(&self, session: &SessionKey) {
        if let Some(mcp) = &self.mcp {
            mcp.end(session);
        }
    }
}
