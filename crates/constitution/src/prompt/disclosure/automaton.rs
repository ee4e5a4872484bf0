//! The secret texts as a suffix automaton: after every letter it knows how many of the last letters appear
//! consecutively in one of them. It contains each text four times: as it is, backwards, with every word backwards,
//! and with its words in reverse order.

use super::confusables;

/// The letters a–z, numbered from 0.
pub(super) type Letter = u8;

const LETTERS: usize = 26;

/// The symbol between two texts, so that no run continues from one into the next. No output contains it.
const BORDER: usize = LETTERS;

/// The state without a match; no transition leads to it.
const ROOT: u32 = 0;

pub(super) struct Automaton {
    states: Vec<AutomatonState>,
}

#[derive(Clone)]
struct AutomatonState {
    /// The next state for each letter; the root stands for none.
    next: [u32; LETTERS + 1],
    /// The state of the longest suffix that also occurs elsewhere.
    link: u32,
    /// The length of the longest run that leads here.
    length: u32,
    /// The end of one occurrence of such a run, in the concatenation of all texts.
    end: u32,
}

/// How many of the last letters match a secret text.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Match {
    state: u32,
    pub(super) letters: usize,
}

/// A range of letters in the concatenation of all texts.
pub(super) type Places = std::ops::Range<u32>;

impl Automaton {
    pub(super) fn new(texts: &[&str]) -> Self {
        Self::of(texts.iter().flat_map(|text| variants(text)))
    }

    /// An automaton of the distances between consecutive letters, which are the same however far the letters are
    /// shifted.
    pub(super) fn of_steps(texts: &[&str]) -> Self {
        let steps = |text: &&str| {
            let [forwards, ..] = variants(text);
            forwards.windows(2).map(|pair| step_between(pair[0], pair[1])).collect()
        };
        Self::of(texts.iter().map(steps))
    }

    fn of(texts: impl Iterator<Item = Vec<Letter>>) -> Self {
        let root = AutomatonState { next: [ROOT; LETTERS + 1], link: ROOT, length: 0, end: 0 };
        let mut automaton = Self { states: vec![root] };
        let mut last = ROOT;
        for text in texts {
            for letter in text {
                last = automaton.extend(last, letter.into());
            }
            last = automaton.extend(last, BORDER);
        }
        automaton
    }

    /// The match after one more letter.
    pub(super) fn step(&self, mut from: Match, letter: Letter) -> Match {
        loop {
            let state = &self.states[from.state as usize];
            let next = state.next[usize::from(letter)];
            if next != ROOT {
                return Match { state: next, letters: from.letters + 1 };
            }
            if from.state == ROOT {
                return Match::default();
            }
            from = Match { state: state.link, letters: self.states[state.link as usize].length as usize };
        }
    }

    /// One occurrence of the matched letters in the secret texts.
    pub(super) fn places(&self, matched: Match) -> Places {
        let end = self.states[matched.state as usize].end;
        end.saturating_sub(matched.letters as u32)..end
    }

    /// Appends a symbol to the text that leads to `last` (Blumer et al., 1985); returns the new state.
    fn extend(&mut self, last: u32, symbol: usize) -> u32 {
        let length = self.states[last as usize].length + 1;
        let new = self.add(AutomatonState { next: [ROOT; LETTERS + 1], link: ROOT, length, end: length });
        let mut at = last;
        while self.states[at as usize].next[symbol] == ROOT {
            self.states[at as usize].next[symbol] = new;
            if at == ROOT {
                return new;
            }
            at = self.states[at as usize].link;
        }
        let next = self.states[at as usize].next[symbol];
        self.states[new as usize].link = self.split(at, symbol, next);
        new
    }

    /// The state for exactly the run over `at` and `symbol` to `next`; `next` may also stand for longer runs.
    fn split(&mut self, mut at: u32, symbol: usize, next: u32) -> u32 {
        let length = self.states[at as usize].length + 1;
        if self.states[next as usize].length == length {
            return next;
        }
        let shorter = self.add(AutomatonState { length, ..self.states[next as usize].clone() });
        self.states[next as usize].link = shorter;
        while self.states[at as usize].next[symbol] == next {
            self.states[at as usize].next[symbol] = shorter;
            if at == ROOT {
                break;
            }
            at = self.states[at as usize].link;
        }
        shorter
    }

    fn add(&mut self, state: AutomatonState) -> u32 {
        self.states.push(state);
        (self.states.len() - 1) as u32
    }
}

/// The distance from one letter to another, around the alphabet.
pub(super) const fn step_between(from: Letter, to: Letter) -> Letter {
    (to + LETTERS as Letter - from) % LETTERS as Letter
}

/// The letters of a text in each order that the filter recognizes.
fn variants(text: &str) -> [Vec<Letter>; 4] {
    let letters = |word: &str| word.chars().flat_map(confusables::letters).collect::<Vec<_>>();
    let words: Vec<Vec<Letter>> = text.split_whitespace().map(letters).collect();
    let forwards = words.concat();
    let backwards = forwards.iter().rev().copied().collect();
    let each_backwards = words.iter().flat_map(|word| word.iter().rev()).copied().collect();
    let last_first = words.iter().rev().flatten().copied().collect();
    [forwards, backwards, each_backwards, last_first]
}
