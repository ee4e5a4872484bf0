//! Applies masks: hides names, makes names read-only, and hides sockets with a listener, FIFOs and homes of Tribune in
//! every folder that the sandbox sees.
//!
//! All hard links of a hidden or read-only file are masked, because each leads to its content. The folders above a mask
//! become mounts of their own, because otherwise a folder could be renamed together with the masks below it and
//! replaced. So do symlinks that lead to a mask: if they were removed, the next start would not know what they led to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use tribune_contract::{LaunchFailure, LaunchProfile, LaunchStage, Mount, WorkspaceMount, WorkspaceSource};

use super::failure::{AtStage as _, failed};
use super::mask_scan::{MaskSet, ScanDir, ScanRequest, scan};
use super::mount;
use super::rootfs::{MASK_ATTRIBUTES, RootFs};

/// Maximum number of mounts in one folder. Beyond that, folders are masked as a whole.
const MAX_MASKS: usize = 2048;

/// How often to scan again for names that were moved meanwhile.
const MAX_ATTEMPTS: usize = 4;

/// Maximum number of folders that a report names.
const MAX_REPORTED: usize = 16;

/// The masks that were applied.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MaskReport {
    pub(super) names: u32,
    /// Folders that are read-only as a whole, because they have too many read-only names; `.` is the whole workspace.
    pub(super) read_only: Vec<String>,
    /// Folders that look empty as a whole.
    pub(super) emptied: Vec<String>,
}

/// Applies all masks of a profile.
pub(super) fn apply_masks(root: &RootFs, profile: &LaunchProfile) -> Result<MaskReport, LaunchFailure> {
    let mut report = MaskReport::default();
    let paths: Vec<[&Path; 2]> =
        profile.workspaces().map(|workspace| [workspace.target.as_path(), host_folder(workspace)]).collect();
    let requests = profile.workspaces().zip(&paths).map(|(workspace, paths)| {
        let WorkspaceMount { hide, read_only, source, .. } = workspace;
        let sockets = !matches!(source, WorkspaceSource::Overlay { .. });
        ScanRequest { paths, host: root.host_view(), hide, read_only, sockets }
    });
    let reports = mask_folders(root, &requests.collect::<Vec<_>>())?;
    for (index, folder) in reports.into_iter().enumerate() {
        report.names = report.names.saturating_add(folder.names);
        // Outside of the workspace, so reported by the full path.
        let additional = (index > 0 || profile.workspace.is_none()).then(|| paths[index][0]);
        let path = |inner: String| match (additional, inner.as_str()) {
            (None, _) => inner,
            (Some(target), ".") => target.to_string_lossy().into_owned(),
            (Some(target), inner) => target.join(inner).to_string_lossy().into_owned(),
        };
        report.read_only.extend(folder.read_only.into_iter().map(path));
        report.emptied.extend(folder.emptied.into_iter().map(path));
    }
    for mount in &profile.mounts {
        match mount {
            Mount::ReadOnly { source, target, hide } => {
                let reports = mask_mount(root, source, target, hide)?;
                let path = |inner: &String| target.join(inner).to_string_lossy().into_owned();
                report.emptied.extend(reports.iter().flat_map(|folder| &folder.emptied).map(path));
            }
            Mount::ReadWrite { source, target } => drop(mask_mount(root, source, target, &[])?),
            Mount::Socket { .. } | Mount::Tmpfs { .. } | Mount::Text { .. } | Mount::Symlink { .. } => {}
        }
    }
    Ok(report)
}

fn mask_mount(
    root: &RootFs,
    source: &Path,
    target: &Path,
    hide: &[String],
) -> Result<Vec<MaskReport>, LaunchFailure> {
    let paths = &[target, source];
    mask_folders(root, &[ScanRequest { paths, host: root.host_view(), hide, read_only: &[], sockets: true }])
}

/// The folder of a workspace on the host.
fn host_folder(workspace: &WorkspaceMount) -> &Path {
    match &workspace.source {
        WorkspaceSource::Overlay { lower: folder, .. }
        | WorkspaceSource::Direct { folder }
        | WorkspaceSource::ReadOnly { folder } => folder,
    }
}

