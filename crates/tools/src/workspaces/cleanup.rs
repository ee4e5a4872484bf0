//! Cleans up after workspaces whose creation or removal was interrupted: folders without a label.
//!
//! The label is written last and removed first. So a folder without one holds nothing of value: either no program ran there yet,
//! or its removal was requested. Other content is not removed.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use super::{LABEL, LAYERS, LOCK, MAX_WORKSPACES, Workspaces, check_name, lock};
use tribune_sandbox::workspace::OverlayDirs;

impl Workspaces {
    /// Removes folders without a label and returns their names. Only at the start of the daemon: later, one may be in creation.
    pub fn remove_unlabelled(&self) -> Vec<String> {
        // Without the root folder there are no workspaces.
        let Ok(entries) = std::fs::read_dir(self.root()) else { return Vec::new() };
        let names =
            entries.take(MAX_WORKSPACES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut removed: Vec<String> = names
            .filter(|name| check_name(name).is_ok())
            .filter(|name| match remove_unlabelled(&self.root().join(name)) {
                Ok(is_removed) => is_removed,
                Err(error) => {
                    tracing::warn!(%error, workspace = %name, "could not remove an unfinished workspace");
                    false
                }
            })
            .collect();
        removed.sort();
        removed
    }
}

/// Removes the folder if it has no label. Returns whether it did.
fn remove_unlabelled(folder: &Path) -> io::Result<bool> {
    // An unreadable label is still a label, perhaps of another version.
    let has_label = match folder.join(LABEL).symlink_metadata() {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    if has_label || !folder.symlink_metadata()?.is_dir() || !holds_only_ours(folder)? {
        return Ok(false);
    }
    let _lock = match lock(&folder.join(LOCK)) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        // The folder is in use.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error),
    };
    let layers = OverlayDirs::new(folder.join(LAYERS));
    if layers.upper().is_dir() {
        layers.remove().map_err(io::Error::other)?;
    }
    std::fs::remove_dir_all(folder)?;
    Ok(true)
}

/// Whether the folder contains only what the creation of a workspace puts there.
fn holds_only_ours(folder: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let is_begun = |file: &str| {
            let name = name.as_encoded_bytes();
            name.starts_with(file.as_bytes()) && name.ends_with(b".new")
        };
        if !([LOCK, LAYERS].map(OsStr::new).contains(&name.as_os_str()) || is_begun(LABEL) || is_begun(LOCK))
        {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::{STEPS, tests::site};
    use super::*;

    /// However far the creation got, the next start removes the folder and frees its name.
    #[test]
    fn l2_an_interrupted_creation_is_removed_by_the_next_start() {
        let (_place, all, label) = site();
        for steps in 0..STEPS.len() {
            let workspace = all.place_for(label.clone()).unwrap();
            for step in &STEPS[..steps] {
                step(&workspace).unwrap();
            }
            std::fs::write(workspace.folder.join(format!("{LABEL}.7.new")), "{").unwrap();
            assert_eq!(all.all().unwrap().len(), 0, "it is not listed after {steps} steps");
            assert_eq!(all.remove_unlabelled(), ["one"], "after {steps} steps");
            assert!(!workspace.folder.exists(), "after {steps} steps");
        }
        let made = all.create(label).unwrap();
        assert_eq!(all.remove_unlabelled(), [""; 0], "one that is made is left");
        assert!(made.layers().upper().is_dir());
    }

    /// An interrupted removal is completed as well: the label goes first.
    #[test]
    fn l2_an_interrupted_removal_is_completed_by_the_next_start() {
        let (_place, all, label) = site();
        let made = all.create(label).unwrap();
        // Something that cannot be removed as a folder interrupts the removal.
        let upper = made.layers().upper();
        std::fs::remove_dir(&upper).unwrap();
        std::fs::write(&upper, "").unwrap();
        assert!(made.clone().hold().unwrap().discard(&[]).is_err());
        assert!(made.folder.exists() && !made.folder.join(LABEL).exists());
        assert_eq!(all.remove_unlabelled(), ["one"]);
        assert!(!made.folder.exists());
    }

    #[test]
    fn foreign_and_used_folders_are_kept() {
        let (place, all, label) = site();
        let made = all.create(label).unwrap();
        let left = |what: &str| {
            assert_eq!(all.remove_unlabelled(), [""; 0], "{what}");
            assert!(made.layers().upper().is_dir(), "{what}");
        };
        std::fs::write(made.folder.join(LABEL), "{ \"of\": \"a later version\" }").unwrap();
        left("a label that cannot be read");
        std::fs::remove_file(made.folder.join(LABEL)).unwrap();
        let used = lock(&made.lock_path()).unwrap();
        left("one that is used");
        drop(used);
        std::fs::write(made.folder.join("notes.txt"), "mine").unwrap();
        left("one with something else in it");
        std::fs::remove_file(made.folder.join("notes.txt")).unwrap();
        let root = made.folder.parent().unwrap();
        std::os::unix::fs::symlink(place.path().join("project"), root.join("link")).unwrap();
        std::fs::create_dir(root.join("Not a name")).unwrap();
        assert_eq!(all.remove_unlabelled(), ["one"]);
        assert!(place.path().join("project").is_dir() && root.join("Not a name").is_dir());
    }
}
