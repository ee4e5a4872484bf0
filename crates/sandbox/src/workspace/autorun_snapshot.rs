//! A snapshot of the autorun files in a folder. The difference of two snapshots shows what was added or changed in
//! between. For folders that agents change directly; for an overlay the diff tells it.
//!
//! Only names are matched. Targets of symlinks and of git configurations are not followed; a symlink whose path is the
//! beginning of a pattern counts itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tribune_contract::{PatternProgress, autorun_patterns, autorun_prefix};

use super::{WorkspaceError, resolve_beneath, unreadable};
use crate::dir_entries::{
    DirEntry, MAX_DIR_PATH_BYTES, MAX_ENTRIES, is_git_control_file, is_repository, read_entries,
};

/// Large folders of a repository that no program executes anything from.
const GIT_DATA_DIRS: [&str; 4] = ["objects", "refs", "logs", "lfs"];

/// The autorun files in a folder, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutorunSnapshot {
    files: BTreeMap<PathBuf, AutorunFile>,
    is_incomplete: bool,
}

/// A file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AutorunFile {
    stamp: FileStamp,
    /// The outermost folder above it that is an autorun path, or the file itself.
    root: PathBuf,
}

/// What distinguishes one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    mode: u32,
    bytes: i64,
    changed: (i64, u64),
}

/// A folder to scan.
struct SnapshotDir {
    path: PathBuf,
    /// The progress of its path in the patterns.
    progress: PatternProgress,
    /// The outermost autorun path that it is in.
    root: Option<PathBuf>,
}

impl AutorunSnapshot {
    /// Scans a folder. What exceeds the bounds is left out, and [`Self::is_incomplete`] says so.
    pub fn take(folder: &Path) -> Result<Self, WorkspaceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| unreadable(folder, error))?;
        // The folder can itself be an autorun path, or be inside one.
        let above = PathBuf::from(autorun_prefix(folder).unwrap_or_default());
        let mut start =
            SnapshotDir { path: PathBuf::new(), progress: autorun_patterns().start(), root: None };
        for part in above.components() {
            let name = part.as_os_str().to_string_lossy();
            start.root =
                start.root.or_else(|| autorun_patterns().matches(&start.progress, &name).then(PathBuf::new));
            start.progress = autorun_patterns().step(&start.progress, &name);
        }
        let (mut snapshot, mut seen) = (Self::default(), 0);
        let mut folders = VecDeque::from([start]);
        while let Some(dir) = folders.pop_front() {
            if seen > MAX_ENTRIES || dir.path.as_os_str().as_bytes().len() > MAX_DIR_PATH_BYTES {
                snapshot.is_incomplete = true;
                break;
            }
            let Some((folder, names)) = list(&root, &dir.path)? else { continue };
            seen += names.len();
            folders.extend(snapshot.add_entries(&folder, &dir, &names));
        }
        Ok(snapshot)
    }

    /// Adds the autorun files of a folder. Returns its subfolders.
    fn add_entries(&mut self, folder: &OwnedFd, dir: &SnapshotDir, names: &[DirEntry]) -> Vec<SnapshotDir> {
        let patterns = autorun_patterns();
        let in_repository = is_repository(|wanted| names.iter().any(|entry| entry.name == wanted.as_bytes()));
        let mut inner = Vec::new();
        for entry in names {
            let (name, text) = (OsStr::from_bytes(&entry.name), String::from_utf8_lossy(&entry.name));
            let path = dir.path.join(name);
            let is_autorun = is_git_control_file(entry, in_repository)
                || patterns.matches(&dir.progress, &text)
                // A symlink that begins a pattern leads to the rest of it under another path.
                || entry.kind == FileType::Symlink
                    && !patterns.step(&dir.progress, &text).beyond(&patterns.start()).is_empty();
            let root = dir.root.clone().or_else(|| is_autorun.then(|| path.clone()));
            match entry.kind {
                FileType::Directory if in_repository && GIT_DATA_DIRS.iter().any(|store| *store == name) => {}
                FileType::Directory => {
                    let progress = patterns.step(&dir.progress, &text);
                    inner.push(SnapshotDir { path, progress, root });
                }
                // Git's example hooks, which nothing executes.
                _ if entry.name.ends_with(b".sample") => {}
                _ => {
                    let Some(root) = root else { continue };
                    let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
                        continue;
                    };
                    let changed = (stat.st_ctime, stat.st_ctime_nsec);
                    let stamp =
                        FileStamp { inode: stat.st_ino, mode: stat.st_mode, bytes: stat.st_size, changed };
                    self.files.insert(path, AutorunFile { stamp, root });
                }
            }
        }
        inner
    }

    /// Whether the folder has more entries than are examined.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Returns what was added or changed since `before`.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Path> {
        let is_new = |(path, file): &(&PathBuf, &AutorunFile)| {
            before.files.get(*path).map(|before| before.stamp) != Some(file.stamp)
        };
        self.files.iter().filter(is_new).map(|(path, _)| path.as_path())
    }

    /// Returns the paths that were added since `before`, whole folders instead of their content where nothing of them was
    /// there before.
    pub(super) fn added_since(&self, before: &Self) -> BTreeSet<PathBuf> {
        let roots: BTreeSet<&Path> = before.files.values().map(|file| file.root.as_path()).collect();
        let added = self.files.iter().filter(|(path, _)| !before.files.contains_key(*path));
        let place = |(path, file): (&PathBuf, &AutorunFile)| {
            let is_whole = !file.root.as_os_str().is_empty() && !roots.contains(file.root.as_path());
            if is_whole { file.root.clone() } else { path.clone() }
        };
        added.map(place).collect()
    }
}

