//! Opens files and folders of an agent's workspace, and nothing outside it.
//!
//! The agent, or a program in its sandbox, may change the workspace at any time, so no path is checked first and opened later:
//! the kernel resolves it beneath the open folder (`openat2` with `RESOLVE_BENEATH`) and refuses what leads out, be it `..`,
//! an absolute path or a symbolic link. Links that stay inside are followed in a given path, and never on a walk. Only folders
//! and plain files with one name are read.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tribune_contract::tribune_home_around;
use tribune_records::exec::WORKSPACE;
use tribune_records::outcome::{Resource, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_records::workspace_roots::{RootedPath, WorkspaceRoots};
use tribune_runtime::AgentId;

use super::hide_rules::{HideRules, Places};

/// Maximum bytes of a path, as in the kernel.
const MAX_PATH_BYTES: usize = 4095;

/// Maximum number of names read from one folder. A larger folder is listed in part.
const MAX_SCANNED_NAMES: usize = 100_000;

/// How often to retry when something moved and the kernel could not tell whether a path stays inside.
const MOVED_TRIES: usize = 32;

/// Opens for reading without waiting for the writer of a pipe and without taking a controlling terminal.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// An open folder that a session works in.
#[derive(Debug)]
pub(super) struct Workspace {
    root: OwnedFd,
    /// The prefix of paths in it, if it is an additional folder.
    additional_directory: Option<Arc<str>>,
    hidden: Arc<HideRules>,
    places: Places,
}

/// A readable file or folder of the workspace.
#[derive(Debug)]
pub(super) enum Opened {
    File { file: File, bytes: u64 },
    Folder(OwnedFd),
}

/// The first names of a folder, sorted.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) names: BTreeMap<CString, FileType>,
    /// Whether the folder has more names.
    pub(super) more: bool,
}

impl Workspace {
    /// Opens the main folder of the workspace roots: `agents/<id>/workspace/`, which is created on first use, or a folder of the
    /// operator's that the session was given. No part of either may be a symbolic link.
    pub(super) fn open(home: &Path, ground: &WorkspaceRoots) -> Result<Self, ToolError> {
        let root = match ground.folder() {
            None => own_folder(home, ground.agent(), "workspace")?,
            Some(folder) => given_folder(folder).map_err(|error| {
                let what = format!("the session's folder cannot be opened ({error}): tell the operator");
                ToolError::new(ToolErrorCode::Failed, what)
            })?,
        };
        Ok(Self { root, additional_directory: None, hidden: Arc::default(), places: Places::default() })
    }

    /// Opens the root that a path is in.
    pub(super) fn open_at(home: &Path, spot: &RootedPath<'_>) -> Result<Self, ToolError> {
        let opened = Self::open(home, &spot.ground).map_err(|refused| match &spot.additional_directory {
            // It is one of several roots.
            Some(folder) => ToolError {
                sentence: refused.sentence.replacen(
                    "the session's folder",
                    &format!("`{}`", shown(folder)),
                    1,
                ),
                ..refused
            },
            None => refused,
        })?;
        Ok(Self { additional_directory: spot.additional_directory.clone(), ..opened })
    }

