//! A file to be written: an open folder of the workspace and a name in it.
//!
//! No symbolic link is followed on the way, and no existing file is written through: a new file is filled beside the old one
//! and renamed over it. So the target of the old name, be it a device, a pipe or a file with names elsewhere, is out of reach
//! in any case; it is refused as well, because its creator expects something else.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use tribune_records::outcome::{Resource, ToolError, ToolErrorCode};
use tribune_records::text::shown;

use super::send_message::fresh_id;
use super::workspace_dir;
use super::workspace_dir::{Place, Workspace};

/// Maximum number of folders in a path.
const MAX_DEPTH: usize = 32;

/// How often to retry when a part of the path is being moved.
const MOVED_TRIES: usize = 32;

/// The place to write.
#[derive(Debug)]
pub(super) struct Target {
    folder: OwnedFd,
    name: String,
    /// The path in its folder, without `.` and `..`.
    path: String,
    /// The path as the agent calls it.
    called: String,
    /// The name of the folder, if it is an additional one of the session.
    additional_directory: Option<Arc<str>>,
}

/// Whether missing folders on the way are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parents {
    Make,
    Find,
}

/// An existing plain file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    mode: u32,
    identity: (u64, u64, i64, i64, u64),
}

/// The parts of a path; none of them leads up or out.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    folders: Vec<&'a str>,
    name: &'a str,
}

impl<'a> Parts<'a> {
    /// Parses a path relative to its folder. `called` is what the agent calls it.
    fn new(path: &'a str, called: &str, additional_directory: Option<&str>) -> Result<Self, ToolError> {
        workspace_dir::check(path)?;
        let leads_out = || workspace_dir::refused(additional_directory, called, Errno::XDEV);
        if path.starts_with('/') {
            return Err(leads_out());
        }
        let mut parts = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                // No link is followed, so the parent is the folder named before.
                ".." => {
                    parts.pop().ok_or_else(leads_out)?;
                }
                part => parts.push(part),
            }
        }
        let names_a_folder = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
        match parts.pop() {
            Some(name) if !names_a_folder => {
                if parts.len() > MAX_DEPTH {
                    let sentence =
                        format!("`path` is more than {MAX_DEPTH} folders deep: choose a nearer one");
                    return Err(ToolError::new(ToolErrorCode::InvalidInput, sentence));
                }
                Ok(Self { folders: parts, name })
            }
            _ => Err(not_a_file(called)),
        }
    }

    /// Parses a path that is not hidden, and returns it also without `.` and `..`.
    fn seen(workspace: &Workspace, path: &'a str) -> Result<(Self, String), ToolError> {
        let additional_directory = workspace.additional_directory().map(|folder| &**folder);
        let parts = Self::new(workspace.inner(path), path, additional_directory)?;
        let whole = [&parts.folders[..], &[parts.name]].concat().join("/");
        if workspace.hides(&Place(Some(whole.clone()))) {
            return Err(workspace_dir::hidden(path));
        }
        Ok((parts, whole))
    }
}

impl Target {
    pub(super) fn open(workspace: &Workspace, path: &str, parents: Parents) -> Result<Self, ToolError> {
        let (parts, whole) = Parts::seen(workspace, path)?;
        let additional_directory = workspace.additional_directory().cloned();
        let failed = |error| unwritable(additional_directory.as_deref(), path, error);
        let mut folder = enter(workspace.root(), ".").map_err(failed)?;
        for name in &parts.folders {
            folder = match enter(&folder, name) {
                Err(Errno::NOENT) if parents == Parents::Make => {
                    match rustix::fs::mkdirat(&folder, *name, Mode::RWXU) {
                        Ok(()) => rustix::fs::fsync(&folder).map_err(failed)?,
                        Err(Errno::EXIST) => {}
                        Err(error) => return Err(failed(error)),
                    }
                    enter(&folder, name).map_err(failed)?
                }
                entered => entered.map_err(failed)?,
            };
        }
        let called = additional_directory
            .as_deref()
            .map_or_else(|| whole.clone(), |folder| format!("{folder}/{whole}"));
        Ok(Self { folder, name: parts.name.to_owned(), path: whole, called, additional_directory })
    }

    /// Checks that a file of the folder can have this path and that it is not hidden.
    pub(super) fn check(workspace: &Workspace, path: &str) -> Result<(), ToolError> {
        Parts::seen(workspace, path).map(drop)
    }

    /// The error when the kernel refuses to open the path.
    fn refused(&self, error: Errno) -> ToolError {
        workspace_dir::refused(self.additional_directory.as_deref(), &self.called, error)
    }

    fn unwritable(&self, error: Errno) -> ToolError {
        unwritable(self.additional_directory.as_deref(), &self.called, error)
    }

    /// Checks that a file exists and may be replaced.
    pub(super) fn there(&self) -> Result<(), ToolError> {
        match self.found()? {
            Some(_) => Ok(()),
            None => Err(self.refused(Errno::NOENT)),
        }
    }

    pub(super) fn resource(&self) -> Resource {
        Resource::File(self.path.clone())
    }