/// Masks folders that are scanned together, because symlinks can lead from one to another.
fn mask_folders(root: &RootFs, requests: &[ScanRequest<'_>]) -> Result<Vec<MaskReport>, LaunchFailure> {
    let mut reports: Vec<MaskReport> = requests.iter().map(|_| MaskReport::default()).collect();
    let mut open = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        open.extend(open_folder(root, request)?.map(|folder| (index, folder)));
    }
    let mut missed = MissedMask::Nothing;
    for _ in 0..MAX_ATTEMPTS {
        let dirs: Vec<ScanDir<'_>> = open
            .iter()
            .map(|(index, folder)| ScanDir { root: &folder.content, request: requests[*index] })
            .collect();
        missed = MissedMask::Nothing;
        for ((index, folder), found) in open.iter().zip(scan(&dirs)?) {
            missed = missed.max(mask_folder(root, folder, found, &mut reports[*index])?);
        }
        if missed == MissedMask::Nothing {
            break;
        }
    }
    // A read-only name that keeps moving does not make the start fail, because it is gone when it is looked for.
    if missed == MissedMask::Hidden {
        let folders: Vec<String> =
            requests.iter().map(|request| format!("`{}`", inside_path(request).display())).collect();
        let cause = format!("a process of the host keeps moving hidden files in {}", folders.join(", "));
        return Err(failed(LaunchStage::Workspace, cause, "Wait until it has finished, and try again"));
    }
    Ok(reports)
}

/// The path of a folder inside the sandbox.
fn inside_path<'a>(request: &ScanRequest<'a>) -> &'a Path {
    request.paths.first().copied().unwrap_or(Path::new("/"))
}

/// A folder of the sandbox that can get masks.
#[derive(Debug)]
struct OpenFolder {
    /// A path descriptor, to mount over the folder itself.
    mount_point: OwnedFd,
    /// A readable descriptor.
    content: OwnedFd,
}

/// Opens a folder of the sandbox to look for what needs a mask.
fn open_folder(root: &RootFs, request: &ScanRequest<'_>) -> Result<Option<OpenFolder>, LaunchFailure> {
    const REMEDY: &str = "Make the folder readable for the sandbox's user";
    let has_patterns = !request.hide.is_empty() || !request.read_only.is_empty();
    let target = inside_path(request);
    let shown = target.display();
    let mount_point =
        root.open(target).at(LaunchStage::Workspace, format_args!("opening `{shown}`"), REMEDY)?;
    let stat = rustix::fs::fstat(&mount_point).at(
        LaunchStage::Workspace,
        format_args!("reading `{shown}`"),
        REMEDY,
    )?;
    let endpoint = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => Some("socket"),
        FileType::Fifo => Some("FIFO"),
        _ => None,
    };
    if let Some(kind) = endpoint {
        let cause = format!("`{shown}` is a {kind}, which would connect to a program of the host");
        return Err(failed(
            LaunchStage::Mounts,
            cause,
            "Mount files and folders only; list sockets as sockets or relays",
        ));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat(&mount_point, ".", flags, Mode::empty()) {
        // A file.
        Err(Errno::NOTDIR) => Ok(None),
        // A folder that can be searched but not listed.
        Err(Errno::ACCESS) if !has_patterns => Ok(None),
        content => {
            let content = content.at(LaunchStage::Workspace, format_args!("scanning `{shown}`"), REMEDY)?;
            Ok(Some(OpenFolder { mount_point, content }))
        }
    }
}

/// The kind of a name that was no longer where the scan found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MissedMask {
    Nothing,
    ReadOnly,
    Hidden,
}

