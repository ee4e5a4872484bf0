//! The loop: request, execute the calls, request again.

use std::pin::pin;
use std::sync::Arc;

use async_stream::stream;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::sync::mpsc;

use super::calls::{CallNames, RepeatedFailures, execute_calls, not_executed, requested_calls};
use super::compaction::{MAX_DIGEST_BYTES, MIN_DIGEST_BYTES, compact, kept_from};
use super::history_repair::repair_history;
use super::host_services::{Compaction, HostServices, RequestOutcome, RequestStats, StoredMessage};
use super::model_binding::ModelBinding;
use super::model_request::{EventSender, RoundContext, RoundOutcome, TurnUsage, send_request};
use super::truncate_results::truncate_results;
use super::{TurnEndGuard, user_message};
use crate::error::{ErrorKind, RuntimeError};
use crate::event::{EventKind, RuntimeEvent, StopReason};
use crate::runtime::{EventStream, TurnInput};
use tribune_providers::budget::{
    context_window, estimate_tokens, message_tokens, output_reserve, prefix_tokens,
};
use tribune_providers::{
    AssistantPart, ChatMessage, FinishReason, ModelRequest, ModelResponse, ProviderError, TokenCalibration,
    TokenUsage, ToolResult, UserPart, check_fits,
};

/// Requests in one turn. For more, the user tells the model to go on.
const MAX_ROUNDS: u32 = 64;

/// How often the limit may be raised before one request.
const MAX_RAISES: usize = 3;

/// Events that wait for the reader of the stream.
const EVENT_QUEUE: usize = 64;

/// What a digest costs beside its bytes, as one more message with one more part.
const DIGEST_OVERHEAD: usize = 64;

/// Stands for the running turn, whose CID is not known before it ends.
const CURRENT_TURN: &str = "now";

/// The result of calls that are not executed because the answer was cut.
const ANSWER_CUT: &str = "not carried out: the answer ended before the call was complete";

/// How a turn ends.
type LoopEnd = Result<StopReason, RuntimeError>;

/// Runs a turn.
pub(super) fn run(
    binding: ModelBinding,
    input: TurnInput,
    services: Arc<dyn HostServices>,
    correction: TokenCalibration,
    end_guard: TurnEndGuard,
) -> EventStream {
    let (sender, mut events) = mpsc::channel(EVENT_QUEUE);
    let mut seq = 0;
    let mut number = move |kind| {
        seq += 1;
        RuntimeEvent { seq, kind }
    };
    stream! {
        let looping = async move {
            let mut turn = NativeTurn {
                usage: TurnUsage::default(),
                names: CallNames::default(),
                repeats: RepeatedFailures::default(),
                conversation: Vec::new(),
                rounds: 0,
                binding,
                input,
                services,
                correction,
                events: sender,
            };
            let end = turn.run().await;
            end_guard.learn(&turn.correction);
            end
        };
        let mut looping = pin!(looping);
        let end = loop {
            tokio::select! {
                biased;
                Some(kind) = events.recv() => yield Ok(number(kind)),
                end = &mut looping => break end,
            }
        };
        while let Some(kind) = events.recv().await {
            yield Ok(number(kind));
        }
        match end {
            Ok(stop_reason) => yield Ok(number(EventKind::Done { stop_reason })),
            Err(error) => yield Err(error),
        }
    }
    .boxed()
}

struct NativeTurn {
    binding: ModelBinding,
    input: TurnInput,
    services: Arc<dyn HostServices>,
    correction: TokenCalibration,
    /// Everything that is sent: the stored messages, and those of this turn.
    conversation: Vec<StoredMessage>,
    rounds: u32,
    usage: TurnUsage,
    names: CallNames,
    repeats: RepeatedFailures,
    events: EventSender,
}

impl NativeTurn {
    async fn run(&mut self) -> LoopEnd {
        self.conversation = repair_history(self.services.load_conversation().await?);
        let services = self.services.clone();
        let redact = |text: &str| services.redact(text).into_owned();
        let (mail, content) = (&self.input.injected_messages, &self.input.content);
        let sees = self.binding.limits.supports_images;
        // A note that the agent has seen is not repeated.
        let note = services.context_note().filter(|note| !self.has_seen(&redact(note)));
        let parts = user_message::user_parts(note, mail, content, sees, redact);
        self.store(ChatMessage::User(parts)).await?;
        loop {
            self.rounds += 1;
            if self.rounds > MAX_ROUNDS {
                let what = format!("the model got {MAX_ROUNDS} requests in this turn: tell it to go on");
                return Err(RuntimeError::new(ErrorKind::MaxRounds, what));
            }
            if let Some(end) = self.run_round().await? {
                return Ok(end);
            }
        }
    }

    fn has_seen(&self, note: &str) -> bool {
        self.conversation.iter().any(|one| match &one.message {
            ChatMessage::User(parts) => {
                parts.iter().any(|part| matches!(part, UserPart::Text(text) if text == note))
            }
            ChatMessage::Assistant(_) | ChatMessage::Results(_) => false,
        })
    }

