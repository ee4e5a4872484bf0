//! What programs of the host obey in a folder as it stands, so that somebody who looks twice knows what came or was changed in
//! between. For folders that agents change at once; what lies on a layer is told by its diff.
//!
//! Names alone are looked at. What a link or a configuration leads to is not followed.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use tribune_contract::{HOST_TRAPS, Pattern, autorun_prefix};

use super::{WorkspaceError, resolve_beneath, unreadable};
use crate::dir_entries::{MAX_DIR_PATH_BYTES, MAX_ENTRIES, is_git_control_file, is_repository, read_entries};

/// What of a repository is large, and obeyed by nobody.
const GIT_DATA_DIRS: [&str; 4] = ["objects", "refs", "logs", "lfs"];

/// What is obeyed in a folder, by its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing(BTreeMap<PathBuf, FileStamp>);

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    mode: u32,
    bytes: i64,
    changed: (i64, u64),
}

impl Standing {
    /// Looks through a folder. What is too much or too deep to look at is left out.
    pub fn of(folder: &Path) -> Result<Self, WorkspaceError> {
        static PATTERNS: LazyLock<Vec<Pattern>> =
            LazyLock::new(|| HOST_TRAPS.iter().map(|path| Pattern::new(path)).collect());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| unreadable(folder, error))?;
        // The folder may itself be one that is obeyed, or be in one.
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
                // It went meanwhile, or is closed.
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
                    // Git's own examples, which nothing runs.
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

    /// What is here and was not before, or not so.
    pub fn since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a Path> {
        let is_new = |(path, stamp): &(&PathBuf, &FileStamp)| before.0.get(*path) != Some(*stamp);
        self.0.iter().filter(is_new).map(|(path, _)| path.as_path())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_comes_or_is_changed_under_an_obeyed_name_is_told() {
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
        let before = Standing::of(folder.path()).unwrap();
        let told = || -> Vec<String> {
            let now = Standing::of(folder.path()).unwrap();
            now.since(&before).map(|path| path.display().to_string()).collect()
        };
        assert_eq!(told(), Vec::<String>::new());
        put("src/main.rs", "fn main() { }");
        put(".git/objects/aa/cc", "x");
        put(".git/index", "x");
        put(".git/hooks/pre-push.sample", "x");
        assert_eq!(told(), Vec::<String>::new(), "nothing obeys these");
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
        assert_eq!(told(), all);
    }

    /// A folder that is itself such a name, or is in one.
    #[test]
    fn the_names_of_the_folder_itself_count() {
        let place = tempfile::tempdir().unwrap();
        for (folder, told, untold) in [
            (".vscode", "tasks.json", None),
            (".git/hooks", "pre-commit", Some("pre-commit.sample")),
            (".cargo", "config.toml", Some("credentials.toml")),
            (".config", "fish/config.fish", Some("notes.txt")),
            ("plain", ".envrc", Some("tasks.json")),
        ] {
            let folder = place.path().join(folder);
            fs::create_dir_all(folder.join("fish")).unwrap();
            let before = Standing::of(&folder).unwrap();
            for name in [Some(told), untold].into_iter().flatten() {
                fs::write(folder.join(name), "x").unwrap();
            }
            let now = Standing::of(&folder).unwrap();
            assert_eq!(now.since(&before).collect::<Vec<_>>(), [Path::new(told)], "{}", folder.display());
        }
    }
}
