//! [`ToolExecutor`] for [`HostTools`], through which governance uses the tools.

use std::sync::Arc;

use async_trait::async_trait;
use tribune_governance::gate::Admission;
use tribune_governance::turn::{CallDependencies, ToolExecutor};
use tribune_records::outcome::{Done, Refused, Touched};
use tribune_records::workspace_roots::Ground;
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
            Some(mcp) => mcp.as_the_law_knows(session, call),
            None => call,
        }
    }

    async fn run(&self, admission: Admission, terminal: Option<Arc<Terminal>>) -> Done {
        self.run_followed(admission, terminal).await
    }

    fn dependencies(&self, ground: &Ground, call: &ToolCall) -> CallDependencies {
        self.dependencies_of(ground, call)
    }

    fn predict_access(&self, ground: &Ground, call: &ToolCall) -> Vec<Touched> {
        self.would_touch(ground, call)
    }

    fn path_alias(&self, ground: &Ground, call: &ToolCall) -> Option<String> {
        self.other_name(ground, call)
    }

    fn precheck(&self, ground: &Ground, call: &ToolCall) -> Option<Refused> {
        self.futile(ground, call)
    }

    fn end_session(&self, session: &SessionKey) {
        if let Some(mcp) = &self.mcp {
            mcp.end(session);
        }
    }
}
