//! Removes folders, including those that deny access to their owner.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a folder with everything in it, including folders that deny access to their owner.
pub(super) fn remove_tree(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder)?;
            std::fs::remove_dir_all(folder)
        }
        removed => removed,
    }
}

/// Gives the owner access to all folders below this one. No process uses them any more.
fn open_up(folder: &Path) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700))?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            // Not through symlinks.
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}
