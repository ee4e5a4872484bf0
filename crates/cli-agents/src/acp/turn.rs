//! One turn of an ACP agent: its messages become events, its requests go to the toolbox, until it responds to the
//! prompt.

mod terminals;

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::handshake::fault_error;
use super::passthrough_meta::{ChunkKind, ChunkMetadata, has_unknown_members, prompt_response_meta};
use super::permission_options::{OptionChoice, cancelled, choose};
use super::terminals::TurnTerminals;
use super::{ASK, wire};
use crate::agent_protocol::{AgentTurn, ConnectedAgent, TurnStep};
use crate::connection::{AgentConnection, ConnectionFault, Incoming, ListenPhase, TurnReceiver};
use crate::denial_notes::DenialNotes;
use crate::mcp_calls::McpCallRunner;
use crate::normalize::{self, NormalizedCall};
use crate::passthrough::pass_through;
use crate::permissions::{PermissionAnswer, PermissionRequest, PermissionTracker, RunningReport};
use crate::profile::{Profile, Quirk};
use crate::tool_calls::{UpdateError, UpdateKind};
use tribune_runtime::call_id::host_call_id;
use tribune_runtime::content::ContentBlock;
use tribune_runtime::{ErrorKind, RuntimeError, ToolCall, Toolbox, TurnInput};
use tribune_runtime::{EventKind, StopReason};

/// Files that are written and read for the agent at once. Each may be as long as a line.
const MAX_FILE_REQUESTS: usize = 16;

/// A running turn.
pub(super) struct AcpTurn {
    connection: AgentConnection,
    profile: Arc<Profile>,
    workspace: Arc<str>,
    conversation: String,
    tools: Arc<dyn Toolbox>,
    receiver: TurnReceiver,
    prompt: Pin<Box<dyn Future<Output = Result<Value, ConnectionFault>> + Send>>,
    permissions: PermissionTracker<AcpPermissionRequest>,
    /// File requests that are being handled; each returns the response line.
    file_responses: FuturesUnordered<BoxFuture<'static, String>>,
    /// File and terminal requests so far that became calls of their own, to give each an id.
    callbacks: usize,
    terminals: TurnTerminals,
    mcp_runner: McpCallRunner,
    denials: DenialNotes,
    chunk_metadata: ChunkMetadata,
    cancel: CancellationToken,
    is_cancelled: bool,
}

/// A permission request.
struct AcpPermissionRequest {
    request: Value,
    options: Value,
}

impl PermissionRequest for AcpPermissionRequest {
    fn way(&self) -> &'static str {
        ASK
    }

    fn answer(&self, answer: &PermissionAnswer) -> (String, bool) {
        let (reply, allows) = match answer {
            PermissionAnswer::Allow => choose(&self.options, OptionChoice::Allow),
            PermissionAnswer::Deny(_) => choose(&self.options, OptionChoice::Refuse),
            PermissionAnswer::Cancelled => (cancelled(), false),
        };
        (wire::response(&self.request, &reply), allows)
    }
}

