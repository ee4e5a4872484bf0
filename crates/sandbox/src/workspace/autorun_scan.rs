//! Finds changes that programs of the host would execute or load: changes of autorun files, of everything in a git
//! repository (whatever its name), of what its configuration points to, and of the targets of symlinks with such names,
//! including every symlink on the way. A symlink whose path is the beginning of a pattern continues it at its target.
//! Paths are resolved in the folder as it is, as it would be with all changes, and as it would be with only some of
//! them.
//!
//! What exceeds the bounds counts as an autorun file: this marks too much, never too little.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;
use tribune_contract::{PatternProgress, autorun_patterns, autorun_prefix, is_autorun_path};

use super::change::Change;
use super::content::content_beneath;
use super::git_config::{MAX_BYTES, config_targets};
use super::symlink_paths::{BudgetExceeded, Links, PathTracer};
use super::{WorkspaceError, resolve_beneath, unreadable};
use crate::dir_entries::{MAX_DIR_PATH_BYTES, MAX_ENTRIES, is_repository, read_entries};

/// Maximum number of git configurations, including candidates. A project has a few repositories with a few files each.
const MAX_GIT_CONFIGS: usize = 16_384;

/// Marks the changes that programs of the host would execute or load. `repositories` are folders that the changes turn
/// into repositories, or that are changed repositories.
pub(super) fn mark_autorun(
    path: &Path,
    lower: &OwnedFd,
    upper: &OwnedFd,
    repositories: BTreeSet<PathBuf>,
    changes: &mut [Change],
) -> Result<(), WorkspaceError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut scan = AutorunScan { paths: repositories, ..AutorunScan::in_folder(path) };
    let now = scan.collect_links(lower)?;
    let mut tracer = PathTracer::new(path, now, changes);
    let followed =
        scan.read_git_configs(&mut tracer, [lower, upper]).and_then(|()| scan.follow_links(&mut tracer));
    if followed == Err(BudgetExceeded) {
        scan.paths.insert(PathBuf::new());
    }
    for change in changes {
        change.is_autorun = scan.contains(&change.path) || scan.links_passed.contains(&change.path);
    }
    Ok(())
}

#[derive(Debug, Default)]
struct AutorunScan {
    /// The workspace's own path, as far as it can turn its content into autorun files.
    prefix: Option<String>,
    /// Autorun paths that are not recognised by name, each with everything below it.
    paths: BTreeSet<PathBuf>,
    /// Symlinks on the way to an autorun path.
    links_passed: BTreeSet<PathBuf>,
    /// Targets of symlinks whose paths are the beginning of a pattern, with their progress in it.
    partial_matches: BTreeMap<PathBuf, PatternProgress>,
}

impl AutorunScan {
    fn in_folder(folder: &Path) -> Self {
        Self { prefix: autorun_prefix(folder), ..Self::default() }
    }

    /// Returns whether the path matches by name, together with the workspace's own path.
    fn matches_by_name(&self, path: &Path) -> bool {
        let path = path.to_string_lossy();
        self.prefix
            .as_ref()
            .map_or_else(|| is_autorun_path(&path), |above| is_autorun_path(&format!("{above}/{path}")))
    }

    fn contains(&self, path: &Path) -> bool {
        self.matches_by_name(path)
            || path.ancestors().any(|above| self.paths.contains(above))
            || self.partial_matches_above(path).any(|(from, rest)| advance(from, rest).1)
    }

    /// The progress that symlinks at this path have made: by the names on the path, and by symlinks that lead above it.
    /// Without the progress that every path has.
    fn progress_at(&self, path: &Path) -> PatternProgress {
        let start = autorun_patterns().start();
        let above =
            self.prefix.as_deref().map_or_else(|| start.clone(), |above| advance(&start, Path::new(above)).0);
        let own = advance(&above, path).0.beyond(&start);
        self.partial_matches_above(path).fold(own, |all, (from, rest)| all.and(&advance(from, rest).0))
    }

