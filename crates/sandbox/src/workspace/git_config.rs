//! Finds what the configuration of a git repository points to: hooks, included files, and programs that it executes.
//!
//! The file is parsed as git does it. Everything in a value that could be a path counts as one, except for settings
//! that are known to contain none: the whole value and each of its words, because commands have several. Symlinks are
//! resolved by the caller.

use std::ffi::OsStr;
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum size of a configuration in bytes.
pub(super) const MAX_BYTES: u64 = 1024 * 1024;

/// Sections and settings whose values name neither a file nor a program.
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

/// A path that a configuration points to.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ConfigTarget {
    /// As written, with `.`, `..` and symlinks.
    pub(super) path: PathBuf,
    /// The hooks folder. Only there a path to the whole workspace counts, because words such as `.` occur in many
    /// commands.
    pub(super) is_hooks: bool,
}

/// Returns the paths that a configuration points to. `file` is its path in the workspace `root`; `home` is the
/// operator's home. `trees` are the work trees in which its programs run; the configuration can add one.
pub(super) fn config_targets(
    file: &Path,
    text: &[u8],
    root: &Path,
    home: Option<&Path>,
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
    // Included files are relative to the configuration, programs to the work tree.
    let around: Vec<&PathBuf> = [&folder].into_iter().chain(&*trees).collect();
    let mut targets = Vec::new();
    for (name, value) in &settings {
        // Settings that name the remote's programs have a remote as their section.
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

/// The substrings of a value that could be paths: the whole value, quoted parts, and each word.
fn candidate_paths(value: &[u8]) -> impl Iterator<Item = &Path> {
    let whole = [&b"!"[..], b":(optional)"].into_iter().find_map(|mark| value.strip_prefix(mark));
    let quoted = value.split(|byte| b"\"'`".contains(byte));
    let words = value.split(|byte| byte.is_ascii_whitespace() || b"\"'!;&|(){}<>`$=,".contains(byte));
    let all = whole.into_iter().chain([value]).chain(quoted).chain(words);
    all.filter(|word| !word.is_empty()).map(|word| Path::new(OsStr::from_bytes(word)))
}

/// The workspace paths that an absolute path or one from a home may lead to. `~` is the operator's home. Because it can
/// be another user's, and folders have several names, every path that contains the workspace's own name also counts as
/// one into the workspace.
fn workspace_candidates(word: &Path, root: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let mut parts = word.components();
    let first = parts.next().map(|part| part.as_os_str().as_bytes()).unwrap_or_default();
    // `$HOME` without its sign, as the word splitting leaves it.
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

/// Parses settings: names in lowercase without subsections, and their values.
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

/// Parses a section header in lowercase. A quoted subsection can contain `]`.
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

/// Parses a value to the end of its line, without comments and surrounding blanks, with quotes and escapes resolved.
fn parse_value(bytes: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    let (mut value, mut is_quoted, mut is_comment) = (Vec::new(), false, false);
    // The end of the last non-blank character.
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
                // A CRLF line end.
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
            root,
            Some("/home".as_ref()),
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
    fn paths_in_settings_are_found() {
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
    fn settings_without_paths_are_ignored() {
        let usual = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = https://x/src\n\
                     [branch \"main\"]\n\tremote = origin\n[user]\n\tname = src\n[core]\n# hooksPath = a\n";
        assert_eq!(resolved_targets(usual), [] as [String; 0]);
        assert_eq!(resolved_targets("[core]\n\thooksPath = /etc/hooks\n"), [] as [String; 0]);
        assert!(!resolved_targets("[alias]\n\there = !ls ..\n").contains(&String::new()));
        assert!(
            !resolved_targets("[core]\n\thooksPath = ~/hooks\n").contains(&"hooks".to_owned()),
            "the home contains the workspace"
        );
        // The hooks folder contains everything, so everything may be a hook.
        assert_eq!(resolved_targets("[core]\n\thooksPath = ..\n"), [""]);
    }
}
