//! Resolves the symlinks of a folder that the sandbox sees, and records what they lead through: if any of that could be
//! removed or replaced, the symlink would lead elsewhere at the next start.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType};

/// Maximum number of symlinks on one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Maximum number of names looked up for one symlink. Real ones need far fewer.
const MAX_LOOKUPS: usize = 4096;

/// The path of a symlink to its end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LinkTrace {
    /// The symlink itself, the symlinks behind it, and folders that the path enters and leaves again.
    pub(super) passed: Vec<PathBuf>,
    /// The end points inside the folder; the folder itself is the empty path. There is more than one only if the
    /// symlink leads elsewhere in the sandbox than on the host.
    pub(super) ends: Vec<(PathBuf, FileType)>,
    /// The host paths at which it leads out of the folder, one for each path of the folder: `..` leads elsewhere in the
    /// sandbox than on the host.
    pub(super) out: Vec<PathBuf>,
    /// The host paths at which it leads out and comes back.
    pub(super) around: Vec<PathBuf>,
    /// How many names were looked up.
    pub(super) steps: usize,
    /// Whether it left the folder by `..`.
    is_left: bool,
}

/// The file system of the host, without the mount that covers a part of it while a sandbox is built.
#[derive(Debug, Default)]
pub(super) struct HostView {
    covered: Option<(PathBuf, OwnedFd)>,
}

impl HostView {
    /// A view where `folder`, which is open, is about to be covered. Its path contains no symlink.
    pub(super) const fn with_covered(path: PathBuf, folder: OwnedFd) -> Self {
        Self { covered: Some((path, folder)) }
    }

    /// Reads a symlink. Returns `None` for everything else, and for what the sandbox's user cannot read.
    fn link(&self, path: &Path) -> Option<CString> {
        let below =
            self.covered.as_ref().and_then(|(top, folder)| Some((folder, path.strip_prefix(top).ok()?)));
        match below {
            // The covered entry is a folder.
            Some((_, inner)) if inner.as_os_str().is_empty() => None,
            Some((folder, inner)) => rustix::fs::readlinkat(folder, inner, Vec::new()).ok(),
            None => rustix::fs::readlink(path, Vec::new()).ok(),
        }
    }
}

/// A folder whose symlinks are resolved.
#[derive(Debug, Clone, Copy)]
pub(super) struct TracedDir<'a> {
    pub(super) root: &'a OwnedFd,
    /// Its paths: in the sandbox, and on the host.
    pub(super) paths: &'a [PathBuf],
    pub(super) host: &'a HostView,
}

/// The paths of a folder, and the real path of each that contains a symlink.
pub(super) fn with_real_paths(paths: &[&Path], host: &HostView) -> Vec<PathBuf> {
    let real = paths.iter().filter_map(|path| real_path(path, host));
    let mut all: Vec<PathBuf> = Vec::new();
    for path in paths.iter().map(|path| (*path).to_owned()).chain(real) {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all
}

/// Resolves a path of the host.
fn real_path(path: &Path, host: &HostView) -> Option<PathBuf> {
    let (mut position, mut ahead, mut links) = (PathBuf::from("/"), components_of(path), 0);
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            position.pop();
            continue;
        }
        let path = position.join(&name);
        let Some(text) = host.link(&path) else {
            position = path;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        if push_target(text.as_bytes(), &mut ahead) {
            position = "/".into();
        }
    }
    Some(position)
}

/// Puts the components of a symlink's target in front of the remaining ones. Returns whether the target is absolute.
fn push_target(text: &[u8], ahead: &mut VecDeque<OsString>) -> bool {
    let text = Path::new(OsStr::from_bytes(text));
    for part in components_of(text).into_iter().rev() {
        ahead.push_front(part);
    }
    text.is_absolute()
}

/// Resolves a symlink of the folder.
pub(super) fn trace_link(dir: TracedDir<'_>, link: &Path) -> LinkTrace {
    let mut trace = LinkTrace::default();
    let (Some(folder), Some(name)) = (link.parent(), link.file_name()) else { return trace };
    for entered_by in 0..dir.paths.len() {
        let position = TracePosition::Inside { path: folder.to_owned(), entered_by };
        TraceWalk::new(dir, position, [name.to_owned()].into()).run(&mut trace);
        if !trace.is_left {
            break;
        }
    }
    let mut before = BTreeSet::new();
    trace.passed.retain(|path| before.insert(path.clone()));
    trace
}

