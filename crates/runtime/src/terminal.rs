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
    started: CancellationToken,
    /// Fires when the command is to end.
    end_requested: CancellationToken,
    /// Fires when the command has ended and its outcome is on record.
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// Up to twice what is kept, so that not every line moves all of it.
    tail: String,
    is_cut: bool,
    exit: Option<ExitStatus>,
    outcome: Option<ToolOutcome>,
    ending: Option<EndRequest>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Code(i32),
    Signal(i32),
}

/// The reason for which a command is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndRequest {
    /// The client killed it.
    Killed,
    /// The turn that it is part of is over, or was cancelled.
    TurnEnded,
}

/// The signal that ends a command which does not end by itself.
const KILLED: ExitStatus = ExitStatus::Signal(9);

/// The output and state of a command at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalSnapshot {
    pub output: String,
    /// Older output was dropped.
    pub is_truncated: bool,
    /// `None` while it runs.
    pub exit: Option<ExitStatus>,
}

impl Terminal {
    pub fn new(keeps: usize) -> Self {
        let state = Mutex::default();
        let token = CancellationToken::new;
        Self { keeps, state, started: token(), end_requested: token(), closed: token() }
    }

    /// Marks the command as started.
    pub fn mark_started(&self) {
        self.started.cancel();
    }

    /// A writer for one output stream of the command. Each stream has its own, so that their characters do not mix.
    pub fn writer(self: &Arc<Self>) -> TerminalWriter {
        TerminalWriter { terminal: Arc::clone(self), rest: Vec::new() }
    }

    /// Sets how the command ended. Readers see it once the outcome is on record.
    pub fn set_exit(&self, exit: ExitStatus) {
        self.state().exit = Some(exit);
    }

    /// Sets the outcome, which is on record by now. Nothing more is written.
    pub fn close(&self, outcome: ToolOutcome) {
        let mut state = self.state();
        state.exit.get_or_insert(KILLED);
        state.outcome = Some(outcome);
        drop(state);
        self.closed.cancel();
    }

    /// Requests the end of the command; one that has not started does not start. The first reason is kept.
    pub fn request_end(&self, why: EndRequest) {
        self.state().ending.get_or_insert(why);
        self.end_requested.cancel();
    }

    /// The reason for which the end was requested, if it was.
    pub fn end_request(&self) -> Option<EndRequest> {
        self.state().ending
    }

    pub fn has_started(&self) -> bool {
        self.started.is_cancelled()
    }

    pub fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Waits until the command has started.
    pub async fn begun(&self) {
        self.started.cancelled().await;
    }

    /// Waits until the end is requested.
    pub async fn unwanted(&self) {
        self.end_requested.cancelled().await;
    }

    /// Waits until the outcome is on record, and returns how the command ended.
    pub async fn over(&self) -> ExitStatus {
        self.closed.cancelled().await;
        self.state().exit.unwrap_or(KILLED)
    }

    /// The outcome, once it is on record.
    pub fn outcome(&self) -> Option<ToolOutcome> {
        self.state().outcome.clone()
    }

    /// The output and state now.
    pub fn snapshot(&self) -> TerminalSnapshot {
        let state = self.state();
        let from = state.tail.ceil_char_boundary(state.tail.len().saturating_sub(self.keeps));
        TerminalSnapshot {
            output: state.tail.get(from..).unwrap_or_default().to_owned(),
            is_truncated: state.is_cut || from > 0,
            exit: state.exit.filter(|_| self.is_closed()),
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
pub struct TerminalWriter {
    terminal: Arc<Terminal>,
    /// The first bytes of a character that is not complete.
    rest: Vec<u8>,
}

impl TerminalWriter {
    pub fn write(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let whole = whole_characters(&self.rest);
        self.terminal.push(&String::from_utf8_lossy(&self.rest[..whole]));
        self.rest.drain(..whole);
    }
}

impl Drop for TerminalWriter {
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
        let mut pen = terminal.writer();
        pen.write("äb".as_bytes());
        assert_eq!(
            terminal.snapshot(),
            TerminalSnapshot { output: "äb".into(), is_truncated: false, exit: None }
        );
        pen.write("cdö".as_bytes());
        let seen = terminal.snapshot();
        assert_eq!((seen.output.as_str(), seen.is_truncated), ("bcdö", true));
        let none = Arc::new(Terminal::new(0));
        none.writer().write(b"x");
        assert_eq!((none.snapshot().output.as_str(), none.snapshot().is_truncated), ("", true));
    }

    #[test]
    fn two_streams_do_not_mix_their_characters() {
        let terminal = Arc::new(Terminal::new(100));
        let (mut out, mut err) = (terminal.writer(), terminal.writer());
        let euro = "€".as_bytes();
        out.write(&euro[..1]);
        err.write(b"E");
        out.write(&euro[1..]);
        err.write(&euro[..2]);
        assert_eq!(terminal.snapshot().output, "E€");
        drop(err);
        assert_eq!(terminal.snapshot().output, "E€\u{fffd}");
    }

    #[test]
    fn the_exit_is_seen_once_the_outcome_is_recorded() {
        let terminal = Terminal::new(1);
        terminal.set_exit(ExitStatus::Code(3));
        assert_eq!(terminal.snapshot().exit, None);
        terminal.close(ToolOutcome::good("done"));
        assert_eq!(terminal.snapshot().exit, Some(ExitStatus::Code(3)));
        let given_up = Terminal::new(1);
        given_up.close(ToolOutcome::error("denied"));
        assert_eq!(given_up.snapshot().exit, Some(KILLED));
    }

    #[test]
    fn the_first_end_reason_is_kept() {
        let terminal = Terminal::new(1);
        assert_eq!(terminal.end_request(), None);
        terminal.request_end(EndRequest::Killed);
        terminal.request_end(EndRequest::TurnEnded);
        assert_eq!(terminal.end_request(), Some(EndRequest::Killed));
    }

    proptest! {
        #[test]
        fn pieces_give_the_end_of_the_whole(
            text in ".{0,60}", keeps in 0_usize..40, cuts in proptest::collection::vec(0_usize..200, 0..8)
        ) {
            let terminal = Arc::new(Terminal::new(keeps));
            let mut pen = terminal.writer();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let mut at = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                pen.write(&text.as_bytes()[at..cut]);
                at = cut;
            }
            let seen = terminal.snapshot();
            prop_assert!(text.ends_with(&seen.output) && seen.output.len() <= keeps);
            prop_assert!(text.len() - seen.output.len() < 4 || seen.output.len() + 4 > keeps);
            prop_assert_eq!(seen.is_truncated, seen.output.len() < text.len());
        }
    }
}
