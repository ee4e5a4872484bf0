//! A snapshot of the autorun files in a folder. The difference of two snapshots shows what was added or changed in
//! between. For folders that agents change directly; for an overlay the diff tells it.
//!
//! Only names are matched. Targets of symlinks and of git configurations are not followed.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use tribune_contract::{AUTORUN_PATHS, Pattern, autorun_prefix};

use super::{WorkspaceError, resolve_beneath, unreadable};
use crate::dir_entries::{MAX_DIR_PATH_BYTES, MAX_ENTRIES, is_git_control_file, is_repository, read_entries};

/// Large folders of a repository that no program executes anything from.
const GIT_DATA_DIRS: [&str; 4] = ["objects", "refs", "logs", "lfs"];

/// The autorun files in a folder, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AutorunSnapshot(BTreeMap<PathBuf, FileStamp>);

/// What distinguishes one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    mode: u32,
    bytes: i64,
    changed: (i64, u64),
}

impl AutorunSnapshot {
    /// Scans a folder. What exceeds the bounds is left out.
    pub fn take(folder: &Path) -> Result<Self, WorkspaceError> {
        static PATTERNS: LazyLock<Vec<Pattern>> =
            LazyLock::new(|| AUTORUN_PATHS.iter().map(|path| Pattern::new(path)).collect());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| unreadable(folder, error))?;
        // The folder can itself be an autorun path, or be inside one.
        let above = PathBuf::from(autorun_prefix(folder).unwrap_or_default());
        let is_autorun =
            |path: &Path| PATTERNS.iter().any(|pattern| pattern.matches(&path.to_string_lossy()));
        let is_whole = above.ancestors().any(is_autorun);
        let (mut found, mut seen) = (BTreeMap::new(), 0);
        let mut folders = VecDeque::from([(PathBuf::new(), is_whole)]);
        while let Some((path, in_autorun_dir)) = folders.pop_front() {
            if seen > MAX_ENTRIES || path.as_os_str().as_bytes().len() > MAX_DIR_PATH_BYTES {
                break;
            }
            let folder = match resolve_beneath::open_folder(&root, &path) {
                Ok(folder) => folder,
                // It was removed meanwhile, or is not readable.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
                Err(error) => return Err(unreadable(path, error)),
            };
            let names = read_entries(&folder).map_err(|error| unreadable(&path, error))?;
            seen += names.len();
            let in_repository =
                is_repository(|wanted| names.iter().any(|entry| entry.name == wanted.as_bytes()));
            for entry in names {
                let name = OsStr::from_bytes(&entry.name);
                let own = path.join(name);
                let is_autorun = in_autorun_dir
                    || is_git_control_file(&entry, in_repository)
                    || is_autorun(&above.join(&own));
                match entry.kind {
                    FileType::Directory
                        if in_repository && GIT_DATA_DIRS.iter().any(|store| *store == name) => {}
                    FileType::Directory => folders.push_back((own, is_autorun)),
                    // Git's example hooks, which nothing executes.
                    _ if is_autorun && !entry.name.ends_with(b".sample") => {
                        if let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                            let changed = (stat.st_ctime, stat.st_ctime_nsec);
                            let stamp = FileStamp {
                                inode: stat.st_ino,
                                mode: stat.st_mode,
                                bytes: stat.st_size,
                                changed,
                            };
                            found.insert(own, stamp);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(Self(found))
    }

    /// Returns what was added or changed since `before`.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Path> {
        let is_new = |(path, stamp): &(&PathBuf, &FileStamp)| before.0.get(*path) != Some(*stamp);
        self.0.iter().filter(is_new).map(|(path, _)| path.as_path())
    }
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
