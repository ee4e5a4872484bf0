//! How much of a decoded stream is a secret text: the current run, and the pieces before it.

use std::collections::BTreeSet;

use super::automaton::{Automaton, Letter, Match};
use super::{PIECE, PIECES, RUN};

/// The consecutive letters of a secret text up to the last letter read.
#[derive(Clone)]
pub(super) struct MatchRun {
    matched: Match,
    /// The positions of the last letters in the output, as a ring: the oldest is at `read` modulo its length.
    starts: [u64; RUN],
    read: usize,
    // INVARIANT: fewer than PIECES and one piece more.
    /// The letters of the secret texts that earlier pieces contain.
    told: BTreeSet<u32>,
    /// Where the run began that disclosed too much.
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

    /// Where the run began that disclosed too much, if one did.
    pub(super) const fn disclosed(&self) -> Option<u64> {
        self.disclosed
    }

    /// The length of the current run.
    pub(super) const fn letters(&self) -> usize {
        self.matched.letters
    }

    /// The beginning of the current run.
    pub(super) fn start(&self) -> u64 {
        self.starts[(self.read - self.matched.letters) % RUN]
    }

    /// Whether the current run and the pieces before it disclose too much together.
    fn adds_up(&self, secrets: &Automaton) -> bool {
        let letters = self.matched.letters;
        letters >= PIECE && self.told.len() + letters >= PIECES && {
            let again = self.told.range(secrets.places(self.matched)).count();
            self.told.len() + letters - again >= PIECES
        }
    }
}
