//! Reads words: quotes, escapes and where expansions begin.
//!
//! The reader is strict. It follows POSIX and bash where the two agree or where a [`Structure`] records the
//! difference. Where shells disagree it returns an error, because a wrong guess would be a bypass.

use std::collections::BTreeSet;

use super::redirect::HereDocument;
use super::{CommandSyntaxError, MAX_DEPTH, ShellWord, SimpleCommand, Structure};

/// A position in the text, and what was read up to there.
pub(super) struct ShellReader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) depth: usize,
    pub(super) commands: Vec<SimpleCommand>,
    pub(super) structures: BTreeSet<Structure>,
    /// Here-documents whose bodies begin after the current line.
    pub(super) pending: Vec<HereDocument>,
    /// The operator between the previous simple command and the next.
    pub(super) join: Option<Structure>,
}

/// A partially read word.
struct WordDraft {
    word: ShellWord,
    /// Where it began.
    start: usize,
}

impl<'a> ShellReader<'a> {
    pub(super) fn new(text: &'a str, depth: usize) -> Self {
        let (commands, structures, pending) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { text, at: 0, depth, commands, structures, pending, join: None }
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn looking_at(&self, start: &str) -> bool {
        self.rest().starts_with(start)
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    pub(super) fn eat(&mut self, expected: &str) -> bool {
        let eaten = self.looking_at(expected);
        if eaten {
            self.at += expected.len();
        }
        eaten
    }

    pub(super) fn note(&mut self, structure: Structure) {
        self.structures.insert(structure);
    }

    pub(super) fn fail<T>(&self, what: &'static str) -> Result<T, CommandSyntaxError> {
        Err(CommandSyntaxError::Syntax { at: self.at, what })
    }

    /// Runs `inner` one level deeper.
    pub(super) fn deeper<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, CommandSyntaxError>,
    ) -> Result<T, CommandSyntaxError> {
        if self.depth >= MAX_DEPTH {
            return Err(CommandSyntaxError::TooDeep);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Spaces, tabs, continued lines and a comment; never the newline itself.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            if self.eat(" ") || self.eat("\t") {
                continue;
            }
            if self.eat("\\\n") {
                self.note(Structure::Continuation);
                continue;
            }
            break;
        }
        if self.peek() == Some('#') {
            self.note(Structure::Comment);
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// The unquoted word ahead, if it consists of the characters of keywords only and ends there.
    pub(super) fn keyword(&self) -> Option<&'a str> {
        let rest = self.rest();
        let end = rest.find(is_meta).unwrap_or(rest.len());
        let word = rest.get(..end)?;
        let of_keyword = |c: char| c.is_ascii_lowercase() || matches!(c, '{' | '}' | '!' | '[' | ']');
        (!word.is_empty() && word.chars().all(of_keyword)).then_some(word)
    }

    pub(super) fn eat_keyword(&mut self, expected: &str) -> bool {
        let eaten = self.keyword() == Some(expected);
        if eaten {
            self.at += expected.len();
        }
        eaten
    }

    /// The word that begins here.
    pub(super) fn word(&mut self) -> Result<ShellWord, CommandSyntaxError> {
        let word = ShellWord { text: String::new(), literal: true, bare: true };
        let mut draft = WordDraft { word, start: self.at };
        while let Some(c) = self.peek() {
            if matches!(c, '<' | '>') && self.rest().chars().nth(1) == Some('(') {
                self.process_substitution()?;
                draft.word.literal = false;
                continue;
            }
            if is_meta(c) {
                break;
            }
            self.piece(c, &mut draft)?;
        }
        if self.at == draft.start {
            return self.fail("a word is missing");
        }
        if !draft.word.literal {
            draft.word.text = self.text.get(draft.start..self.at).unwrap_or_default().to_owned();
        }
        Ok(draft.word)
    }

    fn piece(&mut self, c: char, draft: &mut WordDraft) -> Result<(), CommandSyntaxError> {
        match c {
            '\'' => {
                draft.word.bare = false;
                self.single_quoted(&mut draft.word.text)
            }
            '"' => {
                draft.word.bare = false;
                self.double_quoted(&mut draft.word)
            }
            '\\' => {
                draft.word.bare = false;
                self.escaped(&mut draft.word.text)
            }
            '$' | '`' => self.expansion(&mut draft.word, Quotes::None),
            _ => {
                if let Some(structure) = self.expands(c, draft.start) {
                    self.note(structure);
                    draft.word.literal = false;
                }
                self.bump();
                draft.word.text.push(c);
                Ok(())
            }
        }
    }

    /// The expansion that a shell would perform at an unquoted character of a word that began at `start`.
    fn expands(&self, c: char, start: usize) -> Option<Structure> {
        let before = self.text.get(start..self.at).unwrap_or_default();
        let after = self.rest().get(c.len_utf8()..).and_then(|rest| rest.chars().next());
        let alone = before.is_empty() && after.is_none_or(is_meta);
        match c {
            '*' | '?' => Some(Structure::Glob),
            // The program `[`.
            '[' => (!alone).then_some(Structure::Glob),
            // A shell passes `{}` on unchanged.
            '{' => {
                let rest = self.rest().get(1..).unwrap_or_default();
                let empty =
                    rest.strip_prefix('}').is_some_and(|rest| rest.chars().next().is_none_or(is_meta));
                (!before.is_empty() || !empty).then_some(Structure::Brace)
            }
            '~' => (before.is_empty() || before.ends_with(['=', ':'])).then_some(Structure::Tilde),
            _ => None,
        }
    }

    fn escaped(&mut self, text: &mut String) -> Result<(), CommandSyntaxError> {
        self.bump();
        match self.peek() {
            None => self.fail("the command ends with a backslash"),
            Some('\n') => {
                // Shells join the two lines before they look for words, operators and `$(`.
                self.bump();
                self.note(Structure::Continuation);
                match self.peek() {
                    None | Some(' ' | '\t' | '\n') => Ok(()),
                    Some(_) => self.fail("a word goes on after the end of the line"),
                }
            }
            Some(c) => {
                self.bump();
                text.push(c);
                Ok(())
            }
        }
    }

    fn single_quoted(&mut self, text: &mut String) -> Result<(), CommandSyntaxError> {
        self.bump();
        let Some(length) = self.rest().find('\'') else {
            return self.fail("a single quote is not closed");
        };
        text.push_str(self.rest().get(..length).unwrap_or_default());
        self.at += length + 1;
        Ok(())
    }

    pub(super) fn double_quoted(&mut self, word: &mut ShellWord) -> Result<(), CommandSyntaxError> {
        self.bump();
        loop {
            match self.peek() {
                None => return self.fail("a double quote is not closed"),
                Some('"') => {
                    self.bump();
                    return Ok(());
                }
                Some(c) => self.quoted_piece(c, word)?,
            }
        }
    }

    /// One character inside double quotes or a here-document.
    pub(super) fn quoted_piece(&mut self, c: char, word: &mut ShellWord) -> Result<(), CommandSyntaxError> {
        match c {
            '$' if self.looking_at("$\\\n") => self.fail("a `$` goes on after the end of the line"),
            '$' | '`' => self.expansion(word, Quotes::Double),
            '\\' => {
                self.bump();
                match self.bump() {
                    Some(c @ ('$' | '`' | '"' | '\\')) => word.text.push(c),
                    Some('\n') => self.note(Structure::Continuation),
                    Some(c) => word.text.extend(['\\', c]),
                    None => return self.fail("the command ends with a backslash"),
                }
                Ok(())
            }
            c => {
                self.bump();
                word.text.push(c);
                Ok(())
            }
        }
    }
}

/// Whether an expansion is inside double quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    None,
    Double,
}

/// The characters that end a word.
pub(super) fn is_meta(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}
