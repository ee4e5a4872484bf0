//! Walks over the commands of a line, and through wrappers and lines in words.

use super::super::program_class::{self, CodeOption, ProgramClass, basename};
use super::super::programs::UNKNOWN;
use super::super::wrappers::{Wrapper, WrapperMode};
use super::super::{ParsedCommand, SimpleCommand, Structure};
use super::known::{self, ScriptPlace};
use super::{MAX_FOLDERS, RunInputs, Unbound, is_in_order};

/// Nesting of wrappers in wrappers and of lines in words.
const MAX_LEVELS: usize = 8;

/// Words, and parts of words, that are looked up.
const MAX_OPERANDS: usize = 256;

/// Files that a login shell or an interactive one reads.
const SHELL_STARTUP: [&str; 4] = ["~/.profile", "~/.bash_profile", "~/.bash_login", "~/.bashrc"];

/// Collects what decides what a line runs.
#[derive(Debug)]
pub(super) struct RunInputCollector {
    found: RunInputs,
    /// Words of programs for data. They are looked up only for a line that is not bound, for the person who decides.
    data: Vec<String>,
    steps: Vec<CommandStep>,
    is_in_order: bool,
    has_loop: bool,
    changes_folder: bool,
    sources: bool,
    /// Some commands of the line may read what others write.
    has_streams: bool,
}

/// What one command of the line can do to the others.
#[derive(Debug, Default)]
struct CommandStep {
    /// It may write files, and what it writes is not determined by a file that is bound.
    may_write: bool,
    /// It runs a file that is not one of the system's programs.
    runs_file: bool,
}

/// What a command reads from its input.
#[derive(Debug, Clone, Copy)]
enum CommandInput<'a> {
    File(&'a str),
    /// Something that the line does not name.
    Open,
    /// Certainly nothing, as long as the line itself has no input.
    Nothing,
}

impl Default for RunInputCollector {
    fn default() -> Self {
        Self {
            found: RunInputs { folders: vec![".".to_owned()], ..RunInputs::default() },
            data: Vec::new(),
            steps: Vec::new(),
            is_in_order: true,
            has_loop: false,
            changes_folder: false,
            sources: false,
            has_streams: false,
        }
    }
}

impl RunInputCollector {
    pub(super) fn line(&mut self, parsed: &ParsedCommand, level: usize) {
        let structures = parsed.structures();
        self.is_in_order &= is_in_order(structures);
        self.has_loop |= structures.contains(&Structure::Loop);
        // A redirection of a compound command is not among its commands.
        self.has_streams |= !is_in_order(structures);
        if structures.contains(&Structure::Function) {
            self.open(Unbound::Environment("function".to_owned()));
        }
        for simple in parsed.commands() {
            self.simple(simple, level);
        }
    }

    /// A line that cannot be parsed: its words are shown.
    pub(super) fn unreadable(&mut self, line: &str) {
        self.open(Unbound::Syntax);
        self.found.loads_code = true;
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        self.operands(&words);
    }

    pub(super) fn finish(mut self) -> RunInputs {
        let writes_before_run = |(index, step): (usize, &CommandStep)| {
            let later = self.steps.get(index + 1..).unwrap_or_default();
            let earlier: &[CommandStep] =
                if self.is_in_order { &[] } else { self.steps.get(..index).unwrap_or_default() };
            step.may_write && later.iter().chain(earlier).any(|other| other.runs_file)
        };
        if self.steps.iter().enumerate().any(writes_before_run) {
            self.open(Unbound::Earlier);
        }
        if self.has_loop && self.changes_folder {
            self.open(Unbound::Folder);
        }
        if self.sources && self.steps.len() > 1 {
            self.open(Unbound::Environment(".".to_owned()));
        }
        if !self.found.not_bound.is_empty() {
            // Something may run what other parts of the line name.
            self.found.loads_code = true;
            let data = std::mem::take(&mut self.data);
            self.operands(&data);
        }
        self.found
    }

    fn open(&mut self, what: Unbound) {
        self.found.not_bound.insert(what);
    }

    fn step(&mut self, change: impl FnOnce(&mut CommandStep)) {
        if let Some(step) = self.steps.last_mut() {
            change(step);
        }
    }

    /// A text that is run as a command line.
    fn text(&mut self, text: &str, level: usize) {
        if level >= MAX_LEVELS {
            return self.open(Unbound::TooMuch);
        }
        match super::super::parse(text) {
            Ok(parsed) => self.line(&parsed, level + 1),
            Err(_) => self.unreadable(text),
        }
    }

