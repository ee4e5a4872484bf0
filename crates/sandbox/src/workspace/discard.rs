//! Discards the changes of a session.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::remove_tree::remove_tree;
use super::selection::Selection;
use super::{OverlayDirs, WorkspaceError, resolve_beneath, unreadable, unwritable};

/// Removes changes from the overlay. The session must have ended, because overlayfs does not support changes to a
/// mounted layer.
pub fn discard(layers: &OverlayDirs, selection: &Selection) -> Result<(), WorkspaceError> {
    let upper = layers.upper();
    match selection {
        Selection::All | Selection::Everything => {
            let mode = std::fs::metadata(&upper).map_err(|error| unreadable(&upper, error))?.permissions();
            remove_tree(&upper)
                .and_then(|()| std::fs::create_dir(&upper))
                .and_then(|()| std::fs::set_permissions(&upper, PermissionsExt::from_mode(mode.mode())))
                .map_err(|error| unwritable(&upper, error))
        }
        Selection::Paths(paths) | Selection::PathsWithAutorun(paths) => {
            let folder = resolve_beneath::open_root(&upper).map_err(|error| unreadable(&upper, error))?;
            paths.iter().try_for_each(|path| remove(&folder, path))
        }
    }
}

fn remove(upper: &std::os::fd::OwnedFd, path: &Path) -> Result<(), WorkspaceError> {
    let Some(name) = path.file_name() else {
        return Err(unwritable(path, std::io::Error::from(std::io::ErrorKind::InvalidInput)));
    };
    let parent = path.parent().unwrap_or(Path::new(""));
    let parent = resolve_beneath::open_folder(upper, parent).map_err(|error| unreadable(path, error))?;
    // Through the descriptor, so that the folder cannot be replaced meanwhile.
    let held = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&parent));
    let held = Path::new(&held).join(name);
    let metadata = std::fs::symlink_metadata(&held).map_err(|error| unreadable(path, error))?;
    let removed = if metadata.is_dir() { remove_tree(&held) } else { std::fs::remove_file(&held) };
    removed.map_err(|error| unwritable(path, error))
}
