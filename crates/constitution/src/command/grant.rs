//! A grant: the commands that a person allowed in advance.
//!
//! A grant is one line of text in one of two forms:
//!
//! ```text
//! cargo test *          a pattern: the program, its options letter by letter, `*` for one operand, `**` for the rest
//! = ls *.rs | wc -l     exactly this line, whatever it contains
//! ```
//!
//! A pattern leaves words open only for programs whose operands are known to be data. Where an operand can be a
//! program, code, or another machine, only the exact line can be granted; for an unknown program, a pattern must
//! name every word.

use std::fmt;

use super::pattern::{self, Colon, PatternWord};
use super::program_class::{self, ProgramClass};
use super::{CommandSyntaxError, ParsedCommand, ShellWord, Structure, covers_all};
use crate::text::sanitize;

/// The prefix of an exact line.
const EXACTLY: &str = "=";

/// The permission of a person for one command line, or for a narrow set of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandGrant {
    pub(super) form: GrantForm,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GrantForm {
    /// The normalized line.
    Line(String),
    /// One simple command.
    Pattern(Vec<PatternWord>),
}

/// Why a text is not a grant. Each sentence ends with what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    #[error("the grant is empty: write a command such as `cargo test *`")]
    Empty,
    #[error("the grant cannot be read: {0}")]
    Syntax(#[from] CommandSyntaxError),
    #[error("a wildcard cannot stand for the program: name it")]
    AnyProgram,
    #[error("the program `{0}` is quoted or contains unusual characters: write its plain name")]
    OddProgram(String),
    #[error("`{0}`: a wildcard is a whole word, `*` or `dir/*`: write that, or `= ` and the exact line")]
    PartOfWord(String),
    #[error("`**` can only be the last word: write `*` for one word")]
    RestNotLast,
    #[error(
        "a pattern is one command without shell structure: grant its parts one by one, or write `= ` and the exact line"
    )]
    NotSimple,
    #[error("`{0}` can start any other program or run code: write `= ` and the exact line")]
    Launcher(String),
    #[error(
        "what the words of `{0}` do is not known here, so none of them can be left open: name every word, or write `= ` and the exact line"
    )]
    Unknown(String),
    #[error("`{0}` changes the shell for the commands after it: write `= ` and the exact line")]
    ShellState(String),
    #[error("`{0}` is a file that can be rewritten: name every word, or write `= ` and the exact line")]
    OwnFile(String),
    #[error("`{0}` sends to other machines: name every word, or write `= ` and the exact line")]
    Remote(String),
    #[error(
        "what `{0}` does is decided by its first word: write that word instead of a wildcard, as in `{0} … *`"
    )]
    NoSubcommand(String),
    #[error("`{program} … {word}` can start other programs or work elsewhere: write `= ` and the exact line")]
    Code { program: String, word: String },
}

impl CommandGrant {
    /// Parses a grant, and refuses a pattern that allows more than it shows.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        // `parse` trims the end, which has a meaning in a here-document.
        let text = text.trim_start();
        if text.is_empty() {
            return Err(GrantError::Empty);
        }
        if let Some(line) = text.strip_prefix(EXACTLY).filter(|line| line.starts_with([' ', '\t'])) {
            return Ok(Self::exact(&super::parse(line)?));
        }
        if text.split([' ', '\t']).next().is_some_and(|first| first.contains(['*', '?'])) {
            return Err(GrantError::AnyProgram);
        }
        let parsed = super::parse(text)?;
        let [simple] = parsed.commands() else { return Err(GrantError::NotSimple) };
        let simple_only = parsed.structures().iter().all(|structure| *structure == Structure::Glob);
        if !simple_only || !simple.redirections.is_empty() {
            return Err(GrantError::NotSimple);
        }
        let Some((program, words)) = simple.words.split_first() else { return Err(GrantError::Empty) };
        let plain = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
        if !program.bare || !program.text.chars().all(plain) || program.text.starts_with('-') {
            return Err(GrantError::OddProgram(sanitize(&program.text)));
        }
        let mut slots = vec![PatternWord::Literal(program.text.clone())];
        for word in words {
            if slots.last() == Some(&PatternWord::Rest) {
                return Err(GrantError::RestNotLast);
            }
            slots.push(slot(word)?);
        }
        check_width(&program.text, slots.get(1..).unwrap_or_default())?;
        Ok(Self { text: rendered(&simple.words), form: GrantForm::Pattern(slots) })
    }

    /// The grant of exactly this line.
    pub fn exact(parsed: &ParsedCommand) -> Self {
        let line = parsed.line().to_owned();
        Self { text: format!("{EXACTLY} {line}"), form: GrantForm::Line(line) }
    }

    /// Whether it allows more than one command.
    pub fn has_wildcard(&self) -> bool {
        match &self.form {
            GrantForm::Line(_) => false,
            GrantForm::Pattern(slots) => is_wild(slots),
        }
    }

    /// Whether this grant alone covers the whole line.
    pub fn covers(&self, parsed: &ParsedCommand) -> bool {
        let whole = matches!(self.form, GrantForm::Line(_)) || parsed.commands().len() == 1;
        whole && covers_all(std::slice::from_ref(self), parsed)
    }
}

