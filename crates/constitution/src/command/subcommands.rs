//! Subcommands whose further words are files and values.
//!
//! A subcommand that is not listed here must be granted word by word: its words may be programs, code, or other
//! machines, or their meaning is unknown.

use super::names::lists;
use super::program_class::among;

/// The subcommands of a program after which words may be left open. `a/b` is the subcommand `b` of `a`.
struct DataSubcommands {
    programs: &'static str,
    /// Every word after them is data.
    any: &'static str,
    /// The first word after them says where to; the rest is data.
    named: &'static str,
    /// They take one word, and it is a name that the project lists.
    one: &'static str,
    /// A colon in their words is part of a name: `rev:path`, `a::b`.
    colons: &'static str,
}

const OPEN: [DataSubcommands; 21] = [
    DataSubcommands {
        programs: "git",
        any: "add apply blame branch cat-file checkout check-ignore cherry-pick commit describe diff grep log ls-files
            ls-tree merge merge-base mv name-rev range-diff rebase reset restore revert rev-list rev-parse rm shortlog
            show show-ref status switch tag",
        named: "clone fetch ls-remote pull push",
        one: "",
        colons: "cat-file diff grep log ls-tree rev-parse show",
    },
    DataSubcommands {
        programs: "cargo",
        any: "b bench build c check clean clippy d doc fmt metadata nextest/list nextest/run pkgid t test tree",
        colons: "bench nextest/list nextest/run t test",
        named: "",
        one: "",
    },
    DataSubcommands { programs: "npm", any: "explain list ls why", one: "run run-script", named: "", colons: "" },
    DataSubcommands { programs: "pnpm", any: "list ls why", one: "run", named: "", colons: "" },
    any("yarn", "list why"),
    any("go", "build doc fmt list vet version"),
    any("pip", "check freeze list show"),
    any("uv", "pip/list pip/show tree"),
    any("gem", "contents list which"),
    any("bundle", "info list show"),
    any("rustup", "which"),
    any("hg", "add annotate cat diff files log st status"),
    any("svn", "add cat diff info log st status"),
    any("jj", "diff log show st status"),
    any("gh", "issue/list issue/view pr/checks pr/diff pr/list pr/view release/list release/view run/list run/view"),
    any("glab", "issue/list issue/view mr/list mr/view"),
    any("composer", "show validate"),
    any("apt dnf brew", "list"),
    any("terraform", "fmt validate"),
    any("7z", "e l t x"),
    any("openssl", "asn1parse base64 dgst verify x509"),
];

const fn any(programs: &'static str, any: &'static str) -> DataSubcommands {
    DataSubcommands { programs, any, named: "", one: "", colons: "" }
}

/// How many words after the program a pattern must name before it may leave others open; `None` if it may leave
/// none open. `words` are those between the program and the first wildcard, `open` is how many follow, if that is
/// known.
pub(super) fn named(program: &str, words: &[&str], open: Option<usize>) -> Option<usize> {
    if among("tar ar", program) {
        return words.first().filter(|letters| is_archiving(letters)).map(|_| 1);
    }
    let known = OPEN.iter().find(|known| among(known.programs, program))?;
    let behind = |names: &str| length(names, words);
    behind(known.any)
        .or_else(|| behind(known.named).map(|length| length + 1))
        .or_else(|| behind(known.one).filter(|length| words.len() == *length && open == Some(1)))
}

/// Whether a colon in the words after the subcommand is part of a name.
pub(super) fn has_colons(program: &str, words: &[&str]) -> bool {
    let known = OPEN.iter().find(|known| among(known.programs, program));
    known.is_some_and(|known| length(known.colons, words).is_some())
}

/// The number of words in the subcommand that they begin with, if it is listed.
fn length(names: &str, words: &[&str]) -> Option<usize> {
    match words {
        [first, ..] if lists(names, first) => Some(1),
        [first, second, ..] if lists(names, &format!("{first}/{second}")) => Some(2),
        _ => None,
    }
}

/// Letters of an archiver that introduce neither programs nor lists of options.
fn is_archiving(letters: &str) -> bool {
    letters.chars().all(|c| "-txcruvfzjJkpaO".contains(c))
}
