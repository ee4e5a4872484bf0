//! What the configuration of a git repository leads to: hooks kept elsewhere, files that it includes, programs that it runs.
//!
//! It is read loosely. What could be a path in a value counts as one, but for settings that are known to lead nowhere.

use std::path::{Component, Path, PathBuf};

/// Bytes of a file that are looked at. One that is longer is no configuration that a person wrote.
pub(super) const MAX_BYTES: u64 = 1024 * 1024;

/// Sections and settings that name neither a file nor a program; what others do with their values is not for files.
const HARMLESS: [&str; 18] = [
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

/// Where a configuration leads, from the root of the workspace. `file` is its own path there.
pub(super) fn leads_to(file: &Path, text: &[u8], root: &Path) -> Vec<PathBuf> {
    let text = String::from_utf8_lossy(text);
    let settings = settings(&text);
    let folder = root.join(file.parent().unwrap_or(Path::new("")));
    // What it includes is looked for beside it; what it runs, in the work tree, which is around a `.git` or named.
    let mut around = vec![folder.clone()];
    around.extend(folder.parent().map(Path::to_owned));
    let named = settings.iter().filter(|(name, _)| name == "core.worktree");
    around.extend(named.map(|(_, value)| folder.join(value.trim_matches('"'))));
    let mut led = Vec::new();
    for (name, value) in &settings {
        // Programs of a remote are named by the setting and not by its section.
        let is_program = name.ends_with("pack") || name.ends_with(".vcs");
        if HARMLESS.iter().any(|known| name.starts_with(known)) && !is_program {
            continue;
        }
        for word in value.split(|c: char| c.is_whitespace() || "\"'!;&|()<>`$=,".contains(c)) {
            let word = word.trim_end_matches('/');
            if word.is_empty() {
                continue;
            }
            let found = around.iter().filter_map(|folder| within(root, &folder.join(word)));
            // Words such as `.` are in many commands, and name all of the workspace only as the place of the hooks.
            led.extend(found.filter(|found| !found.as_os_str().is_empty() || name == "core.hookspath"));
        }
    }
    led.sort();
    led.dedup();
    led
}

/// Names of settings in lowercase, without the names of subsections, and their values.
fn settings(text: &str) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut section = String::new();
    for line in joined(text) {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let mut setting = line;
        if let Some((head, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            section = head.split([' ', '\t', '"']).next().unwrap_or_default().to_lowercase();
            setting = rest.trim();
        }
        let Some((name, value)) = setting.split_once('=') else { continue };
        settings.push((format!("{section}.{}", name.trim().to_lowercase()), value.trim().to_owned()));
    }
    settings
}

/// Lines, those that end with a backslash together with the next.
fn joined(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(part),
            None => lines.push(part.to_owned()),
        }
        goes_on = more;
    }
    lines
}

/// A path without `.` and `..`, from the root of the workspace. None if it is not in it.
fn within(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain.strip_prefix(root).ok().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(text: &str) -> Vec<String> {
        let led = leads_to(".git/config".as_ref(), text.as_bytes(), "/home/p".as_ref());
        led.iter().map(|path| path.display().to_string()).collect()
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
        ] {
            assert!(led(text).contains(&expected.to_owned()), "{text}: {:?}", led(text));
        }
    }

    #[test]
    fn what_leads_nowhere_marks_nothing() {
        let usual = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n[remote \"origin\"]\n\turl = https://x/src\n\
                     [branch \"main\"]\n\tremote = origin\n[user]\n\tname = src\n[core]\n# hooksPath = a\n";
        assert_eq!(led(usual), [] as [String; 0]);
        assert_eq!(led("[core]\n\thooksPath = /etc/hooks\n"), [] as [String; 0]);
        assert!(!led("[alias]\n\there = !ls ..\n").contains(&String::new()));
        // Hooks beside everything else: then everything may be one.
        assert_eq!(led("[core]\n\thooksPath = ..\n"), [""]);
    }
}
