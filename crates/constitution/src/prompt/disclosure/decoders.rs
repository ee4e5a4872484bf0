//! One decoding of the output into letters, and how much of it matches a secret text.

use super::Secrets;
use super::automaton::{Automaton, Letter, step_between};
use super::confusables;
use super::match_run::MatchRun;
use super::separators::SeparatorFilter;

/// Letters that a decoded run must have before output is held back for it. Ordinary text, decoded, is noise in
/// which a few letters match by chance; without this bound it would be held back for them.
const MIN_HELD_LETTERS: usize = 8;

/// Removes separators, decodes, and compares.
#[derive(Clone)]
pub(super) struct DecodedStream {
    separators: SeparatorFilter,
    code: Encoding,
    run: MatchRun,
}

/// The encodings of letters that the filter reads.
#[derive(Clone)]
enum Encoding {
    Plain(Alphabet),
    Rot13(Alphabet),
    /// Letters shifted by any number, compared by the distances between them; with the previous letter.
    Shifted(Option<Letter>),
    /// Digits and symbols for the letters that they look like.
    Leet,
    Base64(Sextets),
    Base32(Quintets),
    Hex(Nibbles),
    Numbers(DecimalNumbers),
}

/// The characters that count as letters: all that resemble a Latin letter, or ASCII letters only. Others count as
/// separators.
#[derive(Clone, Copy)]
enum Alphabet {
    Lookalikes,
    Ascii,
}

impl Alphabet {
    fn letters(self, c: char) -> impl Iterator<Item = Letter> {
        let is_read = match self {
            Self::Lookalikes => true,
            Self::Ascii => c.is_ascii(),
        };
        is_read.then(|| confusables::letters(c)).into_iter().flatten()
    }
}

impl DecodedStream {
    /// All decodings.
    pub(super) fn all() -> Vec<Self> {
        let kept = || SeparatorFilter::Kept;
        let unescaped = || SeparatorFilter::Unescaped(Default::default());
        let unnumbered = || SeparatorFilter::Unnumbered(Default::default());
        let mut ways = vec![
            (kept(), Encoding::Plain(Alphabet::Lookalikes)),
            (kept(), Encoding::Plain(Alphabet::Ascii)),
            (kept(), Encoding::Rot13(Alphabet::Lookalikes)),
            (kept(), Encoding::Rot13(Alphabet::Ascii)),
            (kept(), Encoding::Leet),
            (kept(), Encoding::Shifted(None)),
            (unescaped(), Encoding::Plain(Alphabet::Lookalikes)),
            (unescaped(), Encoding::Plain(Alphabet::Ascii)),
            (unescaped(), Encoding::Rot13(Alphabet::Lookalikes)),
            (unescaped(), Encoding::Rot13(Alphabet::Ascii)),
        ];
        for separators in [kept, unnumbered] {
            for place in 0..4 {
                for signs in [Base64Signs::Symbols, Base64Signs::Separators] {
                    ways.push((separators(), Encoding::Base64(Sextets { bits: 0, place, signs, before: 0 })));
                }
            }
            for high in [None, Some((0, 0))] {
                ways.push((separators(), Encoding::Hex(Nibbles { high, zero: None })));
            }
        }
        for place in 0..8 {
            ways.push((kept(), Encoding::Base32(Quintets { bits: 0, place, before: 0 })));
        }
        for counts in [NumberMeaning::Codes, NumberMeaning::Places] {
            ways.push((kept(), Encoding::Numbers(DecimalNumbers { counts, under_way: None })));
        }
        ways.into_iter()
            .map(|(separators, code)| Self { separators, code, run: MatchRun::default() })
            .collect()
    }

    /// Reads a character that began at `at`. If it completes a run, returns where the run began.
    pub(super) fn push(&mut self, secrets: &Secrets, c: char, at: u64) -> Option<u64> {
        let Self { separators, code, run } = self;
        let secrets = code.compared_with(secrets);
        separators.push(c, at, |(c, at)| code.push(c, at, |letter, at| run.push(secrets, letter, at)));
        run.disclosed_at()
    }

