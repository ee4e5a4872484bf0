//! Where a link of a shown folder leads, and what it leads through: if any of that could be taken away or replaced, the link
//! would lead elsewhere at the next start.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType};

/// Links that are followed one after the other; the kernel follows no more.
const MAX_LINKS: usize = 40;

/// Names that are looked up for one link. Nobody who means well writes more.
const MAX_STEPS: usize = 4096;

/// The way of a link.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// The link itself and those behind it, and folders that it enters and leaves again.
    pub(super) passed: Vec<PathBuf>,
    /// What is at its end, if that is in the folder. The folder itself has no name.
    pub(super) end: Option<(PathBuf, FileType)>,
    /// Where it leads out of the folder, if it does, by each of the folder's names: a link that says `..` leads elsewhere inside than
    /// on this machine.
    pub(super) out: Vec<PathBuf>,
    /// How many names were looked up.
    pub(super) steps: usize,
}

/// Follows a link of the folder `root`, which is known by all of `names`.
pub(super) fn follow(root: &OwnedFd, names: &[&Path], link: &Path) -> Way {
    let mut way = Way::default();
    if let (Some(here), Some(name)) = (link.parent(), link.file_name()) {
        way.end = walk(root, names, (here.to_owned(), [name.to_owned()].into()), &mut way);
    }
    way
}

/// Follows a path of the folder `root` from its top, whatever links it leads through.
pub(super) fn enter(root: &OwnedFd, names: &[&Path], path: &Path) -> Way {
    let mut way = Way::default();
    way.end = walk(root, names, (PathBuf::new(), parts(path)), &mut way);
    way
}

fn walk(
    root: &OwnedFd,
    names: &[&Path],
    (mut here, mut ahead): (PathBuf, VecDeque<OsString>),
    way: &mut Way,
) -> Option<(PathBuf, FileType)> {
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        way.steps += 1;
        if way.steps > MAX_STEPS {
            return None;
        }
        if name == ".." {
            if here.as_os_str().is_empty() {
                // Out at the top, and perhaps in again.
                let rest: PathBuf =
                    [OsStr::new("..")].into_iter().chain(ahead.iter().map(OsString::as_os_str)).collect();
                let led: Vec<PathBuf> = names.iter().map(|name| name.join(&rest)).collect();
                let Some(back) = led.iter().find_map(|path| inside(names, path)) else {
                    way.out = led;
                    return None;
                };
                ahead = parts(&back);
                continue;
            }
            way.passed.push(here.clone());
            here.pop();
            continue;
        }
        let path = here.join(&name);
        let stat = rustix::fs::statat(root, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                let text = rustix::fs::readlinkat(root, &path, Vec::new()).ok()?;
                let text = Path::new(OsStr::from_bytes(text.as_bytes()));
                way.passed.push(path);
                let further = if text.is_absolute() {
                    here = PathBuf::new();
                    let Some(inside) = inside(names, text) else {
                        way.out = vec![ahead.iter().fold(text.to_owned(), |path, part| path.join(part))];
                        return None;
                    };
                    parts(&inside)
                } else {
                    parts(text)
                };
                for part in further.into_iter().rev() {
                    ahead.push_front(part);
                }
            }
            FileType::Directory => here = path,
            kind => return ahead.is_empty().then_some((path, kind)),
        }
    }
    Some((here, FileType::Directory))
}

/// The names of a path, one by one.
fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    });
    parts.collect()
}

/// The path from the folder of what is in it, by one of the folder's names.
pub(super) fn inside(names: &[&Path], path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    names.iter().find_map(|name| plain.strip_prefix(name).ok()).map(Path::to_owned)
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
            let way = follow(&root, &[Path::new("/there"), folder.path()], Path::new(link));
            let passed: Vec<String> = way.passed.iter().map(|path| path.display().to_string()).collect();
            (
                passed.join(" "),
                way.end.map(|(end, kind)| (end.display().to_string(), kind == FileType::Directory)),
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
        let out = |link: &str| follow(&root, &[Path::new("/there")], Path::new(link)).out;
        assert_eq!(out("elsewhere"), [Path::new("/etc/passwd")]);
        assert_eq!(out("out"), [Path::new("/there/../../x")]);
        assert_eq!(out("straight"), Vec::<PathBuf>::new());
        let entered = enter(&root, &[Path::new("/there")], Path::new("by/file"));
        assert_eq!((entered.passed, entered.end.unwrap().0), (vec!["by".into()], "real/file".into()));
        let elsewhere = folder.path().join("real/file");
        symlink(elsewhere, at("by-name")).unwrap();
        assert_eq!(way("by-name"), ("by-name".to_owned(), file()));
    }
}
