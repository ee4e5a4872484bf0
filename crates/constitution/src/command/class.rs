//! What kind of program a name stands for, and what its words can do.

use super::names::{
    CODE_OPTIONS, INTERPRETERS, LAUNCHERS, LAUNCHING, PLACE_OPTIONS, PLAIN, REMOTE, SHELL_STATE, SHELLS,
    WITH_SUBCOMMAND, lists,
};
use super::{programs, wrappers};

/// What the words of a program may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Files and values.
    Plain,
    /// Nobody here knows it.
    Unknown,
    /// Words or input can be a program or code: wrappers, shells, interpreters, editors, launchers.
    Launcher,
    /// It changes the shell.
    ShellState,
    /// Other machines.
    Remote,
}

/// The last part of a path.
pub(super) fn basename(program: &str) -> &str {
    program.trim_end_matches('/').rsplit('/').next().unwrap_or(program)
}

/// The last part of a path, without a version: `/usr/bin/python3.11` is `python`.
fn family(program: &str) -> &str {
    let name = basename(program);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if family.is_empty() { name } else { family }
}

/// Whether the program, or the family it belongs to, is among the names.
pub(super) fn among(names: &str, program: &str) -> bool {
    lists(names, basename(program)) || lists(names, family(program))
}

pub(super) fn is_shell(program: &str) -> bool {
    among(SHELLS, program)
}

pub(super) fn is_interpreter(program: &str) -> bool {
    among(INTERPRETERS, program)
}

pub(super) fn wrapper(program: &str) -> Option<&'static wrappers::Wrapper> {
    wrappers::find(basename(program)).or_else(|| wrappers::find(family(program)))
}

pub(super) fn class(program: &str) -> Class {
    // The loader runs any file it is given: `ld-linux-x86-64.so.2 ./x`.
    let loader = ["ld-linux", "ld-musl", "ld64"].iter().any(|start| basename(program).starts_with(start));
    let launcher = loader || wrapper(program).is_some() || among(LAUNCHERS, program);
    if among(SHELL_STATE, program) {
        Class::ShellState
    } else if launcher || is_shell(program) || is_interpreter(program) {
        Class::Launcher
    } else if among(REMOTE, program) {
        Class::Remote
    } else if is_of_the_machine(program) && among(PLAIN, program) | among(WITH_SUBCOMMAND, program) {
        Class::Plain
    } else {
        Class::Unknown
    }
}

/// Whether a program is found by its name, or where the machine has its own: `./git` is not git.
fn is_of_the_machine(program: &str) -> bool {
    !program.contains('/') || !programs::known_as(program).contains('/')
}

/// Whether further words can make the program start another one.
pub(super) fn obeys_words(program: &str) -> bool {
    let plain = matches!(class(program), Class::Plain | Class::Unknown | Class::Remote);
    !plain || among(WITH_SUBCOMMAND, program) || !words_of(&CODE_OPTIONS, program).is_empty()
}

/// Whether `first`, the first word of a pattern with wildcards, leaves open what the program will do.
pub(super) fn leaves_open(program: &str, first: Option<&str>) -> bool {
    let decided = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            // The options of archivers are the subcommand.
            || (among("tar ar", program) && word.len() > 1 && word.starts_with('-'))
    };
    among(WITH_SUBCOMMAND, program) && !first.is_some_and(decided)
}

/// Whether a subcommand starts what further words name.
pub(super) fn launches(program: &str, subcommand: &str) -> bool {
    // Letters without a hyphen are options of tar as well.
    let letters = among("tar", program) && subcommand.contains(['I', 'F']);
    letters || lists(words_of(&LAUNCHING, program), subcommand)
}

/// Whether an option brings code with it.
pub(super) fn is_code_option(program: &str, word: &str) -> bool {
    has_option(words_of(&CODE_OPTIONS, program), word)
}

/// Whether an option moves the program to other code or other results.
pub(super) fn is_place_option(program: &str, word: &str) -> bool {
    has_option(words_of(&PLACE_OPTIONS, program), word)
}

/// Whether the word is one of the options: `-c`, `--exec=x`, `-cx` with the value attached, or `--exe`, since long
/// options may be shortened.
fn has_option(options: &str, word: &str) -> bool {
    options.split_ascii_whitespace().any(|option| {
        let long = option.starts_with("--");
        match word.strip_prefix(option) {
            Some("") => true,
            Some(rest) => rest.starts_with('=') || (!long && option.len() == 2),
            None => {
                let name = word.split('=').next().unwrap_or(word);
                long && name.len() > 2 && option.starts_with(name)
            }
        }
    })
}

fn words_of(table: &[(&'static str, &'static str)], program: &str) -> &'static str {
    table.iter().find(|(of, _)| among(of, program)).map_or("", |(_, words)| words)
}
