//! The output and the end of a command that the host runs for a CLI agent, shared between the runner and the agent's
//! connection: the agent can read the output while the command runs, and have the command ended.
//!
//! What the command may do was decided before; a terminal permits nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::tool::ToolOutcome;

/// A command in a terminal. The runner writes, the client reads.
#[derive(Debug)]
pub struct Terminal {
    /// Bytes of output that are kept, the newest.
    keeps: usize,
    state: Mutex<State>,
    /// Fires when the command has started.
    begun: CancellationToken,
    /// Fires when the command is to end.
    unwanted: CancellationToken,
    /// Fires when the command has ended and its outcome is on record.
    over: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// Up to twice what is kept, so that not every line moves all of it.
    tail: String,
    is_cut: bool,
    exit: Option<Exit>,
    outcome: Option<ToolOutcome>,
    ending: Option<Ending>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// The reason for which a command is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The client killed it.
    Killed,
    /// The turn that it is part of is over, or was cancelled.
    TurnOver,
}

/// The signal that ends a command which does not end by itself.
const KILLED: Exit = Exit::Signal(9);

/// The output and state of a command at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub output: String,
    /// Older output was dropped.
    pub is_cut: bool,
    /// `None` while it runs.
    pub exit: Option<Exit>,
}

impl Terminal {
    pub fn new(keeps: usize) -> Self {
        let state = Mutex::default();
        let token = CancellationToken::new;
        Self { keeps, state, begun: token(), unwanted: token(), over: token() }
    }

    /// Marks the command as started.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// A writer for one output stream of the command. Each stream has its own, so that their characters do not mix.
    pub fn pen(self: &Arc<Self>) -> Pen {
        Pen { terminal: Arc::clone(self), rest: Vec::new() }
    }

    /// Sets how the command ended. Readers see it once the outcome is on record.
    pub fn exited(&self, exit: Exit) {
        self.state().exit = Some(exit);
    }

    /// Sets the outcome, which is on record by now. Nothing more is written.
    pub fn close(&self, outcome: ToolOutcome) {
        let mut state = self.state();
        state.exit.get_or_insert(KILLED);
        state.outcome = Some(outcome);
        drop(state);
        self.over.cancel();
    }

    /// Requests the end of the command; one that has not started does not start. The first reason is kept.
    pub fn end(&self, why: Ending) {
        self.state().ending.get_or_insert(why);
        self.unwanted.cancel();
    }

    /// The reason for which the end was requested, if it was.
    pub fn ending(&self) -> Option<Ending> {
        self.state().ending
    }

    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Waits until the command has started.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Waits until the end is requested.
    pub async fn unwanted(&self) {
        self.unwanted.cancelled().await;
    }

    /// Waits until the outcome is on record, and returns how the command ended.
    pub async fn over(&self) -> Exit {
        self.over.cancelled().await;
        self.state().exit.unwrap_or(KILLED)
    }

    /// The outcome, once it is on record.
    pub fn outcome(&self) -> Option<ToolOutcome> {
        self.state().outcome.clone()
    }

    /// The output and state now.
    pub fn seen(&self) -> Seen {
        let state = self.state();
        let from = state.tail.ceil_char_boundary(state.tail.len().saturating_sub(self.keeps));
        Seen {
            output: state.tail.get(from..).unwrap_or_default().to_owned(),
            is_cut: state.is_cut || from > 0,
            exit: state.exit.filter(|_| self.is_over()),
        }
    }

    fn push(&self, text: &str) {
        let mut state = self.state();
        state.tail.push_str(text);
        let over = state.tail.len().saturating_sub(self.keeps);
        if over > self.keeps {
            let cut = state.tail.ceil_char_boundary(over);
            state.tail.drain(..cut);
            state.is_cut = true;
        }
    }

    /// A panic cannot leave a half-written text: every change is one call.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes one output stream of a command.
#[derive(Debug)]
pub struct Pen {
    terminal: Arc<Terminal>,
    /// The first bytes of a character that is not complete.
    rest: Vec<u8>,
}

impl Pen {
    pub fn write(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let whole = whole_characters(&self.rest);
        self.terminal.push(&String::from_utf8_lossy(&self.rest[..whole]));
        self.rest.drain(..whole);
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        // The character will not be completed.
        if !self.rest.is_empty() {
            self.terminal.push(&String::from_utf8_lossy(&self.rest));
        }
    }
}

/// The number of bytes that form complete characters.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let length = match bytes[bytes.len() - back] {
            0x80..=0xbf => continue,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        };
        return if length > back { bytes.len() - back } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_newest_output_is_kept_and_cut_between_characters() {
        let terminal = Arc::new(Terminal::new(5));
        let mut pen = terminal.pen();
        pen.write("äb".as_bytes());
        assert_eq!(terminal.seen(), Seen { output: "äb".into(), is_cut: false, exit: None });
        pen.write("cdö".as_bytes());
        let seen = terminal.seen();
        assert_eq!((seen.output.as_str(), seen.is_cut), ("bcdö", true));
        let none = Arc::new(Terminal::new(0));
        none.pen().write(b"x");
        assert_eq!((none.seen().output.as_str(), none.seen().is_cut), ("", true));
    }

    #[test]
    fn two_streams_do_not_mix_their_characters() {
        let terminal = Arc::new(Terminal::new(100));
        let (mut out, mut err) = (terminal.pen(), terminal.pen());
        let euro = "€".as_bytes();
        out.write(&euro[..1]);
        err.write(b"E");
        out.write(&euro[1..]);
        err.write(&euro[..2]);
        assert_eq!(terminal.seen().output, "E€");
        drop(err);
        assert_eq!(terminal.seen().output, "E€\u{fffd}");
    }

    #[test]
    fn the_exit_is_seen_once_the_outcome_is_recorded() {
        let terminal = Terminal::new(1);
        terminal.exited(Exit::Code(3));
        assert_eq!(terminal.seen().exit, None);
        terminal.close(ToolOutcome::good("done"));
        assert_eq!(terminal.seen().exit, Some(Exit::Code(3)));
        let given_up = Terminal::new(1);
        given_up.close(ToolOutcome::error("denied"));
        assert_eq!(given_up.seen().exit, Some(KILLED));
    }

    #[test]
    fn the_first_end_reason_is_kept() {
        let terminal = Terminal::new(1);
        assert_eq!(terminal.ending(), None);
        terminal.end(Ending::Killed);
        terminal.end(Ending::TurnOver);
        assert_eq!(terminal.ending(), Some(Ending::Killed));
    }

    proptest! {
        #[test]
        fn pieces_give_the_end_of_the_whole(
            text in ".{0,60}", keeps in 0_usize..40, cuts in proptest::collection::vec(0_usize..200, 0..8)
        ) {
            let terminal = Arc::new(Terminal::new(keeps));
            let mut pen = terminal.pen();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut at = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                pen.write(&text.as_bytes()[at..cut]);
                at = cut;
            }
            let seen = terminal.seen();
            prop_assert!(text.ends_with(&seen.output) && seen.output.len() <= keeps);
            prop_assert!(text.len() - seen.output.len() < 4 || seen.output.len() + 4 > keeps);
            prop_assert_eq!(seen.is_cut, seen.output.len() < text.len());
        }
    }
}