/// Lists a folder. Returns `None` if it was removed meanwhile, or if this user can neither list nor search it: then nothing
/// that runs as this user finds a file in it.
fn list(root: &OwnedFd, path: &Path) -> Result<Option<(OwnedFd, Vec<DirEntry>)>, WorkspaceError> {
    let folder = match resolve_beneath::open_folder(root, path) {
        Err(Errno::ACCESS) => open_unlisted(root, path),
        folder => folder,
    };
    let folder = match folder {
        Ok(folder) => folder,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => return Ok(None),
        Err(error) => return Err(unreadable(path, error)),
    };
    let names = read_entries(&folder).map_err(|error| unreadable(path, error))?;
    Ok(Some((folder, names)))
}

/// Opens a folder of this user that its mode allows to search and not to list: names in it are found by who knows them. Its
/// mode is changed for the moment of opening.
fn open_unlisted(root: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let held = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&held)?.st_mode);
    if !mode.contains(Mode::XUSR) {
        return Err(Errno::ACCESS);
    }
    // A path descriptor allows no `fchmod`.
    let by_fd = format!("/proc/self/fd/{}", held.as_raw_fd());
    rustix::fs::chmod(&by_fd, mode | Mode::RUSR)?;
    let opened = resolve_beneath::open_folder(root, path);
    rustix::fs::chmod(&by_fd, mode)?;
    opened
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn added_and_changed_autorun_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(".git/HEAD", "ref: x");
        put(".git/objects/aa/bb", "x");
        put(".git/config", "[core]");
        put(".vscode/settings.json", "{}");
        put("src/main.rs", "fn main() {}");
        let before = AutorunSnapshot::take(folder.path()).unwrap();
        let changed = || -> Vec<String> {
            let now = AutorunSnapshot::take(folder.path()).unwrap();
            now.changed_since(&before).map(|path| path.display().to_string()).collect()
        };
        assert_eq!(changed(), Vec::<String>::new());
        put("src/main.rs", "fn main() { }");
        put(".git/objects/aa/cc", "x");
        put(".git/index", "x");
        put(".git/hooks/pre-push.sample", "x");
        assert_eq!(changed(), Vec::<String>::new(), "no program executes these");
        put("sub/.envrc", "x");
        put(".vscode/tasks.json", "{}");
        put(".vscode/settings.json", "{ }");
        put(".git/hooks/pre-commit", "x");
        put("bare.git/HEAD", "x");
        put("bare.git/objects/x", "x");
        put("bare.git/hooks/update", "x");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join(".bashrc")).unwrap();
        let all = [
            ".bashrc",
            ".git/hooks/pre-commit",
            ".vscode/settings.json",
            ".vscode/tasks.json",
            "bare.git/hooks/update",
            "sub/.envrc",
        ];
        assert_eq!(changed(), all);
    }

    /// A folder that is itself an autorun path, or is inside one.
    #[test]
    fn folder_inside_an_autorun_path_is_recognised() {
        let place = tempfile::tempdir().unwrap();
        for (folder, reported, ignored) in [
            (".vscode", "tasks.json", None),
            (".git/hooks", "pre-commit", Some("pre-commit.sample")),
            (".cargo", "config.toml", Some("credentials.toml")),
            (".config", "fish/config.fish", Some("notes.txt")),
            ("plain", ".envrc", Some("tasks.json")),
        ] {
            let folder = place.path().join(folder);
            fs::create_dir_all(folder.join("fish")).unwrap();
            let before = AutorunSnapshot::take(&folder).unwrap();
            for name in [Some(reported), ignored].into_iter().flatten() {
                fs::write(folder.join(name), "x").unwrap();
            }
            let now = AutorunSnapshot::take(&folder).unwrap();
            assert_eq!(
                now.changed_since(&before).collect::<Vec<_>>(),
                [Path::new(reported)],
                "{}",
                folder.display()
            );
        }
    }
}
