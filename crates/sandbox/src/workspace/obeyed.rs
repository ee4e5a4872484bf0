//! Which changes programs of the host would obey: those under names that they look for, everything in a repository of git
//! whatever it is called, what its configuration leads to, and whatever links with such names lead to, each link on the way
//! included. Ways are followed in the folder as it is and as it would be.
//!
//! What is too much to look at counts as obeyed: more is marked then, never less.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;
use tribune_contract::is_host_trap;

use super::content::content_beneath;
use super::diff::Change;
use super::git_config::{MAX_BYTES, leads_to};
use super::node::Node;
use super::{WorkspaceError, beneath, unreadable};
use crate::names::{MAX_FOLDER_BYTES, MAX_NAMES, entries, is_repository};

/// Links on one way; the kernel follows no more.
const MAX_LINKS: usize = 40;

/// Configurations that are read. A project has a few repositories with a few files each.
const MAX_CONFIGURATIONS: usize = 4_096;

/// Links by their path, and where each leads.
type Links = BTreeMap<PathBuf, PathBuf>;

/// Marks what programs of the host would obey. `repositories` are folders that the changes make, or were made in.
pub(super) fn mark(
    (path, folder): (&Path, &OwnedFd),
    upper: &OwnedFd,
    repositories: BTreeSet<PathBuf>,
    changes: &mut [Change],
) -> Result<(), WorkspaceError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut obeyed = Obeyed { root: path, paths: repositories };
    let now = obeyed.links_of(folder)?;
    let then = with_changes(now.clone(), changes);
    obeyed.read_configurations([folder, upper]);
    for links in [&now, &then] {
        obeyed.follow_all(links);
    }
    for change in changes {
        change.is_trap = obeyed.has(&change.path);
    }
    Ok(())
}

/// The links that a folder has, as they would be.
fn with_changes(mut links: Links, changes: &[Change]) -> Links {
    let is_folder = |node: &Option<Node>| matches!(node, Some(Node::Folder { .. }));
    for change in changes.iter().filter(|change| !(is_folder(&change.before) && is_folder(&change.after))) {
        let gone: Vec<PathBuf> = below(&links, &change.path).map(|(path, _)| path.clone()).collect();
        gone.iter().for_each(|path| drop(links.remove(path)));
    }
    for change in changes {
        if let Some(Node::Symlink { to }) = &change.after {
            links.insert(change.path.clone(), to.clone());
        }
    }
    links
}

/// The links at a path and below it.
fn below<'a>(links: &'a Links, path: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a PathBuf)> {
    links.range(path.to_owned()..).take_while(move |(link, _)| link.starts_with(path))
}

struct Obeyed<'a> {
    /// Where the workspace is, for links that name it.
    root: &'a Path,
    /// What is obeyed beside what its name tells, each with everything below it.
    paths: BTreeSet<PathBuf>,
}

