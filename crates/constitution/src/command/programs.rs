//! The programs that a line would run, as far as its text says.

use std::borrow::Cow;

use super::program_class::{self, CodeOption, ProgramClass, basename};
use super::wrappers::{Wrapper, WrapperMode};
use super::{ParsedCommand, SimpleCommand};

/// A program that the text does not name: `$X`, code for an interpreter, a shell that reads its input.
pub const UNKNOWN: &str = "?";

/// Nesting of wrappers in wrappers and of lines in words; each level is parsed again.
const MAX_LEVELS: usize = 8;

/// The names, without directories, of every program that the line would run: wrappers, and what they wrap. Sorted,
/// without duplicates. For facts and rules; no grant is decided by it.
pub fn programs(parsed: &ParsedCommand) -> Vec<String> {
    let mut found = ProgramCollector { names: Vec::new() };
    found.line(parsed, 0);
    found.names.sort_unstable();
    found.names.dedup();
    found.names
}

struct ProgramCollector {
    names: Vec<String>,
}

impl ProgramCollector {
    fn add(&mut self, name: &str) {
        self.names.push(name.to_owned());
    }

    fn line(&mut self, parsed: &ParsedCommand, level: usize) {
        for simple in parsed.commands() {
            self.simple(simple, level);
        }
    }

    /// A text that is run as a command line.
    fn text(&mut self, text: &str, level: usize) {
        match super::parse(text) {
            Ok(parsed) if level < MAX_LEVELS => self.line(&parsed, level + 1),
            Ok(_) | Err(_) => self.add(UNKNOWN),
        }
    }

    fn simple(&mut self, simple: &SimpleCommand, level: usize) {
        for assignment in &simple.assignments {
            if names_a_program(&assignment.name) {
                if assignment.value.literal {
                    self.text(&assignment.value.text, level);
                } else {
                    self.add(UNKNOWN);
                }
            }
        }
        // A word that is not literal has an unknown value.
        let words: Vec<String> = simple
            .words
            .iter()
            .map(|word| if word.literal { word.text.clone() } else { UNKNOWN.to_owned() })
            .collect();
        self.words(&words, level);
    }

    fn words(&mut self, words: &[String], level: usize) {
        let Some((program, rest)) = words.split_first() else { return };
        if level >= MAX_LEVELS || program.is_empty() {
            return self.add(UNKNOWN);
        }
        self.name(program);
        if let Some(wrapper) = program_class::wrapper(program) {
            return self.wrapped(wrapper, rest, level);
        }
        if program_class::is_shell(program) {
            return self.shell(rest, level);
        }
        if program_class::is_interpreter(program) {
            return self.interpreter(rest);
        }
        match basename(program) {
            "trap" => {
                if let Some(code) = rest.iter().find(|word| !word.starts_with('-')) {
                    self.text(code, level);
                }
            }
            "source" | "." => self.script(rest.iter().find(|word| !word.starts_with('-'))),
            "alias" | "export" | "declare" | "typeset" | "readonly" | "local" | "hash" | "enable"
            | "bind" | "complete" | "mapfile" | "readarray" | "fc" | "printf" => self.renaming(program, rest),
            "find" => self.find(rest, level),
            "fd" | "fdfind" => {
                // `-Hx rm` and `--exec=rm` contain the command or precede it.
                let attached = |word: &String| match word.strip_prefix("--") {
                    Some(long) => long.starts_with("exec") && long.contains('='),
                    None => word.len() > 2 && word.starts_with('-') && word.contains(['x', 'X']),
                };
                if rest.iter().any(attached) {
                    self.add(UNKNOWN);
                }
                self.find(rest, level);
            }
            _ => self.options(program, rest, level),
        }
    }

    /// Adds a program by the name that rules use. If its path may lead anywhere, the program is unknown as well.
    fn name(&mut self, program: &str) {
        self.add(&known_as(program));
        let strays = program.split('/').any(|part| part == "..");
        if strays || ["/proc/", "/dev/"].iter().any(|folder| program.starts_with(folder)) {
            self.add(basename(program));
            self.add(UNKNOWN);
        }
    }

    /// Builtins that can give a name another meaning for the rest of the line.
    fn renaming(&mut self, builtin: &str, rest: &[String]) {
        let set = |word: &String| {
            word.split_once('=').is_some_and(|(name, _)| names_a_program(name.trim_end_matches('+')))
        };
        let option = |word: &String| word.starts_with('-');
        let renames = match basename(builtin) {
            "alias" => rest.iter().any(|word| word.contains('=')),
            "printf" => rest.first().is_some_and(|word| word.starts_with("-v")),
            "hash" | "enable" | "bind" | "complete" | "mapfile" | "readarray" | "fc" => {
                rest.iter().any(option)
            }
            _ => rest.iter().any(set),
        };
        if renames {
            self.add(UNKNOWN);
        }
    }

