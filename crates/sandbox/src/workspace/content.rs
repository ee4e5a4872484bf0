//! Reads a file of the workspace or of its overlay.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::FileType;

use super::resolve_beneath;

/// Reads a regular file beneath `folder`. Returns `None` if it has more than `most` bytes. Follows no symlink, and does
/// not block on pipes or devices.
pub fn content(folder: &Path, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    content_beneath(&resolve_beneath::open_root(folder)?, path, most)
}

pub(super) fn content_beneath(folder: &OwnedFd, path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let file = resolve_beneath::open_file(folder, path)?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    File::from(file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}
