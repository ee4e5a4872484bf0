//! One turn of Claude Code: its messages become events, its requests go to the toolbox, until it sends the turn's
//! result.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::permission::{self, ClaudePermissionRequest};
use super::stream_dedup::StreamDedup;
use super::tool_kinds::{self, ResultStatus};
use super::wire;
use crate::agent_protocol::{AgentTurn, ConnectedAgent, TurnStep};
use crate::codec::shown;
use crate::connection::{AgentConnection, ConnectionFault, Incoming, ListenPhase, TurnReceiver};
use crate::mcp_calls::McpCallRunner;
use crate::passthrough::pass_through;
use crate::permissions::{PermissionTracker, RunningReport};
use crate::tool_calls::{UpdateError, UpdateKind};
use tribune_runtime::content::ContentBlock;
use tribune_runtime::{ErrorKind, RuntimeError, TurnInput};
use tribune_runtime::{EventKind, StopReason};

/// Bytes of its conversation id.
const MAX_CONVERSATION: usize = 64;

/// A running turn.
pub(super) struct ClaudeTurn {
    connection: AgentConnection,
    receiver: TurnReceiver,
    permissions: PermissionTracker<ClaudePermissionRequest>,
    mcp_runner: McpCallRunner,
    dedup: StreamDedup,
    /// The prompt, until it is sent.
    opening: Option<String>,
    /// Its conversation id, as last stored.
    conversation: Option<String>,
    /// Steps that were not returned yet.
    steps: VecDeque<TurnStep>,
    cancel: CancellationToken,
    is_cancelled: bool,
}

#[async_trait]
impl AgentTurn for ClaudeTurn {
    async fn next(&mut self) -> TurnStep {
        if let Some(line) = self.opening.take() {
            self.connection.send(line).await;
        }
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !self.is_cancelled => self.cancel_turn().await,
                // Messages that arrived before the end are handled before it.
                Some(message) = self.receiver.next() => self.on_message(message).await,
                decided = self.permissions.next_decision() => {
                    let lines = self.permissions.answer_lines(decided).await;
                    self.connection.send_all(lines).await;
                }
                event = self.mcp_runner.next() => {
                    if let Err(error) = self.mcp_runner.take(event, &mut self.permissions) {
                        self.steps.push_back(TurnStep::Failed(error.into()));
                    }
                }
                // It announces a call before it asks, so an announced call need not have begun.
                why = self.connection.broken() => return TurnStep::Failed(ConnectionFault::Broken(why).into_error("the prompt")),
            }
        }
    }
}

impl ClaudeTurn {
    pub(super) fn begin(agent: &ConnectedAgent, input: &TurnInput, prompt: &[ContentBlock]) -> Self {
        let (workspace, servers) = (Arc::clone(&agent.workspace), agent.offered_servers());
        let tools = || Arc::clone(&input.tools);
        Self {
            connection: agent.connection.clone(),
            receiver: agent.connection.listen(ListenPhase::Turn),
            permissions: PermissionTracker::new(
                tools(),
                workspace,
                RunningReport::MayPrecedeRequest,
                servers,
            ),
            mcp_runner: McpCallRunner::new(tools(), servers),
            dedup: StreamDedup::default(),
            opening: Some(wire::user_message(prompt)),
            conversation: agent.conversation.id.clone(),
            steps: VecDeque::new(),
            cancel: input.cancel.clone(),
            is_cancelled: false,
        }
    }

    /// Tells it to end its turn, and answers all of its open requests.
    async fn cancel_turn(&mut self) {
        self.is_cancelled = true;
        self.connection.request_and_forget("interrupt", &json!({})).await;
        self.mcp_runner.end();
        let lines = self.permissions.cancel_all();
        self.connection.send_all(lines).await;
    }

    async fn on_message(&mut self, message: Incoming) {
        match message {
            Incoming::Request { id, method, params, line } => {
                self.on_request(&id, &method, &params, &line).await
            }
            Incoming::OutOfProtocol { method, line } => {
                self.steps.extend(pass_through(&method, &line).and_then(TurnStep::event));
            }
            Incoming::Notification { line, params } => match params["type"].as_str().unwrap_or_default() {
                "stream_event" if is_own(&params) => {
                    let piece = self.dedup.piece(&params["event"]);
                    self.steps.extend(piece.and_then(TurnStep::event));
                }
                "stream_event" => {}
                "assistant" => self.on_assistant(&line, &params).await,
                "user" => self.on_results(&line, &params).await,
                "control_cancel_request" => {
                    self.permissions.withdraw(|asked| asked.is(&params["request_id"]))
                }
                "result" => self.on_result(&line, &params).await,
                "system" => {
                    // Sent with every turn, and with every request to the model.
                    let subtype = params["subtype"].as_str().unwrap_or_default();
                    if !["init", "status", "thinking_tokens"].contains(&subtype) {
                        self.steps.extend(
                            pass_through(&format!("system/{subtype}"), &line).and_then(TurnStep::event),
                        );
                    }
                }
                kind => self.steps.extend(pass_through(kind, &line).and_then(TurnStep::event)),
            },
        }
    }

