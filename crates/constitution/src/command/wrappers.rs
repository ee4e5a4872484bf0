//! Wrappers: programs that start the program named after their own options, and how their options are skipped.

use super::program_class;

/// How the words of a wrapper are read.
#[derive(Debug)]
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    /// Options whose value is a word of its own.
    valued: &'static [&'static str],
    /// Options whose value is a command line.
    code: &'static [&'static str],
    /// Words between the options and the program: a duration, a priority, a host.
    operands: usize,
    /// Whether `X=1` may stand before the program.
    assignments: bool,
    /// How the words after that are run.
    pub(super) runs: WrapperMode,
}

/// How a wrapper runs the words after its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WrapperMode {
    /// As a program and its words.
    Program,
    /// Joined, by a shell.
    Line,
}

/// What follows the wrapper's own words.
pub(super) struct WrappedCommand<'a> {
    pub(super) command: &'a [String],
    /// Values that are command lines.
    pub(super) code: Vec<&'a str>,
    /// Variables that are set for the program, as `X=1`.
    pub(super) assignments: Vec<&'a str>,
    /// Whether some option may take a word that was read as something else.
    pub(super) unclear: bool,
}

const fn plain(name: &'static str, valued: &'static [&'static str]) -> Wrapper {
    Wrapper { name, valued, code: &[], operands: 0, assignments: false, runs: WrapperMode::Program }
}

const fn after(operands: usize, name: &'static str, valued: &'static [&'static str]) -> Wrapper {
    Wrapper { operands, ..plain(name, valued) }
}

const fn line(name: &'static str, operands: usize, valued: &'static [&'static str]) -> Wrapper {
    Wrapper { runs: WrapperMode::Line, ..after(operands, name, valued) }
}

const SUDO: &[&str] = &[
    "-u",
    "--user",
    "-g",
    "--group",
    "-h",
    "--host",
    "-p",
    "--prompt",
    "-C",
    "--close-from",
    "-r",
    "--role",
    "-t",
    "--type",
    "-T",
    "--command-timeout",
    "-U",
    "--other-user",
    "-D",
    "--chdir",
    "-R",
    "--chroot",
];
const XARGS: &[&str] = &[
    "-I",
    "-n",
    "-P",
    "-L",
    "-d",
    "-E",
    "-s",
    "-a",
    "--max-args",
    "--max-procs",
    "--max-lines",
    "--delimiter",
    "--max-chars",
    "--arg-file",
    "--replace",
    "--eof",
];
const SSH: &[&str] = &[
    "-B", "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-P", "-p", "-Q",
    "-R", "-S", "-W", "-w",
];
const PARALLEL: &[&str] = &[
    "-j",
    "--jobs",
    "-a",
    "--arg-file",
    "-I",
    "-n",
    "-N",
    "--max-args",
    "-S",
    "--sshlogin",
    "--joblog",
    "--timeout",
    "-d",
];

static WRAPPERS: [Wrapper; 40] = [
    Wrapper {
        code: &["-S", "--split-string"],
        assignments: true,
        ..plain("env", &["-u", "--unset", "-C", "--chdir", "-a", "--argv0"])
    },
    plain("nice", &["-n", "--adjustment"]),
    plain("time", &["-f", "--format", "-o", "--output"]),
    plain("nohup", &[]),
    after(1, "timeout", &["-k", "--kill-after", "-s", "--signal"]),
    plain("stdbuf", &["-i", "--input", "-o", "--output", "-e", "--error"]),
    plain("setsid", &[]),
    plain("ionice", &["-c", "--class", "-n", "--classdata", "-p", "-P", "-u"]),
    after(1, "chrt", &["-T", "--sched-runtime", "-P", "--sched-period", "-D", "--sched-deadline"]),
    after(1, "taskset", &[]),
    plain("command", &[]),
    plain("builtin", &[]),
    plain("exec", &["-a"]),
    plain("xargs", XARGS),
    Wrapper { assignments: true, ..plain("sudo", SUDO) },
    plain("doas", &["-u", "-C", "-a"]),
    plain("pkexec", &["--user"]),
    Wrapper { code: &["-c", "--command"], ..after(1, "su", &["-s", "--shell", "-g", "-G", "-w"]) },
    Wrapper {
        code: &["-c", "--command"],
        ..plain("runuser", &["-u", "--user", "-s", "--shell", "-g", "-G"])
    },
    plain("busybox", &[]),
    plain("toybox", &[]),
    line("watch", 0, &["-n", "--interval", "-q", "--equexit"]),
    line("parallel", 0, PARALLEL),
    Wrapper { code: &["-o"], ..line("ssh", 1, SSH) },
    line("eval", 0, &[]),
    after(1, "chroot", &["--userspec", "--groups"]),
    Wrapper {
        code: &["-c", "--command"],
        ..after(1, "flock", &["-w", "--timeout", "-E", "--conflict-exit-code"])
    },
    plain("unshare", &["-S", "-G", "-R", "-w", "--root", "--wd"]),
    plain("nsenter", &["-t", "--target", "-S", "-G"]),
    plain("setpriv", &[]),
    plain("strace", &["-o", "-e", "-s", "-u", "-E", "-P", "-a", "-O", "-S"]),
    plain("ltrace", &["-o", "-e", "-s", "-u", "-a", "-n"]),
    plain("unbuffer", &[]),
    plain("rlwrap", &["-f", "-H", "-p"]),
    plain("numactl", &["-N", "-m", "-C", "-i", "-p"]),
    plain("catchsegv", &[]),
    plain("proxychains", &["-f"]),
    plain("torsocks", &["-a", "-P"]),
    plain("xvfb-run", &["-n", "-e", "-s", "-f", "-w"]),
    plain("dbus-run-session", &[]),
];

pub(super) fn find(program: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == program)
}

impl Wrapper {
    /// Whether the wrapper without a command opens a shell.
    pub(super) fn opens_shell(&self) -> bool {
        matches!(
            self.name,
            "sudo" | "doas" | "su" | "runuser" | "ssh" | "chroot" | "unshare" | "nsenter" | "busybox"
        )
    }

    /// Whether the command gets words that the line does not contain: words of the input, which can be options or
    /// programs. `own` are the wrapper's words before the command.
    pub(super) fn feeds(&self, own: &[String], command: &[String]) -> bool {
        let replaces =
            |word: &String| ["-I", "-i", "-J", "--rep"].iter().any(|start| word.starts_with(start));
        match self.name {
            "parallel" => true,
            "xargs" => {
                own.iter().any(replaces)
                    || command.first().is_some_and(|program| program_class::obeys_words(program))
            }
            _ => false,
        }
    }

    /// Whether the command works in another folder, or sees other files, than the wrapper.
    pub(super) fn moves(&self, own: &[String]) -> bool {
        let options: &[&str] = match self.name {
            "chroot" | "nsenter" | "unshare" | "ssh" => return true,
            "env" => &["-C", "--c"],
            "sudo" => &["-D", "--chd", "-R", "--chr", "-i", "--l"],
            "su" | "runuser" => &["-", "-l", "--l"],
            _ => &[],
        };
        own.iter().any(|word| options.iter().any(|option| word.starts_with(option)))
    }

    /// Skips the wrapper's own words.
    pub(super) fn inside<'a>(&self, words: &'a [String]) -> WrappedCommand<'a> {
        let mut inside =
            WrappedCommand { command: &[], code: Vec::new(), assignments: Vec::new(), unclear: false };
        let mut at = self.options(words, 0, &mut inside);
        if self.operands > 0 {
            // `su root -c x`, `ssh host -p 22 x`: options may follow.
            at = self.options(words, at + self.operands, &mut inside);
        }
        inside.command = words.get(at..).unwrap_or_default();
        inside
    }

    /// The index after the options and assignments that begin at `at`.
    fn options<'a>(&self, words: &'a [String], mut at: usize, inside: &mut WrappedCommand<'a>) -> usize {
        while let Some(word) = words.get(at) {
            let assignment = self.assignments && word.contains('=');
            if !assignment && !word.starts_with('-') {
                break;
            }
            at += 1;
            if let Some((attached, value)) = self.code.iter().find_map(|option| value_of(word, option)) {
                let next = words.get(at).map(String::as_str);
                at += usize::from(!attached);
                inside.code.extend(if attached { value } else { next });
            } else if self.valued.contains(&word.as_str()) {
                at += 1;
            } else if assignment && !word.starts_with('-') {
                inside.assignments.push(word);
            } else {
                inside.unclear |= !self.is_clear(word);
            }
        }
        at
    }

    /// Whether an option certainly takes no further word: its value is attached, or it is a single letter or a
    /// number.
    fn is_clear(&self, word: &str) -> bool {
        let attached = |option: &&str| option.len() == 2 && word.starts_with(option);
        let number =
            word.strip_prefix('-').is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
        match word.strip_prefix("--") {
            Some("") => true,
            Some(long) => long.contains('='),
            None => word.len() <= 2 || number || self.valued.iter().any(attached),
        }
    }
}

/// Whether the word is this option, whether its value is attached, and that value.
fn value_of<'a>(word: &'a str, option: &str) -> Option<(bool, Option<&'a str>)> {
    match word.strip_prefix(option)? {
        "" => Some((false, None)),
        rest if option.starts_with("--") => rest.strip_prefix('=').map(|value| (true, Some(value))),
        rest => Some((true, Some(rest))),
    }
}
