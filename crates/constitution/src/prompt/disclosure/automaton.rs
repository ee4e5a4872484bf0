//! The secret texts as a suffix automaton: after every letter it tells how many of the last letters stand in one of
//! them in a row. Each text is there four times: as it is, backwards, with every word backwards, and with its words in
//! the opposite order.

use super::confusables;

/// The letters a–z, numbered from 0.
pub(super) type Letter = u8;

const LETTERS: usize = 26;

/// Stands between two texts, so that no run goes from one into the next. No output contains it.
const BORDER: usize = LETTERS;

/// Where nothing has been matched; no transition leads here.
const ROOT: u32 = 0;

pub(super) struct Automaton {
    states: Vec<AutomatonState>,
}

#[derive(Clone)]
struct AutomatonState {
    /// The state after each letter; the root stands for none.
    next: [u32; LETTERS + 1],
    /// The state of the longest ending that stands in other places too.
    link: u32,
    /// The length of the longest run that leads here.
    length: u32,
    /// Where one of these runs ends, in all texts behind each other.
    end: u32,
}

/// How much of the last letters is in a secret text.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Match {
    state: u32,
    pub(super) letters: usize,
}

/// Letters in all texts behind each other.
pub(super) type Places = std::ops::Range<u32>;

impl Automaton {
    pub(super) fn new(texts: &[&str]) -> Self {
        Self::of(texts.iter().flat_map(|text| variants(text)))
    }

    /// Of how far it is from each letter to the next, which is the same however far the letters were shifted.
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

    /// What is matched after one more letter.
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

    /// Where in the secret texts the matched letters stand, or one of the places.
    pub(super) fn places(&self, matched: Match) -> Places {
        let end = self.states[matched.state as usize].end;
        end.saturating_sub(matched.letters as u32)..end
    }

    /// Adds a symbol behind the text that leads to `last` (Blumer et al., 1985); returns the state it leads to.
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

    /// The state for exactly the run that leads over `at` and `symbol` to `next`, which may stand for longer ones.
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

/// How far it is from one letter to the next, around the alphabet.
pub(super) const fn step_between(from: Letter, to: Letter) -> Letter {
    (to + LETTERS as Letter - from) % LETTERS as Letter
}

/// The letters of a text, in the orders in which someone might tell them.
fn variants(text: &str) -> [Vec<Letter>; 4] {
    let letters = |word: &str| word.chars().flat_map(confusables::letters).collect::<Vec<_>>();
    let words: Vec<Vec<Letter>> = text.split_whitespace().map(letters).collect();
    let forwards = words.concat();
    let backwards = forwards.iter().rev().copied().collect();
    let each_backwards = words.iter().flat_map(|word| word.iter().rev()).copied().collect();
    let last_first = words.iter().rev().flatten().copied().collect();
    [forwards, backwards, each_backwards, last_first]
}
