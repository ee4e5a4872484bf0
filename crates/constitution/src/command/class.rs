//! What kind of program a name stands for, as far as a grant has to know.
//!
//! The lists name programs whose words can be other programs, code, or places far away. A program that is missing here
//! is taken for one whose options have to be listed and whose other words are data.

/// What the words of a program may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Files and values.
    Plain,
    /// Words or input can be a program or code: wrappers, shells, interpreters, editors, launchers.
    Launcher,
    /// It changes the shell, and with it what later commands of the line mean.
    ShellState,
    /// Words name other machines, and content goes there.
    Remote,
}

/// Shells: code after `-c`, in a file or from the input.
pub(super) const SHELLS: [&str; 17] = [
    "sh",
    "ash",
    "bash",
    "rbash",
    "dash",
    "zsh",
    "ksh",
    "ksh93",
    "mksh",
    "yash",
    "fish",
    "csh",
    "tcsh",
    "nu",
    "pwsh",
    "powershell",
    "elvish",
];

/// Interpreters, and programs with a language in which other programs can be started.
pub(super) const INTERPRETERS: [&str; 66] = [
    "python",
    "pypy",
    "ipython",
    "perl",
    "raku",
    "ruby",
    "irb",
    "node",
    "nodejs",
    "deno",
    "bun",
    "tsx",
    "ts-node",
    "php",
    "lua",
    "luajit",
    "tclsh",
    "wish",
    "expect",
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "sed",
    "gsed",
    "ed",
    "ex",
    "vi",
    "vim",
    "nvim",
    "view",
    "vimdiff",
    "emacs",
    "emacsclient",
    "nano",
    "less",
    "more",
    "man",
    "gdb",
    "lldb",
    "m4",
    "bc",
    "gnuplot",
    "octave",
    "julia",
    "R",
    "Rscript",
    "scala",
    "groovy",
    "jshell",
    "java",
    "ghci",
    "runghc",
    "ocaml",
    "erl",
    "elixir",
    "iex",
    "guile",
    "sbcl",
    "clojure",
    "swift",
    "dc",
    "psql",
    "mysql",
    "sqlite",
    "osascript",
];

/// Programs that start what their words name, besides the wrappers that [`super::wrappers`] can look through.
const LAUNCHERS: [&str; 60] = [
    "xargs",
    "parallel",
    "busybox",
    "toybox",
    "ssh",
    "git-shell",
    "watch",
    "npx",
    "bunx",
    "pnpx",
    "uvx",
    "pipx",
    "bwrap",
    "firejail",
    "docker",
    "podman",
    "nerdctl",
    "kubectl",
    "oc",
    "lxc",
    "incus",
    "machinectl",
    "systemd-run",
    "systemd-nspawn",
    "nix",
    "nix-shell",
    "guix",
    "flatpak",
    "snap",
    "tmux",
    "screen",
    "script",
    "at",
    "batch",
    "crontab",
    "entr",
    "inotifywait",
    "socat",
    "telnet",
    "openvpn",
    "start-stop-daemon",
    "daemonize",
    "run-parts",
    "xdg-open",
    "open",
    "gio",
    "dbus-send",
    "busctl",
    "systemctl",
    "service",
    "ansible",
    "capsh",
    "perf",
    "valgrind",
    "ltrace",
    "strace",
    "ld",
    "ld-linux",
    "ld-linux-x86-64.so",
    "poetry",
];

/// Builtins that change the shell.
const SHELL_STATE: [&str; 39] = [
    "alias",
    "unalias",
    "bind",
    "cd",
    "chdir",
    "pushd",
    "popd",
    "complete",
    "compgen",
    "compopt",
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
    "unset",
    "set",
    "shift",
    "shopt",
    "enable",
    "hash",
    "trap",
    "umask",
    "ulimit",
    "read",
    "mapfile",
    "readarray",
    "getopts",
    "let",
    "return",
    "exit",
    "logout",
    "break",
    "continue",
    "fc",
    "history",
    "eval",
    "source",
    ".",
];

const REMOTE: [&str; 16] = [
    "scp", "sftp", "rsync", "rclone", "curl", "wget", "nc", "ncat", "netcat", "ftp", "lftp", "aria2c",
    "http", "https", "mail", "sendmail",
];

/// Programs whose first word says what they do; it has to be written down.
const WITH_SUBCOMMAND: [&str; 37] = [
    "git",
    "hg",
    "svn",
    "jj",
    "gh",
    "glab",
    "cargo",
    "rustup",
    "npm",
    "pnpm",
    "yarn",
    "go",
    "pip",
    "uv",
    "gem",
    "bundle",
    "mvn",
    "gradle",
    "dotnet",
    "composer",
    "brew",
    "apt",
    "apt-get",
    "dnf",
    "pacman",
    "terraform",
    "aws",
    "gcloud",
    "az",
    "helm",
    "tar",
    "ar",
    "7z",
    "make",
    "just",
    "task",
    "openssl",
];