    fn simple(&mut self, simple: &SimpleCommand, level: usize) {
        self.steps.push(CommandStep::default());
        for assignment in &simple.assignments {
            if known::is_code_variable(&assignment.name) {
                self.open(Unbound::Environment(assignment.name.clone()));
            }
        }
        let mut input = if self.has_streams { CommandInput::Open } else { CommandInput::Nothing };
        for redirection in &simple.redirections {
            let target = &redirection.target;
            let is_input = matches!(redirection.descriptor, None | Some(0));
            match redirection.operator {
                "<" if is_input && target.literal => input = CommandInput::File(&target.text),
                "<" if target.literal => self.operands(std::slice::from_ref(&target.text)),
                "<" | "<<" | "<<-" | "<<<" | "<&" => input = CommandInput::Open,
                _ if redirection.is_harmless() || (target.literal && target.text == "/dev/null") => {}
                ">&" if target.text.chars().all(|c| c.is_ascii_digit() || c == '-') => {}
                _ => self.step(|step| step.may_write = true),
            }
        }
        // A word that is not literal has an unknown value.
        let words: Vec<String> = simple
            .words
            .iter()
            .map(|word| if word.literal { word.text.clone() } else { UNKNOWN.to_owned() })
            .collect();
        self.words(&words, input, level);
    }

    fn words(&mut self, words: &[String], input: CommandInput<'_>, level: usize) {
        let Some((program, rest)) = words.split_first() else { return };
        if level >= MAX_LEVELS {
            return self.open(Unbound::TooMuch);
        }
        if program == UNKNOWN || program.is_empty() {
            self.open(Unbound::Program);
            return self.operands(rest);
        }
        self.found.programs.insert(program.clone());
        if known::is_own_file(program) {
            self.found.loads_code = true;
            self.step(|step| step.runs_file = true);
            if let CommandInput::File(file) = input {
                self.operands(&[file.to_owned()]);
            }
        }
        if let Some(wrapper) = program_class::wrapper(program) {
            return self.wrapped(wrapper, rest, input, level);
        }
        if program_class::is_shell(program) {
            return self.shell(program, rest, input, level);
        }
        if program_class::is_interpreter(program) {
            return self.interpreter(program, rest, input);
        }
        match basename(program) {
            "cd" | "chdir" | "pushd" => self.folder(rest),
            "source" | "." => {
                self.sources = true;
                self.script(program, rest.iter().find(|word| !word.starts_with('-')));
            }
            "trap" => match rest.iter().find(|word| !word.starts_with('-')) {
                Some(code) if code != UNKNOWN => self.text(code, level),
                Some(_) => self.open(Unbound::Words("trap".to_owned())),
                None => {}
            },
            "find" | "fd" | "fdfind" => self.find(program, rest, level),
            _ if known::is_renaming(program) => self.renaming(program, rest),
            _ if known::is_data(program) => self.data(program, rest, level),
            _ => self.other(program, rest, input, level),
        }
    }

    /// A program for data, unless its words start another one.
    fn data(&mut self, program: &str, rest: &[String], level: usize) {
        if !known::is_quiet(program) {
            self.step(|step| step.may_write = true);
        }
        if program_class::obeys_words(program) && rest.iter().any(|word| word == UNKNOWN) {
            self.open(Unbound::Words(basename(program).to_owned()));
        }
        let words: Vec<&str> = rest.iter().map(String::as_str).collect();
        if program_class::may_launch(program, &words) {
            self.open(Unbound::Code(basename(program).to_owned()));
        }
        self.code_options(program, rest, level);
        self.data.extend(rest.iter().filter(|word| *word != UNKNOWN).cloned());
    }

    /// A program of which is not known what it loads. What its words name is bound.
    fn other(&mut self, program: &str, rest: &[String], input: CommandInput<'_>, level: usize) {
        self.found.loads_code = true;
        if !known::is_own_file(program) {
            self.step(|step| step.may_write = true);
        }
        if known::has_data_words(program, rest) {
            self.data.extend(rest.iter().filter(|word| *word != UNKNOWN).cloned());
        } else {
            self.operands(rest);
        }
        let is_launcher = program_class::class(program) == ProgramClass::Launcher;
        if rest.iter().any(|word| word == UNKNOWN) {
            self.open(Unbound::Words(basename(program).to_owned()));
        }
        match input {
            CommandInput::File(file) => self.operands(&[file.to_owned()]),
            CommandInput::Open if is_launcher => self.open(Unbound::Input(basename(program).to_owned())),
            CommandInput::Open | CommandInput::Nothing => {}
        }
        if is_launcher && rest.iter().any(|word| word.contains(char::is_whitespace)) {
            self.open(Unbound::Code(basename(program).to_owned()));
        }
        self.code_options(program, rest, level);
    }