    fn partial_matches_above<'a>(
        &'a self,
        path: &'a Path,
    ) -> impl Iterator<Item = (&'a PatternProgress, &'a Path)> {
        path.ancestors()
            .filter_map(move |above| Some((self.partial_matches.get(above)?, path.strip_prefix(above).ok()?)))
    }

    /// Collects the symlinks of a folder, and its repositories as autorun paths.
    fn collect_links(&mut self, root: &OwnedFd) -> Result<Links, WorkspaceError> {
        let (mut links, mut seen) = (Links::new(), 0);
        let mut folders = VecDeque::from([PathBuf::new()]);
        while let Some(path) = folders.pop_front() {
            if seen > MAX_ENTRIES || path.as_os_str().as_bytes().len() > MAX_DIR_PATH_BYTES {
                self.paths.insert(path);
                continue;
            }
            let folder = match resolve_beneath::open_folder(root, &path) {
                Ok(folder) => folder,
                // It was removed meanwhile, or the landing user cannot read it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
                Err(error) => return Err(unreadable(path, error)),
            };
            let names = read_entries(&folder).map_err(|error| unreadable(&path, error))?;
            seen += names.len();
            if is_repository(|wanted| names.iter().any(|entry| entry.name == wanted.as_bytes())) {
                self.paths.insert(path.clone());
            }
            for entry in names {
                let name = OsStr::from_bytes(&entry.name);
                match entry.kind {
                    FileType::Directory => {
                        // Its name matches already; listed here because its configuration is read.
                        if name.eq_ignore_ascii_case(".git") {
                            self.paths.insert(path.join(name));
                        }
                        folders.push_back(path.join(name));
                    }
                    FileType::Symlink => {
                        let Ok(to) = rustix::fs::readlinkat(&folder, name, Vec::new()) else { continue };
                        links.insert(path.join(name), OsStr::from_bytes(to.as_bytes()).into());
                    }
                    _ => {}
                }
            }
        }
        Ok(links)
    }

    /// Reads the configurations of all repositories, before and after the changes, and the files that they include.
    fn read_git_configs(
        &mut self,
        tracer: &mut PathTracer<'_>,
        sides: [&OwnedFd; 2],
    ) -> Result<(), BudgetExceeded> {
        let names = ["config", "config.worktree"];
        let own: Vec<PathBuf> =
            self.paths.iter().flat_map(|folder| names.map(|name| folder.join(name))).collect();
        // Files, each with the work trees in which its programs run.
        let mut read: BTreeSet<(PathBuf, Vec<PathBuf>)> = BTreeSet::new();
        if own.len() > MAX_GIT_CONFIGS {
            return Err(BudgetExceeded);
        }
        for file in &own {
            // The work tree is around the file's own path, not around the target of a symlink.
            let tree = tracer.root.join(file.parent().unwrap_or(Path::new(""))).join("..");
            let ends = self.trace(tracer, Path::new(""), file)?;
            read.extend(ends.into_iter().map(|end| (end, vec![tree.clone()])));
        }
        let mut queue: VecDeque<(PathBuf, Vec<PathBuf>)> = read.iter().cloned().collect();
        let home = std::env::home_dir();
        while let Some((file, trees)) = queue.pop_front() {
            for text in sides.iter().filter_map(|side| content_beneath(side, &file, MAX_BYTES).ok().flatten())
            {
                let mut trees = trees.clone();
                for led in config_targets(&file, &text, tracer.root, home.as_deref(), &mut trees) {
                    for end in self.trace(tracer, Path::new(""), &led.path)? {
                        if end.as_os_str().is_empty() && !led.is_hooks {
                            continue;
                        }
                        self.paths.insert(end.clone());
                        // An included file can include more. What the configuration executes contains no settings, and
                        // reading it is harmless.
                        let next = (end, trees.clone());
                        if read.insert(next.clone()) {
                            queue.push_back(next);
                        }
                        if read.len() > MAX_GIT_CONFIGS {
                            return Err(BudgetExceeded);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Follows every symlink that is an autorun path or begins a pattern, until no more are found.
    fn follow_links(&mut self, tracer: &mut PathTracer<'_>) -> Result<(), BudgetExceeded> {
        let mut followed: BTreeMap<PathBuf, (bool, PatternProgress)> = BTreeMap::new();
        let mut queue: VecDeque<PathBuf> = tracer.links().cloned().collect();
        while let Some(link) = queue.pop_front() {
            let (is_autorun, reached) = (self.contains(&link), self.progress_at(&link));
            let (was_autorun, before) = followed.get(&link).cloned().unwrap_or_default();
            let new = reached.beyond(&before);
            if was_autorun || !is_autorun && new.is_empty() {
                continue;
            }
            let folder = link.parent().unwrap_or(Path::new(""));
            for end in self.trace(tracer, folder, Path::new(link.file_name().unwrap_or_default()))? {
                let is_more = if is_autorun {
                    self.paths.insert(end.clone())
                } else {
                    let partial_matches = self.partial_matches.entry(end.clone()).or_default();
                    let is_more = !new.beyond(partial_matches).is_empty();
                    *partial_matches = partial_matches.and(&new);
                    is_more
                };
                if is_more {
                    queue.extend(tracer.below(&end)?);
                }
            }
            followed.insert(link, (is_autorun, reached));
        }
        Ok(())
    }

    /// Resolves a path. Symlinks on the way are recorded.
    fn trace(
        &mut self,
        tracer: &mut PathTracer<'_>,
        from: &Path,
        path: &Path,
    ) -> Result<Vec<PathBuf>, BudgetExceeded> {
        let trace = tracer.follow(from, path)?;
        self.links_passed.extend(trace.passed);
        Ok(trace.ends)
    }
}

/// Returns the progress in the patterns after a path, and whether any pattern matches it or one of its parents.
fn advance(from: &PatternProgress, path: &Path) -> (PatternProgress, bool) {
    let patterns = autorun_patterns();
    path.components().fold((from.clone(), false), |(from, is_trap), part| {
        let name = part.as_os_str().to_string_lossy();
        (patterns.step(&from, &name), is_trap || patterns.matches(&from, &name))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::workspace::{OverlayDirs, diff};

    /// Changes in a folder that is itself an autorun path, or is inside one.
    #[test]
    fn workspace_inside_an_autorun_path_is_recognised() {
        let place = tempfile::tempdir().unwrap();
        for (number, (folder, autorun, plain)) in [
            (".vscode", vec!["tasks.json"], vec![]),
            (".git/hooks", vec!["pre-commit"], vec![]),
            (".cargo", vec!["config.toml"], vec!["notes.txt"]),
            (".config", vec!["fish/config.fish"], vec!["notes.txt"]),
            ("plain", vec![".envrc"], vec!["config.toml", "tasks.json"]),
        ]
        .into_iter()
        .enumerate()
        {
            let lower = place.path().join(folder);
            std::fs::create_dir_all(&lower).unwrap();
            let layers = OverlayDirs::create(place.path().join(format!("layers-{number}")), &lower).unwrap();
            for file in autorun.iter().chain(&plain) {
                let file = layers.upper().join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, "x").unwrap();
            }
            let changes = diff(&lower, &layers).unwrap().changes;
            let changed = |is_autorun: bool| -> Vec<&str> {
                let is_file = |path: &Path| layers.upper().join(path).is_file();
                let files =
                    changes.iter().filter(|change| change.is_autorun == is_autorun && is_file(&change.path));
                files.map(|change| change.path.to_str().unwrap()).collect()
            };
            assert_eq!(changed(true), autorun, "{folder}");
            assert_eq!(changed(false), plain, "{folder}");
        }
    }

    /// A symlink that begins a pattern starts from the workspace's own path.
    #[test]
    fn symlink_continues_a_pattern_that_the_workspace_path_begins() {
        let place = tempfile::tempdir().unwrap();
        let lower = place.path().join(".jj");
        std::fs::create_dir_all(lower.join("elsewhere")).unwrap();
        symlink("elsewhere", lower.join("repo")).unwrap();
        let layers = OverlayDirs::create(place.path().join("layers"), &lower).unwrap();
        std::fs::create_dir(layers.upper().join("elsewhere")).unwrap();
        for file in ["config.toml", "notes.txt"] {
            std::fs::write(layers.upper().join("elsewhere").join(file), "x").unwrap();
        }
        let changes = diff(&lower, &layers).unwrap().changes;
        let patterns = changes.iter().filter(|change| change.is_autorun).map(|change| change.path.as_path());
        assert_eq!(patterns.collect::<Vec<_>>(), [Path::new("elsewhere/config.toml")]);
    }
}
