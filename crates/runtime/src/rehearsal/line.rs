//! One line of a script, split into words. Every word knows its column.

use super::error::{ScriptError, ScriptPosition, ScriptProblem};

/// The line, and how much of it is read.
#[derive(Debug, Clone)]
pub(super) struct ScriptLine<'a> {
    number: usize,
    text: &'a str,
    /// Bytes read so far.
    at: usize,
}

/// A word or a text of the line, and the byte at which it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineWord<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> ScriptLine<'a> {
    pub(super) fn new(number: usize, text: &'a str) -> Self {
        Self { number, text: text.trim_end(), at: 0 }
    }

    /// The next word.
    pub(super) fn word(&mut self) -> Option<LineWord<'a>> {
        let at = self.skip_space();
        let rest = &self.text[at..];
        let text = rest.split(char::is_whitespace).next().filter(|word| !word.is_empty())?;
        self.at = at + text.len();
        Some(LineWord { text, at })
    }

    /// The rest of the line.
    pub(super) fn rest(&mut self) -> Option<LineWord<'a>> {
        let at = self.skip_space();
        self.at = self.text.len();
        let text = &self.text[at..];
        (!text.is_empty()).then_some(LineWord { text, at })
    }

    /// The place of a byte.
    pub(super) fn place(&self, at: usize) -> ScriptPosition {
        let before = self.text.char_indices().take_while(|(from, c)| from + c.len_utf8() <= at).count();
        ScriptPosition { line: self.number, column: before + 1 }
    }

    /// An error at this byte.
    pub(super) fn wrong(&self, at: usize, problem: ScriptProblem) -> ScriptError {
        problem.at(self.place(at))
    }

    /// An error behind the last character.
    pub(super) fn wrong_at_end(&self, problem: ScriptProblem) -> ScriptError {
        self.wrong(self.text.len(), problem)
    }

    pub(super) const fn number(&self) -> usize {
        self.number
    }

    fn skip_space(&self) -> usize {
        let rest = &self.text[self.at..];
        self.at + (rest.len() - rest.trim_start().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_know_where_they_begin() {
        let mut line = ScriptLine::new(3, "  say  hello  world ");
        assert_eq!(line.word(), Some(LineWord { text: "say", at: 2 }));
        assert_eq!(line.rest(), Some(LineWord { text: "hello  world", at: 7 }));
        assert_eq!((line.word(), line.rest()), (None, None));
    }

    #[test]
    fn columns_count_characters_even_within_one() {
        let line = ScriptLine::new(1, "äöü");
        let column = |at| line.place(at).column;
        assert_eq!([0, 1, 2, 3, 4, 6, 99].map(column), [1, 1, 2, 2, 3, 4, 4]);
    }
}
