//! Covers what of a workspace is hidden or read_only, and sockets of this host in every folder that is shown.
//!
//! A hidden or read_only file has all its names covered: another name of the same file would lead to it too. The folders above
//! something covered become mounts of their own, because a folder can be renamed together with what is mounted below it, and
//! a new one put in its place. So do links that lead there, which would otherwise be removed, and nobody would know at the next
//! start what they linked_dirs to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use tribune_contract::{Failed, LaunchProfile, LaunchStage, Mount, Workspace, WorkspaceSource};

use super::failure::{AtStage as _, failed};
use super::mask_scan::{MaskSet, ScanRequest, scan};
use super::mount;
use super::rootfs::{MASK_ATTRIBUTES, RootFs};

/// Mounts of one folder. Where there would be more, folders are hidden or read_only as a whole.
const MAX_MASKS: usize = 2048;

/// How often what was moved is looked for again.
const MAX_ATTEMPTS: usize = 4;

/// Folders that are named in a report.
const MAX_REPORTED: usize = 16;

/// What was covered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MaskReport {
    pub(super) names: u32,
    /// Folders that cannot be changed at all, because what is in them could not be covered name by name; `.` is all of it.
    pub(super) read_only: Vec<String>,
    /// Folders that look empty as a whole.
    pub(super) emptied: Vec<String>,
}

/// Covers everything that is to be covered.
pub(super) fn apply_masks(root: &RootFs, profile: &LaunchProfile) -> Result<MaskReport, Failed> {
    let mut masked = MaskReport::default();
    let names: Vec<[&Path; 2]> =
        profile.workspaces().map(|workspace| [workspace.target.as_path(), host_folder(workspace)]).collect();
    let wanted = profile.workspaces().zip(&names).map(|(workspace, names)| {
        let Workspace { hide, freeze, source, .. } = workspace;
        let sockets = !matches!(source, WorkspaceSource::Overlay { .. });
        ScanRequest { names, host: root.host_view(), hide, freeze, sockets }
    });
    for (index, shown) in cover_folders(root, &wanted.collect::<Vec<_>>())?.into_iter().enumerate() {
        masked.names = masked.names.saturating_add(shown.names);
        // Somewhere else than in the workspace, so by the whole path.
        let next = (index > 0 || profile.workspace.is_none()).then(|| names[index][0]);
        let path = |inner: String| match (next, inner.as_str()) {
            (None, _) => inner,
            (Some(target), ".") => target.to_string_lossy().into_owned(),
            (Some(target), inner) => target.join(inner).to_string_lossy().into_owned(),
        };
        masked.read_only.extend(shown.read_only.into_iter().map(path));
        masked.emptied.extend(shown.emptied.into_iter().map(path));
    }
    for mount in &profile.mounts {
        match mount {
            Mount::ReadOnly { source, target, hide } => {
                let shown = cover_mount(root, source, target, hide)?;
                let path = |inner: &String| target.join(inner).to_string_lossy().into_owned();
                masked.emptied.extend(shown.iter().flat_map(|shown| &shown.emptied).map(path));
            }
            Mount::ReadWrite { source, target } => drop(cover_mount(root, source, target, &[])?),
            Mount::Socket { .. } | Mount::Tmpfs { .. } | Mount::Text { .. } | Mount::Symlink { .. } => {}
        }
    }
    Ok(masked)
}

fn cover_mount(
    root: &RootFs,
    source: &Path,
    target: &Path,
    hide: &[String],
) -> Result<Vec<MaskReport>, Failed> {
    let names = &[target, source];
    cover_folders(root, &[ScanRequest { names, host: root.host_view(), hide, freeze: &[], sockets: true }])
}

/// Where a folder that is worked in is on this host.
fn host_folder(workspace: &Workspace) -> &Path {
    match &workspace.source {
        WorkspaceSource::Overlay { lower: folder, .. }
        | WorkspaceSource::Direct { folder }
        | WorkspaceSource::ReadOnly { folder } => folder,
    }
}

