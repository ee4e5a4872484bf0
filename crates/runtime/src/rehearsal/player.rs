//! Plays a script as the events of a turn: the only place that waits, calls tools and sends.

use std::future::poll_fn;
use std::task::Poll;

use async_stream::stream;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::cursor::{Cursor, PlayerAction, TurnEnding};
use super::limits::{DEAF_FOR, STEPS_PER_YIELD};
use super::scenes::Scenes;
use super::select::script_for;
use super::sessions::{RunningTurn, TurnRemainder};
use super::turn_counter::TurnCounter;
use crate::content::text_of;
use crate::event::{EventKind, StopReason, Usage};
use crate::runtime::{EventStream, TurnInput};

/// The events of one turn.
pub(super) fn play(turn: RunningTurn, scenes: Scenes, input: TurnInput) -> EventStream {
    Box::pin(stream! {
        let mut counter = TurnCounter::new(&input);
        let mut cursor = script_of(&turn, &scenes, &input);
        let cancel = turn.cancel.clone();
        let ending = loop {
            if cancel.is_cancelled() {
                break TurnEnding::Done(StopReason::Cancelled);
            }
            if let Err(enough) = counter.step() {
                break enough;
            }
            if counter.steps().is_multiple_of(STEPS_PER_YIELD) {
                yield_now().await;
            }
            match cursor.next() {
                PlayerAction::Text(text) => yield Ok(counter.event(EventKind::TextDelta { text })),
                PlayerAction::Thought(text) => yield Ok(counter.event(EventKind::ReasoningDelta { text })),
                PlayerAction::Input { id, piece } => {
                    yield Ok(counter.event(EventKind::ToolCallUpdate { id, input_delta: piece }));
                }
                PlayerAction::Usage(usage) => yield Ok(counter.event(usage_update(usage))),
                PlayerAction::Calls(calls) => {
                    let calls = join_all(calls.into_iter().map(|call| input.tools.call(call)));
                    if let Some(outcomes) = cancel.run_until_cancelled(calls).await {
                        cursor.outcomes(outcomes);
                    }
                }
                PlayerAction::Pause(time) => {
                    cancel.run_until_cancelled(sleep(time)).await;
                }
                PlayerAction::Hang => cancel.cancelled().await,
                PlayerAction::Deaf => sleep(DEAF_FOR).await,
                PlayerAction::Panic(text) => panic!("{text}"),
                PlayerAction::Silent => {}
                PlayerAction::End(ending) => break ending,
            }
        };

        let (reason, remains) = match ending {
            TurnEnding::Done(StopReason::Cancelled) => (StopReason::Cancelled, TurnRemainder::Cancelled),
            TurnEnding::Done(reason) => (reason, TurnRemainder::Nothing),
            TurnEnding::Asked => (StopReason::EndTurn, TurnRemainder::Script(cursor)),
            TurnEnding::Error(error) => {
                let code = error.code().to_owned();
                yield Ok(counter.event(EventKind::Error { code, message: error.message }));
                (StopReason::Error, TurnRemainder::Nothing)
            }
            TurnEnding::Fail(error) => {
                turn.end(TurnRemainder::Nothing);
                yield Err(error);
                return;
            }
        };
        if reason != StopReason::Cancelled && let Some(usage) = counter.estimate() {
            yield Ok(counter.event(usage_update(usage)));
        }
        // Before the last event: its reader may begin the next turn at once.
        turn.end(remains);
        yield Ok(counter.event(EventKind::Done { stop_reason: reason }));
    })
}

/// The script that waits for this text, or the one that the text asks for.
fn script_of(turn: &RunningTurn, scenes: &Scenes, input: &TurnInput) -> Box<Cursor> {
    let text = text_of(&input.content);
    match turn.waiting() {
        Some(mut cursor) => {
            cursor.answer(text);
            cursor
        }
        None => Box::new(Cursor::new(script_for(&text, scenes, input), text)),
    }
}

const fn usage_update(usage: Usage) -> EventKind {
    EventKind::UsageUpdate { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }
}

/// Lets other tasks of the thread run.
async fn yield_now() {
    let mut breathed = false;
    poll_fn(|context| {
        if std::mem::replace(&mut breathed, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
#[path = "player_tests.rs"]
mod tests;
