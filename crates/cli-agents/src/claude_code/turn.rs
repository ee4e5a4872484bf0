//! One turn of Claude Code: what it says becomes events, what it asks goes to the toolbox, until it tells the turn's result.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::permission::{self, Asked};
use super::stream_dedup::Speech;
use super::tool_kinds::{self, Status};
use super::wire;
use crate::agent_protocol::{Step, Turn, shown};
use crate::connection::{Ear, Fault, Heard, Hearing, Link};
use crate::mcp_calls::AtServers;
use crate::passthrough::handed_on;
use crate::permissions::{Leaves, UnderWay};
use crate::pool::Live;
use crate::tool_calls::{Telling, Untold};
use tribune_runtime::content::ContentBlock;
use tribune_runtime::{EventKind, StopReason};
use tribune_runtime::{RuntimeError, TurnInput};

/// Bytes of its name for a conversation.
const MAX_CONVERSATION: usize = 64;

/// A turn under way.
pub(super) struct ClaudeTurn {
    link: Link,
    heard: Ear,
    leaves: Leaves<Asked>,
    at_servers: AtServers,
    speech: Speech,
    /// What is to be said to it first.
    opening: Option<String>,
    /// Its name for the conversation, as it is remembered.
    conversation: Option<String>,
    /// What happened, and was not told yet.
    steps: VecDeque<Step>,
    cancel: CancellationToken,
    is_cancelled: bool,
}

#[async_trait]
impl Turn for ClaudeTurn {
    async fn next(&mut self) -> Step {
        if let Some(line) = self.opening.take() {
            self.link.send(line).await;
        }
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled(), if !self.is_cancelled => self.cancelled().await,
                // What was said before the end comes before the end.
                Some(heard) = self.heard.next() => self.hear(heard).await,
                decided = self.leaves.decided() => {
                    let lines = self.leaves.answers(decided).await;
                    self.link.send_all(lines).await;
                }
                news = self.at_servers.next() => {
                    if let Err(untold) = self.at_servers.take(news, &mut self.leaves) {
                        self.steps.push_back(Step::Failed(untold.into()));
                    }
                }
                // It announces a call before it asks, so that what it had announced by then it need not have begun.
                why = self.link.broken() => return Step::Failed(Fault::Broken(why).told("the prompt")),
            }
        }
    }
}

impl ClaudeTurn {
    pub(super) fn begin(live: &Live, input: &TurnInput, prompt: &[ContentBlock]) -> Self {
        let (workspace, servers) = (Arc::clone(&live.workspace), live.told_servers());
        let tools = || Arc::clone(&input.tools);
        Self {
            link: live.link.clone(),
            heard: live.link.listen(Hearing::Turn),
            leaves: Leaves::new(tools(), workspace, UnderWay::MayBeAsked, servers),
            at_servers: AtServers::new(tools(), servers),
            speech: Speech::default(),
            opening: Some(wire::said(prompt)),
            conversation: live.conversation.id.clone(),
            steps: VecDeque::new(),
            cancel: input.cancel.clone(),
            is_cancelled: false,
        }
    }

    /// Tells it to end its turn, and answers all that it asked.
    async fn cancelled(&mut self) {
        self.is_cancelled = true;
        self.link.ask_in_passing("interrupt", &json!({})).await;
        self.at_servers.end();
        let lines = self.leaves.let_go();
        self.link.send_all(lines).await;
    }

