//! Keeps confidential texts out of an agent's output, however the agent was made to reveal them.
//!
//! The output is decoded in many ways at once: as letters, as shifted letters, as base64, base32, hex and numbers,
//! with and without the separators that lists, quotations and JSON put between the words (`decoders`). Each decoder
//! yields a stream of the letters a–z that is compared with the secret texts, forwards and backwards (`automaton`,
//! `match_run`). After [`RUN_LETTERS`] consecutive letters of a secret text, everything from the first of them on is
//! withheld, including the rest of the answer; likewise once pieces of at least [`PIECE_LETTERS`] letters add up to
//! [`TOTAL_PIECE_LETTERS`], so that other words between sentences do not help.
//!
//! Until then the output passes, except for the end of it that could still become such a run. In prose these are a
//! few letters that happen to occur in a secret text too, about a word, and never more than [`RUN_LETTERS`] times
//! [`HELD_PER_LETTER`] bytes.
//!
//! It deliberately does not judge meaning: a paraphrase, a translation and a few short pieces pass, and so does an
//! encoding without a decoder. It knows one answer; a text that is spread over several answers is only recognized
//! if the caller uses one filter for all of them.

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

/// Consecutive letters that disclose a text. Sentences that many people would phrase alike are shorter; a line of a
/// prompt is not.
pub const RUN_LETTERS: usize = 48;

/// Consecutive letters that count as a piece of a text: more than a phrase that two texts share by chance.
const PIECE_LETTERS: usize = 20;

/// Letters that disclose a text in pieces of at least [`PIECE_LETTERS`], with other words between them: about four lines.
const TOTAL_PIECE_LETTERS: usize = 240;

/// The text in place of everything that is withheld.
pub const NOTICE: &str = "[withheld: this would have disclosed the agent's instructions]";

/// Bytes that are held back at most for each letter of a run. One letter per line with a bullet, a number and a few
/// invisible characters needs less. Of runs that are spread thinner the beginning passes, never the whole.
const HELD_PER_LETTER: usize = 64;

/// The output that may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilteredText {
    /// The part of the output that may be shown now, perhaps empty, with the notice where the output ends.
    pub text: String,
    /// Whether something was withheld, now or earlier: nothing will follow.
    pub withheld: bool,
}

/// The filter for one stream of text. A fresh one can be cloned for every answer: the secrets are shared.
#[derive(Clone)]
pub struct DisclosureFilter {
    secrets: Arc<Secrets>,
    streams: Vec<DecodedStream>,
    /// Output that is held back.
    held: String,
    /// Bytes before the output that is held back.
    before: u64,
    is_closed: bool,
}

/// The secret texts, in the forms that streams are compared with.
struct Secrets {
    letters: Automaton,
    /// The same as distances from letter to letter.
    steps: Automaton,
}

impl DisclosureFilter {
    /// A filter for these texts. A text with fewer than [`RUN_LETTERS`] letters is never withheld.
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

    /// A filter for what is confidential in every instance: the base prompt and the channel policies. Constitution,
    /// mandate and agent prompt are the operator's and may be quoted.
    pub fn of_instructions() -> Self {
        static FRESH: LazyLock<DisclosureFilter> = LazyLock::new(|| {
            let policies = ChannelClass::ALL.map(|class| class.policy().prompt);
            let mut secrets = vec![base_prompt().content];
            secrets.extend(policies);
            DisclosureFilter::new(&secrets)
        });
        FRESH.clone()
    }

    /// Takes the next part of the output. The total that passes does not depend on how the output is split.
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

    /// The output pauses: what was held back may be shown, because it is no complete run yet. A run continues in
    /// later output nevertheless.
    pub fn pause(&mut self) -> FilteredText {
        let text = std::mem::take(&mut self.held);
        self.before += text.len() as u64;
        self.passed(text)
    }

    /// The output ends: what was held back may be shown, because it cannot become a run any more.
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

    /// Ends the output at `start`; `open` bytes of `text` have passed already.
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

impl fmt::Debug for DisclosureFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disclosure").field("is_closed", &self.is_closed).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;
