//! Finds files as a command will: by the names that they have in its sandbox, with links followed there. What the sandbox
//! does not show is not opened.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use tribune_records::exec::{PATH, WORKSPACE};
use tribune_records::outcome::ToolError;
use tribune_records::workspace_roots::WorkspaceRoots;

use super::launch::FileView;
use crate::hide_rules::HideRules;
use crate::workspace_dir::{Place, Workspace};

/// Symbolic links on one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// The home folder of a command in a full sandbox. It is empty when the command starts.
const SANDBOX_HOME: &str = "/home/agent";

/// The folders of this machine that a sandbox shows.
const SYSTEM: [&str; 20] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki",
    "/etc/protocols",
    "/etc/ssl",
];

/// Folders whose files depend on the process that looks.
const OF_THE_PROCESS: [&str; 2] = ["/proc", "/dev"];

/// The files that a command can name.
#[derive(Debug)]
pub(crate) struct CommandView {
    /// The folders of the session, by the names that they have for the command.
    mounts: Vec<SessionMount>,
    host: OwnedFd,
    view: FileView,
    home: PathBuf,
}

#[derive(Debug)]
struct SessionMount {
    at: PathBuf,
    workspace: Workspace,
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum SeenPath {
    File(SeenFile),
    Folder,
    /// Nothing, or nothing that the command sees.
    Missing,
    /// A file that cannot be bound, and why.
    Closed(&'static str),
}

/// A plain file that the command sees.
#[derive(Debug)]
pub(crate) struct SeenFile {
    /// Open for reading.
    pub(crate) file: File,
    pub(crate) stat: Stat,
    /// Its path for the command, without links.
    pub(crate) path: PathBuf,
    /// Its name for people: in the workspace, or absolute.
    pub(crate) name: String,
    /// Whether it lies in a folder of the session.
    pub(crate) in_session: bool,
}

/// Which folder a path is in.
enum PathMount<'a> {
    Session(&'a SessionMount, PathBuf),
    Host,
    /// A folder that exists only because something is mounted below it.
    Above,
    Nowhere,
}

impl CommandView {
    /// The view of a command in a session with these folders.
    pub(crate) fn open(
        home: &Path,
        ground: &WorkspaceRoots,
        hidden: &Arc<HideRules>,
        view: FileView,
    ) -> Result<Self, ToolError> {
        let main = ground.path(home);
        let main = main.canonicalize().unwrap_or(main);
        let at = match view {
            FileView::Sandbox => PathBuf::from(WORKSPACE),
            FileView::SandboxInPlace | FileView::Host => main,
        };
        let root = |name: &str| Workspace::open_at(home, &ground.locate(name))?.hiding(hidden, home, ground);
        let home_folder = if view == FileView::Sandbox { SANDBOX_HOME.into() } else { at.clone() };
        let mut mounts = vec![SessionMount { at, workspace: root(".")? }];
        for folder in ground.additional_directories() {
            mounts.push(SessionMount { at: folder.into(), workspace: root(folder)? });
        }
        let host = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| crate::workspace_dir::refused(None, "/", error))?;
        Ok(Self { mounts, host, view, home: home_folder })
    }

    /// The folders of the session, with the prefix of names in them.
    pub(crate) fn roots(&self) -> impl Iterator<Item = (String, &OwnedFd)> {
        self.mounts.iter().enumerate().map(|(index, mount)| {
            let prefix = if index == 0 { String::new() } else { format!("{}/", mount.at.display()) };
            (prefix, mount.workspace.root())
        })
    }

    /// The path of a folder of the workspace, as the tool names it.
    pub(crate) fn folder(&self, cwd: &str) -> PathBuf {
        self.mounts[0].at.join(cwd)
    }

    /// A name as the line has it, in this folder.
    pub(crate) fn path(&self, folder: &Path, name: &str) -> PathBuf {
        match name.strip_prefix("~/") {
            Some(name) => self.home.join(name),
            None => folder.join(name),
        }
    }

    /// The name of a path for people: in the workspace, or absolute.
    pub(crate) fn name(&self, path: &Path) -> String {
        let named: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
        named.strip_prefix(&self.mounts[0].at).unwrap_or(&named).to_string_lossy().into_owned()
    }

    /// The program of this name in the folders of programs.
    pub(crate) fn program(&self, name: &str) -> Option<SeenFile> {
        PATH.split(':').find_map(|folder| match self.find(&Path::new(folder).join(name)) {
            SeenPath::File(file) if file.stat.st_mode & 0o111 != 0 => Some(file),
            _ => None,
        })
    }

    /// What an absolute path leads to.
    pub(crate) fn find(&self, path: &Path) -> SeenPath {
        let mut pending: VecDeque<OsString> = parts(path);
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = pending.pop_front() {
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let mount = self.mount(&next);
            let opened = match &mount {
                PathMount::Nowhere => return SeenPath::Missing,
                PathMount::Above => None,
                PathMount::Session(_, inner) if inner.as_os_str().is_empty() => None,
                PathMount::Session(mount, inner) => Some(opened(mount.workspace.root(), inner, OFlags::PATH)),
                PathMount::Host => Some(opened(&self.host, inside(&next), OFlags::PATH)),
            };
            let Some(opened) = opened else {
                at = next;
                continue;
            };
            let Ok((fd, stat)) = opened else { return SeenPath::Missing };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    links += 1;
                    let target = rustix::fs::readlinkat(&fd, "", Vec::new());
                    let Some(target) = target.ok().filter(|_| links <= MAX_LINKS) else {
                        return SeenPath::Missing;
                    };
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    if target.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    for part in parts(&target).into_iter().rev() {
                        pending.push_front(part);
                    }
                }
                FileType::Directory => at = next,
                FileType::RegularFile if pending.is_empty() => return self.file(&mount, next),
                _ => return SeenPath::Missing,
            }
        }
        SeenPath::Folder
    }

    /// Opens a file by its path without links.
    fn file(&self, mount: &PathMount<'_>, path: PathBuf) -> SeenPath {
        let (root, inner, in_session) = match mount {
            PathMount::Session(mount, inner) => {
                let place = Place(inner.to_str().map(str::to_owned));
                if mount.workspace.hides(&place) {
                    return SeenPath::Closed("it is hidden");
                }
                (mount.workspace.root(), inner.as_path(), true)
            }
            PathMount::Host => (&self.host, inside(&path), false),
            PathMount::Above | PathMount::Nowhere => return SeenPath::Missing,
        };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match opened(root, inner, flags) {
            Ok((fd, stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                let name = self.name(&path);
                SeenPath::File(SeenFile { file: File::from(fd), stat, path, name, in_session })
            }
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => SeenPath::Missing,
            Err(_) => SeenPath::Closed("it cannot be read"),
        }
    }

    fn mount(&self, path: &Path) -> PathMount<'_> {
        let nearest = self.mounts.iter().filter(|mount| path.starts_with(&mount.at));
        if let Some(mount) = nearest.max_by_key(|mount| mount.at.as_os_str().len()) {
            let inner = path.strip_prefix(&mount.at).unwrap_or(path).to_owned();
            return PathMount::Session(mount, inner);
        }
        let is_above = |folder: &Path| folder.starts_with(path);
        let is_system = SYSTEM.iter().any(|folder| path.starts_with(folder));
        match self.view {
            _ if OF_THE_PROCESS.iter().any(|folder| path.starts_with(folder)) => PathMount::Nowhere,
            FileView::Host => PathMount::Host,
            _ if is_system => PathMount::Host,
            _ if SYSTEM.iter().any(|folder| is_above(folder.as_ref()))
                || self.mounts.iter().any(|mount| is_above(&mount.at)) =>
            {
                PathMount::Above
            }
            FileView::Sandbox | FileView::SandboxInPlace => PathMount::Nowhere,
        }
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let named = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(named).collect()
}

/// The path relative to the root.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Opens a path that has no links but perhaps its last part.
fn opened(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<(OwnedFd, Stat), Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?;
    let stat = rustix::fs::fstat(fd.as_fd())?;
    Ok((fd, stat))
}
