//! Shell command lines: what a line would run, and which lines a person has granted.
//!
//! [`parse`] reads a line as `sh` and `bash` do and lists its simple commands and every [`Structure`] that it uses.
//! What it does not fully understand is a [`CommandSyntaxError`], and the caller asks a person. [`programs()`] names
//! what would run, including programs inside wrappers. A [`CommandGrant`] is one line or a narrow pattern; [`covers_all`]
//! says whether grants cover a line; [`suggest`] offers the grants that would have covered it.
//!
//! Everything here is pure, and nothing is expanded: a word whose value depends on variables, files or other
//! commands is not literal, and no pattern matches it. This is not a sandbox: it does not decide what a granted
//! program does once it runs.

mod expansion;
mod grammar;
mod grant;
mod grant_match;
mod names;
mod pattern;
mod program_class;
mod programs;
mod reader;
mod redirect;
mod run_inputs;
mod subcommands;
mod suggest;
mod unsafe_chars;
mod wrappers;

use std::collections::BTreeSet;

pub use grant::{CommandGrant, GrantError};
pub use grant_match::covers_all;
pub use programs::{UNKNOWN, programs};
pub use run_inputs::{RunInputs, Unbound, is_bound, run_inputs};
pub use suggest::suggest_grants;
pub use unsafe_chars::is_hidden;

/// Bytes of a command line. A person must read it before granting it; longer scripts belong into a file.
pub const MAX_COMMAND_BYTES: usize = 16 * 1024;

/// Nesting of structures. The reader recurses, and people do not nest deeper than this.
pub const MAX_DEPTH: usize = 24;

/// A structure of a command line other than plain words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    /// `a | b`
    Pipe,
    /// `a |& b`: both outputs in bash, an error elsewhere.
    PipeBoth,
    /// `a && b`
    And,
    /// `a || b`
    Or,
    /// `a ; b`
    Sequence,
    /// A command on a further line.
    Newline,
    /// `a &`
    Background,
    /// `! a`
    Negation,
    /// The keyword `time`.
    Time,
    /// `( a )`
    Subshell,
    /// `{ a; }`
    Group,
    /// `$(a)` and backticks.
    CommandSubstitution,
    /// `<(a)` and `>(a)`
    ProcessSubstitution,
    HereDocument,
    HereString,
    /// `for`, `while`, `until`, `select`
    Loop,
    /// `if`
    Conditional,
    Case,
    Function,
    Coprocess,
    /// `[[ … ]]`
    Test,
    /// `((…))` and `$((…))`
    Arithmetic,
    /// `$x` and `${x…}`
    Parameter,
    /// `*`, `?` and `[…]` outside quotes.
    Glob,
    /// `{a,b}`
    Brace,
    /// `~` where a shell replaces it.
    Tilde,
    /// `x=(a b)`
    Array,
    /// `x=a`, alone or before a command.
    Assignment,
    /// `$'…'` and `$"…"`
    SpecialQuote,
    /// A redirection other than `2>&1`, `>/dev/null` and `2>/dev/null`.
    Redirection,
    Comment,
    /// A backslash at the end of a line.
    Continuation,
}

/// One word of a simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellWord {
    /// The word without its quotes; a word that is not literal, as it is written.
    pub text: String,
    /// Whether the shell passes on exactly `text`.
    pub literal: bool,
    /// Whether it is written without quotes and backslashes.
    pub bare: bool,
}

/// A variable set before a command or alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    pub value: ShellWord,
}

/// A redirection, such as `2> errors.txt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirection {
    pub descriptor: Option<u32>,
    /// `<`, `>`, `>>`, `>|`, `<>`, `>&`, `<&`, `&>`, `&>>`, `<<`, `<<-` or `<<<`.
    pub operator: &'static str,
    /// The file, the descriptor, or the delimiter of a here-document.
    pub target: ShellWord,
}

/// A program with its words, or assignments and redirections alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimpleCommand {
    pub assignments: Vec<Assignment>,
    pub words: Vec<ShellWord>,
    pub redirections: Vec<Redirection>,
    /// The operator between this command and the previous one.
    pub joined: Option<Structure>,
}

/// A parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedCommand {
    // INVARIANT: `line` is derived from the rest, so equal lines mean the same.
    line: String,
    commands: Vec<SimpleCommand>,
    structures: BTreeSet<Structure>,
}

/// Why a line was not understood. Each sentence ends with the next step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandSyntaxError {
    #[error("the command is empty: name a program")]
    Empty,
    #[error(
        "the command has {bytes} bytes: shorten it to at most {MAX_COMMAND_BYTES}, or put it into a script"
    )]
    TooLong { bytes: usize },
    #[error("the command nests deeper than {MAX_DEPTH}: put the inner part into a script")]
    TooDeep,
    #[error("byte {at}: the character U+{code:04X} cannot be seen or moves the text around it: remove it")]
    Invisible { at: usize, code: u32 },
    #[error(
        "`{word}`: a program, an option or a variable is named in ASCII: type it anew, it may only look right"
    )]
    LookAlike { word: String },
    #[error("byte {at}: {what}: write it in a simpler way, or ask a human")]
    Syntax { at: usize, what: &'static str },
}

/// Parses a command line as `sh -c` would.
pub fn parse(text: &str) -> Result<ParsedCommand, CommandSyntaxError> {
    if text.len() > MAX_COMMAND_BYTES {
        return Err(CommandSyntaxError::TooLong { bytes: text.len() });
    }
    // Blanks at the end of a here-document belong to its last line.
    let around: &[char] = if text.contains("<<") { &['\n'] } else { &[' ', '\t', '\n'] };
    let text = text.trim_start_matches([' ', '\t', '\n']).trim_end_matches(around);
    unsafe_chars::check_visible(text)?;
    let (commands, structures) = reader::ShellReader::new(text, 0).line()?;
    if commands.is_empty() {
        return Err(CommandSyntaxError::Empty);
    }
    unsafe_chars::check_ascii(&commands)?;
    let mut parsed = ParsedCommand { line: text.to_owned(), commands, structures };
    if parsed.is_plain() {
        parsed.line = pattern::rendered_line(&parsed.commands);
    }
    Ok(parsed)
}

impl ParsedCommand {
    /// The normalized line, which is the fingerprint of an exact grant. A plain line has single spaces and only the
    /// quotes that it needs; any other line is kept as it is written, without surrounding blanks.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Every simple command, including those inside substitutions, loops and functions.
    pub fn commands(&self) -> &[SimpleCommand] {
        &self.commands
    }

    pub fn structures(&self) -> &BTreeSet<Structure> {
        &self.structures
    }

    /// Whether the line is literal words joined by `&&`, `;` and `|`, with harmless redirections at most. Patterns
    /// can cover only such a line.
    pub fn is_plain(&self) -> bool {
        let joins = [Structure::And, Structure::Sequence, Structure::Pipe];
        self.structures.iter().all(|structure| joins.contains(structure))
            && self.commands.iter().all(|simple| {
                simple.assignments.is_empty()
                    && !simple.words.is_empty()
                    && simple.words.iter().all(|word| word.literal)
                    && simple.redirections.iter().all(Redirection::is_harmless)
            })
    }
}

impl Redirection {
    /// Whether output is only discarded or merged with other output.
    pub fn is_harmless(&self) -> bool {
        self.target.literal
            && matches!(
                (self.descriptor, self.operator, self.target.text.as_str()),
                (None | Some(2), ">", "/dev/null") | (Some(2), ">&", "1")
            )
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "command_laws.rs"]
mod laws;
