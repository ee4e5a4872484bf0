//! The type and metadata of a file system entry.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::resolve_beneath;

/// Bytes compared at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// An entry of a workspace. `mode` has the nine permission bits only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    File {
        mode: u32,
        bytes: u64,
    },
    Folder {
        mode: u32,
    },
    Symlink {
        to: PathBuf,
    },
    /// A pipe, socket or device. It is shown, but never landed.
    Other,
}

/// An entry with its metadata.
#[derive(Debug, Clone)]
pub(super) struct NodeStat {
    pub(super) node: Node,
    pub(super) stat: Stat,
}

impl NodeStat {
    /// Reads the entry of a folder, if it exists.
    pub(super) fn in_folder(folder: &OwnedFd, name: &Path) -> rustix::io::Result<Option<Self>> {
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mode = stat.st_mode & 0o777;
        let node = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Node::File { mode, bytes: stat.st_size.cast_unsigned() },
            FileType::Directory => Node::Folder { mode },
            FileType::Symlink => {
                let to = rustix::fs::readlinkat(folder, name, Vec::new())?;
                Node::Symlink { to: OsString::from_vec(to.into_bytes()).into() }
            }
            _ => Node::Other,
        };
        Ok(Some(Self { node, stat }))
    }

    /// Reads the entry at a path beneath a folder without following symlinks, if it exists.
    pub(super) fn beneath(root: &OwnedFd, path: &Path) -> rustix::io::Result<Option<Self>> {
        let parent = match resolve_beneath::open_folder(root, path.parent().unwrap_or(Path::new(""))) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            parent => parent?,
        };
        Self::in_folder(&parent, path.file_name().map_or(Path::new("."), Path::new))
    }

    /// Returns whether this is an overlay whiteout, which marks a removed entry.
    pub(super) fn is_whiteout(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::CharacterDevice && self.stat.st_rdev == 0
    }

    /// Returns whether this is a file with a set-user-id or set-group-id bit.
    pub(super) fn sets_id(&self) -> bool {
        matches!(self.node, Node::File { .. }) && self.stat.st_mode & 0o6000 != 0
    }

    /// The change time in nanoseconds, which programs cannot set.
    pub(super) fn changed_at(&self) -> i128 {
        i128::from(self.stat.st_ctime) * 1_000_000_000 + i128::from(self.stat.st_ctime_nsec)
    }
}

/// Returns whether the regular files with this name in two folders have the same content.
pub(super) fn same_content(left: &OwnedFd, right: &OwnedFd, name: &Path) -> std::io::Result<bool> {
    let open = |folder, path| {
        Ok::<_, std::io::Error>(std::fs::File::from(resolve_beneath::open_file(folder, path)?))
    };
    let (mut left, mut right) = (open(left, name)?, open(right, name)?);
    let (mut ours, mut theirs) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let (some, others) = (fill(&mut left, &mut ours)?, fill(&mut right, &mut theirs)?);
        if ours[..some] != theirs[..others] {
            return Ok(false);
        }
        if some == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut impl Read, chunk: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < chunk.len() {
        match from.read(&mut chunk[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Returns whether the target of a symlink at `path` stays in the workspace. `..` is accepted only at the beginning of
/// the target: after a name it starts from wherever that name leads, which may be another symlink.
pub(super) fn link_stays_inside(path: &Path, to: &Path) -> bool {
    let above = path.components().count().saturating_sub(1);
    let ways_up = to.components().take_while(|part| matches!(part, Component::ParentDir | Component::CurDir));
    let ways_up = ways_up.filter(|part| *part == Component::ParentDir).count();
    let is_up = |part: &Component<'_>| *part == Component::ParentDir;
    !to.has_root() && ways_up <= above && to.components().filter(is_up).count() == ways_up
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symlinks_that_leave_the_workspace_are_detected() {
        for (path, to, stays) in [
            ("a", "b", true),
            ("a/b", "../c", true),
            ("a", "../c", false),
            ("a/b", "../../c", false),
            ("a", "/etc/passwd", false),
            ("a/b/c", "../../x/y", true),
            ("a/b/c", "./.././../x", true),
            ("a/b/c", "../../x/../y", false),
            ("a/b/c", "x/..", false),
            ("a", "b/../../c", false),
        ] {
            assert_eq!(link_stays_inside(path.as_ref(), to.as_ref()), stays, "{path} -> {to}");
        }
    }
}
