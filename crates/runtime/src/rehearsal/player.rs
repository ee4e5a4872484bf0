//! Plays a script as the events of a turn: the only place that waits, calls tools and sends.

use std::future::poll_fn;
use std::task::Poll;

use async_stream::stream;
use futures_util::future::join_all;
use tokio::time::sleep;

use super::cursor::{Beat, Cursor, Ending};
use super::limits::{DEAF_FOR, MOVES_PER_BREATH};
use super::memory::{Remains, Turn};
use super::scenes::Scenes;
use super::select::script_for;
use super::turn_counter::Tally;
use crate::content::text_of;
use crate::event::{EventKind, StopReason, Usage};
use crate::runtime::{EventStream, TurnInput};

/// The events of one turn.
pub(super) fn perform(turn: Turn, scenes: Scenes, input: TurnInput) -> EventStream {
    Box::pin(stream! {
        let mut tally = Tally::new(&input);
        let mut cursor = take_up(&turn, &scenes, &input);
        let cancel = turn.cancel.clone();
        let ending = loop {
            if cancel.is_cancelled() {
                break Ending::Done(StopReason::Cancelled);
            }
            if let Err(enough) = tally.step() {
                break enough;
            }
            if tally.moves().is_multiple_of(MOVES_PER_BREATH) {
                breathe().await;
            }
            match cursor.next() {
                Beat::Text(text) => yield Ok(tally.event(EventKind::TextDelta { text })),
                Beat::Thought(text) => yield Ok(tally.event(EventKind::ReasoningDelta { text })),
                Beat::Input { id, piece } => {
                    yield Ok(tally.event(EventKind::ToolCallUpdate { id, input_delta: piece }));
                }
                Beat::Usage(usage) => yield Ok(tally.event(usage_update(usage))),
                Beat::Calls(calls) => {
                    let calls = join_all(calls.into_iter().map(|call| input.tools.call(call)));
                    if let Some(outcomes) = cancel.run_until_cancelled(calls).await {
                        cursor.outcomes(outcomes);
                    }
                }
                Beat::Pause(time) => {
                    cancel.run_until_cancelled(sleep(time)).await;
                }
                Beat::Hang => cancel.cancelled().await,
                Beat::Deaf => sleep(DEAF_FOR).await,
                Beat::Panic(text) => panic!("{text}"),
                Beat::Silent => {}
                Beat::End(ending) => break ending,
            }
        };

        let (reason, remains) = match ending {
            Ending::Done(StopReason::Cancelled) => (StopReason::Cancelled, Remains::Cancelled),
            Ending::Done(reason) => (reason, Remains::Nothing),
            Ending::Asked => (StopReason::EndTurn, Remains::Script(cursor)),
            Ending::Error { code, message } => {
                yield Ok(tally.event(EventKind::Error { code: code.to_owned(), message }));
                (StopReason::Error, Remains::Nothing)
            }
            Ending::Fail(error) => {
                turn.end(Remains::Nothing);
                yield Err(error);
                return;
            }
        };
        if reason != StopReason::Cancelled && let Some(usage) = tally.estimate() {
            yield Ok(tally.event(usage_update(usage)));
        }
        // Before the last event: whoever sees it may begin the next turn at once.
        turn.end(remains);
        yield Ok(tally.event(EventKind::Done { stop_reason: reason }));
    })
}

/// The script that waits for this text, or the one that the text asks for.
fn take_up(turn: &Turn, scenes: &Scenes, input: &TurnInput) -> Box<Cursor> {
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
async fn breathe() {
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
