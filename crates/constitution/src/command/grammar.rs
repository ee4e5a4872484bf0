//! Reads commands: lists, pipelines, simple and compound commands.

use std::collections::BTreeSet;

use super::expansion::Semicolons;
use super::reader::{ShellReader, is_meta};
use super::{Assignment, CommandSyntaxError, ShellWord, SimpleCommand, Structure};

/// Words that end a list; the construct that began it reads them.
const CLOSERS: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];

/// Reads what follows a keyword.
type Rule<'a> = fn(&mut ShellReader<'a>) -> Result<(), CommandSyntaxError>;

impl<'a> ShellReader<'a> {
    /// The whole text.
    pub(super) fn line(mut self) -> Result<(Vec<SimpleCommand>, BTreeSet<Structure>), CommandSyntaxError> {
        self.list()?;
        if self.peek().is_some() {
            return self.fail("this closes nothing");
        }
        if !self.pending.is_empty() {
            return self.fail("a here-document has no body");
        }
        Ok((self.commands, self.structures))
    }

    /// Commands up to the end, a closing parenthesis, `;;` or a closing keyword.
    pub(super) fn list(&mut self) -> Result<(), CommandSyntaxError> {
        loop {
            self.skip_newlines()?;
            let closes = self.keyword().is_some_and(|word| CLOSERS.contains(&word));
            if closes || self.peek().is_none_or(|c| c == ')') || self.looking_at(";;") {
                return Ok(());
            }
            self.and_or()?;
            let separator = if self.looking_at(";;") || self.looking_at(";&") {
                return Ok(());
            } else if self.eat(";") {
                Structure::Sequence
            } else if self.eat("&") {
                Structure::Background
            } else if self.newline()? {
                Structure::Newline
            } else {
                return Ok(());
            };
            self.join(separator);
        }
    }

    fn join(&mut self, structure: Structure) {
        self.note(structure);
        self.join = Some(structure);
    }

    pub(super) fn skip_newlines(&mut self) -> Result<(), CommandSyntaxError> {
        self.skip_blanks();
        while self.newline()? {
            self.note(Structure::Newline);
            self.skip_blanks();
        }
        Ok(())
    }

    fn and_or(&mut self) -> Result<(), CommandSyntaxError> {
        loop {
            self.pipeline()?;
            let structure = if self.eat("&&") {
                Structure::And
            } else if self.eat("||") {
                Structure::Or
            } else {
                return Ok(());
            };
            self.join(structure);
            self.skip_newlines()?;
        }
    }

    fn pipeline(&mut self) -> Result<(), CommandSyntaxError> {
        loop {
            if self.eat_keyword("!") {
                self.note(Structure::Negation);
            } else if self.keyword() == Some("time") {
                self.note(Structure::Time);
                let after = self.rest().get("time".len()..).unwrap_or_default();
                // With options it is read as the program of that name, which some shells run.
                if after.trim_start_matches([' ', '\t']).starts_with('-') {
                    break;
                }
                self.eat("time");
            } else {
                break;
            }
            self.skip_blanks();
        }
        loop {
            self.command()?;
            self.skip_blanks();
            if self.looking_at("||") {
                return Ok(());
            }
            let structure = if self.eat("|&") {
                Structure::PipeBoth
            } else if self.eat("|") {
                Structure::Pipe
            } else {
                return Ok(());
            };
            self.join(structure);
            self.skip_newlines()?;
        }
    }

    fn command(&mut self) -> Result<(), CommandSyntaxError> {
        if self.compound()? { self.redirections_only() } else { self.simple() }
    }

    /// A compound command, if one begins here.
    fn compound(&mut self) -> Result<bool, CommandSyntaxError> {
        if self.eat("((") {
            self.deeper(|reader| reader.arithmetic(Semicolons::Refused))?;
            return Ok(true);
        }
        if self.eat("(") {
            self.note(Structure::Subshell);
            self.inner_list()?;
            return Ok(true);
        }
        let Some(keyword) = self.keyword() else { return Ok(false) };
        let (structure, read): (_, Rule<'a>) = match keyword {
            "{" => (Structure::Group, |reader| reader.block("}")),
            "if" => (Structure::Conditional, Self::conditional),
            "while" | "until" => (Structure::Loop, |reader| {
                reader.block("do")?;
                reader.block("done")
            }),
            "for" | "select" => (Structure::Loop, Self::for_loop),
            "case" => (Structure::Case, Self::case),
            "function" => (Structure::Function, Self::function),
            "coproc" => (Structure::Coprocess, |reader| {
                reader.skip_blanks();
                reader.command()
            }),
            "[[" => (Structure::Test, Self::test),
            word if CLOSERS.contains(&word) || word == "in" => return self.fail("a keyword stands alone"),
            _ => return Ok(false),
        };
        self.at += keyword.len();
        self.note(structure);
        self.deeper(read)?;
        Ok(true)
    }

    /// A list and the keyword that ends it.
    fn block(&mut self, end: &str) -> Result<(), CommandSyntaxError> {
        self.list()?;
        if self.eat_keyword(end) { Ok(()) } else { self.fail("a block is not closed") }
    }

    fn conditional(&mut self) -> Result<(), CommandSyntaxError> {
        self.block("then")?;
        loop {
            self.list()?;
            if self.eat_keyword("fi") {
                return Ok(());
            } else if self.eat_keyword("elif") {
                self.block("then")?;
            } else if self.eat_keyword("else") {
                return self.block("fi");
            } else {
                return self.fail("`if` is not closed");
            }
        }
    }

