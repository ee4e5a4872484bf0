//! `mcp`: calls a tool of an MCP server of the session. Agents call the tool by another name. Only its server knows what the
//! tool does.

use serde_json::{Value, json};
use tribune_constitution::MCP;
use tribune_records::outcome::{AccessLog, Resource, ToolAnswer, ToolError, ToolErrorCode};
use tribune_runtime::SessionKey;

use super::input::Input;
use crate::mcp::{CalledTool, McpServers};

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Mcp {
    server: String,
    tool: String,
    definition: String,
    arguments: Value,
}

impl Mcp {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let fields = Input::new(MCP, input, &["name", "action", "arguments", "definition"])?;
        let arguments = match input.get("arguments") {
            None | Some(Value::Null) => json!({}),
            Some(arguments @ Value::Object(_)) => arguments.clone(),
            Some(_) => return Err("the arguments of a tool of an MCP server are an object".to_owned()),
        };
        Ok(Self {
            server: fields.text("name")?.to_owned(),
            tool: fields.text("action")?.to_owned(),
            definition: fields.text("definition")?.to_owned(),
            arguments,
        })
    }

    pub(super) async fn run(
        self,
        servers: Option<&McpServers>,
        session: &SessionKey,
        trail: &AccessLog,
    ) -> ToolAnswer {
        let Some(servers) = servers else {
            return Err(ToolError::new(
                ToolErrorCode::Unavailable,
                "there are no MCP servers here: do without",
            ));
        };
        // The server has the workspace and does not report its access.
        trail.read(Resource::Workspace)?;
        trail.write(Resource::Workspace)?;
        let tool = CalledTool { server: &self.server, tool: &self.tool, definition: &self.definition };
        servers.call(session, tool, &self.arguments).await
    }
}
