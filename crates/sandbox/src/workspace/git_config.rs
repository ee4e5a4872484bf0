//! What the configuration of a git repository leads to: hooks kept elsewhere, files that it includes, programs that it runs.
//!
//! Settings are told apart as git does it. What could be a path in a value counts as one, but for settings that are known to
//! lead nowhere: all of the value, and each of its words, because a command has several. Where links lead is for others to say.

use std::ffi::OsStr;
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a file that are looked at. One that is longer is no configuration that a person wrote.
pub(super) const MAX_BYTES: u64 = 1024 * 1024;

/// Sections and settings that name neither a file nor a program; what others do with their values is not for files.
const NO_PATH_SETTINGS: [&str; 18] = [
    "branch.",
    "color.",
    "core.autocrlf",
    "core.bare",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.quotepath",
    "core.repositoryformatversion",
    "core.symlinks",
    "core.worktree",
    "extensions.",
    "pull.",
    "push.",
    "remote.",
    "user.",
];

/// Where a configuration leads.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConfigTarget {
    /// With `.`, `..` and links, as it was written.
    pub(super) path: PathBuf,
    /// It is the place of the hooks. Words such as `.` are in many commands, and name all of the workspace only here.
    pub(super) is_hooks: bool,
}

/// Where a configuration leads. `file` is its own path in the workspace `root`; `home` is the operator's. `trees` are the work
/// trees in which its programs run, to which it may add.
pub(super) fn config_targets(
    file: &Path,
    text: &[u8],
    (root, home): (&Path, Option<&Path>),
    trees: &mut Vec<PathBuf>,
) -> Vec<ConfigTarget> {
    let settings = parse_settings(text);
    let folder = root.join(file.parent().unwrap_or(Path::new("")));
    for (_, value) in settings.iter().filter(|(name, _)| name == "core.worktree") {
        let named = folder.join(OsStr::from_bytes(value));
        if !trees.contains(&named) {
            trees.push(named);
        }
    }
    // What it includes is looked for beside it; what it runs, in the work tree.
    let around: Vec<&PathBuf> = [&folder].into_iter().chain(&*trees).collect();
    let mut targets = Vec::new();
    for (name, value) in &settings {
        // Programs of a remote are named by the setting and not by its section.
        let is_program = name.ends_with("pack") || name.ends_with(".vcs");
        if NO_PATH_SETTINGS.iter().any(|known| name.starts_with(known)) && !is_program {
            continue;
        }
        let is_hooks = name == "core.hookspath";
        for word in candidate_paths(value) {
            let found =
                around.iter().map(|folder| folder.join(word)).chain(workspace_candidates(word, root, home));
            targets.extend(found.map(|path| ConfigTarget { path, is_hooks }));
        }
    }
    targets.sort();
    targets.dedup();
    targets
}

/// What could be a path in a value: all of it, what stands in quotes, and each word.
fn candidate_paths(value: &[u8]) -> impl Iterator<Item = &Path> {
    let whole = [&b"!"[..], b":(optional)"].into_iter().find_map(|mark| value.strip_prefix(mark));
    let quoted = value.split(|byte| b"\"'`".contains(byte));
    let words = value.split(|byte| byte.is_ascii_whitespace() || b"\"'!;&|(){}<>`$=,".contains(byte));
    let all = whole.into_iter().chain([value]).chain(quoted).chain(words);
    all.filter(|word| !word.is_empty()).map(|word| Path::new(OsStr::from_bytes(word)))
}