    /// Options that bring a command: `git -c alias.x=!y`, `tar --to-command=x`.
    fn code_options(&mut self, program: &str, rest: &[String], level: usize) {
        let words: Vec<&str> = rest.iter().map(String::as_str).collect();
        for (at, word) in rest.iter().enumerate() {
            let value = match program_class::code_option_of(program, &words, word) {
                Some(CodeOption::With(value)) => value,
                Some(CodeOption::Before) => rest.get(at + 1).map_or("", String::as_str),
                None => continue,
            };
            self.open(Unbound::Code(basename(program).to_owned()));
            let value = value.split_once('=').map_or(value, |(_, value)| value);
            self.text(value.trim_start_matches('!'), level);
        }
    }

    fn folder(&mut self, rest: &[String]) {
        self.changes_folder = true;
        let operand = rest.iter().find(|word| !["-P", "-L", "--"].contains(&word.as_str()));
        let plain = operand.filter(|to| {
            *to != UNKNOWN && !to.starts_with(['-', '+', '~']) && to.split('/').all(|part| part != "..")
        });
        let Some(to) = plain else { return self.open(Unbound::Folder) };
        for from in self.found.folders.clone() {
            let folder = if to.starts_with('/') { to.clone() } else { format!("{from}/{to}") };
            if !self.found.folders.contains(&folder) {
                self.found.folders.push(folder);
            }
        }
        if self.found.folders.len() > MAX_FOLDERS {
            self.found.folders.truncate(MAX_FOLDERS);
            self.open(Unbound::Folder);
        }
    }

    /// Builtins that can give a name another meaning for the rest of the line.
    fn renaming(&mut self, builtin: &str, rest: &[String]) {
        let set = |word: &String| {
            word == UNKNOWN || word.split_once('=').is_some_and(|(name, _)| known::is_code_variable(name))
        };
        let option = |word: &String| word.starts_with('-');
        let renames = match basename(builtin) {
            "alias" => !rest.is_empty(),
            "printf" => rest.first().is_some_and(|word| word.starts_with("-v") || word == UNKNOWN),
            "hash" | "enable" | "bind" | "complete" | "mapfile" | "readarray" | "fc" => {
                rest.iter().any(option)
            }
            _ => rest.iter().any(set),
        };
        if renames {
            self.open(Unbound::Environment(basename(builtin).to_owned()));
        }
    }

    fn wrapped(&mut self, wrapper: &Wrapper, rest: &[String], input: CommandInput<'_>, level: usize) {
        let inside = wrapper.inside(rest);
        let name = || wrapper.name.to_owned();
        let own = rest.get(..rest.len() - inside.command.len()).unwrap_or_default();
        if inside.unclear || own.iter().any(|word| word == UNKNOWN) {
            self.open(Unbound::Words(name()));
        }
        let set = inside.assignments.iter().filter_map(|word| word.split_once('='));
        for (variable, _) in set.filter(|(variable, _)| known::is_code_variable(variable)) {
            self.open(Unbound::Environment(variable.to_owned()));
        }
        if wrapper.moves(own) {
            self.open(Unbound::Folder);
        }
        for code in &inside.code {
            let value =
                code.split_once('=').filter(|_| wrapper.name == "ssh").map_or(*code, |(_, value)| value);
            self.text(value, level);
        }
        if inside.command.is_empty() {
            if inside.code.is_empty() && wrapper.opens_shell() {
                self.open(Unbound::Input(name()));
            }
            return;
        }
        match (wrapper.runs, wrapper.name) {
            (WrapperMode::Line, "parallel") => {
                self.open(Unbound::Words(name()));
                self.operands(inside.command);
            }
            (WrapperMode::Line, _) if inside.command.iter().any(|word| word == UNKNOWN) => {
                self.open(Unbound::Words(name()));
                self.operands(inside.command);
            }
            (WrapperMode::Line, _) => self.text(&inside.command.join(" "), level),
            (WrapperMode::Program, "xargs") => self.filled_in("xargs", inside.command, level),
            (WrapperMode::Program, _) => self.words(inside.command, input, level + 1),
        }
    }

    /// A command that gets further words when the line runs.
    fn filled_in(&mut self, by: &str, command: &[String], level: usize) {
        let program = command.first().map_or(UNKNOWN, String::as_str);
        let for_data = known::is_data(program) && !program_class::obeys_words(program);
        if program.contains("{}") || !for_data {
            self.open(Unbound::Words(by.to_owned()));
        }
        let fixed: Vec<String> = command
            .iter()
            .map(|word| if word.contains("{}") { UNKNOWN.to_owned() } else { word.clone() })
            .collect();
        self.words(&fixed, CommandInput::Open, level + 1);
    }