    fn for_loop(&mut self) -> Result<(), CommandSyntaxError> {
        self.skip_blanks();
        if self.eat("((") {
            self.arithmetic(Semicolons::Allowed)?;
        } else {
            self.word()?;
            self.skip_newlines()?;
            if self.eat_keyword("in") {
                self.skip_blanks();
                while self.peek().is_some_and(|c| !matches!(c, ';' | '\n' | '&' | '|' | ')' | '(')) {
                    self.word()?;
                    self.skip_blanks();
                }
            }
        }
        self.skip_blanks();
        self.eat(";");
        self.skip_newlines()?;
        if !self.eat_keyword("do") {
            return self.fail("`do` is missing");
        }
        self.block("done")
    }

    fn case(&mut self) -> Result<(), CommandSyntaxError> {
        self.skip_blanks();
        self.word()?;
        self.skip_newlines()?;
        if !self.eat_keyword("in") {
            return self.fail("`in` is missing");
        }
        loop {
            self.skip_newlines()?;
            if self.eat_keyword("esac") {
                return Ok(());
            }
            self.eat("(");
            loop {
                self.skip_blanks();
                self.word()?;
                self.skip_blanks();
                if self.eat(")") {
                    break;
                }
                if !self.eat("|") {
                    return self.fail("a pattern of `case` is not closed");
                }
            }
            self.list()?;
            if !(self.eat(";;&") || self.eat(";;") || self.eat(";&")) {
                self.skip_newlines()?;
                return if self.eat_keyword("esac") { Ok(()) } else { self.fail("`case` is not closed") };
            }
        }
    }

    fn function(&mut self) -> Result<(), CommandSyntaxError> {
        self.skip_blanks();
        self.word()?;
        self.skip_blanks();
        if self.eat("(") {
            self.skip_blanks();
            if !self.eat(")") {
                return self.fail("a parenthesis is not closed");
            }
        }
        self.function_body()
    }

    fn function_body(&mut self) -> Result<(), CommandSyntaxError> {
        self.skip_newlines()?;
        if self.compound()? { Ok(()) } else { self.fail("a function has no body") }
    }

    fn test(&mut self) -> Result<(), CommandSyntaxError> {
        loop {
            self.skip_newlines()?;
            if self.eat_keyword("]]") {
                return Ok(());
            }
            match self.peek() {
                None | Some(';') => return self.fail("`[[` is not closed"),
                Some('<' | '>') if self.rest().chars().nth(1) == Some('(') => self.process_substitution()?,
                Some(c) if is_meta(c) => {
                    self.bump();
                }
                Some(_) => {
                    self.word()?;
                }
            }
        }
    }

    fn redirections_only(&mut self) -> Result<(), CommandSyntaxError> {
        loop {
            self.skip_blanks();
            if self.redirection()?.is_none() {
                break;
            }
        }
        match self.peek() {
            Some(c) if !matches!(c, ';' | '&' | '|' | '\n' | ')') => {
                self.fail("a word follows a compound command")
            }
            _ => Ok(()),
        }
    }

    fn simple(&mut self) -> Result<(), CommandSyntaxError> {
        let mut simple = SimpleCommand { joined: self.join.take(), ..SimpleCommand::default() };
        let start = self.at;
        loop {
            self.skip_blanks();
            if let Some(redirection) = self.redirection()? {
                simple.redirections.push(redirection);
                continue;
            }
            match self.peek() {
                None | Some(';' | '&' | '|' | '\n' | ')') => break,
                Some('(') => {
                    let name_alone = simple.words.len() == 1 && simple.redirections.is_empty();
                    if !name_alone || !simple.assignments.is_empty() {
                        return self.fail("a parenthesis stands where none can");
                    }
                    return self.definition();
                }
                Some(_) if simple.words.is_empty() => match self.assignment()? {
                    Some(assignment) => simple.assignments.push(assignment),
                    None => simple.words.push(self.word()?),
                },
                Some(_) => simple.words.push(self.word()?),
            }
        }
        if self.at == start {
            return self.fail("a command is missing");
        }
        self.commands.push(simple);
        Ok(())
    }

    /// `name() { … }`, from its parenthesis.
    fn definition(&mut self) -> Result<(), CommandSyntaxError> {
        self.eat("(");
        self.skip_blanks();
        if !self.eat(")") {
            return self.fail("a parenthesis stands where none can");
        }
        self.note(Structure::Function);
        self.deeper(Self::function_body)?;
        self.redirections_only()
    }

    /// `name=value`, `name+=value` or `name=(…)`, if one begins here.
    fn assignment(&mut self) -> Result<Option<Assignment>, CommandSyntaxError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default();
        let after = rest.get(end..).unwrap_or_default();
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(None);
        }
        if after.starts_with('[') {
            return self.fail("an element of an array is set");
        }
        let Some(sign) = ["+=", "="].into_iter().find(|sign| after.starts_with(sign)) else {
            return Ok(None);
        };
        self.at += end + sign.len();
        self.note(Structure::Assignment);
        let value = if self.eat("(") {
            self.array()?;
            if self.peek().is_some_and(|c| !is_meta(c)) {
                return self.fail("a word follows an array");
            }
            ShellWord { text: String::new(), literal: false, bare: true }
        } else if self.peek().is_none_or(|c| is_meta(c) && !self.looking_at("<(") && !self.looking_at(">(")) {
            ShellWord { text: String::new(), literal: true, bare: true }
        } else {
            self.word()?
        };
        Ok(Some(Assignment { name: name.to_owned(), value }))
    }

    fn array(&mut self) -> Result<(), CommandSyntaxError> {
        self.note(Structure::Array);
        loop {
            self.skip_newlines()?;
            if self.eat(")") {
                return Ok(());
            }
            self.word()?;
        }
    }
}
