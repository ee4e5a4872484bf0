//! Which changes programs of the host would obey: those under names that they look for, everything in a repository of git
//! whatever it is called, what its configuration leads to, and whatever links with such names lead to, each link on the way
//! included. A link whose name is the beginning of such a path leads to the rest of it. PathTracer are followed in the folder as it
//! is, as it would be, and as it would be if some of the changes were left.
//!
//! What is too much to look at counts as scan: more is marked then, never less.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;
use tribune_contract::{PatternProgress, autorun_patterns, autorun_prefix, is_host_trap};

use super::content::content_beneath;
use super::diff::Change;
use super::git_config::{MAX_BYTES, config_targets};
use super::symlink_paths::{BudgetExceeded, Links, PathTracer};
use super::{WorkspaceError, resolve_beneath, unreadable};
use crate::dir_entries::{MAX_DIR_PATH_BYTES, MAX_ENTRIES, is_repository, read_entries};

/// Configurations that are read, and what could be one. A project has a few repositories with a few files each.
const MAX_GIT_CONFIGS: usize = 16_384;

/// Marks what programs of the host would obey. `repositories` are folders that the changes make, or were made in.
pub(super) fn mark_autorun(
    (path, folder): (&Path, &OwnedFd),
    upper: &OwnedFd,
    repositories: BTreeSet<PathBuf>,
    changes: &mut [Change],
) -> Result<(), WorkspaceError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut scan = AutorunScan { paths: repositories, ..AutorunScan::in_folder(path) };
    let now = scan.collect_links(folder)?;
    let mut tracer = PathTracer::new(path, now, changes);
    let followed =
        scan.read_git_configs(&mut tracer, [folder, upper]).and_then(|()| scan.follow_links(&mut tracer));
    if followed == Err(BudgetExceeded) {
        scan.paths.insert(PathBuf::new());
    }
    for change in changes {
        change.is_trap = scan.contains(&change.path) || scan.links_passed.contains(&change.path);
    }
    Ok(())
}

#[derive(Debug, Default)]
struct AutorunScan {
    /// Names of the folder itself that can make what is in it scan.
    prefix: Option<String>,
    /// What is scan beside what its name tells, each with everything below it.
    paths: BTreeSet<PathBuf>,
    /// Links on the way to something that is scan. Nobody reads what else they lead to.
    links_passed: BTreeSet<PathBuf>,
    /// What links lead to whose names are the beginning of a pattern, and how far they have come in it.
    partial_matches: BTreeMap<PathBuf, PatternProgress>,
}

impl AutorunScan {
    fn in_folder(folder: &Path) -> Self {
        Self { prefix: autorun_prefix(folder), ..Self::default() }
    }

    /// Whether its name tells, with those of the folder before it.
    fn matches_by_name(&self, path: &Path) -> bool {
        let path = path.to_string_lossy();
        self.prefix
            .as_ref()
            .map_or_else(|| is_host_trap(&path), |above| is_host_trap(&format!("{above}/{path}")))
    }

    fn contains(&self, path: &Path) -> bool {
        self.matches_by_name(path)
            || path.ancestors().any(|above| self.paths.contains(above))
            || self.partial_matches_above(path).any(|(from, rest)| advance(from, rest).1)
    }

    /// How far links lead that have this path, by its own names and by links that lead above it. What holds everywhere is no
    /// beginning.
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

    /// Looks through a folder for its links; its repositories are scan.
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
                // It went meanwhile, or is closed to whoever would land there.
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
                        // AutorunScan by its name already; here, because its configuration is looked for.
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

    /// Reads the configurations of all repositories, as they are and as they would be, and of what these include.
    fn read_git_configs(
        &mut self,
        tracer: &mut PathTracer<'_>,
        sides: [&OwnedFd; 2],
    ) -> Result<(), BudgetExceeded> {
        let names = ["config", "config.worktree"];
        let own: Vec<PathBuf> =
            self.paths.iter().flat_map(|folder| names.map(|name| folder.join(name))).collect();
        // Files, each with the work trees that its programs run in.
        let mut read: BTreeSet<(PathBuf, Vec<PathBuf>)> = BTreeSet::new();
        if own.len() > MAX_GIT_CONFIGS {
            return Err(BudgetExceeded);
        }
        for file in &own {
            // Its work tree is around its own name and not around where a link leads.
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
                for led in config_targets(&file, &text, (tracer.root, home.as_deref()), &mut trees) {
                    for end in self.trace(tracer, Path::new(""), &led.path)? {
                        if end.as_os_str().is_empty() && !led.is_hooks {
                            continue;
                        }
                        self.paths.insert(end.clone());
                        // What it includes leads on; what it runs holds no settings, and reading it does no harm.
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

    /// Follows every link that is scan or begins a pattern, and those that are or do for that reason.
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

    /// Where a path leads. Links on the way are scan.
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

/// How far a path comes in the patterns, and whether any of them is about it or about something above it.
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
    use crate::workspace::{Layers, diff};

    /// What is changed in a folder that is itself scan, or is in one that is.
    #[test]
    fn the_names_of_the_folder_itself_count() {
        let place = tempfile::tempdir().unwrap();
        for (number, (folder, scan, plain)) in [
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
            let layers = Layers::create(place.path().join(format!("layers-{number}")), &lower).unwrap();
            for file in scan.iter().chain(&plain) {
                let file = layers.upper().join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, "x").unwrap();
            }
            let changes = diff(&lower, &layers).unwrap().changes;
            let told = |is_trap: bool| -> Vec<&str> {
                let is_file = |path: &Path| layers.upper().join(path).is_file();
                let files =
                    changes.iter().filter(|change| change.is_trap == is_trap && is_file(&change.path));
                files.map(|change| change.path.to_str().unwrap()).collect()
            };
            assert_eq!(told(true), scan, "{folder}");
            assert_eq!(told(false), plain, "{folder}");
        }
    }

    /// A link that begins such a name goes on from where the folder is.
    #[test]
    fn links_begin_where_the_folder_is() {
        let place = tempfile::tempdir().unwrap();
        let lower = place.path().join(".jj");
        std::fs::create_dir_all(lower.join("elsewhere")).unwrap();
        symlink("elsewhere", lower.join("repo")).unwrap();
        let layers = Layers::create(place.path().join("layers"), &lower).unwrap();
        std::fs::create_dir(layers.upper().join("elsewhere")).unwrap();
        for file in ["config.toml", "notes.txt"] {
            std::fs::write(layers.upper().join("elsewhere").join(file), "x").unwrap();
        }
        let changes = diff(&lower, &layers).unwrap().changes;
        let patterns = changes.iter().filter(|change| change.is_trap).map(|change| change.path.as_path());
        assert_eq!(patterns.collect::<Vec<_>>(), [Path::new("elsewhere/config.toml")]);
    }
}
