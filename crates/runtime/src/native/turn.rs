//! The loop: ask, carry out, ask again.

use std::pin::pin;
use std::sync::Arc;

use async_stream::stream;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::sync::mpsc;

use super::calls::{Names, Repeats, carry_out, not_run, wanted};
use super::compaction::{LEAST_BYTES, MAX_BYTES, before, digest};
use super::history_repair::repaired;
use super::host_services::{Asked, Came, House, Remembered, Summary};
use super::model_binding::Seat;
use super::model_request::{Out, Round, Tally, round};
use super::truncate_results::cut_to;
use super::{Leave, user_message};
use crate::event::{EventKind, RuntimeEvent, StopReason};
use crate::runtime::{EventStream, RuntimeError, TurnInput};
use tribune_providers::budget::{estimate, head, message, reserve, window};
use tribune_providers::{
    Answer, AssistantPart, Correction, Ended, ModelRequest, ProviderError, Said, TokenUsage, ToolResult,
    UserPart, fits,
};

/// Requests in one turn. A model that needs more is asked to go on by its user.
const MAX_ROUNDS: u32 = 64;

/// How often the house is asked for more money before one request.
const MAX_RAISES: usize = 3;

/// Events on their way to whoever listens.
const EVENTS: usize = 64;

/// What a digest counts beside its bytes, as one more message with one more part.
const AROUND: usize = 64;

/// What stands for the turn under way, whose CID is not known before it ends.
const NOW: &str = "now";

/// What calls are told that are not carried out because the answer was cut.
const CUT: &str = "not carried out: the answer ended before the call was complete";

/// How a turn ends.
type End = Result<StopReason, RuntimeError>;