    /// The existing file, if it may be replaced.
    pub(super) fn found(&self) -> Result<Option<Found>, ToolError> {
        match rustix::fs::statat(&self.folder, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.checked(&stat).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.unwritable(error)),
        }
    }

    /// Reads the file if it has at most `most` bytes.
    pub(super) fn read(&self, most: usize) -> Result<(Vec<u8>, Found), ToolError> {
        let failed = |error| self.refused(error);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = open_beneath(&self.folder, &self.name, flags).map_err(failed)?;
        let found = self.checked(&rustix::fs::fstat(&fd).map_err(failed)?)?;
        let mut content = Vec::new();
        File::from(fd).take(most as u64 + 1).read_to_end(&mut content).map_err(|error| {
            let sentence = format!("`{}` cannot be read ({}): try again", shown(&self.called), error.kind());
            ToolError::new(ToolErrorCode::Failed, sentence)
        })?;
        if content.len() > most {
            let sentence = format!("`{}` has more than {most} bytes: it is too large", shown(&self.called));
            return Err(ToolError::new(ToolErrorCode::TooLarge, sentence));
        }
        Ok((content, found))
    }

    /// Replaces the file with `content`, durable when this returns. Fails if the file is no longer the one that was `found`.
    pub(super) fn replace(&self, content: &[u8], found: Option<&Found>) -> Result<(), ToolError> {
        let fresh = format!(".tribune-{}.new", fresh_id()?);
        let write = || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(&self.folder, fresh.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
            let mut file = File::from(fd);
            file.write_all(content)?;
            if let Some(found) = found {
                rustix::fs::fchmod(&file, Mode::from_raw_mode(found.mode))?;
            }
            file.sync_all()
        };
        let put = || {
            write().map_err(|error| self.unwritable(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            if self.found()?.as_ref() != found {
                let path = shown(&self.called);
                let sentence = format!("`{path}` changed in the meantime: read it again");
                return Err(ToolError::new(ToolErrorCode::Conflict, sentence));
            }
            rustix::fs::renameat(&self.folder, fresh.as_str(), &self.folder, self.name.as_str())
                .and_then(|()| rustix::fs::fsync(&self.folder))
                .map_err(|error| self.unwritable(error))
        };
        put().inspect_err(|_| {
            // The error above is the one to report; at worst a stray file remains.
            let _ = rustix::fs::unlinkat(&self.folder, fresh.as_str(), AtFlags::empty());
        })
    }

    fn checked(&self, stat: &Stat) -> Result<Found, ToolError> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if stat.st_nlink > 1 => Err(workspace_dir::linked(&self.called)),
            FileType::RegularFile => Ok(Found {
                // Set-id bits are dropped: an agent may not decide that a file runs as another user.
                mode: stat.st_mode & 0o777,
                identity: (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec),
            }),
            FileType::Symlink => Err(self.refused(Errno::LOOP)),
            _ => Err(not_a_file(&self.called)),
        }
    }
}

fn enter(folder: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    open_beneath(folder, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)
}

fn open_beneath(folder: &OwnedFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    (0..MOVED_TRIES)
        .map(|_| rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve))
        .find(|opened| !matches!(opened, Err(Errno::AGAIN)))
        .unwrap_or(Err(Errno::AGAIN))
}

fn not_a_file(path: &str) -> ToolError {
    ToolError::new(ToolErrorCode::Refused, format!("`{}` is not a file: name a file to write", shown(path)))
}

fn unwritable(additional_directory: Option<&str>, path: &str, error: Errno) -> ToolError {
    let path = shown(path);
    match error {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => ToolError::new(
            ToolErrorCode::Refused,
            format!("`{path}` may not be written: choose another file"),
        ),
        Errno::NOSPC | Errno::DQUOT => ToolError::new(
            ToolErrorCode::Failed,
            format!("`{path}` cannot be written because the disk is full: tell the operator"),
        ),
        Errno::IO => {
            ToolError::new(ToolErrorCode::Failed, format!("`{path}` cannot be written: tell the operator"))
        }
        other => workspace_dir::refused(additional_directory, &path, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_parsed() {
        let parts =
            |path| Parts::new(path, path, None).map(|parts| (parts.folders.join("/"), parts.name.to_owned()));
        let good = |folders: &str, name: &str| Ok((folders.to_owned(), name.to_owned()));
        assert_eq!(parts("a"), good("", "a"));
        assert_eq!(parts("./a//b/../c.txt"), good("a", "c.txt"));
        assert_eq!(parts("x/../..."), good("", "..."));
        for path in ["", "/a", "..", "a/../..", "../a", "a/../../b", ".", "a/", "a/.", "a/b/..", "a\0b", "//"]
        {
            assert!(parts(path).is_err(), "{path}");
        }
        assert!(parts(&("x/".repeat(40) + "y")).is_err());
    }

    proptest::proptest! {
        /// The verdict is about the text of a path, and the tool writes what it leads to: no spelling of an autorun file's path
        /// means one file to the law and another to the tool.
        #[test]
        fn l3_a_name_that_the_host_obeys_is_known_in_every_spelling(
            pieces in proptest::collection::vec(
                proptest::sample::select(vec![
                    "", ".", "..", "a", "B", ".envrc", ".EnvRC", ".git", ".GIT", "hooks", "config", ".vscode", ".cargo",
                    "config.toml", ".envrc.md", ".hu\u{17f}ky", "~", "..a", " .envrc",
                ]),
                1..8,
            )
        ) {
            let path = pieces.join("/");
            if let Ok(parts) = Parts::new(&path, &path, None) {
                let mut written = parts.folders.clone();
                written.push(parts.name);
                let input = serde_json::json!({ "path": path, "content": "x" });
                let known = tribune_records::approval::call_args::args_of("write", &input, &[]).is_autorun;
                proptest::prop_assert_eq!(known, tribune_contract::is_autorun_path(&written.join("/")));
            }
        }
    }
}
