//! One request to the model, with its answer streamed as events.

use std::time::Instant;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::calls::CallNames;
use super::host_services::{RequestOutcome, RequestStats};
use super::model_binding::ModelBinding;
use crate::event::EventKind;
use tribune_providers::{FinishReason, ModelEvent, ModelRequest, ModelResponse, ProviderError, TokenUsage};

/// The outcome of a round.
pub(super) struct RoundOutcome {
    pub(super) answer: ModelResponse,
    /// The ids under which the toolbox knows the calls, in order.
    pub(super) names: Vec<String>,
    pub(super) error: Option<ProviderError>,
    pub(super) stats: RequestStats,
}

/// The channel of events.
pub(super) type EventSender = mpsc::Sender<EventKind>;

/// The tokens of the turn before this request.
#[derive(Debug, Default)]
pub(super) struct TurnUsage {
    before: TokenUsage,
}

/// Where the events of a request go, and what ends it early.
pub(super) struct RoundContext<'a> {
    pub(super) usage: &'a TurnUsage,
    pub(super) events: &'a EventSender,
    pub(super) cancel: &'a CancellationToken,
}

impl TurnUsage {
    pub(super) fn add(&mut self, usage: &TokenUsage) {
        self.before = self.before.plus(usage);
    }

    /// The usage event of the turn, with the tokens of the running request.
    pub(super) fn event(&self, usage: &TokenUsage) -> EventKind {
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        EventKind::UsageUpdate {
            input_tokens: count(self.before.prompt() + usage.prompt()),
            output_tokens: count(self.before.output + usage.output),
        }
    }
}

/// Sends one request. Everything that arrives is in the answer, also when the stream is cut.
pub(super) async fn send_request(
    binding: &ModelBinding,
    request: &ModelRequest,
    names: &mut CallNames,
    stats: RequestStats,
    to: RoundContext<'_>,
) -> RoundOutcome {
    let began = Instant::now();
    let millis = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut round = RoundOutcome { answer: ModelResponse::default(), names: Vec::new(), error: None, stats };
    let mut stream = match binding.client.stream(request, to.cancel).await {
        Ok(stream) => stream,
        Err(error) => {
            round.stats.all_ms = millis(began);
            round.stats.outcome =
                if error.may_be_billed() { RequestOutcome::Partial } else { RequestOutcome::NotSent };
            round.stats.ending = error.code().to_owned();
            round.error = Some(error);
            return round;
        }
    };
    round.stats.first_ms = millis(began);
    round.stats.outcome = RequestOutcome::Partial;
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                round.error = Some(error);
                break;
            }
        };
        round.answer.apply(&event);
        let shown = match event {
            ModelEvent::Text(text) => Some(EventKind::TextDelta { text }),
            ModelEvent::Thinking(text) => Some(EventKind::ReasoningDelta { text }),
            ModelEvent::CallStarted { id, .. } => {
                round.names.push(names.of(&id));
                None
            }
            ModelEvent::CallArguments { index, delta } => round
                .names
                .get(index)
                .map(|id| EventKind::ToolCallUpdate { id: id.clone(), input_delta: delta }),
            ModelEvent::Usage(usage) => Some(to.usage.event(&usage)),
            ModelEvent::Signature(_)
            | ModelEvent::RedactedThinking(_)
            | ModelEvent::ReasoningDetail(_)
            | ModelEvent::CallSignature { .. }
            | ModelEvent::Finished(_) => None,
        };
        if let Some(shown) = shown
            && to.events.send(shown).await.is_err()
        {
            // The turn was dropped.
            break;
        }
    }
    round.stats.all_ms = millis(began);
    round.stats.usage = round.answer.usage;
    if round.error.is_none() && round.answer.finish_reason.is_some() {
        round.stats.outcome = RequestOutcome::Complete;
    }
    round.stats.ending = match (&round.error, &round.answer.finish_reason) {
        (Some(error), _) => error.code().to_owned(),
        (None, Some(ended)) => word(ended).to_owned(),
        (None, None) => "dropped".to_owned(),
    };
    round
}

fn word(ended: &FinishReason) -> &str {
    match ended {
        FinishReason::EndTurn => "end_turn",
        FinishReason::ToolUse => "tool_use",
        FinishReason::MaxTokens => "max_tokens",
        FinishReason::Refusal => "refusal",
        FinishReason::Other(_) => "other",
    }
}
