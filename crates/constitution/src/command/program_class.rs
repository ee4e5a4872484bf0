//! The class of a program by its name, and the effect of its words.

use super::names::{
    BUNDLED, CODE_OPTIONS, COLONS, GLOBAL_FLAGS, INTERPRETERS, LAUNCHERS, LAUNCHING, PLACE_OPTIONS, PLAIN,
    REMOTE, SHELL_STATE, SHELLS, WITH_SUBCOMMAND, lists,
};
use super::pattern::Colon;
use super::{programs, subcommands, wrappers};

/// What the words of a program may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramClass {
    /// Files and values.
    Plain,
    /// Unknown.
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

/// Whether the program, or its family, is among the names.
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

pub(super) fn class(program: &str) -> ProgramClass {
    // The dynamic loader runs any file it is given: `ld-linux-x86-64.so.2 ./x`.
    let loader = ["ld-linux", "ld-musl", "ld64"].iter().any(|start| basename(program).starts_with(start));
    let launcher = loader || wrapper(program).is_some() || among(LAUNCHERS, program);
    if among(SHELL_STATE, program) {
        ProgramClass::ShellState
    } else if launcher || is_shell(program) || is_interpreter(program) {
        ProgramClass::Launcher
    } else if among(REMOTE, program) {
        ProgramClass::Remote
    } else if is_of_the_machine(program) && among(PLAIN, program) | among(WITH_SUBCOMMAND, program) {
        ProgramClass::Plain
    } else {
        ProgramClass::Unknown
    }
}

/// Whether a program is found by its name, or in a system directory: `./git` is not git.
fn is_of_the_machine(program: &str) -> bool {
    !program.contains('/') || !programs::known_as(program).contains('/')
}

/// Whether further words can make the program start another one.
pub(super) fn obeys_words(program: &str) -> bool {
    let plain = matches!(class(program), ProgramClass::Plain | ProgramClass::Unknown | ProgramClass::Remote);
    !plain || among(WITH_SUBCOMMAND, program) || !words_of(&CODE_OPTIONS, program).is_empty()
}

/// Whether `first`, the first word of a pattern with wildcards, does not determine what the program does.
pub(super) fn leaves_open(program: &str, first: Option<&str>) -> bool {
    let decided = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            // The options of archivers are the subcommand.
            || (among("tar ar", program) && word.len() > 1 && word.starts_with('-'))
    };
    among(WITH_SUBCOMMAND, program) && !first.is_some_and(decided)
}

/// Whether the words that a pattern leaves open are files and values. `before` are the words between the program
/// and the first wildcard, `open` is how many follow, if that is known.
pub(super) fn is_data(program: &str, before: &[&str], open: Option<usize>) -> bool {
    !among(WITH_SUBCOMMAND, program)
        || subcommands::named(program, before, open).is_some_and(|named| named <= before.len())
}

/// The meaning of a colon in the words of a program.
pub(super) fn colon(program: &str, words: &[&str]) -> Colon {
    let name = match among(WITH_SUBCOMMAND, program) {
        true => subcommands::has_colons(program, words),
        false => among(COLONS, program),
    };
    if name { Colon::Name } else { Colon::Machine }
}

/// Whether a subcommand starts what further words name.
pub(super) fn launches(program: &str, subcommand: &str) -> bool {
    // Letters without a hyphen are options of tar as well.
    let letters = among("tar", program) && subcommand.contains(['I', 'F', 'T']);
    letters || lists(words_of(&LAUNCHING, program), subcommand)
}

/// The words that may be the subcommand: the first word that is no option, and the one after it if the first may be the
/// value of an option.
pub(super) fn subcommands<'a>(program: &str, words: &[&'a str]) -> Vec<&'a str> {
    let flags = words_of(&GLOBAL_FLAGS, program);
    let (mut found, mut may_be_value) = (Vec::new(), false);
    for word in words {
        if word.starts_with(['-', '+']) {
            may_be_value |= word.starts_with('-') && !word.contains('=') && !lists(flags, word);
            continue;
        }
        found.push(*word);
        if !std::mem::take(&mut may_be_value) {
            break;
        }
    }
    found
}

/// Whether a subcommand, behind options too, starts what further words name.
pub(super) fn may_launch(program: &str, words: &[&str]) -> bool {
    let first = words.first().is_some_and(|first| launches(program, first));
    let names = words_of(&LAUNCHING, program);
    first || subcommands(program, words).iter().any(|subcommand| lists(names, subcommand))
}

/// An option that contains or announces code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeOption<'a> {
    /// The code is attached to it.
    With(&'a str),
    /// The code is the next word.
    Before,
}

/// The options of some subcommands are in the tables under the name of both: `git-clone`.
pub(super) fn code_option_of<'a>(program: &str, words: &[&str], word: &'a str) -> Option<CodeOption<'a>> {
    code_option(program, word).or_else(|| {
        let name = basename(program);
        subcommands(program, words).iter().find_map(|sub| code_option(&format!("{name}-{sub}"), word))
    })
}

fn code_option<'a>(program: &str, word: &'a str) -> Option<CodeOption<'a>> {
    let attached = option(words_of(&CODE_OPTIONS, program), word).or_else(|| bundled(program, word))?;
    Some(if attached.is_empty() { CodeOption::Before } else { CodeOption::With(attached) })
}

/// Whether an option makes the program use other code or write other results.
pub(super) fn is_place_option(program: &str, word: &str) -> bool {
    option(words_of(&PLACE_OPTIONS, program), word).is_some()
}

/// The value attached to the word if it is one of the options: `-c`, `--exec=x`, `-cx`, `-Wl,x`, or `--exe`,
/// because long options may be abbreviated.
fn option<'a>(options: &str, word: &'a str) -> Option<&'a str> {
    options.split_ascii_whitespace().find_map(|option| {
        let long = option.starts_with("--");
        match word.strip_prefix(option) {
            Some(rest) if !long && option.len() == 2 => Some(rest),
            Some(rest) if rest.is_empty() || rest.starts_with(['=', ',']) => {
                Some(rest.get(1..).unwrap_or_default())
            }
            Some(_) => None,
            None => {
                let (name, value) = word.split_once('=').unwrap_or((word, ""));
                (long && name.len() > 2 && option.starts_with(name)).then_some(value)
            }
        }
    })
}

/// The value of a code option that follows others in one word: `-nO./x`.
fn bundled<'a>(program: &str, word: &'a str) -> Option<&'a str> {
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    words_of(&BUNDLED, program)
        .split_ascii_whitespace()
        .find_map(|option| letters.split_once(option).map(|(_, rest)| rest.strip_prefix('=').unwrap_or(rest)))
}

fn words_of(table: &[(&'static str, &'static str)], program: &str) -> &'static str {
    table.iter().find(|(of, _)| among(of, program)).map_or("", |(_, words)| words)
}
