//! Where a link of a shown folder leads, and what it leads through: if any of that could be taken away or replaced, the link
//! would lead elsewhere at the next start.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType};

/// Links that are followed one after the other; the kernel follows no more.
const MAX_LINKS: usize = 40;

/// Names that are looked up for one link. Nobody who means well writes more.
const MAX_LOOKUPS: usize = 4096;

/// The way of a link.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LinkTrace {
    /// The link itself and those behind it, and folders that it enters and leaves again.
    pub(super) passed: Vec<PathBuf>,
    /// What is at its end, if that is in the folder. The folder itself has no name. There is more than one only if the link leads
    /// elsewhere inside than on this machine.
    pub(super) ends: Vec<(PathBuf, FileType)>,
    /// Where it leads out of the folder, if it does, by each of the folder's names: a link that says `..` leads elsewhere inside than
    /// on this machine.
    pub(super) out: Vec<PathBuf>,
    /// Where it leads out and comes back.
    pub(super) around: Vec<PathBuf>,
    /// How many names were looked up.
    pub(super) steps: usize,
    /// Whether it was left at the top.
    is_left: bool,
}

/// The machine around a folder, as it is without what was mounted to build a box.
#[derive(Debug, Default)]
pub(super) struct HostView {
    covered: Option<(PathBuf, OwnedFd)>,
}

impl HostView {
    /// One where something is about to be mounted on a folder, which is open. Its path leads through no link.
    pub(super) const fn with_covered(path: PathBuf, folder: OwnedFd) -> Self {
        Self { covered: Some((path, folder)) }
    }

    /// What a link says. What the sandbox's user cannot look at is none.
    fn link(&self, path: &Path) -> Option<CString> {
        let below =
            self.covered.as_ref().and_then(|(top, folder)| Some((folder, path.strip_prefix(top).ok()?)));
        match below {
            // What is mounted on was a folder.
            Some((_, inner)) if inner.as_os_str().is_empty() => None,
            Some((folder, inner)) => rustix::fs::readlinkat(folder, inner, Vec::new()).ok(),
            None => rustix::fs::readlink(path, Vec::new()).ok(),
        }
    }
}

/// A folder that ways lead through: open, with its names (where it is inside, and where it really is on this machine), and what is
/// around it.
pub(super) type TracedDir<'a> = (&'a OwnedFd, &'a [PathBuf], &'a HostView);

/// The names of a folder, and where those that lead through links really are.
pub(super) fn with_real_paths(names: &[&Path], machine: &HostView) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for name in names
        .iter()
        .map(|name| (*name).to_owned())
        .chain(names.iter().filter_map(|name| real_path(name, machine)))
    {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Where a path of the machine leads.
fn real_path(path: &Path, machine: &HostView) -> Option<PathBuf> {
    let (mut place, mut ahead, mut links) = (PathBuf::from("/"), components_of(path), 0);
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            place.pop();
            continue;
        }
        let path = place.join(&name);
        let Some(text) = machine.link(&path) else {
            place = path;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        if push_target(text.as_bytes(), &mut ahead) {
            place = "/".into();
        }
    }
    Some(place)
}

/// Puts what a link says before what is ahead. Whether it begins at the top.
fn push_target(text: &[u8], ahead: &mut VecDeque<OsString>) -> bool {
    let text = Path::new(OsStr::from_bytes(text));
    for part in components_of(text).into_iter().rev() {
        ahead.push_front(part);
    }
    text.is_absolute()
}

/// Follows a link of a folder.
pub(super) fn trace_link(ground: TracedDir<'_>, link: &Path) -> LinkTrace {
    let mut trace = LinkTrace::default();
    let (Some(folder), Some(name)) = (link.parent(), link.file_name()) else { return trace };
    for by in 0..ground.1.len() {
        let at = Position::Inside { here: folder.to_owned(), by };
        walk(ground, (at, [name.to_owned()].into()), &mut trace);
        if !trace.is_left {
            break;
        }
    }
    let mut before = BTreeSet::new();
    trace.passed.retain(|path| before.insert(path.clone()));
    trace
}