    /// Hides what the operator hides. Scans all folders of the session, of which this is one, because a hidden link may lead from
    /// one to another.
    pub(super) fn hiding(
        self,
        hidden: &Arc<HideRules>,
        home: &Path,
        ground: &WorkspaceRoots,
    ) -> Result<Self, ToolError> {
        if hidden.is_empty() {
            return Ok(self);
        }
        let each: Vec<WorkspaceRoots> = ground.each().collect();
        let is_own = |index: usize, one: &WorkspaceRoots| match self.additional_directory.as_deref() {
            None => index == 0,
            Some(folder) => index > 0 && one.folder_name() == Some(folder),
        };
        let paths: Vec<PathBuf> = each.iter().map(|one| one.path(home)).collect();
        // A folder that cannot be opened is out of reach, and nothing leads through it.
        let others: Vec<Option<Self>> = each
            .iter()
            .enumerate()
            .map(|(index, one)| (!is_own(index, one)).then(|| Self::open(home, one).ok()).flatten())
            .collect();
        // In a sandbox the paths of the workspace begin with another name.
        let inside = Path::new(WORKSPACE);
        let names: Vec<[&Path; 2]> = (0..)
            .zip(&paths)
            .map(|(index, path)| [path.as_path(), if index == 0 { inside } else { path.as_path() }])
            .collect();
        let (mut folders, mut own): (Vec<(&OwnedFd, &[&Path])>, usize) = (Vec::new(), 0);
        for (index, one) in each.iter().enumerate() {
            if is_own(index, one) {
                own = folders.len();
                folders.push((&self.root, &names[index]));
            } else if let Some(other) = &others[index] {
                folders.push((&other.root, &names[index]));
            }
        }
        let places = hidden.places(&folders).map_err(|error| {
            let sentence = format!(
                "the hidden names of the workspace cannot be determined ({error}): tell the operator"
            );
            ToolError::new(ToolErrorCode::Failed, sentence)
        })?;
        let places = places.into_iter().nth(own).unwrap_or_default();
        Ok(Self { hidden: Arc::clone(hidden), places, ..self })
    }

    /// The path relative to this folder.
    pub(super) fn inner<'p>(&self, path: &'p str) -> &'p str {
        let inner = self.additional_directory.as_deref().and_then(|folder| path.strip_prefix(folder));
        match inner.map(|inner| inner.trim_start_matches('/')) {
            None => path,
            Some("") => ".",
            Some(inner) => inner,
        }
    }

    /// Whether a place is hidden, by the operator or because it is in a home of Tribune. An unknown place, or one whose name is
    /// not UTF-8, counts as hidden if anything is.
    pub(super) fn hides(&self, place: &Place) -> bool {
        let is_hidden = |path: &str| self.hidden.covers(path) || self.places.cover(path);
        !self.hidden.is_empty() && place.0.as_deref().is_none_or(is_hidden) || self.is_in_tribune_home(place)
    }

    /// Whether a place is in a home of Tribune that is in this folder, or is one.
    fn is_in_tribune_home(&self, place: &Place) -> bool {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let exists = |path: &Path| rustix::fs::statat(&self.root, path, flags).is_ok();
        place.0.as_deref().is_some_and(|path| tribune_home_around(Path::new(path), exists).is_some())
    }

    pub(super) const fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a path inside the workspace.
    pub(super) fn path(&self, path: &str) -> Result<Opened, ToolError> {
        check(path)?;
        let inner = self.inner(path);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let opened = (0..MOVED_TRIES)
            .map(|_| rustix::fs::openat2(&self.root, inner, READ, Mode::empty(), resolve))
            .find(|opened| !matches!(opened, Err(Errno::AGAIN)))
            .unwrap_or(Err(Errno::AGAIN));
        match opened.and_then(readable) {
            Ok(Readable::Opened(opened))
                if self.hidden.covers_spoken(inner) || self.hides(&self.place(&opened)) =>
            {
                Err(hidden(path))
            }
            Ok(Readable::Opened(opened)) => Ok(opened),
            Ok(Readable::Linked) => Err(linked(path)),
            Ok(Readable::Neither) => Err(neither(path)),
            Err(error) => Err(self.refused(path, error)),
        }
    }

    /// The error when the kernel refuses to open `path` in this folder.
    pub(super) fn refused(&self, path: &str, error: Errno) -> ToolError {
        refused(self.additional_directory.as_deref(), path, error)
    }

    /// Its name, if it is an additional folder of the session.
    pub(super) const fn additional_directory(&self) -> Option<&Arc<str>> {
        self.additional_directory.as_ref()
    }

    /// Why a path is not the only name of its target, if it is not. A path that does not exist yet has no other name.
    pub(super) fn other_name(&self, path: &str) -> Option<String> {
        if let Err(refused) = check(path) {
            return Some(refused.sentence);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve) {
            Ok(opened) => {
                let stat = rustix::fs::fstat(&opened).ok()?;
                let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                (is_file && stat.st_nlink > 1).then(|| linked(path).sentence)
            }
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(Errno::LOOP) => {
                Some(format!("`{}` leads through a link: name the file that it leads to", shown(path)))
            }
            Err(error) => Some(self.refused(path, error).sentence),
        }
    }

    /// The place of an opened file by its own path, not by the path that led to it.
    pub(super) fn place(&self, opened: &Opened) -> Place {
        let name = |fd: i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
        let fd = match opened {
            Opened::File { file, .. } => file.as_raw_fd(),
            Opened::Folder(folder) => folder.as_raw_fd(),
        };
        let inside = || {
            let (root, path) = (name(self.root.as_raw_fd())?, name(fd)?);
            Some(path.strip_prefix(root).ok()?.to_str()?.to_owned())
        };
        // The kernel appends this to the name of a deleted file.
        Place(inside().filter(|path| !path.ends_with(" (deleted)")))
    }
}

