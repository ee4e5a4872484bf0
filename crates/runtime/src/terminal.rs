//! A command that the house runs while somebody follows it: what it writes can be read before it is over, and whoever wanted it
//! can have it ended. What it may do was decided before; this is a window and a bell, and no second way to act.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::tool::ToolOutcome;

/// A command that is followed. Whoever runs it writes, whoever wanted it reads.
#[derive(Debug)]
pub struct Terminal {
    /// Bytes of output that are kept, the newest.
    keeps: usize,
    state: Mutex<State>,
    /// It runs.
    begun: CancellationToken,
    /// Nobody wants it any more.
    unwanted: CancellationToken,
    /// It is over, and that is on record.
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

/// Why a command is not wanted any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Whoever wanted it had it ended.
    Killed,
    /// The turn that it is part of is over, or was cancelled.
    TurnOver,
}

/// The signal with which a command is ended that does not end by itself.
const KILLED: Exit = Exit::Signal(9);

/// What can be seen of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub output: String,
    /// Something stood before it.
    pub is_cut: bool,
    /// None while it runs.
    pub exit: Option<Exit>,
}

impl Terminal {
    pub fn new(keeps: usize) -> Self {
        let state = Mutex::default();
        let token = CancellationToken::new;
        Self { keeps, state, begun: token(), unwanted: token(), over: token() }
    }

    /// The command runs from now on.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// Writes down what comes out of it. Each of its outputs has a pen of its own.
    pub fn pen(self: &Arc<Self>) -> Pen {
        Pen { terminal: Arc::clone(self), rest: Vec::new() }
    }

    /// It ended like this. It is over for those who follow when that is on record.
    pub fn exited(&self, exit: Exit) {
        self.state().exit = Some(exit);
    }

    /// What came of it is on record: nothing more comes.
    pub fn close(&self, outcome: ToolOutcome) {
        let mut state = self.state();
        state.exit.get_or_insert(KILLED);
        state.outcome = Some(outcome);
        drop(state);
        self.over.cancel();
    }

    /// Has it ended, or not begun at all. The first who does so says why.
    pub fn end(&self, why: Ending) {
        self.state().ending.get_or_insert(why);
        self.unwanted.cancel();
    }

    /// Why it is not wanted any more, if it is not.
    pub fn ending(&self) -> Option<Ending> {
        self.state().ending
    }

    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Waits until it runs.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Waits until nobody wants it any more.
    pub async fn unwanted(&self) {
        self.unwanted.cancelled().await;
    }

    /// Waits until it is over, and tells how it ended.
    pub async fn over(&self) -> Exit {
        self.over.cancelled().await;
        self.state().exit.unwrap_or(KILLED)
    }

    /// What came of it, when it is over.
    pub fn outcome(&self) -> Option<ToolOutcome> {
        self.state().outcome.clone()
    }

    /// What can be seen of it now.
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

    /// A thread that panicked left a whole text behind.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes one output of a command.
#[derive(Debug)]
pub struct Pen {
    terminal: Arc<Terminal>,
    /// The beginning of a character whose end is still to come.
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
        // Whatever was begun does not come to its end.
        if !self.rest.is_empty() {
            self.terminal.push(&String::from_utf8_lossy(&self.rest));
        }
    }
}

/// How many of the bytes can be told without what comes next.
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
    fn the_newest_is_kept_and_cut_between_characters() {
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
    fn two_outputs_do_not_tear_each_others_characters() {
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
    fn it_is_over_when_that_is_on_record() {
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
    fn the_first_who_has_it_ended_says_why() {
        let terminal = Terminal::new(1);
        assert_eq!(terminal.ending(), None);
        terminal.end(Ending::Killed);
        terminal.end(Ending::TurnOver);
        assert_eq!(terminal.ending(), Some(Ending::Killed));
    }

    proptest! {
        #[test]
        fn whatever_comes_in_pieces_is_the_end_of_the_whole(
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
