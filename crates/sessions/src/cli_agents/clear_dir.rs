//! Empties a folder that somebody else filled, but for what is kept: no link is followed, and however deep its folders are,
//! only a few are open at once.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// Folders in a folder that is kept. What is deeper goes: no transcript is.
const MAX_KEPT_DEPTH: usize = 16;

/// Removes everything beneath a folder but these paths. What is kept is a file, or a folder with the files and folders in it; a
/// link is neither. A `*` stands for any signs of one name; where the last name has one, files alone are kept. `trash` is a
/// folder on the same disk, of nobody else's, for what is on its way out.
pub(super) fn clear(folder: &OwnedFd, keep: &[&Path], trash: &OwnedFd) -> io::Result<()> {
    let mut bin = Bin { trash, next: 0 };
    bin.sort(folder, keep)?;
    bin.empty()
}

struct Bin<'a> {
    trash: &'a OwnedFd,
    next: u64,
}

impl Bin<'_> {
    /// Goes as deep as paths that are kept do.
    fn sort(&mut self, folder: &OwnedFd, keep: &[&Path]) -> io::Result<()> {
        for (name, kind) in entries(folder)? {
            let named: Vec<(&OsStr, &Path)> =
                keep.iter().filter_map(|path| below(path, name.to_bytes())).collect();
            let is_kept = |(_, rest): &(&OsStr, &Path)| rest.as_os_str().is_empty();
            let is_whole = |named: &(&OsStr, &Path)| is_kept(named) && !named.0.as_bytes().contains(&b'*');
            let inner: Vec<&Path> =
                named.iter().filter(|named| !is_kept(named)).map(|(_, rest)| *rest).collect();
            match kind {
                FileType::RegularFile if named.iter().any(is_kept) => {}
                FileType::Directory if named.iter().any(is_whole) => {
                    self.weed(&entered(folder, &name)?, MAX_KEPT_DEPTH)?;
                }
                FileType::Directory if !inner.is_empty() => self.sort(&entered(folder, &name)?, &inner)?,
                FileType::Directory => self.throw(folder, &name)?,
                _ => rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::empty())?,
            }
        }
        Ok(())
    }

    /// Takes what is neither file nor folder out of a folder that is kept.
    fn weed(&mut self, folder: &OwnedFd, depth: usize) -> io::Result<()> {
        for (name, kind) in entries(folder)? {
            match kind {
                FileType::RegularFile => {}
                FileType::Directory if depth > 0 => self.weed(&entered(folder, &name)?, depth - 1)?,
                FileType::Directory => self.throw(folder, &name)?,
                _ => rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::empty())?,
            }
        }
        Ok(())
    }

    fn throw(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<()> {
        // Nobody moves a folder that its owner has no right to change.
        drop(entered(folder, name)?);
        loop {
            let place = format!("{}", self.next);
            self.next += 1;
            match rustix::fs::renameat_with(
                folder,
                name,
                self.trash,
                place,
                rustix::fs::RenameFlags::NOREPLACE,
            ) {
                Ok(()) => return Ok(()),
                // Left from a time when the daemon was killed at this.
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes folders out of folders until there are none.
    fn empty(&mut self) -> io::Result<()> {
        loop {
            let left = entries(self.trash)?;
            if left.is_empty() {
                return Ok(());
            }
            for (name, kind) in left {
                if kind != FileType::Directory {
                    rustix::fs::unlinkat(self.trash, name.as_c_str(), AtFlags::empty())?;
                    continue;
                }
                let folder = entered(self.trash, &name)?;
                for (inner, kind) in entries(&folder)? {
                    match kind {
                        FileType::Directory => self.throw(&folder, &inner)?,
                        _ => rustix::fs::unlinkat(&folder, inner.as_c_str(), AtFlags::empty())?,
                    }
                }
                rustix::fs::unlinkat(self.trash, name.as_c_str(), AtFlags::REMOVEDIR)?;
            }
        }
    }
}

/// The first name of a path, if it stands for this one, and what comes behind it.
fn below<'p>(path: &'p Path, name: &[u8]) -> Option<(&'p OsStr, &'p Path)> {
    let mut parts = path.components();
    let first = parts.next()?.as_os_str();
    stands_for(first.as_bytes(), name).then_some((first, parts.as_path()))
}

/// Whether a name with stars in it stands for another.
fn stands_for(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|at| stands_for(rest, &name[at..])),
        Some((sign, rest)) => {
            name.split_first().is_some_and(|(first, name)| first == sign && stands_for(rest, name))
        }
    }
}