/// Where a path from the top or from a home leads, if its own words do not say that it is in the workspace. Home is the
/// operator's; and because it may be somebody else's, and folders have several names, a path with the workspace's own name in
/// it counts as one that leads there.
fn workspace_candidates(word: &Path, root: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut parts = word.components();
    let first = parts.next().map(|part| part.as_os_str().as_bytes()).unwrap_or_default();
    // What a shell makes of `$HOME` is a word without its sign here.
    let is_home = first == b"~" || first == b"HOME";
    if !is_home && !first.starts_with(b"~") && first != b"/" {
        return Vec::new();
    }
    let mut targets: Vec<PathBuf> =
        home.filter(|_| is_home).map(|home| home.join(&parts)).into_iter().collect();
    while let Some(part) = parts.next() {
        if Some(part.as_os_str()) == root.file_name() {
            targets.push(root.join(&parts));
        }
    }
    targets
}

/// Names of settings in lowercase, without the names of subsections, and their values.
fn parse_settings(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut settings = Vec::new();
    let mut section = String::new();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            _ if byte.is_ascii_whitespace() => {}
            b'[' => section = section_name(&mut bytes),
            b'#' | b';' => drop(bytes.by_ref().find(|byte| *byte == b'\n')),
            _ => {
                let mut name = vec![byte];
                while let Some(byte) = bytes.next_if(|byte| !b"=\n".contains(byte)) {
                    name.push(byte);
                }
                if bytes.next() == Some(b'=') {
                    let name = String::from_utf8_lossy(&name).trim().to_lowercase();
                    settings.push((format!("{section}.{name}"), parse_value(&mut bytes)));
                }
            }
        }
    }
    settings
}

/// The name of a section, in lowercase. Its subsection may hold what ends it elsewhere.
fn section_name(bytes: &mut Peekable<impl Iterator<Item = u8>>) -> String {
    let mut name = Vec::new();
    let (mut is_quoted, mut is_over) = (false, false);
    while let Some(byte) = bytes.next_if(|byte| *byte != b'\n') {
        match byte {
            b']' if !is_quoted => break,
            b'\\' if is_quoted => drop(bytes.next_if(|byte| *byte != b'\n')),
            b'"' => (is_quoted, is_over) = (!is_quoted, true),
            _ => is_over |= byte.is_ascii_whitespace(),
        }
        if !is_over {
            name.push(byte);
        }
    }
    String::from_utf8_lossy(&name).to_lowercase()
}

