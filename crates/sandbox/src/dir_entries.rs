//! Reads the entries of folders whose names an agent chose, within bounds.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType};

/// Maximum number of entries examined in one workspace. What comes after them counts as the worst case.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;

/// Maximum length of a folder's path: the kernel allows 4095 bytes including a name of 255. What is deeper counts as
/// the worst case.
pub(crate) const MAX_DIR_PATH_BYTES: usize = 4095 - 256;

/// One entry of a folder.
pub(crate) struct DirEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: FileType,
}

pub(crate) fn read_entries(folder: &OwnedFd) -> rustix::io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes().to_vec();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Not every file system reports the type here.
            FileType::Unknown => {
                match rustix::fs::statat(folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => continue,
                }
            }
            kind => kind,
        };
        entries.push(DirEntry { name, kind });
    }
    Ok(entries)
}

/// What git executes in a repository's folder, and the files through which it finds more: settings, hooks, other folders,
/// and the state with which an interrupted rebase, `am` or cherry-pick continues.
const GIT_CONTROL_FILES: [&str; 8] = [
    "config",
    "config.worktree",
    "hooks",
    "commondir",
    "gitdir",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];

/// Returns whether git finds what it executes through this entry: one of [`GIT_CONTROL_FILES`] in a repository's folder,
/// whatever its name, or a `.git` that points to another folder.
pub(crate) fn is_git_control_file(entry: &DirEntry, in_repository: bool) -> bool {
    let is = |name: &str| entry.name.eq_ignore_ascii_case(name.as_bytes());
    in_repository && GIT_CONTROL_FILES.iter().any(|part| is(part))
        || is(".git") && entry.kind != FileType::Directory
}

/// Returns whether git treats a folder with these entries as a repository. The folder's name does not matter.
pub(crate) fn is_repository(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("objects") || has("commondir"))
}
