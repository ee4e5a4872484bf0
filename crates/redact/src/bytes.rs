//! Text that may not be all here yet, and the classes its bytes fall into.
//!
//! Everything that looks for a secret says one of three things of a place: here is one, here is none, or more text is
//! needed to tell. The last one only where the text may go on.

/// What begins a place where something was taken out.
pub(crate) const TAKEN_OUT: &[u8] = b"[redacted:";

/// Several kinds of bytes.
#[derive(Clone, Copy)]
pub(crate) struct Class(u16);

const LOWER_HEX: u16 = 1;
const LOWER: u16 = 1 << 1;
const UPPER_HEX: u16 = 1 << 2;
const UPPER_REST: u16 = 1 << 3;
const DIGIT: u16 = 1 << 4;
const DASH: u16 = 1 << 5;
const DOT: u16 = 1 << 6;
const LOCAL: u16 = 1 << 7;
const OTHER_HEADER: u16 = 1 << 8;
const SYMBOL: u16 = 1 << 9;
const BRACKET: u16 = 1 << 10;
const SPACE: u16 = 1 << 11;

impl Class {
    pub(crate) const HEX: Self = Self(DIGIT | LOWER_HEX | UPPER_HEX);
    pub(crate) const UPPER: Self = Self(DIGIT | UPPER_HEX | UPPER_REST);
    pub(crate) const ALNUM: Self = Self(Self::UPPER.0 | LOWER_HEX | LOWER);
    /// What most keys are made of. Every secret is taken out to the end of a run of these, so that what follows
    /// `[redacted:…]` never is the rest of a word.
    pub(crate) const TOKEN: Self = Self(Self::ALNUM.0 | DASH);
    pub(crate) const DOTTED: Self = Self(Self::TOKEN.0 | DOT);
    /// What stands before the `@` of a mail address.
    pub(crate) const LOCAL: Self = Self(Self::DOTTED.0 | LOCAL);
    /// Base64 in both alphabets, percent-encoded or not.
    pub(crate) const HEADER: Self = Self(Self::LOCAL.0 | OTHER_HEADER);
    /// What passwords are made of, as far as it ends no string and no argument.
    pub(crate) const VALUE: Self = Self(Self::HEADER.0 | SYMBOL | BRACKET);
    /// The same without what begins `[redacted:…]`.
    pub(crate) const PLAIN_VALUE: Self = Self(Self::HEADER.0 | SYMBOL);
    /// The name of a key in its first line.
    pub(crate) const TITLE: Self = Self(Self::UPPER.0 | SPACE);

    pub(crate) fn has(self, byte: u8) -> bool {
        KINDS[usize::from(byte)] & self.0 != 0
    }
}

static KINDS: [u16; 256] = {
    let mut kinds = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b'a'..=b'f' => LOWER_HEX,
            b'g'..=b'z' => LOWER,
            b'A'..=b'F' => UPPER_HEX,
            b'G'..=b'Z' => UPPER_REST,
            b'0'..=b'9' => DIGIT,
            b'-' | b'_' => DASH,
            b'.' => DOT,
            b'%' | b'+' => LOCAL,
            b'~' | b'/' | b'=' => OTHER_HEADER,
            b'!' | b'#' | b'$' | b'*' | b'?' | b'@' | b'^' | b'|' | b':' | b']' | 0x80.. => SYMBOL,
            b'[' => BRACKET,
            b' ' => SPACE,
            _ => 0,
        };
        byte += 1;
    }
    kinds
};

/// Why no secret was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// There is none, whatever follows.
    No,
    /// It depends on what follows. A secret would begin here or later.
    More(usize),
}

/// Something found, or why not.
pub(crate) type Step<T> = Result<T, Stop>;

/// A text, or the beginning of one.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    /// Nothing follows.
    pub(crate) is_whole: bool,
}

impl<'a> View<'a> {
    /// The byte at a place; `None` at the end of the text.
    pub(crate) fn byte(self, at: usize, held: usize) -> Step<Option<u8>> {
        match self.bytes.get(at) {
            None if !self.is_whole => Err(Stop::More(held)),
            byte => Ok(byte.copied()),
        }
    }

    /// The byte before a place.
    pub(crate) fn before(self, at: usize) -> Option<u8> {
        at.checked_sub(1).and_then(|at| self.bytes.get(at)).copied()
    }

    /// Whether no word goes on at a place; an escape is no word, be it JSON's or a URL's.
    pub(crate) fn begins_word(self, at: usize, class: Class) -> bool {
        if !self.before(at).is_some_and(|before| class.has(before)) {
            return true;
        }
        let back = |count: usize| at.checked_sub(count).map(|from| &self.bytes[from..at]).unwrap_or_default();
        matches!(back(2), [b'\\', b'n' | b'r' | b't' | b'f' | b'b'])
            || matches!(back(6), [b'\\', b'u', hex @ ..] if hex.iter().all(u8::is_ascii_hexdigit))
            || matches!(back(3), [b'%', hex @ ..] if hex.iter().all(u8::is_ascii_hexdigit))
    }

    /// At most so many bytes of a class.
    pub(crate) fn run(self, at: usize, class: Class, most: usize) -> &'a [u8] {
        self.run_of(at, most, |byte| class.has(byte))
    }

    pub(crate) fn run_of(self, at: usize, most: usize, is_in: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let rest = &rest[..rest.len().min(most)];
        &rest[..rest.iter().position(|byte| !is_in(*byte)).unwrap_or(rest.len())]
    }

    /// How many bytes of a class stand before a place, at most so many.
    pub(crate) fn run_before(self, at: usize, class: Class, most: usize) -> usize {
        self.bytes[..at].iter().rev().take(most).take_while(|byte| class.has(**byte)).count()
    }

    /// Whether a run passes a test that is passed for good once a beginning of the run passes it.
    pub(crate) fn passes(
        self,
        at: usize,
        class: Class,
        most: usize,
        test: impl Fn(&[u8]) -> bool,
    ) -> Step<usize> {
        let run = self.run(at, class, most);
        if test(run) {
            return Ok(at + run.len());
        }
        Err(if run.len() < most && self.goes_on(at + run.len()) { Stop::More(at) } else { Stop::No })
    }

    /// Whether a literal stands at a place.
    pub(crate) fn literal(self, at: usize, literal: &[u8], held: usize) -> Step<bool> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        if rest.len() < literal.len() && !self.is_whole && literal[..rest.len()].eq_ignore_ascii_case(rest) {
            return Err(Stop::More(held));
        }
        Ok(rest.get(..literal.len()).is_some_and(|found| found.eq_ignore_ascii_case(literal)))
    }

    /// Whether the text that is here ends at this place, and may go on.
    pub(crate) fn goes_on(self, at: usize) -> bool {
        at >= self.bytes.len() && !self.is_whole
    }
}