/// Follows a path from the top of the machine, if it comes to the folder.
pub(super) fn trace_path(ground: TracedDir<'_>, path: &Path) -> Option<LinkTrace> {
    let mut trace = LinkTrace::default();
    walk(ground, (Position::Outside("/".into()), components_of(path)), &mut trace);
    let has_come = trace.is_left || !trace.passed.is_empty() || !trace.ends.is_empty();
    has_come.then_some(trace)
}

/// Where a walk is. Neither path leads through links.
#[derive(Debug)]
enum Position {
    /// In the folder, which was entered by one of its names.
    Inside {
        here: PathBuf,
        by: usize,
    },
    Outside(PathBuf),
}

/// Goes name by name as the kernel does: `..` leads up from where the names before it led to, which their text does not tell.
fn walk(
    (root, names, machine): TracedDir<'_>,
    (mut at, mut ahead): (Position, VecDeque<OsString>),
    trace: &mut LinkTrace,
) {
    let (mut links, mut steps) = (0, 0);
    let mut left = None;
    while let Some(name) = ahead.pop_front() {
        (steps, trace.steps) = (steps + 1, trace.steps + 1);
        if steps > MAX_LOOKUPS {
            return;
        }
        // A link, and whether it is in the folder.
        let (text, is_inside) = match &mut at {
            Position::Outside(place) if name == ".." => {
                place.pop();
                continue;
            }
            Position::Outside(place) => {
                let path = place.join(&name);
                if let Some(by) = names.iter().position(|name| path == *name) {
                    trace.around.extend(left.take());
                    at = Position::Inside { here: PathBuf::new(), by };
                    continue;
                }
                let Some(text) = machine.link(&path) else {
                    *place = path;
                    continue;
                };
                (text, false)
            }
            Position::Inside { here, by } if name == ".." && here.as_os_str().is_empty() => {
                let place = names[*by].as_path();
                left = Some(ahead.iter().fold(place.join(".."), |path, part| path.join(part)));
                trace.is_left = true;
                at = Position::Outside(place.parent().unwrap_or(place).to_owned());
                continue;
            }
            Position::Inside { here, .. } if name == ".." => {
                trace.passed.push(here.clone());
                here.pop();
                continue;
            }
            Position::Inside { here, .. } => {
                let path = here.join(&name);
                let Ok(stat) = rustix::fs::statat(root, &path, AtFlags::SYMLINK_NOFOLLOW) else { return };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Symlink => {
                        let Ok(text) = rustix::fs::readlinkat(root, &path, Vec::new()) else { return };
                        trace.passed.push(path);
                        (text, true)
                    }
                    FileType::Directory => {
                        *here = path;
                        continue;
                    }
                    kind => {
                        if ahead.is_empty() {
                            trace.end((path, kind));
                        }
                        return;
                    }
                }
            }
        };
        links += 1;
        if links > MAX_LINKS {
            return;
        }
        if push_target(text.as_bytes(), &mut ahead) {
            if is_inside {
                left = Some(ahead.iter().fold("/".into(), |path: PathBuf, part| path.join(part)));
            }
            at = Position::Outside("/".into());
        }
    }
    match at {
        Position::Inside { here, .. } => trace.end((here, FileType::Directory)),
        Position::Outside(_) => trace.out.extend(left),
    }
}

impl LinkTrace {
    fn end(&mut self, end: (PathBuf, FileType)) {
        if !self.ends.contains(&end) {
            self.ends.push(end);
        }
    }
}