/// Mounts the masks of one folder.
fn mask_folder(
    root: &RootFs,
    folder: &OpenFolder,
    mut found: MaskSet,
    report: &mut MaskReport,
) -> Result<MissedMask, LaunchFailure> {
    const TRY_AGAIN: &str = "Try again; if it stays, raise the limit fs.mount-max";
    let names = found.hidden.len() + found.read_only.len() + found.links.len();
    let emptied = hide_whole_dirs(&mut found, MAX_MASKS);
    let read_only = make_whole_dirs_read_only(&mut found, MAX_MASKS);
    if emptied.contains(Path::new("")) {
        root.hide_folder(&folder.mount_point).at(
            LaunchStage::Workspace,
            "hiding the workspace",
            TRY_AGAIN,
        )?;
    }
    if read_only.contains(Path::new("")) {
        mount::set_attributes(folder.mount_point.as_fd(), true, MASK_ATTRIBUTES).at(
            LaunchStage::Workspace,
            "making the workspace read-only",
            TRY_AGAIN,
        )?;
    }
    let content = &folder.content;
    let mut missed = MissedMask::Nothing;
    let mut check = |path: &Path, kind: MissedMask, masked: rustix::io::Result<()>| match masked {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::AGAIN) => {
            missed = missed.max(kind);
            Ok(())
        }
        masked => masked.at(LaunchStage::Workspace, format_args!("masking `{}`", path.display()), TRY_AGAIN),
    };
    for path in pin_points(&found) {
        check(path, MissedMask::ReadOnly, root.pin_mount(content, path))?;
    }
    for path in &found.read_only {
        check(path, MissedMask::ReadOnly, root.make_read_only(content, path))?;
    }
    for (path, end) in &found.links {
        check(path, MissedMask::ReadOnly, root.cover_link(content, path, end.as_deref()))?;
    }
    // Names below a hidden folder are hidden with it.
    let is_inner = |path: &Path| path.ancestors().skip(1).any(|above| found.hidden.contains(above));
    for path in found.hidden.iter().filter(|path| !is_inner(path)) {
        check(path, MissedMask::Hidden, root.hide(content, path))?;
    }
    report.names = report.names.max(u32::try_from(names).unwrap_or(u32::MAX));
    report.read_only.extend(reported(&read_only));
    report.emptied.extend(reported(&emptied));
    Ok(missed)
}

/// The first folders of a set, as a report lists them.
fn reported(folders: &BTreeSet<PathBuf>) -> Vec<String> {
    let name_of = |path: &PathBuf| match path.to_string_lossy() {
        empty if empty.is_empty() => ".".to_owned(),
        name => name.into_owned(),
    };
    folders.iter().take(MAX_REPORTED).map(name_of).collect()
}