#[async_trait]
impl AgentTurn for AcpTurn {
    async fn next(&mut self) -> TurnStep {
        loop {
            let step = tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !self.is_cancelled => {
                    self.cancel_turn().await;
                    None
                }
                // Messages that arrived before the end are handled before it.
                Some(message) = self.receiver.next() => self.on_message(message).await,
                decided = self.permissions.next_decision() => {
                    if let Some((call, why)) = self.permissions.denial(&decided) {
                        self.denials.add(&call, &why);
                    }
                    let lines = self.permissions.answer_lines(decided).await;
                    self.connection.send_all(lines).await;
                    None
                }
                Some(line) = self.file_responses.next(), if !self.file_responses.is_empty() => {
                    self.connection.send(line).await;
                    None
                }
                event = self.terminals.next() => self.on_terminal_event(event).await,
                event = self.mcp_runner.next() => {
                    self.mcp_runner.take(event, &mut self.permissions).err().map(|error| TurnStep::Failed(error.into()))
                }
                ended = &mut self.prompt => Some(self.finish(ended).await),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }
}

impl AcpTurn {
    pub(super) fn begin(agent: &ConnectedAgent, input: &TurnInput, prompt: &[ContentBlock]) -> Self {
        let receiver = agent.connection.listen(ListenPhase::Turn);
        // INVARIANT: the handshake set the id.
        let conversation = agent.conversation.id.clone().unwrap_or_default();
        let params = json!({ "sessionId": conversation, "prompt": prompt });
        let connection = agent.connection.clone();
        let response = async move { connection.request_unbounded("session/prompt", &params).await };
        let under_way = match agent.profile.has(Quirk::StartsBeforeAsking) {
            true => RunningReport::MayPrecedeRequest,
            false => RunningReport::MeansExecuted,
        };
        let tools = || Arc::clone(&input.tools);
        Self {
            connection: agent.connection.clone(),
            profile: Arc::clone(&agent.profile),
            workspace: Arc::clone(&agent.workspace),
            conversation,
            tools: tools(),
            receiver,
            prompt: Box::pin(response),
            permissions: PermissionTracker::new(
                tools(),
                Arc::clone(&agent.workspace),
                under_way,
                agent.offered_servers(),
            ),
            file_responses: FuturesUnordered::new(),
            callbacks: 0,
            terminals: TurnTerminals::new(tools()),
            mcp_runner: McpCallRunner::new(tools(), agent.offered_servers()),
            denials: agent.denials.clone(),
            chunk_metadata: ChunkMetadata::default(),
            cancel: input.cancel.clone(),
            is_cancelled: false,
        }
    }

    /// Tells the agent to end its turn, and answers all of its open requests.
    async fn cancel_turn(&mut self) {
        self.is_cancelled = true;
        let params = json!({ "sessionId": self.conversation });
        self.connection.send(wire::notification("session/cancel", &params)).await;
        self.file_responses.clear();
        self.terminals.end();
        self.mcp_runner.end();
        let lines = self.permissions.cancel_all();
        self.connection.send_all(lines).await;
    }

    async fn on_message(&mut self, message: Incoming) -> Option<TurnStep> {
        let session = match &message {
            Incoming::Notification { params, .. } | Incoming::Request { params, .. } => &params["sessionId"],
            Incoming::OutOfProtocol { method, line } => {
                return pass_through(method, line).and_then(TurnStep::event);
            }
        };
        if *session != self.conversation.as_str() {
            let what = "the agent named a session that is not this one, and was stopped";
            return Some(TurnStep::Failed(RuntimeError::new(ErrorKind::AgentProtocol, what)));
        }
        match message {
            Incoming::Notification { line, params } => self.on_update(&line, &params).await,
            // Handled above.
            Incoming::OutOfProtocol { .. } => None,
            Incoming::Request { id, method, params, line } if method == ASK => {
                self.on_permission_request(id, &params, &line).await
            }
            Incoming::Request { id, method, params, line } => {
                let refused = match method.starts_with("terminal/") {
                    true => self.terminal_request(&id, &method, &params, &line),
                    false => Ok(self.file_request(&id, &method, &params)),
                };
                match refused {
                    Ok(refused) => self.connection.send_all(refused.into_iter().collect()).await,
                    Err(error) => return Some(TurnStep::Failed(error.into())),
                }
                None
            }
        }
    }

