//! Reads expansions: `$x`, `${…}`, `$(…)`, backticks, `$((…))`, `<(…)` and the quotes that begin with `$`.

use super::reader::{Quotes, ShellReader};
use super::{CommandSyntaxError, ShellWord, Structure};

impl ShellReader<'_> {
    /// The expansion at a `$` or a backtick; a `$` without one is literal.
    pub(super) fn expansion(
        &mut self,
        word: &mut ShellWord,
        quotes: Quotes,
    ) -> Result<(), CommandSyntaxError> {
        if self.peek() == Some('`') {
            word.literal = false;
            return self.backticks();
        }
        let after = self.rest().chars().nth(1);
        match after {
            Some('(') => {
                word.literal = false;
                if self.eat("$((") {
                    return self.deeper(|reader| reader.arithmetic(Semicolons::Refused));
                }
                self.eat("$(");
                self.note(Structure::CommandSubstitution);
                self.inner_list()
            }
            Some('{') => {
                word.literal = false;
                self.eat("${");
                self.note(Structure::Parameter);
                self.deeper(|reader| reader.parameter(quotes))
            }
            Some('[') => self.fail("`$[` is an old form of arithmetic"),
            Some('\'') if quotes == Quotes::None => {
                (word.literal, word.bare) = (false, false);
                self.note(Structure::SpecialQuote);
                self.ansi_quoted()
            }
            Some('"') if quotes == Quotes::None => {
                word.literal = false;
                self.note(Structure::SpecialQuote);
                self.bump();
                self.double_quoted(word)
            }
            Some(c) if c.is_ascii_alphanumeric() || "_@*#?$!-".contains(c) => {
                word.literal = false;
                self.note(Structure::Parameter);
                self.bump();
                self.bump();
                while c != '@' && self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.bump();
                }
                Ok(())
            }
            Some(_) | None => {
                self.bump();
                word.text.push('$');
                Ok(())
            }
        }
    }

    pub(super) fn process_substitution(&mut self) -> Result<(), CommandSyntaxError> {
        self.bump();
        self.bump();
        self.note(Structure::ProcessSubstitution);
        self.inner_list()
    }

    /// Commands up to a closing parenthesis.
    pub(super) fn inner_list(&mut self) -> Result<(), CommandSyntaxError> {
        let (outer_join, outer_pending) = (self.join.take(), std::mem::take(&mut self.pending));
        self.deeper(Self::list)?;
        if !self.pending.is_empty() {
            return self.fail("a here-document has no body");
        }
        if !self.eat(")") {
            return self.fail("a parenthesis is not closed");
        }
        (self.join, self.pending) = (outer_join, outer_pending);
        Ok(())
    }

    fn backticks(&mut self) -> Result<(), CommandSyntaxError> {
        self.bump();
        self.note(Structure::CommandSubstitution);
        let mut inner = String::new();
        loop {
            match self.bump() {
                None => return self.fail("a backtick is not closed"),
                Some('`') => break,
                Some('\\') => match self.bump() {
                    Some(c @ ('`' | '\\' | '$')) => inner.push(c),
                    Some('"') => return self.fail("backticks hold an escaped double quote"),
                    Some(c) => inner.extend(['\\', c]),
                    None => return self.fail("a backtick is not closed"),
                },
                Some(c) => inner.push(c),
            }
        }
        let (commands, structures) = self.deeper(|reader| ShellReader::new(&inner, reader.depth).line())?;
        self.commands.extend(commands);
        self.structures.extend(structures);
        Ok(())
    }

    fn ansi_quoted(&mut self) -> Result<(), CommandSyntaxError> {
        self.eat("$'");
        loop {
            match self.bump() {
                None => return self.fail("a single quote is not closed"),
                Some('\'') => return Ok(()),
                Some('\\') => {
                    self.bump();
                }
                Some(_) => {}
            }
        }
    }

    /// Up to the brace that closes `${`.
    fn parameter(&mut self, quotes: Quotes) -> Result<(), CommandSyntaxError> {
        if self.peek().is_none_or(|c| matches!(c, ' ' | '\t' | '\n' | '|')) {
            return self.fail("`${` is followed by a blank");
        }
        let mut ignored = ShellWord { text: String::new(), literal: true, bare: true };
        loop {
            match self.peek() {
                None => return self.fail("`${` is not closed"),
                Some('}') => {
                    self.bump();
                    return Ok(());
                }
                Some('\'' | '"') if quotes == Quotes::Double => {
                    return self.fail("`${…}` in double quotes holds a quote");
                }
                Some('<' | '>') if self.rest().chars().nth(1) == Some('(') => self.process_substitution()?,
                Some('\'') => {
                    self.bump();
                    match self.rest().find('\'') {
                        Some(length) => self.at += length + 1,
                        None => return self.fail("a single quote is not closed"),
                    }
                }
                Some('"') => self.double_quoted(&mut ignored)?,
                Some('\\') => {
                    self.bump();
                    self.bump();
                }
                Some('$' | '`') => self.expansion(&mut ignored, quotes)?,
                Some(_) => {
                    self.bump();
                }
            }
        }
    }

    /// Up to `))`. Only characters of arithmetic: shells fall back to commands if it is something else.
    pub(super) fn arithmetic(&mut self, semicolons: Semicolons) -> Result<(), CommandSyntaxError> {
        self.note(Structure::Arithmetic);
        let mut ignored = ShellWord { text: String::new(), literal: true, bare: true };
        let mut open = 0_usize;
        loop {
            match self.peek() {
                None => return self.fail("arithmetic is not closed"),
                Some(')') if open == 0 => {
                    return if self.eat("))") { Ok(()) } else { self.fail("arithmetic is not closed") };
                }
                Some(')') => {
                    self.bump();
                    open -= 1;
                }
                Some('(') => {
                    self.bump();
                    open += 1;
                }
                Some('$' | '`') => self.expansion(&mut ignored, Quotes::Double)?,
                Some('"') => self.double_quoted(&mut ignored)?,
                Some(';') if semicolons == Semicolons::Allowed => {
                    self.bump();
                }
                Some(c) if c.is_ascii_alphanumeric() || " \t_+-*/%<>=!&|^~?:,[]#@.".contains(c) => {
                    self.bump();
                }
                Some(_) => return self.fail("arithmetic holds something else"),
            }
        }
    }
}

/// `for ((a; b; c))` has semicolons, other arithmetic has none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Semicolons {
    Allowed,
    Refused,
}