impl fmt::Display for CommandGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn slot(word: &ShellWord) -> Result<PatternWord, GrantError> {
    if word.literal {
        return Ok(PatternWord::Literal(word.text.clone()));
    }
    match word.text.as_str() {
        "*" => Ok(PatternWord::Any),
        "**" => Ok(PatternWord::Rest),
        text => match text.strip_suffix('*') {
            Some(directory) if is_directory(directory) => Ok(PatternWord::Below(directory.to_owned())),
            Some(_) | None => Err(GrantError::PartOfWord(sanitize(text))),
        },
    }
}

/// `src/` or `/var/log/`, but not `/` and nothing with `..` or further wildcards in it.
fn is_directory(text: &str) -> bool {
    let inner = text.strip_suffix('/').unwrap_or_default();
    pattern::is_operand(inner.strip_prefix('/').unwrap_or(inner), Colon::Name)
}

fn rendered(words: &[ShellWord]) -> String {
    let each = |word: &ShellWord| match word.literal {
        true => pattern::rendered_words(std::slice::from_ref(word)),
        false => word.text.clone(),
    };
    words.iter().map(each).collect::<Vec<_>>().join(" ")
}

fn is_wild(slots: &[PatternWord]) -> bool {
    slots.iter().any(|slot| !matches!(slot, PatternWord::Literal(_)))
}

/// Whether the pattern is narrow enough to be granted.
fn check_width(program: &str, slots: &[PatternWord]) -> Result<(), GrantError> {
    let name = || sanitize(program);
    let wild = is_wild(slots);
    if wild && program.contains('/') && !program.starts_with('/') {
        return Err(GrantError::OwnFile(name()));
    }
    match program_class::class(program) {
        ProgramClass::Launcher => return Err(GrantError::Launcher(name())),
        ProgramClass::ShellState => return Err(GrantError::ShellState(name())),
        ProgramClass::Remote if wild => return Err(GrantError::Remote(name())),
        ProgramClass::Unknown if wild => return Err(GrantError::Unknown(name())),
        ProgramClass::Remote | ProgramClass::Unknown | ProgramClass::Plain => {}
    }
    let literals: Vec<&str> = slots.iter().filter_map(PatternWord::literal).collect();
    let launching = literals
        .iter()
        .find(|word| !word.starts_with('-'))
        .filter(|_| program_class::may_launch(program, &literals));
    let code = literals.iter().find(|word| {
        program_class::code_option_of(program, &literals, word).is_some()
            || program_class::is_place_option(program, word)
    });
    if let Some(word) = launching.or(code) {
        return Err(GrantError::Code { program: name(), word: sanitize(word) });
    }
    let before: Vec<&str> = slots.iter().map_while(PatternWord::literal).collect();
    let behind = slots.get(before.len()..).unwrap_or_default();
    let open = (!behind.contains(&PatternWord::Rest)).then_some(behind.len());
    if wild && program_class::leaves_open(program, before.first().copied()) {
        return Err(GrantError::NoSubcommand(name()));
    }
    if wild && !program_class::is_data(program, &before, open) {
        return Err(GrantError::Unknown(sanitize(&[&[program], before.as_slice()].concat().join(" "))));
    }
    Ok(())
}
