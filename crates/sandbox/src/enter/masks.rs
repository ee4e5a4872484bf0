//! Covers what of a workspace is hidden or frozen, and sockets of this machine in every folder that is shown.
//!
//! A hidden or frozen file has all its names covered: another name of the same file would lead to it too. The folders above
//! something covered become mounts of their own, because a folder can be renamed together with what is mounted below it, and
//! a new one put in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use tribune_contract::{Failed, LaunchProfile, Mount, Stage, Workspace, WorkspaceSource};

use super::failure::{At as _, failed};
use super::mount;
use super::root::{Root, UNCHANGEABLE};
use super::search::{Found, Wanted, search};

/// Mounts of one folder. Where there would be more, folders are frozen as a whole.
const MAX_MASKS: usize = 2048;

/// Folders that are named in a report.
const MAX_TOLD: usize = 16;

/// What was covered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Masked {
    pub(super) names: u32,
    /// Folders that cannot be changed at all, because what is in them could not be covered name by name; `.` is all of it.
    pub(super) read_only: Vec<String>,
}

/// Covers everything that is to be covered.
pub(super) fn cover(root: &Root, profile: &LaunchProfile) -> Result<Masked, Failed> {
    let workspace = profile.workspace.as_ref().map(|workspace| cover_workspace(root, workspace));
    let masked = workspace.transpose()?.unwrap_or_default();
    for mount in &profile.mounts {
        match mount {
            Mount::ReadOnly { target, .. } | Mount::ReadWrite { target, .. } => {
                cover_folder(root, Wanted { target, hide: &[], freeze: &[], sockets: true })?;
            }
            Mount::Socket { .. } | Mount::Tmpfs { .. } | Mount::Text { .. } | Mount::Symlink { .. } => {}
        }
    }
    Ok(masked)
}

fn cover_workspace(root: &Root, workspace: &Workspace) -> Result<Masked, Failed> {
    let Workspace { target, source, hide, freeze } = workspace;
    let sockets = match source {
        WorkspaceSource::Overlay { .. } => false,
        WorkspaceSource::Direct { .. } | WorkspaceSource::ReadOnly { .. } => true,
    };
    cover_folder(root, Wanted { target, hide, freeze, sockets })
}