    /// One request and the execution of its calls. `None` if there is to be another.
    async fn run_round(&mut self) -> Result<Option<StopReason>, RuntimeError> {
        let (request, stats) = self.next_request().await?;
        let services = self.services.clone();
        if let Some(end) = self.reserve_tokens(&stats).await? {
            return Ok(Some(end));
        }
        let to = RoundContext { usage: &self.usage, events: &self.events, cancel: &self.input.cancel };
        let RoundOutcome { answer, names, error, stats } =
            send_request(&self.binding, &request, &mut self.names, stats, to).await;
        services.record_request(stats).await;
        self.correction.record_usage(&request, &answer.usage);
        self.usage.add(&answer.usage);
        if let Some(error) = error {
            return self.cut(answer, error).await.map(Some);
        }
        let calls = requested_calls(&answer.parts);
        let ended = answer.finish_reason.clone();
        self.store(ChatMessage::Assistant(answer.parts)).await?;
        if calls.is_empty() {
            return Ok(Some(stop_reason(ended.as_ref())));
        }
        if matches!(ended, Some(FinishReason::MaxTokens | FinishReason::Refusal)) {
            self.store(ChatMessage::Results(not_executed(&calls, ANSWER_CUT))).await?;
            return Ok(Some(stop_reason(ended.as_ref())));
        }
        let redact = |text: &str| services.redact(text).into_owned();
        let (cancel, tools) = (self.input.cancel.clone(), self.input.tools.clone());
        let results = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            results = execute_calls(&calls, &names, &*tools, redact) => Some(results),
        };
        let Some(results) = results else {
            self.store(ChatMessage::Results(not_executed(
                &calls,
                "the turn was cancelled before this call ended",
            )))
            .await?;
            return Ok(Some(StopReason::Cancelled));
        };
        let mut is_repeating = false;
        for (call, result) in calls.iter().zip(&results) {
            is_repeating |= self.repeats.record(call, result.is_error);
        }
        let results = truncate_results(self.room(&request, &results), results);
        self.store(ChatMessage::Results(results)).await?;
        if is_repeating {
            let what = "the model made the same failing call over and over, and was stopped: tell it what to do instead";
            return Err(RuntimeError::new(ErrorKind::Repeating, what));
        }
        Ok(None)
    }

    /// Reserves the tokens of a request; where the host wants it, a call asks for a higher limit first.
    async fn reserve_tokens(&self, stats: &RequestStats) -> Result<Option<StopReason>, RuntimeError> {
        let TurnInput { tools, cancel, .. } = &self.input;
        for _ in 0..MAX_RAISES {
            let raise =
                self.services.reserve_tokens(&self.binding.model, stats.estimated, stats.reserved).await?;
            let Some(call) = raise else { return Ok(None) };
            let outcome = tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(Some(StopReason::Cancelled)),
                outcome = tools.call(call) => outcome,
            };
            if outcome.is_error {
                return Err(RuntimeError::new(ErrorKind::SpendLimit, outcome.content));
            }
        }
        Err(RuntimeError::new(
            ErrorKind::SpendLimit,
            "the limit was raised, and it is still not enough: raise it further",
        ))
    }

    /// The next request, after a compaction if it needs one. A request that does not fit is not sent.
    async fn next_request(&mut self) -> Result<(ModelRequest, RequestStats), RuntimeError> {
        let ModelBinding { model, limits, is_local, .. } = &self.binding;
        let window = context_window(limits, *is_local);
        let reserved = output_reserve(self.binding.max_output_tokens, limits);
        for may_shorten in [true, false] {
            let request = self.request();
            let estimated = self.correction.estimate(&request);
            match check_fits(estimated, reserved, window, model) {
                Ok(()) => {
                    let stats = RequestStats {
                        model: model.clone(),
                        round: self.rounds,
                        estimated,
                        reserved: u64::from(reserved),
                        usage: TokenUsage::default(),
                        outcome: RequestOutcome::NotSent,
                        first_ms: 0,
                        all_ms: 0,
                        ending: String::new(),
                    };
                    return Ok((request, stats));
                }
                Err(error) => {
                    let room = u64::from(window.saturating_sub(reserved));
                    let Some(summary) = may_shorten.then(|| self.shortened(request, room)).flatten() else {
                        return Err(RuntimeError::new(ErrorKind::OverBudget, error.to_string()));
                    };
                    self.services.store_compaction(&summary).await?;
                    let rest = self.conversation.split_off(summary.messages);
                    let turn = summary.turns.last().cloned().unwrap_or_default();
                    self.conversation = vec![StoredMessage { turn, message: summary.digest }];
                    self.conversation.extend(rest);
                }
            }
        }
        Err(RuntimeError::new(
            ErrorKind::OverBudget,
            "the conversation does not fit the model: begin a new one",
        ))
    }

    /// The bytes that these results may have so that the next request fits: after the whole conversation, or after this
    /// turn alone if the turns before it are compacted for them.
    fn room(&self, request: &ModelRequest, results: &[ToolResult]) -> u64 {
        let emptied = |result: &ToolResult| ToolResult { content: String::new(), ..result.clone() };
        let around = message_tokens(&ChatMessage::Results(results.iter().map(emptied).collect()));
        let sent = request.messages.len();
        let answer: u64 = self.conversation[sent..].iter().map(|one| message_tokens(&one.message)).sum();
        let behind_all = self.correction.estimate(request) + answer;
        let own = self
            .conversation
            .iter()
            .filter(|one| one.turn == CURRENT_TURN)
            .map(|one| message_tokens(&one.message));
        let behind_turn =
            prefix_tokens(request) + own.sum::<u64>() + (MIN_DIGEST_BYTES + DIGEST_OVERHEAD) as u64;
        let window = u64::from(context_window(&self.binding.limits, self.binding.is_local));
        let reserved = u64::from(output_reserve(self.binding.max_output_tokens, &self.binding.limits));
        window.saturating_sub(reserved + around + behind_all.min(behind_turn))
    }

    /// The compaction that makes the request fit: as many of the last turns as can stay beside a digest of the others.
    fn shortened(&self, mut request: ModelRequest, room: u64) -> Option<Compaction> {
        (1..=self.binding.keep_turns.max(1)).rev().find_map(|turns| {
            let old = kept_from(&self.conversation, turns)?;
            request.messages = self.conversation[old..].iter().map(|one| one.message.clone()).collect();
            let left = usize::try_from(room.checked_sub(estimate_tokens(&request))?).unwrap_or(usize::MAX);
            let left = left.saturating_sub(DIGEST_OVERHEAD).min(MAX_DIGEST_BYTES);
            (left >= MIN_DIGEST_BYTES).then(|| compact(&self.conversation, old, left))
        })
    }

    fn request(&self) -> ModelRequest {
        let tools =
            if self.binding.limits.supports_tools { self.input.tools.tools().to_vec() } else { Vec::new() };
        ModelRequest {
            model: self.binding.model.model().to_owned(),
            system: self.services.system_prompt(),
            messages: self.conversation.iter().map(|one| one.message.clone()).collect(),
            tools,
            max_output_tokens: output_reserve(self.binding.max_output_tokens, &self.binding.limits),
            thinking: self.binding.thinking,
        }
    }

    /// The part without secrets. A signed thought stays as it is, because the provider would refuse a changed one.
    fn redact_part(&self, part: AssistantPart) -> AssistantPart {
        let redact = |text: &str| self.services.redact(text).into_owned();
        match part {
            AssistantPart::Text(text) => AssistantPart::Text(redact(&text)),
            AssistantPart::ToolUse { id, name, arguments, signature } => {
                let arguments = redact_arguments(&*self.services, arguments);
                AssistantPart::ToolUse { id, name, arguments, signature }
            }
            AssistantPart::Thinking { .. }
            | AssistantPart::RedactedThinking { .. }
            | AssistantPart::ReasoningDetail(_) => part,
        }
    }

    /// The answer was cut: stores as much of it as can be sent again.
    async fn cut(&mut self, answer: ModelResponse, error: ProviderError) -> LoopEnd {
        let whole = |part: &AssistantPart| match part {
            AssistantPart::Text(text) => !text.trim().is_empty(),
            // A thought without its signature is refused, and a call without its end is no call.
            AssistantPart::Thinking { .. }
            | AssistantPart::RedactedThinking { .. }
            | AssistantPart::ReasoningDetail(_)
            | AssistantPart::ToolUse { .. } => false,
        };
        let parts: Vec<AssistantPart> = answer.parts.into_iter().filter(whole).collect();
        if !parts.is_empty() {
            self.store(ChatMessage::Assistant(parts)).await?;
        }
        if matches!(error, ProviderError::Cancelled { .. }) {
            return Ok(StopReason::Cancelled);
        }
        Err(RuntimeError::new(ErrorKind::from_code(error.code()), error.to_string()))
    }

    async fn store(&mut self, said: ChatMessage) -> Result<(), RuntimeError> {
        let said = match said {
            ChatMessage::Assistant(parts) => {
                ChatMessage::Assistant(parts.into_iter().map(|part| self.redact_part(part)).collect())
            }
            ChatMessage::User(_) | ChatMessage::Results(_) => said,
        };
        let is_empty = matches!(&said, ChatMessage::Assistant(parts) if parts.is_empty());
        if is_empty {
            return Ok(());
        }
        self.services.store_messages(std::slice::from_ref(&said)).await?;
        self.conversation.push(StoredMessage { turn: CURRENT_TURN.to_owned(), message: said });
        Ok(())
    }
}

/// JSON without the secrets in its texts and names; the very same text if there are none.
fn redact_arguments(services: &dyn HostServices, text: String) -> String {
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => match services.redact_json(&value) {
            redact_part if redact_part != value => redact_part.to_string(),
            _ => text,
        },
        Err(_) => services.redact(&text).into_owned(),
    }
}

const fn stop_reason(ended: Option<&FinishReason>) -> StopReason {
    match ended {
        Some(FinishReason::MaxTokens) => StopReason::MaxTokens,
        Some(FinishReason::Refusal) => StopReason::Refusal,
        Some(FinishReason::EndTurn | FinishReason::ToolUse | FinishReason::Other(_)) | None => {
            StopReason::EndTurn
        }
    }
}