/// A place in the workspace: its path without symbolic links, empty for the workspace itself. `None` if it is unknown,
/// because the file was moved or its name is not UTF-8.
#[derive(Debug, Clone)]
pub(super) struct Place(pub(super) Option<String>);

impl Place {
    /// An entry of this folder.
    pub(super) fn entry(&self, name: &CStr) -> Self {
        let name = name.to_str().ok();
        Self(self.0.as_ref().zip(name).map(|(path, name)| match path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}/{name}"),
        }))
    }

    pub(super) fn resource(&self) -> Resource {
        match self.0.as_deref() {
            None => Resource::Workspace,
            Some("") => Resource::File(".".to_owned()),
            Some(path) => Resource::File(path.to_owned()),
        }
    }
}

/// Opens a folder of the operator's. It had no symbolic link in it when it was chosen, and must have none now.
fn given_folder(folder: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(rustix::fs::CWD, folder, folder_flags(), Mode::empty(), resolve)
}

/// Opens `agents/<id>/<name>/`, a folder of the agent's own, and creates it if it is missing. No part may be a symbolic link.
pub(super) fn own_folder(home: &Path, agent: &AgentId, name: &str) -> Result<OwnedFd, ToolError> {
    let open = || {
        let mut folder = rustix::fs::open(home, folder_flags(), Mode::empty())?;
        for name in ["agents", agent.as_str(), name] {
            match rustix::fs::mkdirat(&folder, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            let flags = folder_flags() | OFlags::NOFOLLOW;
            folder = rustix::fs::openat(&folder, name, flags, Mode::empty())?;
        }
        Ok(folder)
    };
    open().map_err(|error: Errno| {
        ToolError::new(
            ToolErrorCode::Failed,
            format!("the {name} cannot be opened ({error}): tell the operator"),
        )
    })
}

/// Refuses a text that cannot be a path.
pub(super) fn check(path: &str) -> Result<(), ToolError> {
    let sentence = if path.is_empty() {
        "`path` is empty: name a file or folder, or `.` for the whole workspace".to_owned()
    } else if path.len() > MAX_PATH_BYTES {
        format!("`path` has more than {MAX_PATH_BYTES} bytes: name something nearer")
    } else if path.contains('\0') {
        "`path` holds a NUL character, which no name has: leave it out".to_owned()
    } else {
        return Ok(());
    };
    Err(ToolError::new(ToolErrorCode::InvalidInput, sentence))
}

/// Opens an entry of a folder if it is a file or a folder, and not a symbolic link to one.
pub(super) fn entry(folder: &OwnedFd, name: &CStr) -> Option<Opened> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(folder, name, READ, Mode::empty(), resolve).and_then(readable) {
        Ok(Readable::Opened(opened)) => Some(opened),
        Ok(Readable::Linked | Readable::Neither) | Err(_) => None,
    }
}

