//! Throws the changes of a session away.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::land::Selection;
use super::{Layers, WorkspaceError, resolve_beneath, unreadable, unwritable};

/// Forgets changes. The session must have ended: the kernel does not expect its layers to change under it.
pub fn discard(layers: &Layers, selection: &Selection) -> Result<(), WorkspaceError> {
    let upper = layers.upper();
    match selection {
        Selection::All | Selection::Everything => {
            let mode = std::fs::metadata(&upper).map_err(|error| unreadable(&upper, error))?.permissions();
            remove_tree(&upper)
                .and_then(|()| std::fs::create_dir(&upper))
                .and_then(|()| std::fs::set_permissions(&upper, PermissionsExt::from_mode(mode.mode())))
                .map_err(|error| unwritable(&upper, error))
        }
        Selection::Paths(paths) | Selection::PathsWithTraps(paths) => {
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
    // By its descriptor, so that nobody puts another folder in its place.
    let held = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&parent));
    let held = Path::new(&held).join(name);
    let metadata = std::fs::symlink_metadata(&held).map_err(|error| unreadable(path, error))?;
    let removed = if metadata.is_dir() { remove_tree(&held) } else { std::fs::remove_file(&held) };
    removed.map_err(|error| unwritable(path, error))
}

/// Removes a folder with everything in it, also what was closed to its owner.
pub(super) fn remove_tree(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder)?;
            std::fs::remove_dir_all(folder)
        }
        removed => removed,
    }
}

/// Lets the owner into all folders below this one. Nothing runs in them any more, so nothing moves.
fn open_up(folder: &Path) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700))?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            // A link is none of its own.
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}
