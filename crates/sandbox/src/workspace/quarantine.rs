//! Moves autorun files that a sandbox made in a folder of the host to names that no program executes or loads.
//!
//! They stay in their folder, so that a person finds them where they were made, and renames them if they are wanted.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{AutorunSnapshot, WorkspaceError, resolve_beneath, unreadable};

/// How many names are tried for one file. Each is taken by an earlier one of the same name.
const MAX_NAMES: usize = 1000;

/// What was found and moved at the end of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuarantineReport {
    /// The paths that were made, each with the name that it has now.
    pub moved: Vec<(PathBuf, String)>,
    /// The paths that were made and could not be moved, each with the reason.
    pub left: Vec<(PathBuf, String)>,
    /// Whether the folder has more entries than are examined.
    pub is_incomplete: bool,
}

impl QuarantineReport {
    /// Sentences for people, in a bounded number of words; none if nothing was made.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        const MAX_NAMED: usize = 16;
        let more = |count: usize| match count.saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let mut sentences = Vec::new();
        if !self.moved.is_empty() {
            let named = self.moved.iter().take(MAX_NAMED);
            let names: Vec<String> =
                named.map(|(path, name)| format!("`{}` is `{name}` now", path.display())).collect();
            sentences.push(format!(
                "quarantined, because programs of this machine execute or load files of these names: {}{}; rename what you want to keep",
                names.join(", "),
                more(self.moved.len())
            ));
        }
        if !self.left.is_empty() {
            let named = self.left.iter().take(MAX_NAMED);
            let names: Vec<String> =
                named.map(|(path, why)| format!("`{}` ({why})", path.display())).collect();
            sentences.push(format!(
                "autorun files that could not be quarantined: {}{}; remove them before anything else runs in this folder",
                names.join(", "),
                more(self.left.len())
            ));
        }
        if self.is_incomplete {
            sentences.push(
                "not all of the folder was searched for autorun files, because it has too many entries"
                    .to_owned(),
            );
        }
        sentences
    }
}

/// Moves the autorun files that were made in a folder since the snapshot. Call it when nothing of the sandbox runs any more.
pub fn quarantine(folder: &Path, before: &AutorunSnapshot) -> Result<QuarantineReport, WorkspaceError> {
    let now = AutorunSnapshot::take(folder)?;
    let mut report = QuarantineReport { is_incomplete: now.is_incomplete(), ..QuarantineReport::default() };
    let added = now.added_since(before);
    if added.is_empty() {
        return Ok(report);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| unreadable(folder, error))?;
    for path in added {
        match move_aside(&root, &path) {
            Ok(name) => report.moved.push((path, name)),
            // Another sandbox with this folder ended at the same time.
            Err(Errno::NOENT) => {}
            Err(error) => report.left.push((path, error.to_string())),
        }
    }
    Ok(report)
}

/// Quarantines what a sandbox makes in folders that it changes directly, at its end. Dropping the guard does so too: keep it
/// until everything inside has ended.
#[derive(Debug)]
pub struct AutorunGuard {
    before: Vec<(PathBuf, AutorunSnapshot)>,
    tell: fn(&str),
}

impl AutorunGuard {
    /// Takes snapshots of the folders before the sandbox starts. `tell` gets every sentence about what was found.
    pub fn new(folders: impl IntoIterator<Item = PathBuf>, tell: fn(&str)) -> Result<Self, WorkspaceError> {
        let snapshots = folders.into_iter().map(|folder| {
            let snapshot = AutorunSnapshot::take(&folder)?;
            Ok((folder, snapshot))
        });
        Ok(Self { before: snapshots.collect::<Result<_, _>>()?, tell })
    }

    /// Quarantines what was made. Returns what was found, in sentences.
    #[must_use]
    pub fn finish(mut self) -> Vec<String> {
        self.quarantine_all()
    }

    fn quarantine_all(&mut self) -> Vec<String> {
        let mut sentences = Vec::new();
        for (index, (folder, before)) in std::mem::take(&mut self.before).into_iter().enumerate() {
            let found = match quarantine(&folder, &before) {
                Ok(report) => report.sentences(),
                Err(error) => vec![format!("autorun files could not be looked for: {error}")],
            };
            let place = |sentence: String| match index {
                0 => sentence,
                _ => format!("in `{}`: {sentence}", folder.display()),
            };
            sentences.extend(found.into_iter().map(place));
        }
        sentences.iter().for_each(|sentence| (self.tell)(sentence));
        sentences
    }
}

impl Drop for AutorunGuard {
    fn drop(&mut self) {
        self.quarantine_all();
    }
}

/// Renames an entry within its folder. Returns its new name.
fn move_aside(root: &OwnedFd, path: &Path) -> rustix::io::Result<String> {
    let (parent, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    let folder = resolve_beneath::open(root, parent, OFlags::PATH | OFlags::DIRECTORY)?;
    // Folders that the program made unwritable are its own, and so this user's. A path descriptor allows no `fchmod`.
    let by_fd = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&folder)?.st_mode);
    let was_opened = !mode.contains(Mode::WUSR) && rustix::fs::chmod(&by_fd, mode | Mode::WUSR).is_ok();
    let renamed = (1..=MAX_NAMES)
        .map(|number| {
            let new = new_name(name, number);
            rustix::fs::renameat_with(&folder, name, &folder, &new, RenameFlags::NOREPLACE).map(|()| new)
        })
        .find(|renamed| !matches!(renamed, Err(Errno::EXIST)))
        .unwrap_or(Err(Errno::EXIST));
    if was_opened {
        rustix::fs::chmod(&by_fd, mode)?;
    }
    renamed.map(|name| name.to_string_lossy().into_owned())
}

