//! The journal of a landing, beside the overlay. It allows recovery after a crash: the file that was being moved is
//! restored or completed, and what has landed is known.
//!
//! One line each: `make TEMPORARY PATH` before a file is created beside its target, `made INODE` before it is moved
//! into place, and `done PATH` when a change has landed. The journal is removed at the end of the landing.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, RenameFlags};

use super::node::NodeStat;
use super::{OverlayDirs, WorkspaceError, path_encoding, resolve_beneath, unreadable, unwritable};

pub(super) struct LandJournal {
    file: File,
    path: PathBuf,
}

/// The result of recovering an interrupted landing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LandRecovery {
    pub landed: Vec<PathBuf>,
    /// Old versions that could not be restored because the file was changed again, with their current paths.
    pub moved_aside: Vec<PathBuf>,
}

/// A file that was created beside its target.
struct PendingFile {
    temporary: PathBuf,
    path: PathBuf,
    inode: Option<u64>,
}

impl LandJournal {
    pub(super) fn begin(layers: &OverlayDirs) -> io::Result<Self> {
        let path = journal_path(layers);
        let file = File::options().create(true).append(true).open(&path)?;
        Ok(Self { file, path })
    }

    pub(super) fn record_make(&mut self, temporary: &Path, path: &Path) -> io::Result<()> {
        self.append(&format!("make {} {}\n", path_encoding::encode(temporary), path_encoding::encode(path)))
    }

    pub(super) fn record_made(&mut self, inode: u64) -> io::Result<()> {
        self.append(&format!("made {inode}\n"))
    }

    pub(super) fn record_done(&mut self, path: &Path) -> io::Result<()> {
        self.append(&format!("done {}\n", path_encoding::encode(path)))
    }

    /// In a single write: formatted output would need several, three times per file.
    fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())
    }

    pub(super) fn finish(self) -> io::Result<()> {
        std::fs::remove_file(self.path)
    }
}

fn journal_path(layers: &OverlayDirs) -> PathBuf {
    layers.folder().join("journal")
}

/// Recovers a workspace after an interrupted landing. No landing may run meanwhile.
pub fn recover_landing(lower: &Path, layers: &OverlayDirs) -> Result<LandRecovery, WorkspaceError> {
    let journal = journal_path(layers);
    let text = match std::fs::read_to_string(&journal) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LandRecovery::default()),
        text => text.map_err(|error| unreadable(&journal, error))?,
    };
    let folder = resolve_beneath::open_root(lower).map_err(|error| unreadable(lower, error))?;
    let mut mended = LandRecovery::default();
    let mut landed = BTreeSet::new();
    let mut last: Option<PendingFile> = None;
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("make", rest)) => {
                resolve_pending(&folder, last.take(), &mut landed, &mut mended);
                last = rest.split_once(' ').and_then(|(temporary, path)| {
                    let (temporary, path) = (path_encoding::decode(temporary)?, path_encoding::decode(path)?);
                    Some(PendingFile { temporary, path, inode: None })
                });
            }
            Some(("made", inode)) => {
                if let Some(making) = &mut last {
                    making.inode = inode.parse().ok();
                }
            }
            Some(("done", word)) => {
                last = last.filter(|making| path_encoding::decode(word).as_ref() != Some(&making.path));
                landed.extend(path_encoding::decode(word));
            }
            _ => {}
        }
    }
    resolve_pending(&folder, last, &mut landed, &mut mended);
    let mut base = layers.read_base()?;
    for path in &landed {
        if let Ok(Some(found)) = NodeStat::beneath(&folder, path) {
            base.landed.insert(path.clone(), found.changed_at());
        }
    }
    layers.write_base(&base).map_err(|error| unwritable(layers.folder(), error))?;
    std::fs::remove_file(&journal).map_err(|error| unwritable(&journal, error))?;
    mended.landed = landed.into_iter().collect();
    Ok(mended)
}

/// Completes or reverts the file that was being moved when the landing was interrupted.
fn resolve_pending(
    root: &OwnedFd,
    making: Option<PendingFile>,
    landed: &mut BTreeSet<PathBuf>,
    mended: &mut LandRecovery,
) {
    let Some(PendingFile { temporary, path, inode }) = making else { return };
    let (Some(parent), Some(aside), Some(name)) = (path.parent(), temporary.file_name(), path.file_name())
    else {
        return;
    };
    let Ok(folder) = resolve_beneath::open_folder(root, parent) else { return };
    let inode_of = |name: &std::ffi::OsStr| {
        rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stat.st_ino)
    };
    let (there, place) = (inode_of(aside), inode_of(name));
    match (inode, there) {
        // It was moved into place, and the old version is gone.
        (Some(_), None) if place == inode => drop(landed.insert(path)),
        (_, None) => {}
        // The old version is aside: it goes back, unless the new one was changed since.
        (Some(new), Some(old)) if new != old => {
            let back = place == inode
                && rustix::fs::renameat_with(&folder, aside, &folder, name, RenameFlags::empty()).is_ok();
            if !back {
                mended.moved_aside.push(temporary);
            }
        }
        // It was never moved. The overlay still has it.
        (_, Some(_)) => drop(rustix::fs::unlinkat(&folder, aside, AtFlags::empty())),
    }
}