    async fn on_update(&mut self, line: &str, params: &Value) -> Option<TurnStep> {
        let update = &params["update"];
        let text = || update["content"]["text"].as_str().filter(|_| update["content"]["type"] == "text");
        match (update["sessionUpdate"].as_str().unwrap_or_default(), text()) {
            ("agent_message_chunk", Some(text)) => {
                let chunk_metadata = self.chunk_metadata.changed(ChunkKind::Message, params);
                let words = EventKind::TextDelta { text: text.to_owned() };
                Some(TurnStep::Events(chunk_metadata.into_iter().chain([words]).collect()))
            }
            ("agent_thought_chunk", Some(text)) => {
                let chunk_metadata = self.chunk_metadata.changed(ChunkKind::Thought, params);
                let words = EventKind::ReasoningDelta { text: text.to_owned() };
                Some(TurnStep::Events(chunk_metadata.into_iter().chain([words]).collect()))
            }
            // An echo of the prompt, parts of which are for the agent alone.
            ("user_message_chunk", _) => None,
            // The host's own events tell what was asked and decided; this one shows the agent's view of the call.
            (kind @ ("tool_call" | "tool_call_update"), _) => {
                let update_kind =
                    if kind == "tool_call" { UpdateKind::Begins } else { UpdateKind::Continues };
                let ran = self.terminals.commands_shown_in(update);
                match self.permissions.on_report(&self.with_tool_name(update), line, update_kind, ran).await {
                    None => pass_through(kind, line).and_then(TurnStep::event),
                    step => step,
                }
            }
            ("current_mode_update", _)
                if self.profile.mode().is_some_and(|mode| update["currentModeId"] != mode) =>
            {
                let (id, tool) = ("mode".to_owned(), "unknown".to_owned());
                let what = "it left the mode in which it asks".to_owned();
                Some(TurnStep::Ungoverned { id, tool, what })
            }
            (kind, _) => pass_through(kind, line).and_then(TurnStep::event),
        }
    }

