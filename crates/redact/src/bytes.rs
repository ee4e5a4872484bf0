//! Text that may be incomplete, and classes of its bytes.
//!
//! Every matcher has three results for a position: a match, no match, or that it needs more text. The last one occurs
//! only if the input is incomplete.

/// The start of a placeholder for a removed secret.
pub(crate) const PLACEHOLDER_START: &[u8] = b"[redacted:";

/// How far a matcher looks back for the command or the header that a value belongs to.
const MOST_CONTEXT: usize = 384;

/// A set of byte kinds.
#[derive(Clone, Copy)]
pub(crate) struct ByteClass(u16);

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

impl ByteClass {
    pub(crate) const HEX: Self = Self(DIGIT | LOWER_HEX | UPPER_HEX);
    pub(crate) const UPPER: Self = Self(DIGIT | UPPER_HEX | UPPER_REST);
    pub(crate) const ALNUM: Self = Self(Self::UPPER.0 | LOWER_HEX | LOWER);
    /// What most keys consist of. Every secret is removed to the end of a run of this class, so that no rest of a word
    /// follows `[redacted:…]`.
    pub(crate) const TOKEN: Self = Self(Self::ALNUM.0 | DASH);
    pub(crate) const DOTTED: Self = Self(Self::TOKEN.0 | DOT);
    /// The part before the `@` of a mail address.
    pub(crate) const LOCAL: Self = Self(Self::DOTTED.0 | LOCAL);
    /// Base64 in both alphabets, percent-encoded or not.
    pub(crate) const HEADER: Self = Self(Self::LOCAL.0 | OTHER_HEADER);
    /// What passwords consist of, except for characters that end a string or an argument.
    pub(crate) const VALUE: Self = Self(Self::HEADER.0 | SYMBOL | BRACKET);
    /// The same without `[`, which starts a placeholder.
    pub(crate) const PLAIN_VALUE: Self = Self(Self::HEADER.0 | SYMBOL);
    /// The label in the BEGIN line of a key.
    pub(crate) const LABEL: Self = Self(Self::UPPER.0 | SPACE);

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

/// Why a matcher found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoMatch {
    /// There is no match, whatever follows.
    Never,
    /// The result depends on the text that follows. A match would start here or later.
    NeedsMore(usize),
}

impl NoMatch {
    /// The same for a match that would start at `start`.
    pub(crate) fn hold_from(self, start: usize) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::NeedsMore(_) => Self::NeedsMore(start),
        }
    }
}

/// A match, or why there is none.
pub(crate) type MatchResult<T> = Result<T, NoMatch>;

/// A text, or the first part of one.
#[derive(Clone, Copy)]
pub(crate) struct InputText<'a> {
    pub(crate) bytes: &'a [u8],
    /// No more text follows.
    pub(crate) is_complete: bool,
}

impl<'a> InputText<'a> {
    /// The byte at `at`; `None` at the end of the text. An incomplete match would start at `hold_from`.
    pub(crate) fn byte(self, at: usize, hold_from: usize) -> MatchResult<Option<u8>> {
        match self.bytes.get(at) {
            None if !self.is_complete => Err(NoMatch::NeedsMore(hold_from)),
            byte => Ok(byte.copied()),
        }
    }

    /// The byte before `at`.
    pub(crate) fn byte_before(self, at: usize) -> Option<u8> {
        at.checked_sub(1).and_then(|at| self.bytes.get(at)).copied()
    }

    /// Whether no word continues at `at`. An escape sequence of JSON or of a URL is no word.
    pub(crate) fn starts_word(self, at: usize, class: ByteClass) -> bool {
        if !self.byte_before(at).is_some_and(|before| class.has(before)) {
            return true;
        }
        let back = |count: usize| at.checked_sub(count).map(|from| &self.bytes[from..at]).unwrap_or_default();
        matches!(back(2), [b'\\', b'n' | b'r' | b't' | b'f' | b'b'])
            || matches!(back(6), [b'\\', b'u', hex @ ..] if hex.iter().all(u8::is_ascii_hexdigit))
            || matches!(back(3), [b'%', hex @ ..] if hex.iter().all(u8::is_ascii_hexdigit))
    }

    /// The run of bytes of a class at `at`, at most `most` of them.
    pub(crate) fn run(self, at: usize, class: ByteClass, most: usize) -> &'a [u8] {
        self.run_while(at, most, |byte| class.has(byte))
    }

    pub(crate) fn run_while(self, at: usize, most: usize, is_in: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let rest = &rest[..rest.len().min(most)];
        &rest[..rest.iter().position(|byte| !is_in(*byte)).unwrap_or(rest.len())]
    }

    /// The text before `at` on its line, as far as a matcher may look back. A line that ends with a backslash goes on. Nothing
    /// before a placeholder is in it: removing a secret must not bring text from before it into view.
    pub(crate) fn context_before(self, at: usize) -> &'a [u8] {
        let mut context = &self.bytes[at.saturating_sub(MOST_CONTEXT)..at];
        if let Some(placeholder) = memchr::memmem::rfind(context, PLACEHOLDER_START) {
            context = &context[placeholder..];
        }
        let is_end = |newline: &usize| !context[..*newline].ends_with(b"\\");
        let line = memchr::memrchr_iter(b'\n', context).find(is_end);
        line.map_or(context, |newline| &context[newline + 1..])
    }

    /// How many bytes of a class precede `at`, counted up to `most`.
    pub(crate) fn run_before(self, at: usize, class: ByteClass, most: usize) -> usize {
        self.bytes[..at].iter().rev().take(most).take_while(|byte| class.has(**byte)).count()
    }

    /// The end of a run that passes a test. The test must be monotone: once a prefix passes, every longer run passes.
    pub(crate) fn passes(
        self,
        at: usize,
        class: ByteClass,
        most: usize,
        test: impl Fn(&[u8]) -> bool,
    ) -> MatchResult<usize> {
        let run = self.run(at, class, most);
        if test(run) {
            return Ok(at + run.len());
        }
        Err(if run.len() < most && self.may_continue(at + run.len()) {
            NoMatch::NeedsMore(at)
        } else {
            NoMatch::Never
        })
    }

    /// Whether a literal is at `at`, in any case.
    pub(crate) fn has_literal(self, at: usize, literal: &[u8], hold_from: usize) -> MatchResult<bool> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        if rest.len() < literal.len() && !self.is_complete && literal[..rest.len()].eq_ignore_ascii_case(rest)
        {
            return Err(NoMatch::NeedsMore(hold_from));
        }
        Ok(rest.get(..literal.len()).is_some_and(|found| found.eq_ignore_ascii_case(literal)))
    }

    /// Whether the text that has arrived ends at `at`, and more may follow.
    pub(crate) fn may_continue(self, at: usize) -> bool {
        at >= self.bytes.len() && !self.is_complete
    }
}
