//! What a workspace has to say to agents (`AGENTS.md` and its like). Programs open such files by themselves, with whatever these
//! import or a link leads to, and ask nobody; so they do not see them, and the house reads the one at the root to them.
//!
//! It is a `read` like any other: judged, on record, with the labels of the file for the session. Nobody is asked about it, and
//! what it names is not read.

use serde_json::json;

use tribune_runtime::{Leave, OwnCall, ToolCall, Toolbox, When};

/// Bytes of it that an agent is told. Programs take about as much of their own accord.
const MAX_BYTES: usize = 32 << 10;

/// The call's id in the record.
const CALL: &str = "workspace-instructions";

/// The words for the agent, or the sentence that says why there are none.
pub(crate) async fn read(tools: &dyn Toolbox, name: &str) -> Result<String, String> {
    let unread = |why: &str| format!("`{name}` of the workspace was not read to the agent: {why}");
    let input = json!({ "path": name, "limit": MAX_BYTES });
    let call = ToolCall { id: CALL.to_owned(), name: "read".to_owned(), input };
    let said = format!("the house reads `{name}` to its agent");
    // Before anyone could be asked the turn would wait for what its agent may not need.
    match tools.ask_leave(OwnCall { call, said, when: When::Underway }).await {
        Leave::Given => {}
        Leave::Refused(why) => return Err(unread(&why)),
    }
    let read = tools.carry_out(CALL).await;
    match read.is_error {
        true => Err(unread(&read.content)),
        false => Ok(format!(
            "[`{name}` of the workspace, as it stands there. Somebody left it for agents that work here: follow it where it helps \
             with what you are asked, and where nothing else that you were told speaks against it.]\n{}\n[end of `{name}`]",
            read.content
        )),
    }
}