    async fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Asked { id, method, params, line } => self.asked(&id, &method, &params, &line).await,
            Heard::Aside { method, line } => {
                self.steps.extend(handed_on(&method, &line).and_then(Step::said));
            }
            Heard::Told { line, what } => match what["type"].as_str().unwrap_or_default() {
                "stream_event" if is_own(&what) => {
                    let piece = self.speech.piece(&what["event"]);
                    self.steps.extend(piece.and_then(Step::said));
                }
                "stream_event" => {}
                "assistant" => self.assistant(&line, &what).await,
                "user" => self.results(&line, &what).await,
                "control_cancel_request" => self.leaves.withdraw(|asked| asked.is(&what["request_id"])),
                "result" => self.ended(&line, &what).await,
                "system" => {
                    // Told with every turn, and with every request to the model.
                    let subtype = what["subtype"].as_str().unwrap_or_default();
                    if !["init", "status", "thinking_tokens"].contains(&subtype) {
                        self.steps
                            .extend(handed_on(&format!("system/{subtype}"), &line).and_then(Step::said));
                    }
                }
                kind => self.steps.extend(handed_on(kind, &line).and_then(Step::said)),
            },
        }
    }

    async fn asked(&mut self, id: &Value, method: &str, params: &Value, line: &str) {
        let Some((asked, told)) = Asked::read(id, method, params) else {
            return self.link.send(permission::refuse(id, method, "this is not offered here")).await;
        };
        if self.is_cancelled {
            let why = "the turn was cancelled";
            if let Err(untold) = self.leaves.refuse(&told, line, why)
                && untold == Untold::TooMuch
            {
                self.steps.push_back(Step::Failed(untold.into()));
            }
            return self.link.send(permission::refuse(id, method, why)).await;
        }
        match self.leaves.ask(asked, &told, line) {
            Ok(lines) => self.link.send_all(lines).await,
            Err(Untold::Nameless) => {
                self.link.send(permission::refuse(id, method, "the call has no id that could be one")).await;
            }
            Err(untold) => self.steps.push_back(Step::Failed(untold.into())),
        }
    }

    /// It says something, or announces calls.
    async fn assistant(&mut self, line: &str, what: &Value) {
        self.named(what);
        let message = &what["message"];
        for block in message["content"].as_array().into_iter().flatten() {
            if block["type"] == "tool_use" {
                let (id, tool) = (block["id"].as_str().unwrap_or_default(), block["name"].as_str());
                let mut call = tool_kinds::told(id, tool.unwrap_or_default(), &block["input"]);
                call["status"] = "in_progress".into();
                self.steps.extend(self.leaves.told(&call, line, Telling::Begins, Vec::new()).await);
            } else if is_own(what) {
                self.steps.extend(self.speech.whole(message, block).and_then(Step::said));
            }
        }
    }

    /// It knows what came of calls.
    async fn results(&mut self, line: &str, what: &Value) {
        for result in results(what) {
            let told = tool_kinds::ended(result.call, result.status(), &result.words());
            self.steps.extend(self.leaves.told(&told, line, Telling::GoesOn, Vec::new()).await);
        }
    }

    /// Keeps its name for the conversation: from its first answer on there is something to take up.
    fn named(&mut self, what: &Value) {
        let Some(name) = what["session_id"].as_str() else { return };
        // It becomes an argument of its next start.
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_name = name.len() <= MAX_CONVERSATION
            && name.bytes().all(word)
            && name.starts_with(|first: char| first.is_ascii_alphanumeric());
        if is_name && self.conversation.as_deref() != Some(name) {
            self.conversation = Some(name.to_owned());
            self.steps.push_back(Step::Named(name.to_owned()));
        }
    }

    /// The turn is over.
    async fn ended(&mut self, line: &str, result: &Value) {
        self.at_servers.end();
        let lines = self.leaves.let_go();
        self.link.send_all(lines).await;
        // Nor need it when it was interrupted.
        if !self.is_cancelled
            && let Some(step) = self.leaves.judge_begun().await
        {
            return self.steps.push_back(step);
        }
        self.leaves.close_books().await;
        let mut kinds = vec![usage(&result["usage"])];
        // With what it thinks it cost, by model.
        kinds.extend(handed_on("result", line));
        match outcome(result, self.is_cancelled) {
            Ok(stop_reason) => {
                kinds.push(EventKind::Done { stop_reason });
                self.steps.push_back(Step::Over(kinds, Ok(())));
            }
            Err(error) => self.steps.push_back(Step::Over(kinds, Err(error))),
        }
    }
}

/// Whether it is the agent that speaks, and not a helper of its own.
fn is_own(what: &Value) -> bool {
    what["parent_tool_use_id"].is_null()
}

/// Tokens of the turn. What a cache had counts as read.
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
            let said = result["result"].as_str().or_else(|| result["errors"][0].as_str());
            let said = shown(said.unwrap_or("it did not say why"));
            return Err(RuntimeError::new("agent_failed", format!("the agent could not go on: {said}")));
        }
    }
    Ok(match result["stop_reason"].as_str() {
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
        Some("refusal") => StopReason::Refusal,
        _ => StopReason::EndTurn,
    })
}

/// The result of a call, in a message of the user's.
pub(super) struct CallResult<'a> {
    call: &'a str,
    block: &'a Value,
    /// What it says of how the call came to its result.
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
    pub(super) fn status(&self) -> Status {
        if self.block["is_error"] != true {
            return Status::Done;
        }
        let is_kept_back = self.meta.is_some_and(|meta| meta.get("non_execution_kind").is_some());
        // So it says of tools that there are not, and of input that is none.
        let is_no_call = self.words().starts_with("<tool_use_error>");
        if is_kept_back || is_no_call { Status::Failed } else { Status::Broke }
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
        let ended = |result: Value| outcome(&result, false).map_err(|error| (error.code, error.message));
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
    fn only_what_was_not_carried_out_came_to_nothing() {
        let status = |block: Value, meta: Value| {
            let told = json!({ "type": "user", "message": { "content": [block] }, "tool_result_meta": meta });
            results(&told).map(|result| result.status()).collect::<Vec<_>>()
        };
        let result = |is_error: bool, words: &str| json!({ "type": "tool_result", "tool_use_id": "t", "is_error": is_error, "content": words });
        assert_eq!(status(result(false, "ok"), json!(null)), [Status::Done]);
        assert_eq!(status(result(true, "Exit code 1"), json!([{ "id": "t" }])), [Status::Broke]);
        let kept_back = json!([{ "id": "t", "non_execution_kind": "permission-rule" }]);
        assert_eq!(status(result(true, "no"), kept_back.clone()), [Status::Failed]);
        let of_another = json!([{ "id": "u", "non_execution_kind": "permission-rule" }]);
        assert_eq!(status(result(true, "no"), of_another), [Status::Broke]);
        assert_eq!(status(result(true, "<tool_use_error>no such tool"), json!(null)), [Status::Failed]);
        assert_eq!(
            status(result(false, "<tool_use_error>"), kept_back),
            [Status::Done],
            "it says that it is done"
        );
        assert_eq!(status(json!({ "type": "text", "text": "x" }), json!(null)), []);
    }
}