/// Resolves a path of the host. Returns `None` if it does not lead to the folder.
pub(super) fn trace_path(dir: TracedDir<'_>, path: &Path) -> Option<LinkTrace> {
    let mut trace = LinkTrace::default();
    TraceWalk::new(dir, TracePosition::Outside("/".into()), components_of(path)).run(&mut trace);
    let has_come = trace.is_left || !trace.passed.is_empty() || !trace.ends.is_empty();
    has_come.then_some(trace)
}

/// The current position of a walk. Neither path contains symlinks.
#[derive(Debug)]
enum TracePosition {
    /// In the folder, which was entered by one of its paths.
    Inside {
        path: PathBuf,
        entered_by: usize,
    },
    Outside(PathBuf),
}

/// Resolves a path component by component as the kernel does: `..` leads up from where the components before it led to,
/// which their text does not tell.
#[derive(Debug)]
struct TraceWalk<'a> {
    dir: TracedDir<'a>,
    position: TracePosition,
    ahead: VecDeque<OsString>,
    /// The host path at which the walk left the folder.
    left_at: Option<PathBuf>,
}

/// The result of looking up one component.
enum LookupResult {
    Moved,
    /// The walk ends here.
    End,
    Symlink {
        text: CString,
        is_inside: bool,
    },
}

impl<'a> TraceWalk<'a> {
    const fn new(dir: TracedDir<'a>, position: TracePosition, ahead: VecDeque<OsString>) -> Self {
        Self { dir, position, ahead, left_at: None }
    }

    fn run(mut self, trace: &mut LinkTrace) {
        let (mut links, mut steps) = (0, 0);
        while let Some(name) = self.ahead.pop_front() {
            (steps, trace.steps) = (steps + 1, trace.steps + 1);
            if steps > MAX_LOOKUPS {
                return;
            }
            let (text, is_inside) = match self.look_up(&name, trace) {
                LookupResult::Moved => continue,
                LookupResult::End => return,
                LookupResult::Symlink { text, is_inside } => (text, is_inside),
            };
            links += 1;
            if links > MAX_LINKS {
                return;
            }
            if push_target(text.as_bytes(), &mut self.ahead) {
                if is_inside {
                    self.left_at = Some(self.remaining_from("/".into()));
                }
                self.position = TracePosition::Outside("/".into());
            }
        }
        match self.position {
            TracePosition::Inside { path, .. } => trace.add_end(path, FileType::Directory),
            TracePosition::Outside(_) => trace.out.extend(self.left_at),
        }
    }

    fn look_up(&mut self, name: &OsStr, trace: &mut LinkTrace) -> LookupResult {
        let TracedDir { root, paths, host } = self.dir;
        match &mut self.position {
            TracePosition::Outside(position) if name == ".." => {
                position.pop();
            }
            TracePosition::Outside(position) => {
                let path = position.join(name);
                if let Some(entered_by) = paths.iter().position(|known| path == *known) {
                    trace.around.extend(self.left_at.take());
                    self.position = TracePosition::Inside { path: PathBuf::new(), entered_by };
                } else if let Some(text) = host.link(&path) {
                    return LookupResult::Symlink { text, is_inside: false };
                } else {
                    *position = path;
                }
            }
            TracePosition::Inside { path, entered_by } if name == ".." && path.as_os_str().is_empty() => {
                let folder = paths[*entered_by].as_path();
                self.left_at = Some(self.remaining_from(folder.join("..")));
                trace.is_left = true;
                self.position = TracePosition::Outside(folder.parent().unwrap_or(folder).to_owned());
            }
            TracePosition::Inside { path, .. } if name == ".." => {
                trace.passed.push(path.clone());
                path.pop();
            }
            TracePosition::Inside { path, .. } => {
                let inner = path.join(name);
                let Ok(stat) = rustix::fs::statat(root, &inner, AtFlags::SYMLINK_NOFOLLOW) else {
                    return LookupResult::End;
                };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Symlink => {
                        let Ok(text) = rustix::fs::readlinkat(root, &inner, Vec::new()) else {
                            return LookupResult::End;
                        };
                        trace.passed.push(inner);
                        return LookupResult::Symlink { text, is_inside: true };
                    }
                    FileType::Directory => *path = inner,
                    kind => {
                        if self.ahead.is_empty() {
                            trace.add_end(inner, kind);
                        }
                        return LookupResult::End;
                    }
                }
            }
        }
        LookupResult::Moved
    }

    /// The remaining path, starting from `from`.
    fn remaining_from(&self, from: PathBuf) -> PathBuf {
        self.ahead.iter().fold(from, |path, part| path.join(part))
    }
}