/// Opens a folder in a folder, with the rights that its owner may have taken from itself.
fn entered(folder: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::openat(folder, name, flags | OFlags::PATH, Mode::empty())?;
    fs::set_permissions(format!("/proc/self/fd/{}", held.as_raw_fd()), Permissions::from_mode(0o700))?;
    Ok(rustix::fs::openat(&held, c".", flags | OFlags::RDONLY, Mode::empty())?)
}

fn entries(folder: &OwnedFd) -> io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if name.as_c_str() != c"." && name.as_c_str() != c".." {
            let stat = rustix::fs::statat(folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            found.push((name, FileType::from_raw_mode(stat.st_mode)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn l3_only_what_is_kept_stays_however_it_was_laid() {
        let place = tempfile::tempdir().unwrap();
        let (home, trash, outside) =
            (place.path().join("home"), place.path().join("trash"), place.path().join("outside"));
        for folder in [
            "home/.a/kept/deep",
            "home/.a/hooks",
            "home/.b",
            "home/bin",
            "home/.t/x/memory",
            "home/.t/x/folder.jsonl",
            "trash/0/left",
            "outside/mine",
        ] {
            fs::create_dir_all(place.path().join(folder)).unwrap();
        }
        for file in [
            "home/.a/kept/deep/talk",
            "home/.a/hooks/x",
            "home/.a/settings",
            "home/.b/db",
            "home/.b/db-wal",
            "home/.t/x/1.jsonl",
            "home/.t/x/memory/MEMORY.md",
            "home/.t/x/memory/2.jsonl",
            "home/.t/3.jsonl",
            "outside/mine/file",
        ] {
            fs::write(place.path().join(file), "x").unwrap();
        }
        symlink(&outside, home.join("bin/link")).unwrap();
        symlink(outside.join("mine/file"), home.join(".a/kept/deep/link")).unwrap();
        symlink(&outside, home.join(".a/kept/folder")).unwrap();
        symlink(outside.join("mine/file"), home.join(".t/x/link.jsonl")).unwrap();
        symlink(&outside, home.join(".c")).unwrap();
        symlink(outside.join("mine"), home.join("linked")).unwrap();
        fs::set_permissions(home.join(".a/hooks"), Permissions::from_mode(0o000)).unwrap();
        // Deeper than anyone may open at once.
        let mut deep = rustix::fs::open(&home, OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..1_500 {
            rustix::fs::mkdirat(&deep, "d", Mode::RWXU).unwrap();
            deep = rustix::fs::openat(&deep, "d", OFlags::PATH, Mode::empty()).unwrap();
        }
        let open = |path: &Path| rustix::fs::open(path, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let keep = [".a/kept", ".b/db", ".c/mine", ".t/*/*.jsonl", "linked", "nothing"].map(Path::new);
        for _ in 0..2 {
            clear(&open(&home), &keep, &open(&trash)).unwrap();
            let mut left = Vec::new();
            let mut folders = vec![home.clone()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap() {
                    let path = entry.unwrap().path();
                    left.push(path.strip_prefix(&home).unwrap().display().to_string());
                    if path.is_dir() && !path.is_symlink() {
                        folders.push(path);
                    }
                }
            }
            left.sort();
            let kept = [
                ".a",
                ".a/kept",
                ".a/kept/deep",
                ".a/kept/deep/talk",
                ".b",
                ".b/db",
                ".t",
                ".t/x",
                ".t/x/1.jsonl",
            ];
            assert_eq!(left, kept);
            assert_eq!(fs::read_dir(&trash).unwrap().count(), 0);
            assert_eq!(fs::read_to_string(outside.join("mine/file")).unwrap(), "x");
        }
    }
}
