//! Clears a folder with untrusted content, except for the paths that are kept. No symbolic link is followed, and only a few
//! folders are open at once, however deep the tree is.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// The depth to which a kept folder is kept. Deeper folders are removed; no transcript is that deep.
const MAX_KEPT_DEPTH: usize = 16;

/// Removes everything beneath a folder except these paths. A kept path is a file, or a folder with its files and folders; a link
/// is neither. A `*` matches any characters of one name; where the last name has one, only files are kept. `trash` is a private
/// folder on the same file system that holds entries while they are removed.
pub(super) fn clear(folder: &OwnedFd, keep: &[&Path], trash: &OwnedFd) -> io::Result<()> {
    let mut clearing = Clearing { trash, next: 0 };
    clearing.remove_unkept(folder, keep)?;
    clearing.empty_trash()
}

struct Clearing<'a> {
    trash: &'a OwnedFd,
    next: u64,
}

impl Clearing<'_> {
    /// Removes what is not kept. Descends as deep as the kept paths do.
    fn remove_unkept(&mut self, folder: &OwnedFd, keep: &[&Path]) -> io::Result<()> {
        for (name, kind) in entries(folder)? {
            let matches: Vec<(&OsStr, &Path)> =
                keep.iter().filter_map(|path| strip_name(path, name.to_bytes())).collect();
            let is_kept = |(_, rest): &(&OsStr, &Path)| rest.as_os_str().is_empty();
            let is_exact = |entry: &(&OsStr, &Path)| is_kept(entry) && !entry.0.as_bytes().contains(&b'*');
            let inner: Vec<&Path> =
                matches.iter().filter(|entry| !is_kept(entry)).map(|(_, rest)| *rest).collect();
            match kind {
                FileType::RegularFile if matches.iter().any(is_kept) => {}
                FileType::Directory if matches.iter().any(is_exact) => {
                    self.remove_special(&open_dir(folder, &name)?, MAX_KEPT_DEPTH)?;
                }
                FileType::Directory if !inner.is_empty() => {
                    self.remove_unkept(&open_dir(folder, &name)?, &inner)?
                }
                FileType::Directory => self.move_to_trash(folder, &name)?,
                _ => rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::empty())?,
            }
        }
        Ok(())
    }

    /// Removes entries of a kept folder that are neither files nor folders.
    fn remove_special(&mut self, folder: &OwnedFd, depth: usize) -> io::Result<()> {
        for (name, kind) in entries(folder)? {
            match kind {
                FileType::RegularFile => {}
                FileType::Directory if depth > 0 => {
                    self.remove_special(&open_dir(folder, &name)?, depth - 1)?
                }
                FileType::Directory => self.move_to_trash(folder, &name)?,
                _ => rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::empty())?,
            }
        }
        Ok(())
    }

    fn move_to_trash(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<()> {
        // Sets its mode: a folder without write permission for its owner cannot be moved.
        drop(open_dir(folder, name)?);
        loop {
            let target = format!("{}", self.next);
            self.next += 1;
            match rustix::fs::renameat_with(
                folder,
                name,
                self.trash,
                target,
                rustix::fs::RenameFlags::NOREPLACE,
            ) {
                Ok(()) => return Ok(()),
                // Left by a daemon that was killed while it cleared.
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Moves nested folders up into the trash and removes them, until none is left.
    fn empty_trash(&mut self) -> io::Result<()> {
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
                let folder = open_dir(self.trash, &name)?;
                for (inner, kind) in entries(&folder)? {
                    match kind {
                        FileType::Directory => self.move_to_trash(&folder, &inner)?,
                        _ => rustix::fs::unlinkat(&folder, inner.as_c_str(), AtFlags::empty())?,
                    }
                }
                rustix::fs::unlinkat(self.trash, name.as_c_str(), AtFlags::REMOVEDIR)?;
            }
        }
    }
}

/// Returns the first name of `path`, if it matches `name`, and the rest of the path.
fn strip_name<'p>(path: &'p Path, name: &[u8]) -> Option<(&'p OsStr, &'p Path)> {
    let mut parts = path.components();
    let first = parts.next()?.as_os_str();
    matches_name(first.as_bytes(), name).then_some((first, parts.as_path()))
}

/// Whether a pattern with `*` wildcards matches a name.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|at| matches_name(rest, &name[at..])),
        Some((byte, rest)) => {
            name.split_first().is_some_and(|(first, name)| first == byte && matches_name(rest, name))
        }
    }
}

/// Opens a folder in a folder, and restores the permissions that its owner may have removed.
fn open_dir(folder: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, name, flags | OFlags::PATH, Mode::empty())?;
    fs::set_permissions(format!("/proc/self/fd/{}", fd.as_raw_fd()), Permissions::from_mode(0o700))?;
    Ok(rustix::fs::openat(&fd, c".", flags | OFlags::RDONLY, Mode::empty())?)
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
    fn l3_only_kept_paths_remain() {
        let temp = tempfile::tempdir().unwrap();
        let (home, trash, outside) =
            (temp.path().join("home"), temp.path().join("trash"), temp.path().join("outside"));
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
            fs::create_dir_all(temp.path().join(folder)).unwrap();
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
            fs::write(temp.path().join(file), "x").unwrap();
        }
        symlink(&outside, home.join("bin/link")).unwrap();
        symlink(outside.join("mine/file"), home.join(".a/kept/deep/link")).unwrap();
        symlink(&outside, home.join(".a/kept/folder")).unwrap();
        symlink(outside.join("mine/file"), home.join(".t/x/link.jsonl")).unwrap();
        symlink(&outside, home.join(".c")).unwrap();
        symlink(outside.join("mine"), home.join("linked")).unwrap();
        fs::set_permissions(home.join(".a/hooks"), Permissions::from_mode(0o000)).unwrap();
        // Deeper than the limit of open file descriptors.
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
