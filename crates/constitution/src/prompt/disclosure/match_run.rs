//! How much of a decoded stream is a secret text: the current run, and the pieces before it.

use std::collections::BTreeSet;

use super::automaton::{Automaton, Letter, Match};
use super::{PIECE_LETTERS, RUN_LETTERS, TOTAL_PIECE_LETTERS};

/// The consecutive letters of a secret text up to the last letter read.
#[derive(Clone)]
pub(super) struct MatchRun {
    matched: Match,
    /// The positions of the last letters in the output, as a ring: the oldest is at `read` modulo its length.
    starts: [u64; RUN_LETTERS],
    read: usize,
    // INVARIANT: fewer than TOTAL_PIECE_LETTERS and one piece more.
    /// The letters of the secret texts that earlier pieces contain.
    disclosed_letters: BTreeSet<u32>,
    /// Where the run began that disclosed too much.
    disclosed_at: Option<u64>,
}

impl Default for MatchRun {
    fn default() -> Self {
        Self {
            matched: Match::default(),
            starts: [0; RUN_LETTERS],
            read: 0,
            disclosed_letters: BTreeSet::new(),
            disclosed_at: None,
        }
    }
}

impl MatchRun {
    /// Reads a letter that began at `at`.
    pub(super) fn push(&mut self, secrets: &Automaton, letter: Letter, at: u64) {
        if self.disclosed_at.is_some() {
            return;
        }
        let before = self.matched;
        self.matched = secrets.step(before, letter);
        self.starts[self.read % RUN_LETTERS] = at;
        self.read += 1;
        if before.letters >= PIECE_LETTERS && self.matched.letters <= before.letters {
            self.disclosed_letters.extend(secrets.places(before));
        }
        if self.matched.letters >= RUN_LETTERS || self.pieces_add_up(secrets) {
            self.disclosed_at = Some(self.start());
        }
    }

    /// Where the run began that disclosed too much, if one did.
    pub(super) const fn disclosed_at(&self) -> Option<u64> {
        self.disclosed_at
    }

    /// The length of the current run.
    pub(super) const fn letters(&self) -> usize {
        self.matched.letters
    }

    /// The beginning of the current run.
    pub(super) fn start(&self) -> u64 {
        self.starts[(self.read - self.matched.letters) % RUN_LETTERS]
    }

    /// Whether the current run and the pieces before it disclose too much together.
    fn pieces_add_up(&self, secrets: &Automaton) -> bool {
        let letters = self.matched.letters;
        letters >= PIECE_LETTERS && self.disclosed_letters.len() + letters >= TOTAL_PIECE_LETTERS && {
            let again = self.disclosed_letters.range(secrets.places(self.matched)).count();
            self.disclosed_letters.len() + letters - again >= TOTAL_PIECE_LETTERS
        }
    }
}