    fn find(&mut self, program: &str, rest: &[String], level: usize) {
        const EXEC: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
        let attached = |word: &String| {
            let short = word.len() > 2 && !word.starts_with("--") && word.contains(['x', 'X']);
            basename(program) != "find" && word.starts_with('-') && (short || word.starts_with("--exec="))
        };
        if rest.iter().any(|word| word == UNKNOWN || attached(word)) {
            self.open(Unbound::Words(basename(program).to_owned()));
        }
        if rest.iter().any(|word| word == "-delete" || word.starts_with("-fprint") || word == "-fls") {
            self.step(|step| step.may_write = true);
        }
        self.data.extend(rest.iter().filter(|word| *word != UNKNOWN).cloned());
        for (at, option) in rest.iter().enumerate().filter(|(_, word)| EXEC.contains(&word.as_str())) {
            let command = rest.get(at + 1..).unwrap_or_default();
            let end = command.iter().position(|word| word == ";" || word == "+").unwrap_or(command.len());
            if option.ends_with("dir") {
                self.open(Unbound::Folder);
            }
            self.filled_in(basename(program), command.get(..end).unwrap_or_default(), level);
        }
    }

    /// A file that is run as code.
    fn script(&mut self, program: &str, script: Option<&String>) {
        self.found.loads_code = true;
        match script {
            Some(script) if script != UNKNOWN => {
                self.found.scripts.insert(script.clone());
                self.step(|step| step.runs_file = true);
            }
            Some(_) => self.open(Unbound::Words(basename(program).to_owned())),
            None => self.open(Unbound::Input(basename(program).to_owned())),
        }
    }

    /// The input of a program that runs what it reads.
    fn code_input(&mut self, program: &str, input: CommandInput<'_>) {
        match input {
            CommandInput::File(file) => self.script(program, Some(&file.to_owned())),
            CommandInput::Open | CommandInput::Nothing => self.script(program, None),
        }
    }

    /// The code is the first operand after `-c`; without `-c` that is a script; without operands it is the input.
    fn shell(&mut self, program: &str, rest: &[String], input: CommandInput<'_>, level: usize) {
        let (mut at, mut has_code, mut reads_input) = (0, false, false);
        while let Some(word) = rest.get(at).filter(|word| word.starts_with(['-', '+'])) {
            at += 1;
            match word.as_str() {
                "-" | "--" => break,
                "--login" | "--posix" | "--norc" | "--noprofile" | "--verbose" | "--restricted" => {}
                long if long.starts_with("--") => {
                    self.open(Unbound::Words(basename(program).to_owned()));
                    self.operands(rest.get(at..).unwrap_or_default());
                }
                letters => {
                    has_code |= letters.contains('c');
                    reads_input |= letters.contains('s');
                    at += letters.matches(['o', 'O']).count();
                }
            }
            if word == "--login" || (!word.starts_with("--") && word.contains(['l', 'i'])) {
                self.found.operands.extend(SHELL_STARTUP.map(str::to_owned));
            }
        }
        let first = rest.get(at);
        self.operands(rest.get(at + 1..).unwrap_or_default());
        match first {
            Some(code) if has_code && code != UNKNOWN => self.text(code, level),
            Some(_) if has_code => self.script(program, first),
            _ if has_code || reads_input => self.code_input(program, input),
            None => self.code_input(program, input),
            Some(_) => self.script(program, first),
        }
    }

    fn interpreter(&mut self, program: &str, rest: &[String], input: CommandInput<'_>) {
        match known::script_place(program, rest) {
            ScriptPlace::Nothing => {
                self.data.extend(rest.iter().filter(|word| *word != UNKNOWN).cloned());
            }
            ScriptPlace::Input => self.code_input(program, input),
            ScriptPlace::Unknown => {
                self.found.loads_code = true;
                self.step(|step| step.may_write = true);
                self.open(Unbound::Code(basename(program).to_owned()));
                self.operands(rest);
            }
            ScriptPlace::Word(at) => {
                self.script(program, rest.get(at));
                self.operands(rest.get(at + 1..).unwrap_or_default());
            }
        }
    }

    /// Words that may name a file which is run, whole or in part: `--file=x`, `@x`, `-fx`, `sh x`.
    fn operands(&mut self, words: &[String]) {
        self.found.loads_code |= !words.is_empty();
        let parts = |c: char| c.is_whitespace() || "'\"`;|&()<>=:,@{}[]$".contains(c);
        for word in words.iter().filter(|word| *word != UNKNOWN) {
            let attached = word.strip_prefix('-').and_then(|word| word.get(1..)).unwrap_or_default();
            for name in std::iter::once(word.as_str()).chain(word.split(parts)).chain([attached]) {
                if !name.is_empty() && !name.ends_with('/') && ![".", ".."].contains(&name) {
                    self.found.operands.insert(name.to_owned());
                }
            }
            if self.found.operands.len() > MAX_OPERANDS {
                return self.open(Unbound::TooMuch);
            }
        }
    }
}
