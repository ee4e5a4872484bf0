//! One way to read the output as letters, and how far what was read is in a secret text.

use super::automaton::{Automaton, Letter};
use super::fold;
use super::marks::Marks;
use super::run::Run;

/// Letters of a run that an encoding must have told before output is held back for it. Ordinary text, decoded, is
/// noise in which a few letters match by chance; without this it would be held up by them.
const HELD_WHEN_ENCODED: usize = 8;

/// Takes marks away, decodes, and compares.
#[derive(Clone)]
pub(super) struct Reading {
    marks: Marks,
    code: Code,
    run: Run,
}

/// How characters tell letters.
#[derive(Clone)]
enum Code {
    Plain(Alphabet),
    Rot13(Alphabet),
    /// Digits and signs for the letters they look like.
    Leet,
    Base64(Sextets),
    Hex(Nibbles),
}

/// What counts as a letter. One of another script or style is read as the Latin one it resembles, or stands between
/// letters like any other sign.
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
        is_read.then(|| fold::letters(c)).into_iter().flatten()
    }
}

impl Reading {
    /// All ways to read.
    pub(super) fn all() -> Vec<Self> {
        let kept = || Marks::Kept;
        let unescaped = || Marks::Unescaped(Default::default());
        let unnumbered = || Marks::Unnumbered(Default::default());
        let mut ways = vec![
            (kept(), Code::Plain(Alphabet::Lookalikes)),
            (kept(), Code::Plain(Alphabet::Ascii)),
            (kept(), Code::Rot13(Alphabet::Lookalikes)),
            (kept(), Code::Rot13(Alphabet::Ascii)),
            (kept(), Code::Leet),
            (unescaped(), Code::Plain(Alphabet::Lookalikes)),
            (unescaped(), Code::Plain(Alphabet::Ascii)),
            (unescaped(), Code::Rot13(Alphabet::Lookalikes)),
            (unescaped(), Code::Rot13(Alphabet::Ascii)),
        ];
        for marks in [kept, unnumbered] {
            for place in 0..4 {
                for signs in [Signs::Symbols, Signs::Separators] {
                    ways.push((marks(), Code::Base64(Sextets { bits: 0, place, signs, before: 0 })));
                }
            }
            for high in [None, Some((0, 0))] {
                ways.push((marks(), Code::Hex(Nibbles { high, zero: None })));
            }
        }
        ways.into_iter().map(|(marks, code)| Self { marks, code, run: Run::default() }).collect()
    }

    /// Reads a character that began at `at`. If it completes a run, tells where that began.
    pub(super) fn push(&mut self, secrets: &Automaton, c: char, at: u64) -> Option<u64> {
        let Self { marks, code, run } = self;
        marks.push(c, at, |(c, at)| code.push(c, at, |letter, at| run.push(secrets, letter, at)));
        run.disclosed()
    }

    /// Reads what waited for more.
    pub(super) fn finish(&mut self, secrets: &Automaton) -> Option<u64> {
        let Self { marks, code, run } = self;
        let mut told = |letter, at| run.push(secrets, letter, at);
        for (c, at) in marks.finish() {
            code.push(c, at, &mut told);
        }
        code.finish(&mut told);
        run.disclosed()
    }

    /// Where the run under way began and how many letters it has, if output is held back for it.
    pub(super) fn held(&self) -> Option<(u64, usize)> {
        let least = match self.code {
            Code::Plain(_) | Code::Rot13(_) | Code::Leet => 1,
            Code::Base64(_) | Code::Hex(_) => HELD_WHEN_ENCODED,
        };
        let letters = self.run.letters();
        (letters >= least).then(|| (self.run.start(), letters))
    }
}

impl Code {
    fn push(&mut self, c: char, at: u64, mut told: impl FnMut(Letter, u64)) {
        match self {
            Self::Plain(alphabet) => alphabet.letters(c).for_each(|letter| told(letter, at)),
            Self::Rot13(alphabet) => alphabet.letters(c).for_each(|letter| told((letter + 13) % 26, at)),
            Self::Leet => fold::letters(unleet(c)).for_each(|letter| told(letter, at)),
            Self::Base64(sextets) => sextets.push(c, at, told),
            Self::Hex(nibbles) => nibbles.push(c, at, &mut told),
        }
    }

    fn finish(&mut self, mut told: impl FnMut(Letter, u64)) {
        if let Self::Hex(nibbles) = self {
            nibbles.finish(&mut told);
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

/// What the signs of base64 are taken for: a dash is a digit of one alphabet, and what people put between letters.
#[derive(Clone, Copy, PartialEq)]
enum Signs {
    Symbols,
    Separators,
}

/// Base64 from one of four places in a group; whatever is no digit of it stands between digits.
#[derive(Clone)]
struct Sextets {
    bits: u32,
    /// Of the next digit in its group of four.
    place: u8,
    signs: Signs,
    /// Where the digit before this one stood.
    before: u64,
}

impl Sextets {
    fn push(&mut self, c: char, at: u64, told: impl FnMut(Letter, u64)) {
        let digit = match c {
            'A'..='Z' => c as u32 - 'A' as u32,
            'a'..='z' => c as u32 - 'a' as u32 + 26,
            '0'..='9' => c as u32 - '0' as u32 + 52,
            '+' | '-' if self.signs == Signs::Symbols => 62,
            '/' | '_' if self.signs == Signs::Symbols => 63,
            // Fills a group, so that the next one begins where it should.
            '=' if self.signs == Signs::Symbols => 0,
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
            tell(byte as u8, self.before, told);
        }
        self.place = (self.place + 1) % 4;
        self.before = at;
    }
}

/// Pairs of hex digits, from the first digit or the second on; whatever is none stands between them.
#[derive(Clone)]
struct Nibbles {
    /// The first digit of a pair whose second is to come, and where it stood.
    high: Option<(u8, u64)>,
    /// A zero that may belong to a `0x`, and where it stood.
    zero: Option<u64>,
}

impl Nibbles {
    fn push(&mut self, c: char, at: u64, told: &mut impl FnMut(Letter, u64)) {
        if matches!(c, 'x' | 'X') {
            self.zero = None;
            return;
        }
        self.finish(told);
        match c.to_digit(16) {
            Some(0) => self.zero = Some(at),
            Some(digit) => self.digit(digit as u8, at, told),
            None => {}
        }
    }

    fn finish(&mut self, told: &mut impl FnMut(Letter, u64)) {
        if let Some(at) = self.zero.take() {
            self.digit(0, at, told);
        }
    }

    fn digit(&mut self, digit: u8, at: u64, told: &mut impl FnMut(Letter, u64)) {
        match self.high.take() {
            Some((high, start)) => tell(high << 4 | digit, start, told),
            None => self.high = Some((digit, at)),
        }
    }
}

/// Tells the letter that a decoded byte is, if it is one.
fn tell(byte: u8, at: u64, mut told: impl FnMut(Letter, u64)) {
    if byte.is_ascii() {
        fold::letters(byte.into()).for_each(|letter| told(letter, at));
    }
}
