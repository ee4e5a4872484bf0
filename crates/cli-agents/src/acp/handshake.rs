//! The handshake of ACP: version, capabilities of both sides, and a new or resumed session.

use serde_json::{Value, json};

use super::passthrough_meta::session_response_meta;
use crate::agent_protocol::{
    AgentConversation, HandshakeParams, McpSupport, PromptCapabilities, ResumeState,
};
use crate::connection::{AgentConnection, ConnectionFault};
use crate::mcp_bridge::ServerEndpoint;
use crate::profile::{Capabilities, Profile, Quirk};
use tribune_runtime::{ErrorKind, RuntimeError};

/// The version of ACP that this client speaks.
const VERSION: u64 = 1;

/// Performs the handshake.
pub(super) async fn handshake(
    connection: &AgentConnection,
    params: HandshakeParams<'_>,
) -> Result<AgentConversation, RuntimeError> {
    let HandshakeParams { profile, workspace, resumable, servers } = params;
    let Capabilities { fs, terminal } = profile.capabilities();
    let initialize = json!({
        "protocolVersion": VERSION,
        "clientCapabilities": {
            "fs": { "readTextFile": fs.read_text_file, "writeTextFile": fs.write_text_file },
            "terminal": terminal,
        },
        "clientInfo": { "name": "tribune", "title": "Tribune", "version": env!("CARGO_PKG_VERSION") },
    });
    let answer = connection
        .request("initialize", &initialize)
        .await
        .map_err(|fault| fault_error("initialize", fault))?;
    if answer["protocolVersion"] != VERSION {
        let what = format!(
            "the agent speaks version {} of ACP and not {VERSION}: install the version that its profile names",
            answer["protocolVersion"]
        );
        return Err(RuntimeError::new(ErrorKind::AgentProtocol, what));
    }
    let agent_capabilities = &answer["agentCapabilities"];
    let prompt = &agent_capabilities["promptCapabilities"];
    let capabilities = PromptCapabilities {
        image: prompt["image"] == true,
        audio: prompt["audio"] == true,
        resource: prompt["embeddedContext"] == true,
    };
    let takes_servers =
        agent_capabilities["mcpCapabilities"]["http"] == true && !profile.has(Quirk::IgnoresServers);
    let (servers, mcp_support) = match takes_servers {
        true => (servers.iter().map(ServerEndpoint::acp).collect::<Vec<_>>(), McpSupport::Offered),
        false => (Vec::new(), McpSupport::Unsupported),
    };
    let session_params = json!({ "cwd": workspace, "mcpServers": servers });
    if let Some(resumable) = resumable
        && resume(connection, agent_capabilities, resumable, &session_params).await?
    {
        set_mode(connection, profile, resumable).await?;
        return Ok(AgentConversation {
            id: Some(resumable.to_owned()),
            began: ResumeState::Resumed,
            capabilities,
            servers: mcp_support,
        });
    }
    let (new, line) = connection
        .request_with_line("session/new", &session_params)
        .await
        .map_err(|fault| fault_error("session/new", fault))?;
    connection.keep_opening(session_response_meta("session/new", &new, &line));
    let Some(id) = new["sessionId"].as_str().filter(|id| !id.is_empty()) else {
        return Err(RuntimeError::new(
            ErrorKind::AgentProtocol,
            "the agent began a session without a name, which is no ACP",
        ));
    };
    set_mode(connection, profile, id).await?;
    let began = if resumable.is_some() { ResumeState::Lost } else { ResumeState::New };
    Ok(AgentConversation { id: Some(id.to_owned()), began, capabilities, servers: mcp_support })
}

/// Resumes an earlier session, if the agent can. An agent that does not find it begins a new one.
async fn resume(
    connection: &AgentConnection,
    agent_capabilities: &Value,
    resumable: &str,
    session_params: &Value,
) -> Result<bool, RuntimeError> {
    let resume = &agent_capabilities["sessionCapabilities"]["resume"];
    let method = if !resume.is_null() && *resume != false {
        "session/resume"
    } else if agent_capabilities["loadSession"] == true {
        "session/load"
    } else {
        return Ok(false);
    };
    let mut params = session_params.clone();
    params["sessionId"] = resumable.into();
    match connection.request_with_line(method, &params).await {
        Ok((answer, line)) => {
            connection.keep_opening(session_response_meta(method, &answer, &line));
            Ok(true)
        }
        Err(ConnectionFault::Refused(_)) => Ok(false),
        Err(fault) => Err(fault_error(method, fault)),
    }
}

/// Sets the mode in which the agent asks for permission. Without it no turn runs.
async fn set_mode(connection: &AgentConnection, profile: &Profile, id: &str) -> Result<(), RuntimeError> {
    let Some(mode) = profile.mode() else { return Ok(()) };
    let params = json!({ "sessionId": id, "modeId": mode });
    let set = connection.request("session/set_mode", &params).await;
    set.map(drop).map_err(|fault| fault_error("session/set_mode", fault))
}

/// A fault in a sentence.
pub(super) fn fault_error(method: &str, fault: ConnectionFault) -> RuntimeError {
    match fault {
        ConnectionFault::Refused(refusal) if refusal.code == -32000 => RuntimeError::new(
            ErrorKind::AgentRefused,
            "the agent wants to be logged in: its profile must lead it to a model of this instance, with a placeholder for a key",
        ),
        fault => fault.into_error(method),
    }
}