impl LinkTrace {
    fn add_end(&mut self, path: PathBuf, kind: FileType) {
        let end = (path, kind);
        if !self.ends.contains(&end) {
            self.ends.push(end);
        }
    }
}

/// The components of a path.
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
    fn trace_records_the_passed_entries_and_the_end() {
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
        let (paths, host) = ([PathBuf::from("/there"), folder.path().to_owned()], HostView::default());
        let traced = |link: &str| {
            let trace = trace_link(TracedDir { root: &root, paths: &paths, host: &host }, Path::new(link));
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
        assert_eq!(traced("straight"), ("straight".to_owned(), file()));
        assert_eq!(traced("by"), ("by".to_owned(), real()));
        assert_eq!(traced("chain"), ("chain by".to_owned(), file()));
        assert_eq!(traced("up"), ("up real/deep".to_owned(), file()));
        assert_eq!(traced("inside"), ("inside".to_owned(), real()));
        assert_eq!(traced("again"), ("again".to_owned(), real()));
        for link in ["elsewhere", "out", "gone", "through-a-file"] {
            assert_eq!(traced(link), (link.to_owned(), None));
        }
        assert_eq!(traced("root"), ("root real".to_owned(), Some((String::new(), true))));
        assert_eq!(traced("circle").1, None);
        let dir = TracedDir { root: &root, paths: &paths[..1], host: &host };
        let out = |link: &str| trace_link(dir, Path::new(link)).out;
        assert_eq!(out("elsewhere"), [Path::new("/etc/passwd")]);
        assert_eq!(out("out"), [Path::new("/there/../../x")]);
        assert_eq!(out("straight"), Vec::<PathBuf>::new());
        let arrived = |path: &str| trace_path(dir, Path::new(path));
        let there = arrived("/there/by/file").unwrap();
        assert_eq!((there.passed, there.ends[0].0.as_path()), (vec!["by".into()], Path::new("real/file")));
        assert_eq!(arrived("/elsewhere/by/file"), None);
        let elsewhere = folder.path().join("real/file");
        symlink(elsewhere, at("by-name")).unwrap();
        assert_eq!(traced("by-name"), ("by-name".to_owned(), file()));
    }

    /// `..` behind a symlink leads up from the target of the symlink, inside and outside of the folder.
    #[test]
    fn dot_dot_behind_a_symlink_resolves_as_in_the_kernel() {
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
            ("P/sandboxed", "/workspace/x/../vault".to_owned()),
            ("P/by-alias", absolute("alias/deep/vault")),
            ("P/by-deep-alias", absolute("alias-of-deep/vault")),
            ("P/twice", absolute("aside/../../alias/x/../vault")),
        ] {
            link(&to, name);
        }
        link("../aside/../vault", "P/out");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, at("P"), flags, Mode::empty()).unwrap();
        // The folder's own path may contain a symlink too.
        let machine = HostView::default();
        let names = with_real_paths(&[Path::new("/workspace"), &at("alias")], &machine);
        assert_eq!(names, [PathBuf::from("/workspace"), at("alias"), at("P")]);
        let ends = |link: &str| {
            let dir = TracedDir { root: &root, paths: &names, host: &machine };
            let trace = trace_link(dir, Path::new(link));
            trace.ends.into_iter().map(|(end, _)| end).collect::<Vec<_>>()
        };
        for link in ["plain", "absolute", "again", "sandboxed", "by-alias", "by-deep-alias", "twice"] {
            assert_eq!(ends(link), [Path::new("deep/vault")], "{link}");
            if link != "sandboxed" {
                assert_eq!(at("P").join(link).canonicalize().unwrap(), at("P/deep/vault"), "{link}");
            }
        }
        assert_eq!(ends("out"), Vec::<PathBuf>::new());
    }
}
