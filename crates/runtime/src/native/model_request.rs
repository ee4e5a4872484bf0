//! One request to the model, shown while it arrives.

use std::time::Instant;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::calls::Names;
use super::host_services::{Asked, Came};
use super::model_binding::Seat;
use crate::event::EventKind;
use tribune_providers::{Answer, Ended, ModelEvent, ModelRequest, ProviderError, TokenUsage};

/// What came of a round.
pub(super) struct Round {
    pub(super) answer: Answer,
    /// The names under which the toolbox knows the calls, in order.
    pub(super) names: Vec<String>,
    pub(super) error: Option<ProviderError>,
    pub(super) asked: Asked,
}

/// Where events go.
pub(super) type Out = mpsc::Sender<EventKind>;

/// What the tokens of the turn add up to so far.
pub(super) struct Tally {
    pub(super) before: TokenUsage,
}

impl Tally {
    /// The event that tells the tokens of the turn, with those of the request under way.
    pub(super) fn event(&self, usage: &TokenUsage) -> EventKind {
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        EventKind::UsageUpdate {
            input_tokens: count(self.before.prompt() + usage.prompt()),
            output_tokens: count(self.before.output + usage.output),
        }
    }
}

/// Asks once. Whatever arrives is in the answer, also when the stream is cut.
pub(super) async fn round(
    seat: &Seat,
    request: &ModelRequest,
    names: &mut Names,
    (tally, asked): (&Tally, Asked),
    (out, cancel): (&Out, &CancellationToken),
) -> Round {
    let began = Instant::now();
    let millis = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut round = Round { answer: Answer::default(), names: Vec::new(), error: None, asked };
    let mut stream = match seat.client.stream(request, cancel).await {
        Ok(stream) => stream,
        Err(error) => {
            round.asked.all_ms = millis(began);
            round.asked.came = if error.may_have_cost() { Came::Partway } else { Came::Nowhere };
            round.asked.outcome = error.code().to_owned();
            round.error = Some(error);
            return round;
        }
    };
    round.asked.first_ms = millis(began);
    round.asked.came = Came::Partway;
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
            ModelEvent::Usage(usage) => Some(tally.event(&usage)),
            ModelEvent::Signature(_)
            | ModelEvent::RedactedThinking(_)
            | ModelEvent::ReasoningDetail(_)
            | ModelEvent::CallSignature { .. }
            | ModelEvent::Ended(_) => None,
        };
        if let Some(shown) = shown
            && out.send(shown).await.is_err()
        {
            // Nobody listens: the turn was dropped.
            break;
        }
    }
    round.asked.all_ms = millis(began);
    round.asked.usage = round.answer.usage;
    if round.error.is_none() && round.answer.ended.is_some() {
        round.asked.came = Came::Through;
    }
    round.asked.outcome = match (&round.error, &round.answer.ended) {
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