    /// Reads what waited for more characters.
    pub(super) fn finish(&mut self, secrets: &Secrets) -> Option<u64> {
        let Self { separators, code, run } = self;
        let secrets = code.compared_with(secrets);
        let mut emit = |letter, at| run.push(secrets, letter, at);
        for (c, at) in separators.finish() {
            code.push(c, at, &mut emit);
        }
        code.finish(&mut emit);
        run.disclosed_at()
    }

    /// The beginning and the letters of the current run, if output is held back for it.
    pub(super) fn held(&self) -> Option<(u64, usize)> {
        let least = match self.code {
            Encoding::Plain(_) | Encoding::Rot13(_) | Encoding::Leet => 1,
            Encoding::Shifted(_)
            | Encoding::Base64(_)
            | Encoding::Base32(_)
            | Encoding::Hex(_)
            | Encoding::Numbers(_) => MIN_HELD_LETTERS,
        };
        let letters = self.run.letters();
        (letters >= least).then(|| (self.run.start(), letters))
    }
}

impl Encoding {
    const fn compared_with<'s>(&self, secrets: &'s Secrets) -> &'s Automaton {
        match self {
            Self::Shifted(_) => &secrets.steps,
            Self::Plain(_)
            | Self::Rot13(_)
            | Self::Leet
            | Self::Base64(_)
            | Self::Base32(_)
            | Self::Hex(_)
            | Self::Numbers(_) => &secrets.letters,
        }
    }

    fn push(&mut self, c: char, at: u64, mut emit: impl FnMut(Letter, u64)) {
        match self {
            Self::Plain(alphabet) => alphabet.letters(c).for_each(|letter| emit(letter, at)),
            Self::Rot13(alphabet) => alphabet.letters(c).for_each(|letter| emit((letter + 13) % 26, at)),
            Self::Shifted(previous) => Alphabet::Ascii.letters(c).for_each(|letter| {
                if let Some(before) = previous.replace(letter) {
                    emit(step_between(before, letter), at);
                }
            }),
            Self::Leet => confusables::letters(unleet(c)).for_each(|letter| emit(letter, at)),
            Self::Base64(sextets) => sextets.push(c, at, emit),
            Self::Base32(quintets) => quintets.push(c, at, emit),
            Self::Hex(nibbles) => nibbles.push(c, at, &mut emit),
            Self::Numbers(numbers) => numbers.push(c, at, emit),
        }
    }

    fn finish(&mut self, mut emit: impl FnMut(Letter, u64)) {
        match self {
            Self::Hex(nibbles) => nibbles.finish(&mut emit),
            Self::Numbers(numbers) => numbers.finish(emit),
            Self::Plain(_)
            | Self::Rot13(_)
            | Self::Shifted(_)
            | Self::Leet
            | Self::Base64(_)
            | Self::Base32(_) => {}
        }
    }
}

const fn unleet(c: char) -> char {
    match c {
        '0' => 'o',
        '1' | '!' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' | '+' => 't',
        _ => c,
    }
}

/// The meaning of the symbols of base64: a dash is a digit of one alphabet, and also what people put between
/// letters.
#[derive(Clone, Copy, PartialEq)]
enum Base64Signs {
    Symbols,
    Separators,
}

/// Base64 from one of four positions in a group; every other character counts as a separator.
#[derive(Clone)]
struct Sextets {
    bits: u32,
    /// The position of the next digit in its group of four.
    place: u8,
    signs: Base64Signs,
    /// The position of the previous digit in the output.
    before: u64,
}

impl Sextets {
    fn push(&mut self, c: char, at: u64, emit: impl FnMut(Letter, u64)) {
        let digit = match c {
            'A'..='Z' => c as u32 - 'A' as u32,
            'a'..='z' => c as u32 - 'a' as u32 + 26,
            '0'..='9' => c as u32 - '0' as u32 + 52,
            '+' | '-' if self.signs == Base64Signs::Symbols => 62,
            '/' | '_' if self.signs == Base64Signs::Symbols => 63,
            // Padding fills a group, so that the next one begins at the right position.
            '=' if self.signs == Base64Signs::Symbols => 0,
            _ => return,
        };
        self.bits = self.bits << 6 | digit;
        let byte = match self.place {
            1 => Some(self.bits >> 4),
            2 => Some(self.bits >> 2),
            3 => Some(self.bits),
            _ => None,
        };
        if let Some(byte) = byte {
            emit_byte(byte as u8, self.before, emit);
        }
        self.place = (self.place + 1) % 4;
        self.before = at;
    }
}

