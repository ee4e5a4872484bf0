//! One request to the model, with its answer streamed as events.

use std::time::Instant;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::calls::CallNames;
use super::host_services::{Asked, Came};
use super::model_binding::Seat;
use crate::event::EventKind;
use tribune_providers::{Answer, Ended, ModelEvent, ModelRequest, ProviderError, TokenUsage};

/// The outcome of a round.
pub(super) struct RoundOutcome {
    pub(super) answer: Answer,
    /// The ids under which the toolbox knows the calls, in order.
    pub(super) names: Vec<String>,
    pub(super) error: Option<ProviderError>,
    pub(super) stats: Asked,
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
    seat: &Seat,
    request: &ModelRequest,
    names: &mut CallNames,
    stats: Asked,
    to: RoundContext<'_>,
) -> RoundOutcome {
    let began = Instant::now();
    let millis = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut round = RoundOutcome { answer: Answer::default(), names: Vec::new(), error: None, stats };
    let mut stream = match seat.client.stream(request, to.cancel).await {
        Ok(stream) => stream,
        Err(error) => {
            round.stats.all_ms = millis(began);
            round.stats.came = if error.may_have_cost() { Came::Partway } else { Came::Nowhere };
            round.stats.outcome = error.code().to_owned();
            round.error = Some(error);
            return round;
        }
    };
    round.stats.first_ms = millis(began);
    round.stats.came = Came::Partway;
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                round.error = Some(error);
                break;
            }
        };
        round.answer.take(&event);
        let shown = match event {
            ModelEvent::Text(text) => Some(EventKind::TextDelta { text }),
            ModelEvent::Thinking(text) => Some(EventKind::ReasoningDelta { text }),
            ModelEvent::CallBegun { id, .. } => {
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
            | ModelEvent::Ended(_) => None,
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
    if round.error.is_none() && round.answer.ended.is_some() {
        round.stats.came = Came::Through;
    }
    round.stats.outcome = match (&round.error, &round.answer.ended) {
        (Some(error), _) => error.code().to_owned(),
        (None, Some(ended)) => word(ended).to_owned(),
        (None, None) => "dropped".to_owned(),
    };
    round
}

fn word(ended: &Ended) -> &str {
    match ended {
        Ended::EndTurn => "end_turn",
        Ended::ToolUse => "tool_use",
        Ended::MaxTokens => "max_tokens",
        Ended::Refusal => "refusal",
        Ended::Other(_) => "other",
    }
}