/// At most `most` names of a folder, the first in byte order.
pub(super) fn names(folder: &OwnedFd, most: usize) -> Result<Names, Errno> {
    let mut found = Names { names: BTreeMap::new(), more: false };
    for (scanned, entry) in Dir::read_from(folder)?.enumerate() {
        if scanned >= MAX_SCANNED_NAMES {
            found.more = true;
            break;
        }
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        found.names.insert(name.to_owned(), entry.file_type());
        if found.names.len() > most {
            found.names.pop_last();
            found.more = true;
        }
    }
    for (name, kind) in &mut found.names {
        if *kind == FileType::Unknown
            && let Ok(stat) = rustix::fs::statat(folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
        {
            *kind = FileType::from_raw_mode(stat.st_mode);
        }
    }
    Ok(found)
}

/// A name for display: on one line, whatever its bytes are.
pub(super) fn printed(name: &CStr) -> String {
    let control = |symbol: char| if symbol.is_control() { char::REPLACEMENT_CHARACTER } else { symbol };
    name.to_string_lossy().chars().map(control).collect()
}

/// The kind of an open descriptor.
enum Readable {
    Opened(Opened),
    /// A file with other names (hard links), some of which may be outside.
    Linked,
    Neither,
}

fn readable(fd: OwnedFd) -> Result<Readable, Errno> {
    let stat = rustix::fs::fstat(fd.as_fd())?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_nlink > 1 => Readable::Linked,
        FileType::RegularFile => {
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            Readable::Opened(Opened::File { file: File::from(fd), bytes })
        }
        FileType::Directory => Readable::Opened(Opened::Folder(fd)),
        _ => Readable::Neither,
    })
}

pub(super) fn linked(path: &str) -> ToolError {
    let path = shown(path);
    ToolError::new(
        ToolErrorCode::Refused,
        format!("`{path}` has another name as well (a hard link): use a copy of it"),
    )
}

pub(super) fn hidden(path: &str) -> ToolError {
    let path = shown(path);
    let sentence = format!("`{path}` is hidden here: ask the operator for what you need of it");
    ToolError::new(ToolErrorCode::Refused, sentence)
}

fn neither(path: &str) -> ToolError {
    let path = shown(path);
    ToolError::new(
        ToolErrorCode::Refused,
        format!("`{path}` is neither a file nor a folder: it cannot be read"),
    )
}

fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// The error when the kernel refuses to open `path`, in the workspace or in this additional folder of the session.
pub(super) fn refused(additional_directory: Option<&str>, path: &str, error: Errno) -> ToolError {
    let path = &shown(path);
    let folder = additional_directory.map(shown);
    let (place, top) = match &folder {
        None => ("the workspace".to_owned(), "."),
        Some(folder) => (format!("`{folder}`"), folder.as_str()),
    };
    let (code, sentence) = match error {
        Errno::NOENT => (
            ToolErrorCode::NotFound,
            format!("there is no `{path}` in {place}: read `{top}` to see what there is"),
        ),
        Errno::XDEV => {
            let how = match &folder {
                None => "without a leading `/`".to_owned(),
                Some(folder) => format!("beginning with `{folder}/` and without `..`"),
            };
            (ToolErrorCode::Refused, format!("`{path}` leads out of {place}: name a path inside it, {how}"))
        }
        Errno::LOOP => (
            ToolErrorCode::Refused,
            format!("`{path}` leads through a link that cannot be followed: name the file itself"),
        ),
        Errno::NOTDIR => (
            ToolErrorCode::NotFound,
            format!(
                "a part of `{path}` is a file where a folder should be: read `{top}` to see what there is"
            ),
        ),
        Errno::NAMETOOLONG => (
            ToolErrorCode::InvalidInput,
            format!("a name in `{path}` is too long for any file: check the path"),
        ),
        Errno::ACCESS | Errno::PERM => {
            (ToolErrorCode::Refused, format!("`{path}` may not be read: choose another file"))
        }
        Errno::NXIO => return neither(path),
        Errno::AGAIN => (ToolErrorCode::Failed, format!("`{path}` was being moved: try again")),
        Errno::NOSYS => (
            ToolErrorCode::Failed,
            "this machine's kernel has no openat2, so files cannot be opened safely: tell the operator"
                .to_owned(),
        ),
        other => (ToolErrorCode::Failed, format!("`{path}` cannot be read ({other}): choose another file")),
    };
    ToolError::new(code, sentence)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn l1_another_name_of_a_file_is_detected() {
        let home = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(home.path(), &WorkspaceRoots::own("main".parse().unwrap())).unwrap();
        let folder = home.path().join("agents/main/workspace");
        fs::create_dir(folder.join("secrets")).unwrap();
        fs::write(folder.join("secrets/key"), "").unwrap();
        fs::write(folder.join("one"), "").unwrap();
        fs::hard_link(folder.join("one"), folder.join("two")).unwrap();
        symlink("secrets", folder.join("open")).unwrap();
        symlink("secrets/key", folder.join("key")).unwrap();
        symlink("/proc/self/cwd", folder.join("out")).unwrap();
        for own in ["secrets/key", "secrets", ".", "new", "secrets/new", "new/deep/er"] {
            assert_eq!(workspace.other_name(own), None, "{own}");
        }
        for other in [
            "key",
            "open/key",
            "open/new",
            "open",
            "out/secrets/key",
            "one",
            "two",
            "../x",
            "/etc/passwd",
            "",
        ] {
            assert!(workspace.other_name(other).is_some(), "{other}");
        }
    }

    /// A hidden link hides its target as the kernel would resolve it: `..` behind a link leads up from the link's target, and a
    /// path that leaves may come back by another name.
    #[test]
    fn l1_hidden_links_hide_what_the_kernel_opens() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        fs::create_dir(&home).unwrap();
        // The state folder itself may be known by another name.
        let alias = place.path().join("alias");
        symlink(&home, &alias).unwrap();
        let ground = WorkspaceRoots::own("main".parse().unwrap());
        let folder = home.join("agents/main/workspace");
        drop(Workspace::open(&home, &ground).unwrap());
        fs::create_dir_all(folder.join("deep/y")).unwrap();
        for name in ["vault", "deep/vault"] {
            fs::write(folder.join(name), "").unwrap();
        }
        symlink("deep/y", folder.join("x")).unwrap();
        let hidden = Arc::new(HideRules::new(&["hl".to_owned()]));
        for to in [
            folder.join("x/../vault"),
            "../workspace/x/../vault".into(),
            "/workspace/x/../vault".into(),
            alias.join("agents/main/workspace/deep/vault"),
        ] {
            let _ = fs::remove_file(folder.join("hl"));
            symlink(&to, folder.join("hl")).unwrap();
            for home in [&home, &alias] {
                let workspace =
                    Workspace::open(home, &ground).unwrap().hiding(&hidden, home, &ground).unwrap();
                let covers = |path: &str| workspace.places.cover(path);
                assert_eq!((covers("deep/vault"), covers("vault")), (true, false), "{}", to.display());
            }
        }
    }

    #[test]
    fn a_walk_follows_no_link() {
        let home = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(home.path(), &WorkspaceRoots::own("main".parse().unwrap())).unwrap();
        let folder = home.path().join("agents/main/workspace");
        fs::create_dir(folder.join("folder")).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        symlink("folder", folder.join("to-folder")).unwrap();
        symlink("file", folder.join("to-file")).unwrap();
        assert!(matches!(entry(&workspace.root, c"folder"), Some(Opened::Folder(_))));
        assert!(matches!(entry(&workspace.root, c"file"), Some(Opened::File { bytes: 0, .. })));
        for name in [c"to-folder", c"to-file", c"nothing", c".."] {
            assert!(entry(&workspace.root, name).is_none(), "{name:?}");
        }
    }
}
