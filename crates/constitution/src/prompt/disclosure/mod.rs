//! Keeps confidential texts out of what an agent says, whatever talked it into saying them.
//!
//! The output is read in many ways at once: as letters, as letters shifted by any number, as base64, base32, hex and numbers, with and without the separators that
//! lists, quotations and JSON put between the words (`reading`). Each reading is a stream of the letters a–z that is
//! compared with the secret texts, forwards and backwards (`automaton`, `run`). Once [`RUN`] letters in a row are theirs,
//! everything from the first of them on is withheld and the rest of the answer with it; likewise once pieces of at least
//! [`PIECE`] letters add up to [`PIECES`], so that other words between sentences do not help.
//!
//! Until then the output flows, except for the end of it that could still become such a run: in prose that is the few
//! letters that happen to stand in a secret text too, about a word, and never more than [`RUN`] times
//! [`HELD_PER_LETTER`] bytes.
//!
//! It deliberately does not judge meaning: a paraphrase, a translation and a few short pieces pass, and so does an
//! encoding that is not among the streams. It knows one answer; what is spread over several is not seen unless the
//! caller keeps the filter for all of them.

mod automaton;
mod confusables;
mod decoders;
mod match_run;
mod separators;

use std::fmt;
use std::sync::{Arc, LazyLock};

use automaton::Automaton;
use decoders::DecodedStream;

use super::{ChannelClass, base_prompt};

/// Letters in a row that disclose a text. Sentences that many people would word alike stay below; a line of a prompt
/// does not.
pub const RUN: usize = 48;

/// Letters in a row that count as a piece of a text: more than a phrase that two texts share by chance.
const PIECE: usize = 20;

/// Letters that disclose a text in pieces of at least [`PIECE`], with other words between them: about four lines.
const PIECES: usize = 240;

/// Stands for all that is withheld.
pub const NOTICE: &str = "[withheld: this would have disclosed the agent's instructions]";

/// Bytes that are held back at most for each letter of a run: one letter to a line with a bullet, a number and a few
/// invisible characters takes less. Of runs that are spread thinner the beginning is let out, never the whole.
const HELD_PER_LETTER: usize = 64;

/// What may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilteredText {
    /// What of the output may be shown now, perhaps nothing, and the notice where it ends.
    pub text: String,
    /// Whether something was withheld, now or earlier: nothing will follow.
    pub withheld: bool,
}

/// The filter for one stream of text. A fresh one can be cloned for every answer: the secrets are shared.
#[derive(Clone)]
pub struct Disclosure {
    secrets: Arc<Secrets>,
    streams: Vec<DecodedStream>,
    /// What came and is not let out yet.
    held: String,
    /// Bytes that came before what is held.
    before: u64,
    is_closed: bool,
}

/// The secret texts, as streams are compared with them.
struct Secrets {
    letters: Automaton,
    /// The same by the steps from letter to letter.
    steps: Automaton,
}

impl Disclosure {
    /// A filter for these texts. One with fewer than [`RUN`] letters is never withheld.
    pub fn new(secrets: &[&str]) -> Self {
        Self {
            secrets: Arc::new(Secrets {
                letters: Automaton::new(secrets),
                steps: Automaton::of_steps(secrets),
            }),
            streams: DecodedStream::all(),
            held: String::new(),
            before: 0,
            is_closed: false,
        }
    }

    /// A filter for what is confidential in every house: the base prompt and the channel policies. Constitution,
    /// mandate and agent prompt are the operator's and may be quoted.
    pub fn of_instructions() -> Self {
        static FRESH: LazyLock<Disclosure> = LazyLock::new(|| {
            let policies = ChannelClass::ALL.map(|class| class.policy().prompt);
            let mut secrets = vec![base_prompt().content];
            secrets.extend(policies);
            Disclosure::new(&secrets)
        });
        FRESH.clone()
    }

    /// Takes the next piece of the output. However it is cut into pieces, the same is let out in the end.
    pub fn push(&mut self, delta: &str) -> FilteredText {
        if self.is_closed {
            return self.passed(String::new());
        }
        let mut text = std::mem::take(&mut self.held);
        let unread = text.len();
        text.push_str(delta);
        let mut open = 0;
        for (index, c) in text[unread..].char_indices() {
            let index = unread + index;
            let at = self.before + index as u64;
            let disclosed = self.streams.iter_mut().filter_map(|stream| stream.push(&self.secrets, c, at));
            if let Some(start) = disclosed.min() {
                return self.close(&text, open, start);
            }
            open = open.max(self.kept_from(&text, index + c.len_utf8()));
        }
        self.held = text.split_off(open);
        self.before += open as u64;
        self.passed(text)
    }

    /// The output stops for a while: what was held back may be shown, since it is no run yet. What comes later goes on with it all the
    /// same.
    pub fn pause(&mut self) -> FilteredText {
        let text = std::mem::take(&mut self.held);
        self.before += text.len() as u64;
        self.passed(text)
    }

    /// The output is over: what was held back may be shown, since nothing can become of it any more.
    pub fn finish(&mut self) -> FilteredText {
        if self.is_closed {
            return self.passed(String::new());
        }
        let text = std::mem::take(&mut self.held);
        let disclosed = self.streams.iter_mut().filter_map(|stream| stream.finish(&self.secrets));
        if let Some(start) = disclosed.min() {
            return self.close(&text, 0, start);
        }
        self.before += text.len() as u64;
        self.passed(text)
    }

    /// Where in `text`, which was read up to `end`, the part begins that could become a run.
    fn kept_from(&self, text: &str, end: usize) -> usize {
        let mut from = end;
        for stream in &self.streams {
            if let Some((start, letters)) = stream.held() {
                let start = usize::try_from(start.saturating_sub(self.before)).unwrap_or(end);
                from = from.min(start.max(end.saturating_sub(letters * HELD_PER_LETTER)));
            }
        }
        text.floor_char_boundary(from)
    }

    /// Ends the output at `start`; `open` bytes of `text` are let out already.
    fn close(&mut self, text: &str, open: usize, start: u64) -> FilteredText {
        self.is_closed = true;
        self.held = String::new();
        let start = usize::try_from(start.saturating_sub(self.before)).unwrap_or(open);
        let mut text = text[..text.floor_char_boundary(start.max(open))].to_owned();
        text.push_str(NOTICE);
        self.passed(text)
    }

    const fn passed(&self, text: String) -> FilteredText {
        FilteredText { text, withheld: self.is_closed }
    }
}

impl fmt::Debug for Disclosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disclosure").field("is_closed", &self.is_closed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