    async fn on_request(&mut self, id: &Value, method: &str, params: &Value, line: &str) {
        let Some((asked, report)) = ClaudePermissionRequest::read(id, method, params) else {
            return self.connection.send(permission::refuse(id, method, "this is not offered here")).await;
        };
        if self.is_cancelled {
            let why = "the turn was cancelled";
            if let Err(error) = self.permissions.refuse(&report, line, why)
                && error == UpdateError::TooMuch
            {
                self.steps.push_back(TurnStep::Failed(error.into()));
            }
            return self.connection.send(permission::refuse(id, method, why)).await;
        }
        match self.permissions.ask(asked, &report, line) {
            Ok(lines) => self.connection.send_all(lines).await,
            Err(UpdateError::NoUsableId) => {
                self.connection
                    .send(permission::refuse(id, method, "the call has no id that could be one"))
                    .await;
            }
            Err(error) => self.steps.push_back(TurnStep::Failed(error.into())),
        }
    }

    /// It sends text, or announces calls.
    async fn on_assistant(&mut self, line: &str, what: &Value) {
        self.note_conversation(what);
        let message = &what["message"];
        for block in message["content"].as_array().into_iter().flatten() {
            if block["type"] == "tool_use" {
                let (id, tool) = (block["id"].as_str().unwrap_or_default(), block["name"].as_str());
                let mut call = tool_kinds::report(id, tool.unwrap_or_default(), &block["input"]);
                call["status"] = "in_progress".into();
                self.steps
                    .extend(self.permissions.on_report(&call, line, UpdateKind::Begins, Vec::new()).await);
            } else if is_own(what) {
                self.steps.extend(self.dedup.whole(message, block).and_then(TurnStep::event));
            }
        }
    }

    /// It sends the results of calls.
    async fn on_results(&mut self, line: &str, what: &Value) {
        for result in results(what) {
            let report = tool_kinds::result_report(result.call, result.status(), &result.words());
            self.steps
                .extend(self.permissions.on_report(&report, line, UpdateKind::Continues, Vec::new()).await);
        }
    }

    /// Keeps its conversation id: from its first message on the conversation can be resumed.
    fn note_conversation(&mut self, what: &Value) {
        let Some(name) = what["session_id"].as_str() else { return };
        // The id becomes an argument of its next start.
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_name = name.len() <= MAX_CONVERSATION
            && name.bytes().all(word)
            && name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if is_name && self.conversation.as_deref() != Some(name) {
            self.conversation = Some(name.to_owned());
            self.steps.push_back(TurnStep::ConversationId(name.to_owned()));
        }
    }

    /// The turn is over.
    async fn on_result(&mut self, line: &str, result: &Value) {
        self.mcp_runner.end();
        let lines = self.permissions.cancel_all();
        self.connection.send_all(lines).await;
        // An announced call need not have begun if the turn was interrupted.
        if !self.is_cancelled
            && let Some(step) = self.permissions.judge_begun().await
        {
            return self.steps.push_back(step);
        }
        self.permissions.settle().await;
        let mut kinds = vec![usage(&result["usage"])];
        // It holds its estimate of the cost, by model.
        kinds.extend(pass_through("result", line));
        match outcome(result, self.is_cancelled) {
            Ok(stop_reason) => {
                kinds.push(EventKind::Done { stop_reason });
                self.steps.push_back(TurnStep::Ended(kinds, Ok(())));
            }
            Err(error) => self.steps.push_back(TurnStep::Ended(kinds, Err(error))),
        }
    }
}

/// Whether the message is the agent's, and not a sub-agent's.
fn is_own(what: &Value) -> bool {
    what["parent_tool_use_id"].is_null()
}

/// Tokens of the turn. Tokens from a cache count as input.
fn usage(usage: &Value) -> EventKind {
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    let input = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
        .into_iter()
        .fold(0_u64, |sum, name| sum.saturating_add(count(name)));
    let bounded = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
    EventKind::UsageUpdate { input_tokens: bounded(input), output_tokens: bounded(count("output_tokens")) }
}

/// How the turn ended.
fn outcome(result: &Value, is_cancelled: bool) -> Result<StopReason, RuntimeError> {
    if is_cancelled {
        return Ok(StopReason::Cancelled);
    }
    match result["subtype"].as_str().unwrap_or_default() {
        "error_max_turns" | "error_max_budget_usd" => return Ok(StopReason::MaxTokens),
        "success" if result["is_error"] != true => {}
        _ => {
            let text = result["result"].as_str().or_else(|| result["errors"][0].as_str());
            let text = shown(text.unwrap_or("it did not say why"));
            return Err(RuntimeError::new(
                ErrorKind::AgentFailed,
                format!("the agent could not go on: {text}"),
            ));
        }
    }
    Ok(match result["stop_reason"].as_str() {
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
        Some("refusal") => StopReason::Refusal,
        _ => StopReason::EndTurn,
    })
}