/// Subcommands that start what further words or settings name.
const LAUNCHING_SUBCOMMANDS: [(&str, &[&str]); 9] = [
    (
        "git",
        &["bisect", "config", "difftool", "mergetool", "filter-branch", "submodule", "instaweb", "daemon"],
    ),
    ("cargo", &["run", "r", "install", "config"]),
    ("npm", &["exec", "x", "explore", "config", "set"]),
    ("pnpm", &["exec", "dlx", "x"]),
    ("yarn", &["exec", "dlx"]),
    ("go", &["run", "generate", "tool", "env"]),
    ("uv", &["run", "tool"]),
    ("bundle", &["exec", "config"]),
    ("gh", &["alias", "extension", "config", "codespace"]),
];

/// Options whose value is a program, or code, or a place where programs are looked for.
const CODE_OPTIONS: [(&str, &[&str]); 14] = [
    (
        "git",
        &[
            "-c",
            "-C",
            "--exec-path",
            "--config-env",
            "--git-dir",
            "--work-tree",
            "--upload-pack",
            "--receive-pack",
            "--exec",
            "-x",
            "--ext-diff",
            "--textconv",
            "-O",
            "--open-files-in-pager",
            "--template",
            "--extcmd",
            "--config",
        ],
    ),
    ("cargo", &["--config", "-Z", "--manifest-path", "-C"]),
    (
        "tar",
        &[
            "--to-command",
            "--checkpoint-action",
            "-I",
            "--use-compress-program",
            "--info-script",
            "--new-volume-script",
            "-F",
            "--rsh-command",
            "--rmt-command",
        ],
    ),
    ("find", &["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprintf", "-fls", "-fprint0"]),
    ("fd", &["-x", "-X", "--exec", "--exec-batch"]),
    ("rg", &["--pre", "--hostname-bin", "-z", "--search-zip"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("scp", &["-o", "-S", "-F", "-J", "-D"]),
    ("sftp", &["-o", "-S", "-F", "-J", "-D", "-b"]),
    ("sort", &["--compress-program", "-T", "-o", "--output"]),
    ("make", &["-f", "--file", "--makefile", "--eval", "-C", "--directory", "-E"]),
    ("zip", &["-TT", "--unzip-command", "-T"]),
    ("printf", &["-v"]),
    ("npm", &["--script-shell", "--node-options", "--prefix", "-c", "--call"]),
];

/// The last part of a path, without a version: `/usr/bin/python3.11` is `python`.
pub(super) fn family(program: &str) -> &str {
    let name = basename(program);
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if family.is_empty() { name } else { family }
}

pub(super) fn basename(program: &str) -> &str {
    program.trim_end_matches('/').rsplit('/').next().unwrap_or(program)
}

pub(super) fn class(program: &str) -> Class {
    let (name, family) = (basename(program), family(program));
    let among = |names: &[&str]| names.contains(&name) || names.contains(&family);
    if among(&SHELL_STATE) {
        Class::ShellState
    } else if among(&SHELLS) || among(&INTERPRETERS) || among(&LAUNCHERS) || among(&super::wrappers::names())
    {
        Class::Launcher
    } else if among(&REMOTE) {
        Class::Remote
    } else {
        Class::Plain
    }
}

/// Whether `first`, the first word of a pattern with wildcards, leaves open what the program will do.
pub(super) fn leaves_open(program: &str, first: Option<&str>) -> bool {
    let (name, family) = (basename(program), family(program));
    let decided = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            // The options of archivers are the subcommand.
            || (matches!(family, "tar" | "ar") && word.len() > 1 && word.starts_with('-'))
    };
    (WITH_SUBCOMMAND.contains(&name) || WITH_SUBCOMMAND.contains(&family)) && !first.is_some_and(decided)
}

pub(super) fn launches(program: &str, subcommand: &str) -> bool {
    // Letters without a hyphen are options of tar as well.
    (family(program) == "tar" && !subcommand.starts_with('-') && subcommand.contains(['I', 'F']))
        || options_of(&LAUNCHING_SUBCOMMANDS, program).contains(&subcommand)
}

/// Whether an option of the program brings code with it: `-c`, `--exec=x`, and `-cx` with the value attached.
pub(super) fn is_code_option(program: &str, word: &str) -> bool {
    options_of(&CODE_OPTIONS, program).iter().any(|option| {
        let long = option.starts_with("--");
        match word.strip_prefix(option) {
            Some("") => true,
            Some(rest) => rest.starts_with('=') || (!long && option.len() == 2),
            // Long options may be shortened.
            None => long && word.len() > 2 && option.starts_with(word.split('=').next().unwrap_or(word)),
        }
    })
}

fn options_of<'a>(table: &[(&str, &'a [&'a str])], program: &str) -> &'a [&'a str] {
    let name = basename(program);
    table.iter().find(|(of, _)| *of == name || *of == family(program)).map_or(&[], |(_, words)| words)
}
