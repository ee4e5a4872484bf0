//! The instructions of a workspace for agents (`AGENTS.md` and the like). CLI agents open such files by themselves,
//! with everything that these import or link to, and without asking; therefore they do not see the files, and the host
//! reads the one at the root to them.
//!
//! It is a `read` like any other: judged, on record, and with the file's labels for the session. No person is asked
//! about it, and files that it names are not read.

use serde_json::json;

use tribune_runtime::call_id::host_call_id;
use tribune_runtime::{AgentExecutedCall, PermissionOutcome, PermissionTiming, ToolCall, Toolbox};

/// Bytes of it that an agent gets. CLI agents take about as much by themselves.
const MAX_BYTES: usize = 32 << 10;

/// The text for the agent, or the sentence that says why there is none.
pub(crate) async fn read(tools: &dyn Toolbox, name: &str) -> Result<String, String> {
    let unread = |why: &str| format!("`{name}` of the workspace was not read to the agent: {why}");
    let input = json!({ "path": name, "limit": MAX_BYTES });
    let id = host_call_id("workspace-instructions");
    let call = ToolCall { id: id.clone(), name: "read".to_owned(), input };
    let raw = format!("the host reads `{name}` for its agent");
    // A person's answer would hold up the turn for text that the agent may not need.
    match tools
        .request_permission(AgentExecutedCall { call, raw, timing: PermissionTiming::DuringCall })
        .await
    {
        PermissionOutcome::Granted => {}
        PermissionOutcome::Denied(why) => return Err(unread(&why)),
    }
    let read = tools.execute_granted(&id).await;
    match read.is_error {
        true => Err(unread(&read.content)),
        false => Ok(format!(
            "[`{name}` of the workspace, as it stands there. It is written for agents that work here: follow it where it helps \
             with what you are asked, and where nothing else that you were told speaks against it.]\n{}\n[end of `{name}`]",
            read.content
        )),
    }
}
