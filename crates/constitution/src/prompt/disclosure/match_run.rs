//! How much of what was read is a secret text: the run under way, and the pieces before it.

use std::collections::BTreeSet;

use super::automaton::{Automaton, Letter, Match};
use super::{PIECE, PIECES, RUN};

/// The letters that are in a secret text in a row, up to the last one read.
#[derive(Clone)]
pub(super) struct MatchRun {
    matched: Match,
    /// Where in the output each of the last letters began; `read` modulo its length is the oldest.
    starts: [u64; RUN],
    read: usize,
    // INVARIANT: fewer than PIECES and one piece more.
    /// The letters of the secret texts that earlier pieces told.
    told: BTreeSet<u32>,
    /// Where the run began that told too much.
    disclosed: Option<u64>,
}

impl Default for MatchRun {
    fn default() -> Self {
        Self { matched: Match::default(), starts: [0; RUN], read: 0, told: BTreeSet::new(), disclosed: None }
    }
}

impl MatchRun {
    /// Reads a letter that began at `at`.
    pub(super) fn push(&mut self, secrets: &Automaton, letter: Letter, at: u64) {
        if self.disclosed.is_some() {
            return;
        }
        let before = self.matched;
        self.matched = secrets.step(before, letter);
        self.starts[self.read % RUN] = at;
        self.read += 1;
        if before.letters >= PIECE && self.matched.letters <= before.letters {
            self.told.extend(secrets.places(before));
        }
        if self.matched.letters >= RUN || self.adds_up(secrets) {
            self.disclosed = Some(self.start());
        }
    }

    /// Where the run began that told too much, if one did.
    pub(super) const fn disclosed(&self) -> Option<u64> {
        self.disclosed
    }

    /// Of the run under way.
    pub(super) const fn letters(&self) -> usize {
        self.matched.letters
    }

    /// Where the run under way began.
    pub(super) fn start(&self) -> u64 {
        self.starts[(self.read - self.matched.letters) % RUN]
    }

    /// Whether the run under way and the pieces before it are too much together.
    fn adds_up(&self, secrets: &Automaton) -> bool {
        let letters = self.matched.letters;
        letters >= PIECE && self.told.len() + letters >= PIECES && {
            let again = self.told.range(secrets.places(self.matched)).count();
            self.told.len() + letters - again >= PIECES
        }
    }
}