impl Obeyed<'_> {
    fn has(&self, path: &Path) -> bool {
        is_host_trap(&path.to_string_lossy()) || path.ancestors().any(|above| self.paths.contains(above))
    }

    /// Looks through a folder for its links; its repositories are obeyed.
    fn links_of(&mut self, root: &OwnedFd) -> Result<Links, WorkspaceError> {
        let (mut links, mut seen) = (Links::new(), 0);
        let mut folders = VecDeque::from([PathBuf::new()]);
        while let Some(path) = folders.pop_front() {
            if seen > MAX_NAMES || path.as_os_str().as_bytes().len() > MAX_FOLDER_BYTES {
                self.paths.insert(path);
                continue;
            }
            let folder = match beneath::open_folder(root, &path) {
                Ok(folder) => folder,
                // It went meanwhile, or is closed to whoever would land there.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
                Err(error) => return Err(unreadable(path, error)),
            };
            let names = entries(&folder).map_err(|error| unreadable(&path, error))?;
            seen += names.len();
            if is_repository(|wanted| names.iter().any(|entry| entry.name == wanted.as_bytes())) {
                self.paths.insert(path.clone());
            }
            for entry in names {
                let name = OsStr::from_bytes(&entry.name);
                match entry.kind {
                    FileType::Directory => {
                        // Obeyed by its name already; here, because its configuration is looked for.
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
    fn read_configurations(&mut self, sides: [&OwnedFd; 2]) {
        let names = ["config", "config.worktree"];
        let own = self.paths.iter().flat_map(|folder| names.map(|name| folder.join(name)));
        let mut queue: VecDeque<PathBuf> = own.take(MAX_CONFIGURATIONS).collect();
        let mut read: BTreeSet<PathBuf> = queue.iter().cloned().collect();
        while let Some(file) = queue.pop_front() {
            for text in sides.iter().filter_map(|side| content_beneath(side, &file, MAX_BYTES).ok().flatten())
            {
                for led in leads_to(&file, &text, self.root) {
                    // What it includes leads on; what it runs holds no settings, and reading it does no harm.
                    if read.len() < MAX_CONFIGURATIONS && read.insert(led.clone()) {
                        queue.push_back(led.clone());
                    }
                    self.paths.insert(led);
                }
            }
        }
    }

    /// Follows every link that is obeyed, and those that are for that reason.
    fn follow_all(&mut self, links: &Links) {
        let mut followed = BTreeSet::new();
        let first = links.keys().filter(|link| self.has(link)).cloned();
        let mut queue: VecDeque<PathBuf> = first.collect();
        while let Some(path) = queue.pop_front() {
            for (link, _) in below(links, &path) {
                if !followed.insert(link.clone()) {
                    continue;
                }
                for led in self.way(links, link) {
                    // A link on the way is obeyed as such; nobody reads what else it leads to.
                    let is_end = !links.contains_key(&led);
                    if self.paths.insert(led.clone()) && is_end {
                        queue.push_back(led);
                    }
                }
            }
        }
    }

    /// Where a link leads: each link on its way, and its end, as far as they are in the workspace.
    fn way(&self, links: &Links, link: &Path) -> Vec<PathBuf> {
        let mut way = Vec::new();
        let mut place = self.root.join(link.parent().unwrap_or(Path::new("")));
        let Some(to) = links.get(link) else { return way };
        let mut left: VecDeque<Component<'_>> = to.components().collect();
        while let Some(part) = left.pop_front() {
            match part {
                Component::Prefix(_) | Component::CurDir => {}
                Component::RootDir => place = "/".into(),
                Component::ParentDir => drop(place.pop()),
                Component::Normal(name) => {
                    let next = place.join(name);
                    let link = next.strip_prefix(self.root).ok().and_then(|inner| links.get_key_value(inner));
                    let Some((path, to)) = link else {
                        place = next;
                        continue;
                    };
                    way.push(path.clone());
                    if way.len() > MAX_LINKS {
                        return way;
                    }
                    to.components().rev().for_each(|part| left.push_front(part));
                }
            }
        }
        way.extend(place.strip_prefix(self.root).map(Path::to_owned));
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(links: &[(&str, &str)], link: &str) -> Vec<String> {
        let links: Links = links.iter().map(|(path, to)| (PathBuf::from(path), PathBuf::from(to))).collect();
        let obeyed = Obeyed { root: "/home/p".as_ref(), paths: BTreeSet::new() };
        obeyed.way(&links, link.as_ref()).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn every_step_of_a_way_is_told() {
        for (links, expected) in [
            (&[("a/l", "../b")][..], &["b"][..]),
            (&[("a/l", "m"), ("a/m", "n/x"), ("a/n", "/home/p/z")], &["a/m", "a/n", "z/x"]),
            (&[("a/l", "../../p/b")], &["b"]),
            (&[("a/l", "..")], &[""]),
            (&[("a/l", "/etc/passwd")], &[]),
            (&[("a/l", "../m/../x"), ("m", "n/o")], &["m", "n/x"]),
        ] {
            assert_eq!(led(links, "a/l"), expected, "{links:?}");
        }
        assert_eq!(led(&[("a/l", "l")], "a/l").len(), MAX_LINKS + 1, "a circle has an end");
    }
}