/// Runs a turn.
pub(super) fn run(
    seat: Seat,
    input: TurnInput,
    services: Arc<dyn House>,
    correction: Correction,
    leave: Leave,
) -> EventStream {
    let (out, mut events) = mpsc::channel(EVENTS);
    let mut seq = 0;
    let mut number = move |kind| {
        seq += 1;
        RuntimeEvent { seq, kind }
    };
    stream! {
        let looping = async move {
            let mut turn = Turn {
                tally: Tally { before: TokenUsage::default() },
                names: Names::default(),
                repeats: Repeats::default(),
                conversation: Vec::new(),
                rounds: 0,
                seat,
                input,
                services,
                correction,
                out,
            };
            let end = turn.run().await;
            leave.learn(&turn.correction);
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

struct Turn {
    seat: Seat,
    input: TurnInput,
    services: Arc<dyn House>,
    correction: Correction,
    /// Everything that is sent: what is remembered, and what is said in this turn.
    conversation: Vec<Remembered>,
    rounds: u32,
    tally: Tally,
    names: Names,
    repeats: Repeats,
    out: Out,
}

impl Turn {
    async fn run(&mut self) -> End {
        self.conversation = repaired(self.services.recall().await?);
        let house = self.services.clone();
        let redact = |text: &str| house.redact(text).into_owned();
        let (letters, content) = (&self.input.preceding, &self.input.content);
        let sees = self.seat.limits.supports_images;
        // What the agent was told before it is not told again.
        let note = house.note().filter(|note| !self.was_told(&redact(note)));
        let parts = user_message::user_parts(note, letters, content, sees, redact);
        self.keep(Said::User(parts)).await?;
        loop {
            self.rounds += 1;
            if self.rounds > MAX_ROUNDS {
                let what =
                    format!("the model was asked {MAX_ROUNDS} times in this turn: say that it may go on");
                return Err(RuntimeError::new("max_rounds", what));
            }
            if let Some(end) = self.round().await? {
                return Ok(end);
            }
        }
    }

    fn was_told(&self, note: &str) -> bool {
        self.conversation.iter().any(|one| match &one.said {
            Said::User(parts) => {
                parts.iter().any(|part| matches!(part, UserPart::Text(text) if text == note))
            }
            Said::Assistant(_) | Said::Results(_) => false,
        })
    }

    /// One request and what follows from it. `None` if there is to be another.
    async fn round(&mut self) -> Result<Option<StopReason>, RuntimeError> {
        let (request, asked) = self.fitting().await?;
        let house = self.services.clone();
        if let Some(end) = self.afford(&asked).await? {
            return Ok(Some(end));
        }
        let way = (&self.out, &self.input.cancel);
        let Round { answer, names, error, asked } =
            round(&self.seat, &request, &mut self.names, (&self.tally, asked), way).await;
        house.asked(asked).await;
        self.correction.learn(&request, &answer.usage);
        self.tally.before = self.tally.before.plus(&answer.usage);
        if let Some(error) = error {
            return self.cut(answer, error).await.map(Some);
        }
        let calls = wanted(&answer.parts);
        let ended = answer.ended.clone();
        self.keep(Said::Assistant(answer.parts)).await?;
        if calls.is_empty() {
            return Ok(Some(stop_reason(ended.as_ref())));
        }
        if matches!(ended, Some(Ended::MaxTokens | Ended::Refusal)) {
            self.keep(Said::Results(not_run(&calls, CUT))).await?;
            return Ok(Some(stop_reason(ended.as_ref())));
        }
        let redact = |text: &str| house.redact(text).into_owned();
        let (cancel, tools) = (self.input.cancel.clone(), self.input.tools.clone());
        let results = tokio::select! {
            biased;
            () = cancel.cancelled() => None,
            results = carry_out(&calls, &names, &*tools, redact) => Some(results),
        };
        let Some(results) = results else {
            self.keep(Said::Results(not_run(&calls, "the turn was cancelled before this call ended")))
                .await?;
            return Ok(Some(StopReason::Cancelled));
        };
        let mut circling = false;
        for (call, result) in calls.iter().zip(&results) {
            circling |= self.repeats.over(call, result.is_error);
        }
        let results = cut_to(self.room(&request, &results), results);
        self.keep(Said::Results(results)).await?;
        if circling {
            let what = "the model made the same failing call over and over, and was stopped: say what it should do instead";
            return Err(RuntimeError::new("repeating", what));
        }
        Ok(None)
    }

    /// Sees that there is money for a request, asking for more if the house wants to be asked.
    async fn afford(&self, asked: &Asked) -> Result<Option<StopReason>, RuntimeError> {
        let TurnInput { tools, cancel, .. } = &self.input;
        for _ in 0..MAX_RAISES {
            let wanted = self.services.reserve(&self.seat.model, asked.estimated, asked.reserved).await?;
            let Some(call) = wanted else { return Ok(None) };
            let outcome = tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(Some(StopReason::Cancelled)),
                outcome = tools.call(call) => outcome,
            };
            if outcome.is_error {
                return Err(RuntimeError::new("spend_limit", outcome.content));
            }
        }
        Err(RuntimeError::new(
            "spend_limit",
            "the limit was raised, and it is still not enough: raise it further",
        ))
    }

    /// The next request, after the conversation was shortened if it has to be. Nothing is sent that does not fit.
    async fn fitting(&mut self) -> Result<(ModelRequest, Asked), RuntimeError> {
        let Seat { model, limits, is_local, .. } = &self.seat;
        let window = window(limits, *is_local);
        let reserved = reserve(self.seat.max_output_tokens, limits);
        for may_shorten in [true, false] {
            let request = self.request();
            let estimated = self.correction.estimate(&request);
            match fits(estimated, reserved, window, model) {
                Ok(()) => {
                    let asked = Asked {
                        model: model.clone(),
                        round: self.rounds,
                        estimated,
                        reserved: u64::from(reserved),
                        usage: TokenUsage::default(),
                        came: Came::Nowhere,
                        first_ms: 0,
                        all_ms: 0,
                        outcome: String::new(),
                    };
                    return Ok((request, asked));
                }
                Err(error) => {
                    let room = u64::from(window.saturating_sub(reserved));
                    let Some(summary) = may_shorten.then(|| self.shortened(request, room)).flatten() else {
                        return Err(RuntimeError::new("over_budget", error.to_string()));
                    };
                    self.services.compact(&summary).await?;
                    let rest = self.conversation.split_off(summary.messages);
                    let turn = summary.turns.last().cloned().unwrap_or_default();
                    self.conversation = vec![Remembered { turn, said: summary.said }];
                    self.conversation.extend(rest);
                }
            }
        }
        Err(RuntimeError::new("over_budget", "the conversation does not fit the model: begin a new one"))
    }

    /// How many bytes these results may have so that the next request fits: behind everything that was said, or behind this
    /// turn alone if the turns before it are shortened for them.
    fn room(&self, request: &ModelRequest, results: &[ToolResult]) -> u64 {
        let emptied = |result: &ToolResult| ToolResult { content: String::new(), ..result.clone() };
        let around = message(&Said::Results(results.iter().map(emptied).collect()));
        let sent = request.messages.len();
        let answer: u64 = self.conversation[sent..].iter().map(|one| message(&one.said)).sum();
        let behind_all = self.correction.estimate(request) + answer;
        let own = self.conversation.iter().filter(|one| one.turn == NOW).map(|one| message(&one.said));
        let behind_turn = head(request) + own.sum::<u64>() + (LEAST_BYTES + AROUND) as u64;
        let window = u64::from(window(&self.seat.limits, self.seat.is_local));
        let reserved = u64::from(reserve(self.seat.max_output_tokens, &self.seat.limits));
        window.saturating_sub(reserved + around + behind_all.min(behind_turn))
    }

    /// What the conversation becomes so that it fits: as many of the last turns as can stay beside a digest of the others.
    fn shortened(&self, mut request: ModelRequest, room: u64) -> Option<Summary> {
        (1..=self.seat.keep_turns.max(1)).rev().find_map(|turns| {
            let old = before(&self.conversation, turns)?;
            request.messages = self.conversation[old..].iter().map(|one| one.said.clone()).collect();
            let left = usize::try_from(room.checked_sub(estimate(&request))?).unwrap_or(usize::MAX);
            let left = left.saturating_sub(AROUND).min(MAX_BYTES);
            (left >= LEAST_BYTES).then(|| digest(&self.conversation, old, left))
        })
    }

    fn request(&self) -> ModelRequest {
        let tools =
            if self.seat.limits.supports_tools { self.input.tools.tools().to_vec() } else { Vec::new() };
        ModelRequest {
            model: self.seat.model.model().to_owned(),
            system: self.services.stack(),
            messages: self.conversation.iter().map(|one| one.said.clone()).collect(),
            tools,
            max_output_tokens: reserve(self.seat.max_output_tokens, &self.seat.limits),
            thinking: self.seat.thinking,
        }
    }

    /// What the model said, without secrets. A thought that is signed stays as it is, or it would be refused.
    fn cleared(&self, part: AssistantPart) -> AssistantPart {
        let redact = |text: &str| self.services.redact(text).into_owned();
        match part {
            AssistantPart::Text(text) => AssistantPart::Text(redact(&text)),
            AssistantPart::ToolUse { id, name, arguments, signature } => {
                let arguments = cleared_json(&*self.services, arguments);
                AssistantPart::ToolUse { id, name, arguments, signature }
            }
            AssistantPart::Thinking { .. }
            | AssistantPart::RedactedThinking { .. }
            | AssistantPart::ReasoningDetail(_) => part,
        }
    }

    /// The answer was cut: what arrived is kept as far as it can be sent again.
    async fn cut(&mut self, answer: Answer, error: ProviderError) -> End {
        let whole = |part: &AssistantPart| match part {
            AssistantPart::Text(text) => !text.trim().is_empty(),
            // A thought without its proof is refused, and a call without its end is none.
            AssistantPart::Thinking { .. }
            | AssistantPart::RedactedThinking { .. }
            | AssistantPart::ReasoningDetail(_)
            | AssistantPart::ToolUse { .. } => false,
        };
        let parts: Vec<AssistantPart> = answer.parts.into_iter().filter(whole).collect();
        if !parts.is_empty() {
            self.keep(Said::Assistant(parts)).await?;
        }
        if matches!(error, ProviderError::Cancelled { .. }) {
            return Ok(StopReason::Cancelled);
        }
        Err(RuntimeError::new(error.code(), error.to_string()))
    }

    async fn keep(&mut self, said: Said) -> Result<(), RuntimeError> {
        let said = match said {
            Said::Assistant(parts) => {
                Said::Assistant(parts.into_iter().map(|part| self.cleared(part)).collect())
            }
            Said::User(_) | Said::Results(_) => said,
        };
        let is_empty = matches!(&said, Said::Assistant(parts) if parts.is_empty());
        if is_empty {
            return Ok(());
        }
        self.services.keep(std::slice::from_ref(&said)).await?;
        self.conversation.push(Remembered { turn: NOW.to_owned(), said });
        Ok(())
    }
}

/// JSON without the secrets in its texts and names; the very same text if there are none.
fn cleared_json(house: &dyn House, text: String) -> String {
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => match house.redact_json(&value) {
            cleared if cleared != value => cleared.to_string(),
            _ => text,
        },
        Err(_) => house.redact(&text).into_owned(),
    }
}

const fn stop_reason(ended: Option<&Ended>) -> StopReason {
    match ended {
        Some(Ended::MaxTokens) => StopReason::MaxTokens,
        Some(Ended::Refusal) => StopReason::Refusal,
        Some(Ended::EndTurn | Ended::ToolUse | Ended::Other(_)) | None => StopReason::EndTurn,
    }
}