/// Base32 from one of eight positions in a group; every other character counts as a separator.
#[derive(Clone)]
struct Quintets {
    bits: u32,
    /// The position of the next digit in its group of eight.
    place: u8,
    /// The position of the previous digit in the output.
    before: u64,
}

impl Quintets {
    fn push(&mut self, c: char, at: u64, emit: impl FnMut(Letter, u64)) {
        let digit = match c.to_ascii_uppercase() {
            c @ 'A'..='Z' => c as u32 - 'A' as u32,
            '2'..='7' => c as u32 - '2' as u32 + 26,
            // Padding fills a group, so that the next one begins at the right position.
            '=' => 0,
            _ => return,
        };
        self.bits = self.bits << 5 | digit;
        // The bits after a byte that ends in this digit.
        let behind = match self.place {
            1 => Some(2),
            3 => Some(4),
            4 => Some(1),
            6 => Some(3),
            7 => Some(0),
            _ => None,
        };
        if let Some(behind) = behind {
            emit_byte((self.bits >> behind) as u8, self.before, emit);
        }
        self.place = (self.place + 1) % 8;
        self.before = at;
    }
}

/// A decimal number for each letter, with anything between two of them.
#[derive(Clone)]
struct DecimalNumbers {
    counts: NumberMeaning,
    /// The current number and where it began.
    under_way: Option<(u32, u64)>,
}

/// The meaning of a number.
#[derive(Clone, Copy)]
enum NumberMeaning {
    /// A character code: 97 is `a`.
    Codes,
    /// A position in the alphabet: 1 is `a`.
    Places,
}

impl DecimalNumbers {
    fn push(&mut self, c: char, at: u64, emit: impl FnMut(Letter, u64)) {
        let Some(digit) = c.to_digit(10) else { return self.finish(emit) };
        let (number, start) = self.under_way.unwrap_or((0, at));
        self.under_way = Some((number.saturating_mul(10).saturating_add(digit), start));
    }

    fn finish(&mut self, emit: impl FnMut(Letter, u64)) {
        let Some((number, start)) = self.under_way.take() else { return };
        let code = match self.counts {
            NumberMeaning::Codes => Some(number),
            NumberMeaning::Places => {
                number.checked_add(u32::from(b'a') - 1).filter(|_| (1..=26).contains(&number))
            }
        };
        if let Some(code) = code.and_then(|code| u8::try_from(code).ok()) {
            emit_byte(code, start, emit);
        }
    }
}

/// Pairs of hex digits, from the first digit or the second; every other character counts as a separator.
#[derive(Clone)]
struct Nibbles {
    /// The first digit of an incomplete pair and its position.
    high: Option<(u8, u64)>,
    /// The position of a zero that may belong to a `0x`.
    zero: Option<u64>,
}

impl Nibbles {
    fn push(&mut self, c: char, at: u64, emit: &mut impl FnMut(Letter, u64)) {
        if matches!(c, 'x' | 'X') {
            self.zero = None;
            return;
        }
        self.finish(emit);
        match c.to_digit(16) {
            Some(0) => self.zero = Some(at),
            Some(digit) => self.digit(digit as u8, at, emit),
            None => {}
        }
    }

    fn finish(&mut self, emit: &mut impl FnMut(Letter, u64)) {
        if let Some(at) = self.zero.take() {
            self.digit(0, at, emit);
        }
    }

    fn digit(&mut self, digit: u8, at: u64, emit: &mut impl FnMut(Letter, u64)) {
        match self.high.take() {
            Some((high, start)) => emit_byte(high << 4 | digit, start, emit),
            None => self.high = Some((digit, at)),
        }
    }
}

/// Passes on the letter that a decoded byte stands for, if any.
fn emit_byte(byte: u8, at: u64, mut emit: impl FnMut(Letter, u64)) {
    if byte.is_ascii() {
        confusables::letters(byte.into()).for_each(|letter| emit(letter, at));
    }
}