fn cover_folder(root: &Root, wanted: Wanted<'_>) -> Result<Masked, Failed> {
    const REMEDY: &str = "Make the folder one that the sandbox's user can read";
    if wanted.hide.is_empty() && wanted.freeze.is_empty() && !wanted.sockets {
        return Ok(Masked::default());
    }
    let shown = wanted.target.display();
    let held = root.open(wanted.target).at(Stage::Workspace, format_args!("opening `{shown}`"), REMEDY)?;
    let stat = rustix::fs::fstat(&held).at(Stage::Workspace, format_args!("reading `{shown}`"), REMEDY)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Socket {
        let cause = format!("`{shown}` is a socket, and would lead to a program of this machine");
        return Err(failed(
            Stage::Mounts,
            cause,
            "Show files and folders; places to connect to are named by themselves",
        ));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match rustix::fs::openat(&held, ".", flags, Mode::empty()) {
        // A file, or a folder that only gives out names it is asked for.
        Err(Errno::NOTDIR | Errno::ACCESS) if wanted.hide.is_empty() && wanted.freeze.is_empty() => {
            return Ok(Masked::default());
        }
        folder => folder.at(Stage::Workspace, format_args!("searching `{shown}`"), REMEDY)?,
    };
    let mut found = search(&folder, wanted)?;
    if found.hidden.len() > MAX_MASKS {
        let cause = format!("more than {MAX_MASKS} names are hidden in `{shown}`");
        return Err(failed(Stage::Workspace, cause, "Hide fewer names, or the folders they are in"));
    }
    let names = found.hidden.len() + found.frozen.len() + found.links.len();
    let whole = gathered(&mut found, MAX_MASKS);
    let doing = |path: &Path| format!("protecting `{}`", path.display());
    const TRY_AGAIN: &str = "Try again; if it stays, raise the limit fs.mount-max";
    if whole.contains(Path::new("")) {
        mount::set(held.as_fd(), true, UNCHANGEABLE).at(
            Stage::Workspace,
            "freezing the workspace",
            TRY_AGAIN,
        )?;
    }
    // What is gone by now needs no protection.
    for path in pinned(&found) {
        root.pin(&folder, path).at(Stage::Workspace, doing(path), TRY_AGAIN)?;
    }
    for path in &found.frozen {
        root.freeze(&folder, path).at(Stage::Workspace, doing(path), TRY_AGAIN)?;
    }
    for (path, end) in &found.links {
        root.freeze_link(&folder, path, end.as_deref()).at(Stage::Workspace, doing(path), TRY_AGAIN)?;
    }
    for path in &found.hidden {
        root.hide(&folder, path).at(Stage::Workspace, doing(path), TRY_AGAIN)?;
    }
    let told = |path: &PathBuf| match path.to_string_lossy() {
        empty if empty.is_empty() => ".".to_owned(),
        name => name.into_owned(),
    };
    Ok(Masked {
        names: u32::try_from(names).unwrap_or(u32::MAX),
        read_only: whole.iter().take(MAX_TOLD).map(told).collect(),
    })
}

/// The folders above what is covered, from the top down.
fn pinned(found: &Found) -> BTreeSet<&Path> {
    let inner = found.frozen.iter().chain(found.links.keys()).chain(&found.hidden);
    let above = inner.flat_map(|path| path.ancestors().skip(1));
    above.filter(|path| !path.as_os_str().is_empty()).collect()
}

/// Freezes folders as a whole until at most `most` mounts are needed: those at the top that need most of them first, and if
/// that does not do, everything. Returns which.
fn gathered(found: &mut Found, most: usize) -> BTreeSet<PathBuf> {
    let mut whole = BTreeSet::new();
    let needed =
        |found: &Found| found.hidden.len() + found.frozen.len() + found.links.len() + pinned(found).len();
    if needed(found) <= most {
        return whole;
    }
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for path in found.frozen.iter().chain(found.links.keys()) {
        let mut parts = path.components();
        if let (Some(Component::Normal(top)), Some(_)) = (parts.next(), parts.next()) {
            *folders.entry(top.into()).or_default() += 1;
        }
    }
    let mut folders: Vec<(usize, PathBuf)> = folders.into_iter().map(|(path, count)| (count, path)).collect();
    folders.sort_unstable();
    while needed(found) > most {
        let Some((_, folder)) = folders.pop() else {
            found.frozen.clear();
            found.links.clear();
            return [PathBuf::new()].into();
        };
        found.frozen.retain(|path| !path.starts_with(&folder));
        found.links.retain(|path, _| !path.starts_with(&folder));
        found.frozen.insert(folder.clone());
        whole.insert(folder);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frozen(paths: &[&str]) -> Found {
        Found { frozen: paths.iter().map(PathBuf::from).collect(), ..Found::default() }
    }

    #[test]
    fn what_fits_is_frozen_by_name() {
        let mut found = frozen(&["a/.envrc", "b/c/.envrc", ".envrc"]);
        assert_eq!(gathered(&mut found, 6), BTreeSet::new());
        assert_eq!(found, frozen(&["a/.envrc", "b/c/.envrc", ".envrc"]));
        assert_eq!(pinned(&found), ["a", "b", "b/c"].map(Path::new).into());
    }

    #[test]
    fn the_fullest_folders_are_frozen_whole() {
        let mut found = frozen(&["a/.envrc", "b/.bashrc", "b/.envrc", "b/c/.envrc", ".envrc"]);
        found.links.insert("b/.git".into(), None);
        assert_eq!(gathered(&mut found, 5), [PathBuf::from("b")].into());
        assert_eq!(found, frozen(&["a/.envrc", "b", ".envrc"]));
    }

    #[test]
    fn if_that_does_not_do_nothing_can_be_changed() {
        let mut found = frozen(&[".envrc", ".bashrc", ".BASHRC", "a/.envrc"]);
        found.hidden.insert("secret".into());
        assert_eq!(gathered(&mut found, 2), [PathBuf::new()].into());
        let left = Found { hidden: [PathBuf::from("secret")].into(), ..Found::default() };
        assert_eq!(found, left);
    }
}
