//! The names in a folder that somebody else filled, and how many of them are looked at.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType};

/// Names of one workspace that are looked at. What comes after them is taken for the worst.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;

/// Bytes of a folder's path: the kernel takes 4095 with a name of 255 behind it. What is deeper is taken for the worst.
pub(crate) const MAX_DIR_PATH_BYTES: usize = 4095 - 256;

/// One name in a folder.
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
            // Not every file system says it here.
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

/// What in a repository's folder leads git to what it runs.
const GIT_PARTS: [&str; 5] = ["config", "config.worktree", "hooks", "commondir", "gitdir"];

/// Whether git finds what it runs by this name: in a repository's folder, whatever that is called, or as a `.git` that
/// names another folder.
pub(crate) fn is_git_control_file(entry: &DirEntry, in_repository: bool) -> bool {
    let is = |name: &str| entry.name.eq_ignore_ascii_case(name.as_bytes());
    in_repository && GIT_PARTS.iter().any(|part| is(part)) || is(".git") && entry.kind != FileType::Directory
}

/// Whether git takes a folder with these names for a repository, whatever it is called.
pub(crate) fn is_repository(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("objects") || has("commondir"))
}