/// A name that is in no pattern: patterns are whole names, or fix how a name begins or ends.
fn new_name(name: &OsStr, number: usize) -> OsString {
    const MAX_NAME_BYTES: usize = 200;
    let mut new = OsString::from("quarantined-");
    if name.len() <= MAX_NAME_BYTES {
        new.push(name);
        new.push("-");
    }
    new.push(number.to_string());
    new
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use tribune_contract::{AUTORUN_PATHS, Pattern};

    use super::*;

    fn put(folder: &Path, path: &str, text: &str) {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn moved(report: &QuarantineReport) -> Vec<(&str, &str)> {
        report.moved.iter().map(|(path, name)| (path.to_str().unwrap(), name.as_str())).collect()
    }

    #[test]
    fn autorun_files_that_were_made_are_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for path in [".git/HEAD", ".git/objects/x", ".git/config", ".vscode/settings.json", "src/a", "sub/a"]
        {
            put(folder, path, "before");
        }
        let before = AutorunSnapshot::take(folder).unwrap();
        for path in [
            ".gitmodules",
            ".idea/workspace.xml",
            ".git/modules/x/config",
            ".git/rebase-merge/git-rebase-todo",
            "sub/.envrc",
            ".husky/pre-commit",
            ".GIT/config",
            "src/b",
            "bare/HEAD",
            "bare/objects/x",
            "bare/hooks/update",
        ] {
            put(folder, path, "made");
        }
        put(folder, ".vscode/settings.json", "changed by a person");
        put(folder, ".vscode/tasks.json", "made");
        symlink("src", folder.join(".config")).unwrap();
        symlink("src", folder.join("plain-link")).unwrap();
        let report = quarantine(folder, &before).unwrap();
        assert_eq!(
            moved(&report),
            [
                (".GIT/config", "quarantined-config-1"),
                (".config", "quarantined-.config-1"),
                (".git/modules/x/config", "quarantined-config-1"),
                (".git/rebase-merge", "quarantined-rebase-merge-1"),
                (".gitmodules", "quarantined-.gitmodules-1"),
                (".husky", "quarantined-.husky-1"),
                (".idea", "quarantined-.idea-1"),
                (".vscode/tasks.json", "quarantined-tasks.json-1"),
                ("bare/hooks", "quarantined-hooks-1"),
                ("sub/.envrc", "quarantined-.envrc-1"),
            ]
        );
        assert_eq!((report.left.len(), report.sentences().len()), (0, 1));
        assert!(folder.join(".git/quarantined-rebase-merge-1/git-rebase-todo").exists());
        assert_eq!(fs::read_to_string(folder.join("src/b")).unwrap(), "made");
        let again = AutorunSnapshot::take(folder).unwrap();
        let new: Vec<&Path> = again.changed_since(&before).collect();
        let settings = [".vscode/quarantined-tasks.json-1", ".vscode/settings.json"].map(Path::new);
        assert_eq!(new, settings, "only what is in a folder that was there before");
        put(folder, ".gitmodules", "made again");
        assert_eq!(
            moved(&quarantine(folder, &again).unwrap()),
            [(".gitmodules", "quarantined-.gitmodules-2")]
        );
    }

    #[test]
    fn folders_that_cannot_be_listed_or_written_hide_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let before = AutorunSnapshot::take(folder.path()).unwrap();
        for (name, mode) in [("searchable", 0o111), ("fixed", 0o555)] {
            put(folder.path(), &format!("{name}/.envrc"), "made");
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(folder.path().join(name), mode).unwrap();
        }
        let report = quarantine(folder.path(), &before).unwrap();
        assert_eq!(moved(&report).len(), 2, "{report:?}");
        for (name, mode) in [("searchable", 0o111), ("fixed", 0o555)] {
            let path = folder.path().join(name);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
            assert!(!path.join(".envrc").exists() && path.join("quarantined-.envrc-1").exists());
        }
    }

    /// Every pattern, as a name of its own kind.
    #[test]
    fn new_names_are_in_no_pattern() {
        let patterns: Vec<Pattern> = AUTORUN_PATHS.iter().map(|path| Pattern::new(path)).collect();
        for path in AUTORUN_PATHS {
            let name = path.rsplit('/').next().unwrap_or_default();
            for name in [name.to_owned(), name.replace('*', "x"), name.replace('*', &"x".repeat(230))] {
                let new = new_name(name.as_ref(), 1).into_string().unwrap();
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent).replace("**", "a");
                let whole = format!("{parent}/{new}");
                assert!(
                    !patterns.iter().any(|pattern| pattern.matches(whole.trim_start_matches('/'))),
                    "{whole}"
                );
            }
        }
    }
}