    fn wrapped(&mut self, wrapper: &Wrapper, rest: &[String], level: usize) {
        let inside = wrapper.inside(rest);
        let set = |word: &&str| word.split_once('=').is_some_and(|(name, _)| names_a_program(name));
        if inside.unclear || inside.assignments.iter().any(set) {
            self.add(UNKNOWN);
        }
        for code in &inside.code {
            // `ssh -o ProxyCommand=x`.
            let setting = (wrapper.name == "ssh").then(|| code.split_once('=')).flatten();
            match setting {
                Some((name, _)) if !name.to_ascii_lowercase().ends_with("command") => {}
                Some((_, value)) => self.text(value, level),
                None => self.text(code, level),
            }
        }
        match (inside.command, wrapper.runs) {
            ([], _) if inside.code.is_empty() && wrapper.opens_shell() => self.add(UNKNOWN),
            ([], _) => {}
            (command, WrapperMode::Line) => self.text(&command.join(" "), level),
            (command, WrapperMode::Program) => self.words(command, level + 1),
        }
        let own = rest.get(..rest.len() - inside.command.len()).unwrap_or_default();
        if wrapper.feeds(own, inside.command) {
            self.add(UNKNOWN);
        }
    }

    fn script(&mut self, script: Option<&String>) {
        match script {
            Some(script) => self.name(script),
            None => self.add(UNKNOWN),
        }
    }

    /// The code is the first word after `-c` that is not an option; otherwise there is a script. Options other than
    /// the usual letters may take a word, and then the code is not certain.
    fn shell(&mut self, rest: &[String], level: usize) {
        let option = |word: &&String| word.starts_with(['-', '+']);
        let code = |word: &String| word.starts_with('-') && !word.starts_with("--") && word.contains('c');
        let usual =
            |word: &String| word.starts_with('-') && word.chars().skip(1).all(|c| "ceiluvx".contains(c));
        let at = rest.iter().position(code);
        let words = rest.get(at.map_or(0, |at| at + 1)..).unwrap_or_default();
        let first = words.iter().find(|word| !option(word));
        match (at, first) {
            (Some(_), Some(code)) => self.text(code, level),
            (Some(_), None) => self.add(UNKNOWN),
            (None, script) => self.script(script),
        }
        let between = at.is_some() && words.first().is_some_and(|word| option(&word));
        if between || !rest.iter().take_while(option).all(usual) {
            self.add(UNKNOWN);
        }
    }

    /// Code in words can start anything; a file is named.
    fn interpreter(&mut self, rest: &[String]) {
        match rest.first() {
            Some(first) if !first.starts_with('-') => {
                self.script(Some(first));
                self.add(UNKNOWN);
            }
            Some(first) if first == "--version" => {}
            Some(_) | None => self.add(UNKNOWN),
        }
    }

    fn find(&mut self, rest: &[String], level: usize) {
        const EXEC: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
        for (at, _) in rest.iter().enumerate().filter(|(_, word)| EXEC.contains(&word.as_str())) {
            let command = rest.get(at + 1..).unwrap_or_default();
            let end = command.iter().position(|word| word == ";" || word == "+").unwrap_or(command.len());
            self.words(command.get(..end).unwrap_or_default(), level + 1);
        }
    }

    /// Options of other programs that bring a command: `git -c alias.x=!y`, `--upload-pack=x`, `--rsh x`.
    fn options(&mut self, program: &str, rest: &[String], level: usize) {
        let words: Vec<&str> = rest.iter().map(String::as_str).collect();
        for (at, word) in rest.iter().enumerate() {
            let value = match program_class::code_option_of(program, &words, word) {
                Some(CodeOption::With(value)) => value,
                Some(CodeOption::Before) => rest.get(at + 1).map_or("", String::as_str),
                None => continue,
            };
            match value.split_once('=') {
                // Some settings of a compiler name the linker.
                Some((name, _)) if basename(program) == "rustc" && !name.starts_with("link") => {}
                // A setting: `core.pager=x`, `alias.y=!x`, `exec=x`.
                Some((_, value)) => self.text(value.trim_start_matches('!'), level),
                None => self.text(value.trim_start_matches('!'), level),
            }
        }
        if program_class::may_launch(program, &words)
            || program_class::class(program) == ProgramClass::Launcher
        {
            self.add(UNKNOWN);
        }
    }
}

/// Variables whose value some program runs or loads code from.
pub(super) fn names_a_program(variable: &str) -> bool {
    const RUN: [&str; 14] = [
        "PATH",
        "PAGER",
        "EDITOR",
        "VISUAL",
        "BROWSER",
        "SHELL",
        "ENV",
        "BASH_ENV",
        "PROMPT_COMMAND",
        "LESSOPEN",
        "LESSCLOSE",
        "RUSTC",
        "MANPAGER",
        "CC",
    ];
    RUN.contains(&variable)
        || variable.starts_with("LD_")
        || variable.starts_with("GIT_")
        || variable.starts_with("BASH_FUNC_")
        || ["_WRAPPER", "_COMMAND", "_RSH", "_PAGER", "_EDITOR", "_ASKPASS"]
            .iter()
            .any(|end| variable.ends_with(end))
}

/// System directories; rules know a program in one of them by its name alone.
const FOLDERS: [&str; 6] =
    ["/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"];

/// A program by its name; a program from elsewhere by its whole path, so that `./git` is not taken for `git`.
pub(super) fn known_as(program: &str) -> Cow<'_, str> {
    // `/bin//rm` and `/bin/./rm` are `/bin/rm`.
    let straight = match program.strip_prefix('/') {
        Some(rest) if rest.split('/').any(|part| matches!(part, "" | ".")) => {
            let parts: Vec<&str> = rest.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
            Cow::Owned(format!("/{}", parts.join("/")))
        }
        _ => Cow::Borrowed(program),
    };
    let name = FOLDERS.iter().find_map(|folder| straight.strip_prefix(folder));
    match name.filter(|name| !name.contains('/')) {
        Some(name) => Cow::Owned(name.to_owned()),
        None => straight,
    }
}
