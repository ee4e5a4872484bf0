//! What decides what a line runs, as far as its text says: the programs, the scripts, the words that may name files, and
//! what the text leaves open.
//!
//! Programs inside wrappers are found, and so are lines in words (`sh -c`). Nothing is looked up here: the caller does
//! that where the line will run. What is not understood is left open, never guessed.

mod collect;
mod known;

use std::collections::BTreeSet;
use std::fmt;

use super::Structure;

/// Folders in which a name may be looked up; more of them leave the folder open.
const MAX_FOLDERS: usize = 16;

/// What decides what a line runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunInputs {
    /// Programs, as they are called: by a name that is looked up, or by a path.
    pub programs: BTreeSet<String>,
    /// Files that are run as code. What runs is not known while one is missing.
    pub scripts: BTreeSet<String>,
    /// Words, and parts of words, that may name a file which is run. A leading `~/` is the home folder.
    pub operands: BTreeSet<String>,
    /// The folders that relative names may be in, the first of them the one in which the line starts.
    pub folders: Vec<String>,
    /// What the text leaves open.
    pub not_bound: BTreeSet<Unbound>,
    /// Whether something runs that may load further code from the workspace: anything but the system's programs for
    /// data.
    pub loads_code: bool,
}

/// A part of what a line runs that its text leaves open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unbound {
    /// The line was not understood.
    Syntax,
    /// A program without a fixed name.
    Program,
    /// Words of this program.
    Words(String),
    /// The input of this program, which runs what it reads.
    Input(String),
    /// Code in the words of this program.
    Code(String),
    /// The folder that it works in.
    Folder,
    /// A variable or a name of the shell, which can stand for programs.
    Environment(String),
    /// Files that another part of the line can write.
    Earlier,
    /// More than the limits allow to follow.
    TooMuch,
}

impl fmt::Display for Unbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("the whole line, which was not understood"),
            Self::Program => f.write_str("a program whose name is known only when the line runs"),
            Self::Words(program) => write!(f, "words of `{program}` that are known only when the line runs"),
            Self::Input(program) => write!(f, "the input of `{program}`, which runs what it reads"),
            Self::Code(program) => write!(f, "what the code in the words of `{program}` starts"),
            Self::Folder => f.write_str("the folder that the line changes to"),
            Self::Environment(name) => write!(f, "what `{name}` makes other programs run"),
            Self::Earlier => {
                f.write_str("files that one part of the line may write before another runs them")
            }
            Self::TooMuch => f.write_str("the inner parts of the line, which is nested too deeply"),
        }
    }
}

/// What decides what the line runs.
pub fn run_inputs(line: &str) -> RunInputs {
    let mut collected = collect::RunInputCollector::default();
    match super::parse(line) {
        Ok(parsed) => collected.line(&parsed, 0),
        Err(_) => collected.unreadable(line),
    }
    collected.finish()
}

/// Whether the text names everything that the line runs. Without that no grant covers it.
pub fn is_bound(line: &str) -> bool {
    run_inputs(line).not_bound.is_empty()
}

/// Whether the commands of a line run one after the other, in the order of the text.
fn is_in_order(structures: &BTreeSet<Structure>) -> bool {
    structures.iter().all(|structure| {
        matches!(
            structure,
            Structure::And
                | Structure::Or
                | Structure::Sequence
                | Structure::Newline
                | Structure::Negation
                | Structure::Time
                | Structure::Redirection
                | Structure::Assignment
                | Structure::Parameter
                | Structure::Glob
                | Structure::Comment
                | Structure::Continuation
        )
    })
}

#[cfg(test)]
#[path = "run_inputs_tests.rs"]
mod tests;