/// Covers what is to be covered in folders that links may lead from one to the other of.
fn cover_folders(root: &RootFs, wanted: &[ScanRequest<'_>]) -> Result<Vec<MaskReport>, Failed> {
    let mut masked: Vec<MaskReport> = wanted.iter().map(|_| MaskReport::default()).collect();
    let mut open = Vec::new();
    for (index, wanted) in wanted.iter().enumerate() {
        open.extend(opened(root, wanted)?.map(|(held, folder)| (index, held, folder)));
    }
    let mut missed = MissedMask::Nothing;
    for _ in 0..MAX_ATTEMPTS {
        let shown: Vec<_> = open.iter().map(|(index, _, folder)| (folder, wanted[*index])).collect();
        missed = MissedMask::Nothing;
        for ((index, held, folder), found) in open.iter().zip(scan(&shown)?) {
            missed = missed.max(cover_mask_set(root, (held, folder), found, &mut masked[*index])?);
        }
        if missed == MissedMask::Nothing {
            break;
        }
    }
    // What is read_only and comes and goes all the time stops nobody: it is gone by the time that it is looked for.
    if missed == MissedMask::Hidden {
        let shown: Vec<String> =
            wanted.iter().map(|wanted| format!("`{}`", inside_path(wanted).display())).collect();
        let cause = format!("somebody moves what is hidden in {} all the time", shown.join(", "));
        return Err(failed(LaunchStage::Workspace, cause, "Let them end, and try again"));
    }
    Ok(masked)
}

/// Where a folder is inside.
fn inside_path<'a>(wanted: &ScanRequest<'a>) -> &'a Path {
    wanted.names.first().copied().unwrap_or(Path::new("/"))
}

/// A folder of the box, held and open, if anything in it is to be covered.
fn opened(root: &RootFs, wanted: &ScanRequest<'_>) -> Result<Option<(OwnedFd, OwnedFd)>, Failed> {
    const REMEDY: &str = "Make the folder one that the sandbox's user can read";
    if wanted.hide.is_empty() && wanted.freeze.is_empty() && !wanted.sockets {
        return Ok(None);
    }
    let target = inside_path(wanted);
    let shown = target.display();
    let held = root.open(target).at(LaunchStage::Workspace, format_args!("opening `{shown}`"), REMEDY)?;
    let stat =
        rustix::fs::fstat(&held).at(LaunchStage::Workspace, format_args!("reading `{shown}`"), REMEDY)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Socket {
        let cause = format!("`{shown}` is a socket, and would lead to a program of this host");
        return Err(failed(
            LaunchStage::Mounts,
            cause,
            "Show files and folders; places to connect to are named by themselves",
        ));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(&held, ".", flags, Mode::empty()) {
        // A file.
        Err(Errno::NOTDIR) => Ok(None),
        // A folder that only gives out names it is asked for.
        Err(Errno::ACCESS) if wanted.hide.is_empty() && wanted.freeze.is_empty() => Ok(None),
        folder => {
            let folder = folder.at(LaunchStage::Workspace, format_args!("searching `{shown}`"), REMEDY)?;
            Ok(Some((held, folder)))
        }
    }
}

/// What was no longer where it was found: it is somewhere else, or gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MissedMask {
    Nothing,
    ReadOnly,
    Hidden,
}

/// Covers what was found.
fn cover_mask_set(
    root: &RootFs,
    (held, folder): (&OwnedFd, &OwnedFd),
    mut found: MaskSet,
    masked: &mut MaskReport,
) -> Result<MissedMask, Failed> {
    const TRY_AGAIN: &str = "Try again; if it stays, raise the limit fs.mount-max";
    let names = found.hidden.len() + found.read_only.len() + found.links.len();
    let emptied = hide_whole_dirs(&mut found, MAX_MASKS);
    let read_only = make_whole_dirs_read_only(&mut found, MAX_MASKS);
    if emptied.contains(Path::new("")) {
        root.hide_folder(held).at(LaunchStage::Workspace, "hiding the workspace", TRY_AGAIN)?;
    }
    if read_only.contains(Path::new("")) {
        mount::set_attributes(held.as_fd(), true, MASK_ATTRIBUTES).at(
            LaunchStage::Workspace,
            "freezing the workspace",
            TRY_AGAIN,
        )?;
    }
    let mut missed = MissedMask::Nothing;
    let mut done = |path: &Path, what: MissedMask, covered: rustix::io::Result<()>| match covered {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::AGAIN) => {
            missed = missed.max(what);
            Ok(())
        }
        covered => {
            covered.at(LaunchStage::Workspace, format_args!("protecting `{}`", path.display()), TRY_AGAIN)
        }
    };
    for path in pin_points(&found) {
        done(path, MissedMask::ReadOnly, root.pin_mount(folder, path))?;
    }
    for path in &found.read_only {
        done(path, MissedMask::ReadOnly, root.make_read_only(folder, path))?;
    }
    for (path, end) in &found.links {
        done(path, MissedMask::ReadOnly, root.cover_link(folder, path, end.as_deref()))?;
    }
    // What is in something hidden is hidden with it.
    let is_inner = |path: &Path| path.ancestors().skip(1).any(|above| found.hidden.contains(above));
    for path in found.hidden.iter().filter(|path| !is_inner(path)) {
        done(path, MissedMask::Hidden, root.hide(folder, path))?;
    }
    masked.names = masked.names.max(u32::try_from(names).unwrap_or(u32::MAX));
    masked.read_only.extend(reported(&read_only));
    masked.emptied.extend(reported(&emptied));
    Ok(missed)
}