/// What must become a mount of its own, from the top down: the folders above masks and above symlinks that lead to
/// them, and those symlinks.
fn pin_points(found: &MaskSet) -> BTreeSet<&Path> {
    let masked = found.read_only.iter().chain(found.links.keys()).chain(&found.hidden);
    let above = masked.chain(&found.pinned).flat_map(|path| path.ancestors().skip(1));
    let pinned = found.pinned.iter().map(PathBuf::as_path);
    above.chain(pinned).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The number of mounts that a mask set needs.
fn mount_count(found: &MaskSet) -> usize {
    found.hidden.len() + found.read_only.len() + found.links.len() + pin_points(found).len()
}

/// Hides folders as a whole until the hidden names need at most `most` mounts: the folders with the most hidden names
/// first, and everything if that is not enough. Returns these folders.
fn hide_whole_dirs(found: &mut MaskSet, most: usize) -> BTreeSet<PathBuf> {
    let mut whole: BTreeSet<PathBuf> = BTreeSet::new();
    loop {
        let hidden = MaskSet { hidden: std::mem::take(&mut found.hidden), ..MaskSet::default() };
        let too_many = mount_count(&hidden).saturating_sub(most);
        let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
        for folder in hidden.hidden.iter().filter_map(|path| path.parent()) {
            *counts.entry(folder).or_default() += 1;
        }
        // Hiding everything is the last resort.
        counts.remove(Path::new(""));
        let chosen = match too_many {
            0 => BTreeSet::new(),
            _ if counts.is_empty() => [PathBuf::new()].into(),
            // A hidden folder needs one mount instead of those of its content.
            _ => fullest(counts, too_many),
        };
        found.hidden = hidden.hidden;
        if chosen.is_empty() {
            whole.retain(|folder| found.hidden.contains(folder));
            return whole;
        }
        let is_kept = |path: &Path| !path.ancestors().any(|folder| chosen.contains(folder));
        found.hidden.retain(|path| is_kept(path));
        found.read_only.retain(|path| is_kept(path));
        found.links.retain(|path, _| is_kept(path));
        found.pinned.retain(|path| is_kept(path));
        if chosen.contains(Path::new("")) {
            return chosen;
        }
        let is_inner = |folder: &Path| folder.ancestors().skip(1).any(|above| chosen.contains(above));
        let outermost: Vec<&PathBuf> = chosen.iter().filter(|folder| !is_inner(folder)).collect();
        found.hidden.extend(outermost.iter().copied().cloned());
        whole.extend(outermost.into_iter().cloned());
    }
}

/// Makes folders read-only as a whole until at most `most` mounts are needed: the top-level folders with the most
/// read-only names first, and everything if that is not enough. Returns these folders.
fn make_whole_dirs_read_only(found: &mut MaskSet, most: usize) -> BTreeSet<PathBuf> {
    let mut whole = BTreeSet::new();
    loop {
        let too_many = mount_count(found).saturating_sub(most);
        if too_many == 0 {
            return whole;
        }
        let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
        for path in found.read_only.iter().chain(found.links.keys()) {
            let mut parts = path.components();
            if let (Some(Component::Normal(top)), Some(_)) = (parts.next(), parts.next()) {
                *counts.entry(Path::new(top)).or_default() += 1;
            }
        }
        if counts.is_empty() {
            found.read_only.clear();
            found.links.clear();
            found.pinned.clear();
            return [PathBuf::new()].into();
        }
        let chosen = fullest(counts, too_many);
        let is_kept = |path: &Path| !path.ancestors().any(|folder| chosen.contains(folder));
        found.read_only.retain(|path| is_kept(path));
        found.links.retain(|path, _| is_kept(path));
        found.pinned.retain(|path| is_kept(path));
        found.read_only.extend(chosen.iter().cloned());
        whole.extend(chosen);
    }
}

/// The folders with the highest counts, until their sum reaches `enough`.
fn fullest(counts: BTreeMap<&Path, usize>, enough: usize) -> BTreeSet<PathBuf> {
    let mut folders: Vec<(usize, &Path)> =
        counts.into_iter().map(|(folder, count)| (count, folder)).collect();
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
    fn few_read_only_names_are_masked_one_by_one() {
        let mut found = read_only(&["a/.envrc", "b/c/.envrc", ".envrc"]);
        assert_eq!(make_whole_dirs_read_only(&mut found, 6), BTreeSet::new());
        assert_eq!(found, read_only(&["a/.envrc", "b/c/.envrc", ".envrc"]));
        assert_eq!(pin_points(&found), ["a", "b", "b/c"].map(Path::new).into());
    }

    #[test]
    fn fullest_folders_become_read_only_as_a_whole() {
        let mut found = read_only(&["a/.envrc", "b/.bashrc", "b/.envrc", "b/c/.envrc", ".envrc"]);
        found.links.insert("b/.git".into(), None);
        assert_eq!(make_whole_dirs_read_only(&mut found, 5), [PathBuf::from("b")].into());
        assert_eq!(found, read_only(&["a/.envrc", "b", ".envrc"]));
    }

    #[test]
    fn everything_becomes_read_only_as_a_last_resort() {
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
    fn few_hidden_names_are_masked_one_by_one() {
        let mut found = hidden(&["a/1", "a/2", "b/c/1", "1"]);
        assert_eq!(hide_whole_dirs(&mut found, 7), BTreeSet::new());
        assert_eq!(found, hidden(&["a/1", "a/2", "b/c/1", "1"]));
    }

    #[test]
    fn fullest_folders_are_hidden_as_a_whole() {
        let mut found = hidden(&["a/1", "a/2", "b/c/1", "b/c/2", "b/c/3", "b/c/d/1", "1"]);
        found.read_only.insert("b/c/.envrc".into());
        found.pinned.insert("b/c/link".into());
        assert_eq!(hide_whole_dirs(&mut found, 8), [PathBuf::from("b/c")].into());
        assert_eq!(found, hidden(&["a/1", "a/2", "b/c", "1"]));
        assert_eq!(hide_whole_dirs(&mut found, 5), [PathBuf::from("a")].into());
        assert_eq!(found, hidden(&["a", "b/c", "1"]));
    }

    #[test]
    fn many_hidden_folders_are_hidden_by_their_parent() {
        let names: Vec<String> = (0..5000).map(|number| format!("packages/{number}/.env")).collect();
        let mut found = MaskSet { hidden: names.iter().map(PathBuf::from).collect(), ..MaskSet::default() };
        assert_eq!(hide_whole_dirs(&mut found, 100), [PathBuf::from("packages")].into());
        assert_eq!(found, hidden(&["packages"]));
    }

    #[test]
    fn everything_is_hidden_as_a_last_resort() {
        let mut found = hidden(&["1", "2", "3", "a/1"]);
        found.read_only.insert(".envrc".into());
        assert_eq!(hide_whole_dirs(&mut found, 2), [PathBuf::new()].into());
        assert_eq!(found, MaskSet::default());
    }

    #[test]
    fn symlinks_are_pinned_with_their_parents() {
        let mut found = hidden(&["conf/prod"]);
        found.pinned.insert("sub/.env".into());
        assert_eq!(pin_points(&found), ["conf", "sub", "sub/.env"].map(Path::new).into());
    }
}