    /// The report of a call, with the name of its tool taken from the id if only the id has it.
    fn with_tool_name<'a>(&self, report: &'a Value) -> Cow<'a, Value> {
        let name = report["toolCallId"].as_str().and_then(|id| id.split_once("__")).map(|(name, _)| name);
        match name.filter(|_| self.profile.has(Quirk::NamesInIds) && report["name"].is_null()) {
            Some(name) => {
                let mut report = report.clone();
                report["name"] = name.into();
                Cow::Owned(report)
            }
            None => Cow::Borrowed(report),
        }
    }

    /// The agent requests permission.
    async fn on_permission_request(
        &mut self,
        request: Value,
        params: &Value,
        line: &str,
    ) -> Option<TurnStep> {
        let call = self.with_tool_name(&params["toolCall"]);
        if self.is_cancelled {
            let noted = self.permissions.refuse(&call, line, "the turn was cancelled");
            self.connection.send(wire::response(&request, &cancelled())).await;
            return noted
                .err()
                .filter(|error| *error == UpdateError::TooMuch)
                .map(|error| TurnStep::Failed(error.into()));
        }
        let question = AcpPermissionRequest { request: request.clone(), options: params["options"].clone() };
        match self.permissions.ask(question, &call, line) {
            Ok(lines) => self.connection.send_all(lines).await,
            Err(UpdateError::NoUsableId) => {
                self.connection.send(wire::error(&request, wire::INVALID_PARAMS, "the call has no id")).await;
            }
            Err(error) => return Some(TurnStep::Failed(error.into())),
        }
        // This event comes before a person is asked.
        has_unknown_members(params).then(|| pass_through(ASK, line)).flatten().and_then(TurnStep::event)
    }

    /// Handles a file request. Returns the line that refuses it, if it is refused.
    fn file_request(&mut self, request: &Value, method: &str, params: &Value) -> Option<String> {
        let fs = self.profile.capabilities().fs;
        let is_offered = match method {
            "fs/write_text_file" => fs.write_text_file,
            "fs/read_text_file" => fs.read_text_file,
            _ => false,
        };
        if !is_offered {
            return Some(wire::error(request, wire::METHOD_NOT_FOUND, "this is not offered here"));
        }
        if self.is_cancelled || self.file_responses.len() >= MAX_FILE_REQUESTS {
            return Some(wire::error(request, wire::INTERNAL, "too much is asked at once: nothing is done"));
        }
        match method {
            "fs/write_text_file" => self.write(request.clone(), params),
            _ => self.read(request.clone(), params),
        }
        None
    }

    /// Writes a file for the agent: under the permission for exactly that, or as a call of its own.
    fn write(&mut self, request: Value, params: &Value) {
        let (path, content) = (params["path"].as_str(), params["content"].as_str());
        let wanted = normalize::file_write(path.unwrap_or("/"), content.unwrap_or_default(), &self.workspace);
        let (permission, tools) =
            (self.permissions.calls.take_write_permission(&wanted), Arc::clone(&self.tools));
        let call = self.file_call(wanted);
        self.file_responses.push(Box::pin(async move {
            let outcome = match permission {
                Some(own) => tools.execute_granted(&own).await,
                None => tools.call(call).await,
            };
            match outcome.is_error {
                true => wire::error(&request, wire::INTERNAL, &outcome.content),
                false => wire::response(&request, &Value::Null),
            }
        }));
    }

    fn read(&mut self, request: Value, params: &Value) {
        let wanted = normalize::read(params["path"].as_str().unwrap_or("/"), &self.workspace);
        let first = params["line"].as_u64().unwrap_or(1).max(1) - 1;
        let most = params["limit"].as_u64().unwrap_or(u64::MAX);
        let (tools, call) = (Arc::clone(&self.tools), self.file_call(wanted));
        self.file_responses.push(Box::pin(async move {
            let outcome = tools.call(call).await;
            if outcome.is_error {
                return wire::error(&request, wire::INTERNAL, &outcome.content);
            }
            let skipped = usize::try_from(first).unwrap_or(usize::MAX);
            let lines = outcome.content.split_inclusive('\n').skip(skipped);
            let text: String = lines.take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
            wire::response(&request, &json!({ "content": text }))
        }));
    }

    fn file_call(&mut self, wanted: NormalizedCall) -> ToolCall {
        ToolCall { id: callback_id(&mut self.callbacks), name: wanted.tool, input: wanted.input }
    }

    /// The agent responded to the prompt, or the connection is broken.
    async fn finish(&mut self, ended: Result<Value, ConnectionFault>) -> TurnStep {
        // No command outlives its turn, and every outcome is on record before the turn's end.
        let last_responses = self.terminals.settle().await;
        self.mcp_runner.end();
        let answer = match ended {
            Ok(answer) => answer,
            Err(fault) => {
                // An agent that reports calls as begun before it asks may have died in between.
                if !self.profile.has(Quirk::StartsBeforeAsking)
                    && let Some(step) = self.permissions.judge_begun().await
                {
                    return step;
                }
                return TurnStep::Failed(fault_error("the prompt", fault));
            }
        };
        self.connection.send_all(last_responses).await;
        self.file_responses.clear();
        let lines = self.permissions.cancel_all();
        self.connection.send_all(lines).await;
        if let Some(step) = self.permissions.judge_begun().await {
            return step;
        }
        self.permissions.settle().await;
        let mut kinds: Vec<EventKind> = prompt_response_meta(&answer).into_iter().collect();
        let count =
            |name: &str| u32::try_from(answer["usage"][name].as_u64().unwrap_or(0)).unwrap_or(u32::MAX);
        if answer["usage"].is_object() {
            let (input_tokens, output_tokens) = (count("inputTokens"), count("outputTokens"));
            kinds.push(EventKind::UsageUpdate { input_tokens, output_tokens });
        }
        let stop_reason = match answer["stopReason"].as_str().unwrap_or_default() {
            "max_tokens" | "max_turn_requests" => StopReason::MaxTokens,
            "refusal" => StopReason::Refusal,
            _ if self.is_cancelled => StopReason::Cancelled,
            // Some agents report a refused call as a cancelled turn, though the turn was not cancelled.
            _ => StopReason::EndTurn,
        };
        kinds.push(EventKind::Done { stop_reason });
        TurnStep::Ended(kinds, Ok(()))
    }
}

/// The id of the next call that a request of the agent becomes.
fn callback_id(callbacks: &mut usize) -> String {
    *callbacks += 1;
    host_call_id(&format!("callback-{callbacks}"))
}
