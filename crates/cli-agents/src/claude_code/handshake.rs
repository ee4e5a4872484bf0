//! The handshake with Claude Code: installs a hook before each of its tool calls, and sets the mode in which it asks.

use std::pin::pin;

use serde_json::json;

use crate::agent_protocol::{
    AgentConversation, AgentProtocol, HandshakeError, HandshakeParams, McpSupport, PromptCapabilities,
    ResumeState,
};
use crate::connection::{AgentConnection, Incoming, ListenPhase};
use tribune_runtime::{ErrorKind, RuntimeError};

/// The id of the hook.
pub(super) const HOOK: &str = "tribune";

/// Seconds after which it takes a hook call for unanswered, and does not make the tool call: longer than any approval
/// waits for a person.
const HOOK_SECONDS: u32 = 1_000_000;

/// Performs the handshake.
pub(super) async fn handshake(
    codec: &dyn AgentProtocol,
    connection: &AgentConnection,
    params: HandshakeParams<'_>,
) -> Result<AgentConversation, HandshakeError> {
    let hook = json!({ "matcher": null, "hookCallbackIds": [HOOK], "timeout": HOOK_SECONDS });
    let initialize = json!({ "hooks": { "PreToolUse": [hook] } });
    let mut receiver = connection.listen(ListenPhase::Handshake);
    let mut asking = pin!(connection.request("initialize", &initialize));
    let mut is_refused = false;
    let answer = loop {
        tokio::select! {
            biased;
            Some(receiver) = receiver.next() => match receiver {
                // The end of a turn that never began: it does not have the conversation that it was to resume.
                Incoming::Notification { params: what, .. } => is_refused |= what["type"] == "result",
                Incoming::OutOfProtocol { .. } => {}
                Incoming::Request { id, method, .. } => connection.send(codec.reject_request(&id, &method)).await,
            },
            answer = &mut asking => break answer,
        }
    };
    match answer {
        Ok(_) => {}
        Err(_) if is_refused && params.resumable.is_some() => return Err(HandshakeError::CannotResume),
        Err(fault) => return Err(HandshakeError::Failed(fault.into_error("initialize"))),
    }
    if let Some(mode) = params.profile.mode() {
        let set = connection.request("set_permission_mode", &json!({ "mode": mode })).await;
        let set = set.map_err(|fault| HandshakeError::Failed(fault.into_error("set_permission_mode")))?;
        if set["mode"].as_str().is_some_and(|now| now != mode) {
            let what = format!("the agent did not go into the mode `{mode}`: change `mode` in its profile");
            return Err(HandshakeError::Failed(RuntimeError::new(ErrorKind::AgentRefused, what)));
        }
    }
    let began = if params.resumable.is_some() { ResumeState::Resumed } else { ResumeState::New };
    let capabilities = PromptCapabilities { image: true, audio: false, resource: false };
    // It was told of the servers at its start, where its profile says how.
    let servers =
        if params.profile.per_server().is_empty() { McpSupport::Unsupported } else { McpSupport::Offered };
    Ok(AgentConversation { id: params.resumable.map(str::to_owned), began, capabilities, servers })
}