/// The names of a path, one by one.
fn components_of(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, Mode, OFlags};

    use super::*;

    #[test]
    fn a_link_is_followed_to_its_end_and_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("real/deep")).unwrap();
        std::fs::write(at("real/file"), "").unwrap();
        for (name, to) in [
            ("straight", "real/file"),
            ("by", "real"),
            ("chain", "./by//file"),
            ("up", "real/deep/../file"),
            ("inside", "/there/real"),
            ("again", "../there/real"),
            ("elsewhere", "/etc/passwd"),
            ("out", "../../x"),
            ("gone", "real/gone"),
            ("circle", "circle"),
            ("root", "real/.."),
            ("through-a-file", "real/file/x"),
        ] {
            symlink(to, at(name)).unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, folder.path(), flags, Mode::empty()).unwrap();
        let way = |link: &str| {
            let trace = trace_link(
                (&root, &[PathBuf::from("/there"), folder.path().to_owned()], &HostView::default()),
                Path::new(link),
            );
            let passed: Vec<String> = trace.passed.iter().map(|path| path.display().to_string()).collect();
            (
                passed.join(" "),
                trace
                    .ends
                    .first()
                    .map(|(end, kind)| (end.display().to_string(), *kind == FileType::Directory)),
            )
        };
        let file = || Some(("real/file".to_owned(), false));
        let real = || Some(("real".to_owned(), true));
        assert_eq!(way("straight"), ("straight".to_owned(), file()));
        assert_eq!(way("by"), ("by".to_owned(), real()));
        assert_eq!(way("chain"), ("chain by".to_owned(), file()));
        assert_eq!(way("up"), ("up real/deep".to_owned(), file()));
        assert_eq!(way("inside"), ("inside".to_owned(), real()));
        assert_eq!(way("again"), ("again".to_owned(), real()));
        for link in ["elsewhere", "out", "gone", "through-a-file"] {
            assert_eq!(way(link), (link.to_owned(), None));
        }
        assert_eq!(way("root"), ("root real".to_owned(), Some((String::new(), true))));
        assert_eq!(way("circle").1, None);
        let ground = (&root, &[PathBuf::from("/there")][..], &HostView::default());
        let out = |link: &str| trace_link(ground, Path::new(link)).out;
        assert_eq!(out("elsewhere"), [Path::new("/etc/passwd")]);
        assert_eq!(out("out"), [Path::new("/there/../../x")]);
        assert_eq!(out("straight"), Vec::<PathBuf>::new());
        let arrived = |path: &str| trace_path(ground, Path::new(path));
        let there = arrived("/there/by/file").unwrap();
        assert_eq!((there.passed, there.ends[0].0.as_path()), (vec!["by".into()], Path::new("real/file")));
        assert_eq!(arrived("/elsewhere/by/file"), None);
        let elsewhere = folder.path().join("real/file");
        symlink(elsewhere, at("by-name")).unwrap();
        assert_eq!(way("by-name"), ("by-name".to_owned(), file()));
    }

    /// `..` behind a link leads up from where the link leads to, inside and out.
    #[test]
    fn ways_are_those_of_the_kernel() {
        let machine = tempfile::tempdir().unwrap();
        let top = machine.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        for name in ["P/deep/y", "other/inner"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["P/vault", "P/deep/vault", "other/vault"] {
            std::fs::write(at(name), "").unwrap();
        }
        let link = |to: &str, name: &str| symlink(to, at(name)).unwrap();
        let absolute = |to: &str| at(to).to_str().unwrap().to_owned();
        link("deep/y", "P/x");
        link(&absolute("P"), "alias");
        link("P/deep", "alias-of-deep");
        link("other/inner", "aside");
        for (name, to) in [
            ("P/plain", "x/../vault".to_owned()),
            ("P/absolute", absolute("P/x/../vault")),
            ("P/again", "../P/x/../vault".to_owned()),
            ("P/boxed", "/workspace/x/../vault".to_owned()),
            ("P/by-alias", absolute("alias/deep/vault")),
            ("P/by-deep-alias", absolute("alias-of-deep/vault")),
            ("P/twice", absolute("aside/../../alias/x/../vault")),
        ] {
            link(&to, name);
        }
        link("../aside/../vault", "P/out");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, at("P"), flags, Mode::empty()).unwrap();
        // Its own name may lead through a link too.
        let machine = HostView::default();
        let names = with_real_paths(&[Path::new("/workspace"), &at("alias")], &machine);
        assert_eq!(names, [PathBuf::from("/workspace"), at("alias"), at("P")]);
        let ends = |link: &str| {
            let trace = trace_link((&root, &names, &HostView::default()), Path::new(link));
            trace.ends.into_iter().map(|(end, _)| end).collect::<Vec<_>>()
        };
        for link in ["plain", "absolute", "again", "boxed", "by-alias", "by-deep-alias", "twice"] {
            assert_eq!(ends(link), [Path::new("deep/vault")], "{link}");
            if link != "boxed" {
                assert_eq!(at("P").join(link).canonicalize().unwrap(), at("P/deep/vault"), "{link}");
            }
        }
        assert_eq!(ends("out"), Vec::<PathBuf>::new());
    }
}
