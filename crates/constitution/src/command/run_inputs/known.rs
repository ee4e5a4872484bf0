//! What is known of programs by their names, as far as it decides whether they run further code.

use super::super::names::{REMOTE, WITH_SUBCOMMAND, lists};
use super::super::program_class::{self, ProgramClass, among, basename};
use super::super::programs;

/// Builtins of shells that run nothing and name nothing.
const BUILTINS: &str = "
    : [ break cd chdir continue exit getopts jobs kill let popd pushd pwd read return set shift shopt times type ulimit
    umask unalias unset wait";

/// Builtins that can give a name another meaning for the rest of the line.
const RENAMING: &str =
    "alias export declare typeset readonly local hash enable bind complete mapfile readarray fc printf";

/// Programs that write no file, whatever their words are.
const QUIET: &str = "
    : [ arch b2sum b3sum base32 base64 basename bzcat cal cat cd chdir cksum cmp column comm continue cut date df diff
    dirname du echo egrep exit export expr factor false fgrep file fold free getopts grep groups head hexdump hostname
    id jobs join kill let ls lsblk md5sum nl nproc numfmt od paste pgrep popd printf ps pushd pwd read readlink realpath
    return rev seq set sha1sum sha224sum sha256sum sha384sum sha512sum shasum shift shopt sleep stat sum tac tail test
    times tr true type uname unset uptime wait wc which whoami xzcat zcat zstdcat";

/// Interpreters whose first operand is a script.
const SCRIPT_FIRST: &str =
    "python pypy perl ruby node nodejs php lua luajit tclsh wish Rscript guile tsx ts-node";

/// Options of Python that take no value and bring no code.
const PYTHON_FLAGS: &str = "-u -B -E -I -O -OO -s -S -b -bb -q";

/// Programs with subcommands that run no code of a project.
const WITHOUT_PROJECT: &str = "tar ar 7z openssl apt apt-get dnf pacman brew";

/// Variables that name code, beside those that name a program.
const CODE_VARIABLES: &str = "
    PYTHONPATH PYTHONSTARTUP PYTHONHOME NODE_OPTIONS NODE_PATH PERL5OPT PERL5LIB PERL5DB RUBYOPT RUBYLIB LUA_PATH
    LUA_CPATH LUA_INIT AWKPATH GAWK_LIBS HOME IFS CDPATH PS4 SHELLOPTS BASHOPTS MAKEFLAGS MAKEFILES GNUMAKEFLAGS CXX LD
    AR AS RUSTFLAGS RUSTDOCFLAGS CFLAGS CXXFLAGS LDFLAGS GOFLAGS JAVA_TOOL_OPTIONS CLASSPATH XDG_CONFIG_HOME
    CARGO_HOME TAR_OPTIONS ZIPOPT RSYNC_SHELL";

/// Whether the value of the variable can be code that some program runs or loads.
pub(super) fn is_code_variable(name: &str) -> bool {
    let name = name.trim_end_matches('+');
    programs::names_a_program(name)
        || lists(CODE_VARIABLES, name)
        || ["CARGO_", "NPM_CONFIG_", "npm_config_", "PIP_"].iter().any(|start| name.starts_with(start))
}

/// Whether a program is called by a path outside the system's folders.
pub(super) fn is_own_file(program: &str) -> bool {
    programs::known_as(program).contains('/')
}

/// Whether the program works on files and values, and runs no code but its own.
pub(super) fn is_data(program: &str) -> bool {
    if is_own_file(program) {
        return false;
    }
    let name = basename(program);
    let with_project = among(WITH_SUBCOMMAND, program) && !among(WITHOUT_PROJECT, program);
    lists(BUILTINS, name)
        || lists(REMOTE, name)
        || (program_class::class(program) == ProgramClass::Plain && !with_project)
}

/// Whether the words of a program with subcommands are files and values that it does not run.
pub(super) fn has_data_words(program: &str, words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    !is_own_file(program) && among(WITH_SUBCOMMAND, program) && program_class::is_data(program, &words, None)
}

pub(super) fn is_renaming(program: &str) -> bool {
    lists(RENAMING, basename(program))
}

/// Whether the program certainly writes no file.
pub(super) fn is_quiet(program: &str) -> bool {
    !is_own_file(program) && lists(QUIET, basename(program))
}

/// Where the script of an interpreter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptPlace {
    /// The word with this number.
    Word(usize),
    /// The standard input.
    Input,
    /// Nothing runs: it says its version.
    Nothing,
    /// The words are code, or may be.
    Unknown,
}

/// Where the script of an interpreter with these words is.
pub(super) fn script_place(program: &str, words: &[String]) -> ScriptPlace {
    if let [only] = words
        && lists("--version -V -v --help -h", only)
    {
        return ScriptPlace::Nothing;
    }
    if among("sed gsed awk gawk mawk nawk", program) {
        return if is_plain_filter(program, words) { ScriptPlace::Nothing } else { ScriptPlace::Unknown };
    }
    if !among(SCRIPT_FIRST, program) {
        return ScriptPlace::Unknown;
    }
    let flags = if among("python pypy", program) { PYTHON_FLAGS } else { "" };
    let skipped = words.iter().take_while(|word| lists(flags, word)).count();
    match words.get(skipped).map(String::as_str) {
        None | Some("-") => ScriptPlace::Input,
        Some(word) if word.starts_with(['-', '+']) => ScriptPlace::Unknown,
        Some(_) => ScriptPlace::Word(skipped),
    }
}

/// Whether the words of `sed` or `awk` are a program that selects and changes text, and can start nothing and write no
/// file of its own choice.
fn is_plain_filter(program: &str, words: &[String]) -> bool {
    let option = |word: &&String| lists("-n -E -r -s -u --quiet --regexp-extended", word);
    let skipped = words.iter().take_while(option).count();
    let Some((code, files)) = words.get(skipped..).and_then(<[String]>::split_first) else { return false };
    if files.iter().any(|word| word.starts_with('-') || word.contains('=')) {
        return false;
    }
    if among("sed gsed", program) { is_plain_sed(code) } else { skipped == 0 && is_plain_awk(code) }
}

/// `10,20p`, `$d`, `s/a/b/g`
fn is_plain_sed(code: &str) -> bool {
    let selects = |code: &str| code.chars().all(|c| c.is_ascii_digit() || ",$!".contains(c));
    if let Some(address) = code.strip_suffix(['p', 'd', 'q', '=']) {
        return selects(address);
    }
    let Some(start) = code.find('s').filter(|start| selects(code.get(..*start).unwrap_or_default())) else {
        return false;
    };
    let rest = code.get(start + 1..).unwrap_or_default();
    let Some(delimiter) = rest.chars().next().filter(|c| "/|#,".contains(*c)) else { return false };
    let parts: Vec<&str> = rest.split(delimiter).collect();
    let plain = |part: &&str| !part.contains(['\\', '\n']);
    matches!(parts.as_slice(), ["", from, to, flags]
        if plain(from) && plain(to) && flags.chars().all(|c| c.is_ascii_digit() || "gpIi".contains(c)))
}

/// `{print $1}`: no pipes, files, commands or libraries.
fn is_plain_awk(code: &str) -> bool {
    !code.starts_with('-')
        && !code.contains(['|', '>', '<', '@', '\\'])
        && !["system", "getline", "close"].iter().any(|word| code.contains(word))
}