/// The result of a call, in a `user` message.
pub(super) struct CallResult<'a> {
    call: &'a str,
    block: &'a Value,
    /// Metadata of how the call came to its result.
    meta: Option<&'a Value>,
}

/// The results in a message.
pub(super) fn results(what: &Value) -> impl Iterator<Item = CallResult<'_>> {
    let meta = what["tool_result_meta"].as_array().map_or(&[][..], Vec::as_slice);
    let blocks = what["message"]["content"].as_array().map_or(&[][..], Vec::as_slice);
    let is_user = what["type"] == "user";
    blocks.iter().filter(move |block| is_user && block["type"] == "tool_result").map(move |block| {
        CallResult {
            call: block["tool_use_id"].as_str().unwrap_or_default(),
            block,
            meta: meta.iter().find(|meta| meta["id"] == block["tool_use_id"]),
        }
    })
}

impl CallResult<'_> {
    pub(super) fn status(&self) -> ResultStatus {
        if self.block["is_error"] != true {
            return ResultStatus::Done;
        }
        let is_kept_back = self.meta.is_some_and(|meta| meta.get("non_execution_kind").is_some());
        // Its mark for an unknown tool or an invalid input.
        let is_no_call = self.words().starts_with("<tool_use_error>");
        if is_kept_back || is_no_call { ResultStatus::Failed } else { ResultStatus::Broke }
    }

    fn words(&self) -> String {
        match &self.block["content"] {
            Value::String(words) => words.clone(),
            Value::Array(blocks) => {
                let texts = blocks.iter().map(|block| block["text"].as_str().unwrap_or("(no text)"));
                texts.collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_as_its_result_says() {
        let ended =
            |result: Value| outcome(&result, false).map_err(|error| (error.code().to_owned(), error.message));
        let good = |stop: &str| json!({ "subtype": "success", "is_error": false, "stop_reason": stop });
        assert_eq!(ended(good("end_turn")), Ok(StopReason::EndTurn));
        assert_eq!(ended(good("max_tokens")), Ok(StopReason::MaxTokens));
        assert_eq!(ended(good("refusal")), Ok(StopReason::Refusal));
        assert_eq!(ended(good("invented")), Ok(StopReason::EndTurn));
        assert_eq!(ended(json!({ "subtype": "error_max_turns" })), Ok(StopReason::MaxTokens));
        let (code, message) =
            ended(json!({ "subtype": "success", "is_error": true, "result": "API Error: 500\u{7}" }))
                .unwrap_err();
        assert_eq!(
            (code.as_str(), message.as_str()),
            ("agent_failed", "the agent could not go on: API Error: 500")
        );
        let (_, message) =
            ended(json!({ "subtype": "error_during_execution", "errors": ["it broke"] })).unwrap_err();
        assert!(message.ends_with("it broke"), "{message}");
        assert!(ended(json!({})).is_err());
        assert_eq!(outcome(&json!({ "subtype": "error_during_execution" }), true), Ok(StopReason::Cancelled));
    }

    #[test]
    fn tokens_are_counted_with_what_a_cache_had() {
        let counted = usage(&json!({
            "input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": u64::MAX,
        }));
        assert_eq!(counted, EventKind::UsageUpdate { input_tokens: 17, output_tokens: u32::MAX });
        assert_eq!(usage(&Value::Null), EventKind::UsageUpdate { input_tokens: 0, output_tokens: 0 });
    }

    #[test]
    fn only_an_unexecuted_call_has_failed() {
        let status = |block: Value, meta: Value| {
            let report =
                json!({ "type": "user", "message": { "content": [block] }, "tool_result_meta": meta });
            results(&report).map(|result| result.status()).collect::<Vec<_>>()
        };
        let result = |is_error: bool, words: &str| json!({ "type": "tool_result", "tool_use_id": "t", "is_error": is_error, "content": words });
        assert_eq!(status(result(false, "ok"), json!(null)), [ResultStatus::Done]);
        assert_eq!(status(result(true, "Exit code 1"), json!([{ "id": "t" }])), [ResultStatus::Broke]);
        let kept_back = json!([{ "id": "t", "non_execution_kind": "permission-rule" }]);
        assert_eq!(status(result(true, "no"), kept_back.clone()), [ResultStatus::Failed]);
        let of_another = json!([{ "id": "u", "non_execution_kind": "permission-rule" }]);
        assert_eq!(status(result(true, "no"), of_another), [ResultStatus::Broke]);
        assert_eq!(status(result(true, "<tool_use_error>no such tool"), json!(null)), [ResultStatus::Failed]);
        assert_eq!(
            status(result(false, "<tool_use_error>"), kept_back),
            [ResultStatus::Done],
            "it says that it is done"
        );
        assert_eq!(status(json!({ "type": "text", "text": "x" }), json!(null)), []);
    }
}
