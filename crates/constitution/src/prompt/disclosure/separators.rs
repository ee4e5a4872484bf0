//! Removes separators that contain letters or digits of their own: escapes of programming languages, tags and
//! entities of markup, the numbers of lists. Without this they would interrupt a run.

/// Removes one kind of separators. Each character keeps its position; some characters come out later than they went
/// in.
#[derive(Clone)]
pub(super) enum SeparatorFilter {
    /// Removes nothing.
    Kept,
    Unescaped(Escape),
    Unnumbered(LineNumber),
}

/// A character and where it began in the output.
pub(super) type Placed = (char, u64);

/// Characters of a tag and of an entity; a longer text is neither.
const MAX_TAG: usize = 64;
const MAX_ENTITY: usize = 10;

/// Digits of a number before a line; a longer number is text.
const MAX_DIGITS: usize = 6;

#[derive(Clone, Default)]
pub(super) enum Escape {
    #[default]
    Outside,
    Backslash,
    /// A character by its number, with the digits that are still missing.
    Code {
        value: u32,
        left: usize,
    },
    Tag(usize),
    Entity(String),
}

#[derive(Clone)]
pub(super) struct LineNumber {
    is_line_start: bool,
    digits: Vec<Placed>,
}

impl Default for LineNumber {
    fn default() -> Self {
        Self { is_line_start: true, digits: Vec::new() }
    }
}

impl SeparatorFilter {
    pub(super) fn push(&mut self, c: char, at: u64, mut out: impl FnMut(Placed)) {
        match self {
            Self::Kept => out((c, at)),
            Self::Unescaped(escape) => {
                if let Some(c) = escape.push(c) {
                    out((c, at));
                }
            }
            Self::Unnumbered(number) => number.push(c, at, out),
        }
    }

    /// What is still held back when the output ends.
    pub(super) fn finish(&mut self) -> Vec<Placed> {
        match self {
            Self::Kept | Self::Unescaped(_) => Vec::new(),
            Self::Unnumbered(number) => std::mem::take(&mut number.digits),
        }
    }
}

impl Escape {
    fn push(&mut self, c: char) -> Option<char> {
        let state = std::mem::take(self);
        match (state, c) {
            (Self::Outside | Self::Backslash, '\\') => *self = Self::Backslash,
            (Self::Outside, '<') => *self = Self::Tag(0),
            (Self::Outside, '&') => *self = Self::Entity(String::new()),
            (Self::Backslash, 'n' | 'r' | 't' | 'b' | 'f' | 'v' | 'a' | 'e') => {}
            (Self::Backslash, 'u') => *self = Self::Code { value: 0, left: 4 },
            (Self::Backslash, 'x') => *self = Self::Code { value: 0, left: 2 },
            (Self::Code { value, left }, c) => match c.to_digit(16) {
                Some(digit) if left == 1 => return char::from_u32(value * 16 + digit),
                Some(digit) => *self = Self::Code { value: value * 16 + digit, left: left - 1 },
                None => return Some(c),
            },
            (Self::Tag(_), '>') => {}
            (Self::Tag(length), _) if length < MAX_TAG => *self = Self::Tag(length + 1),
            (Self::Entity(name), ';') => return numbered(&name),
            (Self::Entity(mut name), c)
                if name.len() < MAX_ENTITY && (c.is_ascii_alphanumeric() || c == '#') =>
            {
                name.push(c);
                *self = Self::Entity(name);
            }
            (Self::Outside | Self::Backslash | Self::Tag(_) | Self::Entity(_), c) => return Some(c),
        }
        None
    }
}

/// The character of an entity such as `#89` or `#x59`.
fn numbered(entity: &str) -> Option<char> {
    let number = entity.strip_prefix('#')?;
    let code = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => number.parse(),
    };
    code.ok().and_then(char::from_u32)
}

impl LineNumber {
    fn push(&mut self, c: char, at: u64, mut out: impl FnMut(Placed)) {
        if self.is_line_start && c.is_ascii_digit() && self.digits.len() < MAX_DIGITS {
            self.digits.push((c, at));
            return;
        }
        let had_digits = !self.digits.is_empty();
        if c == ' ' || c == '\t' || ".):]|,".contains(c) {
            self.digits.clear();
        }
        self.digits.drain(..).for_each(&mut out);
        // Characters before a number: blanks, quotation marks, bullets, brackets.
        let is_before = c.is_whitespace() || ">-*#|[(".contains(c);
        self.is_line_start = matches!(c, '\n' | '\r') || self.is_line_start && !had_digits && is_before;
        out((c, at));
    }
}