/// A value up to the end of its line: without comment and blanks around it, quotes and escapes undone.
fn parse_value(bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    let (mut value, mut is_quoted, mut is_comment) = (Vec::new(), false, false);
    // Behind the last that is no blank.
    let mut end = 0;
    while let Some(byte) = bytes.next().filter(|byte| *byte != b'\n') {
        if is_comment || byte.is_ascii_whitespace() && !is_quoted && value.is_empty() {
            continue;
        }
        match byte {
            b'#' | b';' if !is_quoted => is_comment = true,
            b'"' => is_quoted = !is_quoted,
            b'\\' => match bytes.next() {
                None | Some(b'\n') => {}
                // At the end of a line of another system.
                Some(b'\r') => drop(bytes.next()),
                Some(b't') => value.push(b'\t'),
                Some(b'b') => value.push(8),
                Some(b'n') => value.push(b'\n'),
                Some(other) => value.push(other),
            },
            _ => value.push(byte),
        }
        if is_quoted || !is_comment && !byte.is_ascii_whitespace() {
            end = value.len();
        }
    }
    value.truncate(end);
    value
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::symlink_paths::{Links, PathTracer};
    use super::*;

    fn resolved_targets(text: &str) -> Vec<String> {
        let root = Path::new("/home/p");
        let targets = config_targets(
            ".git/config".as_ref(),
            text.as_bytes(),
            (root, Some("/home".as_ref())),
            &mut vec![root.to_owned()],
        );
        let mut tracer = PathTracer::new(root, Links::new(), &[]);
        let ends = targets.into_iter().flat_map(|targets| {
            let ends = tracer.follow(Path::new(""), &targets.path).unwrap().ends;
            ends.into_iter().filter(move |end| targets.is_hooks || !end.as_os_str().is_empty())
        });
        let ends: BTreeSet<String> = ends.map(|path| path.display().to_string()).collect();
        ends.into_iter().collect()
    }

    #[test]
    fn what_git_runs_or_reads_is_found_wherever_it_is() {
        for (text, expected) in [
            ("[core]\n\thooksPath = .githooks\n", ".githooks"),
            ("[CORE]\nHOOKSPATH=.githooks/\n", ".githooks"),
            ("[core] hooksPath = \"tools/hooks\"\n", "tools/hooks"),
            ("[core]\n\thooksPath = /home/p/x/hooks\n", "x/hooks"),
            ("[core]\n\thooksPath = tools/../y\n", "y"),
            ("[include]\n\tpath = ../.gitconfig-team\n", ".gitconfig-team"),
            ("[includeIf \"gitdir:/home/p/\"]\n\tpath = team.cfg\n", ".git/team.cfg"),
            ("[core]\n\tfsmonitor = sh tools/watch.sh\n", "tools/watch.sh"),
            ("[filter \"lfs\"]\n\tsmudge = ./bin/smudge %f\n", "bin/smudge"),
            ("[alias]\n\tup = !tools/up.sh && true\n", "tools/up.sh"),
            ("[alias]\n\tup = \"!f() { tools/up.sh; }; f\"\n", "tools/up.sh"),
            ("[core]\n\tsshCommand = ssh -F \\\n conf/ssh\n", "conf/ssh"),
            ("[core]\n\tworktree = ../lib\n\thooksPath = hooks\n", "lib/hooks"),
            ("[remote \"o\"]\n\tuploadpack = tools/pack\n", "tools/pack"),
            ("[core]\n\thooksPath = my hooks\n", "my hooks"),
            ("[core]\n\thooksPath = \" my\\t\\\\ hooks\" # x\n", " my\t\\ hooks"),
            ("[core]\n\thooksPath = my\" hooks;\";x\n", "my hooks;"),
            ("[core]\r\n\thooksPath = hooks \r\n", "hooks"),
            ("[core]\n\thooksPath = a\\\\\n\tpager = less\n", "a\\"),
            ("[core]\n; not on \\\n\thooksPath = a b # nor here \\\n", "a b"),
            ("\u{feff}[x \"]\\\"]\"] y = z\n[core] hooksPath = a", "a"),
            ("[alias]\n\tup = \"!'my tools/up.sh' now\"\n", "my tools/up.sh"),
            ("[core]\n\thooksPath = ~/p/my hooks\n", "my hooks"),
            ("[core]\n\thooksPath = ~/other/../p/hooks\n", "hooks"),
            ("[core]\n\thooksPath = ~me/p/hooks\n", "hooks"),
            ("[core]\n\thooksPath = /data/homes/me/p/hooks\n", "hooks"),
            ("[alias]\n\tup = !$HOME/p/up.sh\n", "up.sh"),
        ] {
            assert!(
                resolved_targets(text).contains(&expected.to_owned()),
                "{text}: {:?}",
                resolved_targets(text)
            );
        }
    }

    #[test]
    fn what_leads_nowhere_marks_nothing() {
        let usual = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = https://x/src\n\
                     [branch \"main\"]\n\tremote = origin\n[user]\n\tname = src\n[core]\n# hooksPath = a\n";
        assert_eq!(resolved_targets(usual), [] as [String; 0]);
        assert_eq!(resolved_targets("[core]\n\thooksPath = /etc/hooks\n"), [] as [String; 0]);
        assert!(!resolved_targets("[alias]\n\there = !ls ..\n").contains(&String::new()));
        assert!(
            !resolved_targets("[core]\n\thooksPath = ~/hooks\n").contains(&"hooks".to_owned()),
            "home is around it"
        );
        // Hooks beside everything else: then everything may be one.
        assert_eq!(resolved_targets("[core]\n\thooksPath = ..\n"), [""]);
    }
}