/// The first of some folders, as they are reported.
fn reported(folders: &BTreeSet<PathBuf>) -> Vec<String> {
    let told = |path: &PathBuf| match path.to_string_lossy() {
        empty if empty.is_empty() => ".".to_owned(),
        name => name.into_owned(),
    };
    folders.iter().take(MAX_REPORTED).map(told).collect()
}

/// The folders above what is covered and above links that lead there, and those links, from the top down.
fn pin_points(found: &MaskSet) -> BTreeSet<&Path> {
    let covered = found.read_only.iter().chain(found.links.keys()).chain(&found.hidden);
    let above = covered.chain(&found.pinned).flat_map(|path| path.ancestors().skip(1));
    let pinned = found.pinned.iter().map(PathBuf::as_path);
    above.chain(pinned).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// How many mounts are needed.
fn mount_count(found: &MaskSet) -> usize {
    found.hidden.len() + found.read_only.len() + found.links.len() + pin_points(found).len()
}

/// Hides folders as a whole until what is hidden needs at most `most` mounts: those that hold most of it first, and if that does
/// not do, everything. Returns which.
fn hide_whole_dirs(found: &mut MaskSet, most: usize) -> BTreeSet<PathBuf> {
    let mut whole: BTreeSet<PathBuf> = BTreeSet::new();
    loop {
        let hidden = MaskSet { hidden: std::mem::take(&mut found.hidden), ..MaskSet::default() };
        let too_many = mount_count(&hidden).saturating_sub(most);
        let mut holding: BTreeMap<&Path, usize> = BTreeMap::new();
        for folder in hidden.hidden.iter().filter_map(|path| path.parent()) {
            *holding.entry(folder).or_default() += 1;
        }
        // That all of it is hidden is the last resort.
        holding.remove(Path::new(""));
        let chosen = match too_many {
            0 => BTreeSet::new(),
            _ if holding.is_empty() => [PathBuf::new()].into(),
            // A folder that is hidden needs one mount, and none above what was in it.
            _ => fullest(holding, too_many),
        };
        found.hidden = hidden.hidden;
        if chosen.is_empty() {
            whole.retain(|folder| found.hidden.contains(folder));
            return whole;
        }
        let is_left = |path: &Path| !path.ancestors().any(|folder| chosen.contains(folder));
        found.hidden.retain(|path| is_left(path));
        found.read_only.retain(|path| is_left(path));
        found.links.retain(|path, _| is_left(path));
        found.pinned.retain(|path| is_left(path));
        if chosen.contains(Path::new("")) {
            return chosen;
        }
        let is_inner = |folder: &Path| folder.ancestors().skip(1).any(|above| chosen.contains(above));
        let outermost: Vec<&PathBuf> = chosen.iter().filter(|folder| !is_inner(folder)).collect();
        found.hidden.extend(outermost.iter().copied().cloned());
        whole.extend(outermost.into_iter().cloned());
    }
}

/// Freezes folders as a whole until at most `most` mounts are needed: those at the top that need most of them first, and if
/// that does not do, everything. Returns which.
fn make_whole_dirs_read_only(found: &mut MaskSet, most: usize) -> BTreeSet<PathBuf> {
    let mut whole = BTreeSet::new();
    loop {
        let too_many = mount_count(found).saturating_sub(most);
        if too_many == 0 {
            return whole;
        }
        let mut holding: BTreeMap<&Path, usize> = BTreeMap::new();
        for path in found.read_only.iter().chain(found.links.keys()) {
            let mut parts = path.components();
            if let (Some(Component::Normal(top)), Some(_)) = (parts.next(), parts.next()) {
                *holding.entry(Path::new(top)).or_default() += 1;
            }
        }
        if holding.is_empty() {
            found.read_only.clear();
            found.links.clear();
            found.pinned.clear();
            return [PathBuf::new()].into();
        }
        let chosen = fullest(holding, too_many);
        let is_left = |path: &Path| !path.ancestors().any(|folder| chosen.contains(folder));
        found.read_only.retain(|path| is_left(path));
        found.links.retain(|path, _| is_left(path));
        found.pinned.retain(|path| is_left(path));
        found.read_only.extend(chosen.iter().cloned());
        whole.extend(chosen);
    }
}

/// The folders that hold most, until they hold `enough` together.
fn fullest(holding: BTreeMap<&Path, usize>, enough: usize) -> BTreeSet<PathBuf> {
    let mut folders: Vec<(usize, &Path)> =
        holding.into_iter().map(|(folder, count)| (count, folder)).collect();
    folders.sort_unstable();
    let mut held = 0;
    let chosen = folders.into_iter().rev().take_while(|(count, _)| {
        let is_needed = held < enough;
        held += count;
        is_needed
    });
    chosen.map(|(_, folder)| folder.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_only(paths: &[&str]) -> MaskSet {
        MaskSet { read_only: paths.iter().map(PathBuf::from).collect(), ..MaskSet::default() }
    }

    #[test]
    fn what_fits_is_frozen_by_name() {
        let mut found = read_only(&["a/.envrc", "b/c/.envrc", ".envrc"]);
        assert_eq!(make_whole_dirs_read_only(&mut found, 6), BTreeSet::new());
        assert_eq!(found, read_only(&["a/.envrc", "b/c/.envrc", ".envrc"]));
        assert_eq!(pin_points(&found), ["a", "b", "b/c"].map(Path::new).into());
    }

    #[test]
    fn the_fullest_folders_are_frozen_whole() {
        let mut found = read_only(&["a/.envrc", "b/.bashrc", "b/.envrc", "b/c/.envrc", ".envrc"]);
        found.links.insert("b/.git".into(), None);
        assert_eq!(make_whole_dirs_read_only(&mut found, 5), [PathBuf::from("b")].into());
        assert_eq!(found, read_only(&["a/.envrc", "b", ".envrc"]));
    }

    #[test]
    fn if_that_does_not_do_nothing_can_be_changed() {
        let mut found = read_only(&[".envrc", ".bashrc", ".BASHRC", "a/.envrc"]);
        found.hidden.insert("secret".into());
        assert_eq!(make_whole_dirs_read_only(&mut found, 2), [PathBuf::new()].into());
        let left = MaskSet { hidden: [PathBuf::from("secret")].into(), ..MaskSet::default() };
        assert_eq!(found, left);
    }

    fn hidden(paths: &[&str]) -> MaskSet {
        MaskSet { hidden: paths.iter().map(PathBuf::from).collect(), ..MaskSet::default() }
    }

    #[test]
    fn what_fits_is_hidden_by_name() {
        let mut found = hidden(&["a/1", "a/2", "b/c/1", "1"]);
        assert_eq!(hide_whole_dirs(&mut found, 7), BTreeSet::new());
        assert_eq!(found, hidden(&["a/1", "a/2", "b/c/1", "1"]));
    }

    #[test]
    fn the_fullest_folders_are_hidden_whole() {
        let mut found = hidden(&["a/1", "a/2", "b/c/1", "b/c/2", "b/c/3", "b/c/d/1", "1"]);
        found.read_only.insert("b/c/.envrc".into());
        found.pinned.insert("b/c/link".into());
        assert_eq!(hide_whole_dirs(&mut found, 8), [PathBuf::from("b/c")].into());
        assert_eq!(found, hidden(&["a/1", "a/2", "b/c", "1"]));
        assert_eq!(hide_whole_dirs(&mut found, 5), [PathBuf::from("a")].into());
        assert_eq!(found, hidden(&["a", "b/c", "1"]));
    }

    #[test]
    fn many_folders_are_hidden_by_the_one_around_them() {
        let names: Vec<String> = (0..5000).map(|number| format!("packages/{number}/.env")).collect();
        let mut found = MaskSet { hidden: names.iter().map(PathBuf::from).collect(), ..MaskSet::default() };
        assert_eq!(hide_whole_dirs(&mut found, 100), [PathBuf::from("packages")].into());
        assert_eq!(found, hidden(&["packages"]));
    }

    #[test]
    fn if_no_folder_does_everything_is_hidden() {
        let mut found = hidden(&["1", "2", "3", "a/1"]);
        found.read_only.insert(".envrc".into());
        assert_eq!(hide_whole_dirs(&mut found, 2), [PathBuf::new()].into());
        assert_eq!(found, MaskSet::default());
    }

    #[test]
    fn links_stay_with_the_folders_above_them() {
        let mut found = hidden(&["conf/prod"]);
        found.pinned.insert("sub/.env".into());
        assert_eq!(pin_points(&found), ["conf", "sub", "sub/.env"].map(Path::new).into());
    }
}
