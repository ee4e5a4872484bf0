//! Overlay workspaces: changes of sandboxes that have not landed yet. Each has a folder below `workspaces` of the state folder,
//! named like the run that created it.
//!
//! `label.json` says what the workspace belongs to; `layers` holds the changes; `lock` is held by its current user: the program
//! while it runs, the daemon while it lands or discards. `landing` exists during a landing, and so tells the next start of an
//! interrupted one; `layers` has the record of what it did. [`diff_view`] shows changes, [`land`] lands them, [`cleanup`] removes
//! workspaces whose creation or removal was interrupted.

mod cleanup;
mod diff_view;
mod land;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use tribune_sandbox::workspace::{self, Diff, OverlayDirs, Selection, WorkspaceError};

pub use self::diff_view::{ChangeInfo, NodeInfo, Shown};
pub use self::land::{Landed, Left, Wish};

use tribune_storage::files;
use tribune_storage::files::Secrecy;
use tribune_storage::home::Home;

use crate::disk_quota;

/// Maximum number of workspaces that are listed; more than anyone keeps.
const MAX_WORKSPACES: usize = 10_000;

/// Maximum names and bytes of an overlay that is compared with its folder at the start of the daemon, which waits for it.
const MAX_IDLE_NAMES: usize = 1_000;
const MAX_IDLE_BYTES: u64 = 16 * 1024 * 1024;

/// Maximum characters of a name.
pub const MAX_NAME: usize = 40;

/// What a workspace belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Label {
    pub id: String,
    /// The session whose sandbox made the changes.
    pub session: String,
    /// The folder that the changes apply to.
    pub folder: PathBuf,
    /// The program that ran, without its arguments.
    pub program: String,
    pub began: String,
}

/// Why an operation on a workspace failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspacesError {
    #[error(
        "`{0}` is not a valid name of a run: use 1 to {MAX_NAME} lowercase letters, digits and dashes, beginning with a letter or digit"
    )]
    Name(String),
    #[error("there are no changes under the name `{0}`: `tribune workspace list` shows the names")]
    Unknown(String),
    #[error(
        "`{0}` has changes that are neither landed nor discarded: do that first (tribune workspace diff {0}), or choose another name"
    )]
    Taken(String),
    #[error("`{0}` is still running, or being landed: wait for it to end, or end it, and try again")]
    Running(String),
    #[error("`{0}` is not a change of `{1}`: `tribune workspace diff {1}` shows its changes")]
    NoChange(String, String),
    #[error(
        "landing this would write {would}, and workspaces.maxBytes is {most}: name some of it, or raise that in config.json5",
        would = disk_quota::bytes(*.would), most = disk_quota::bytes(*.most)
    )]
    TooLarge { would: u64, most: u64 },
    #[error(transparent)]
    Changes(#[from] WorkspaceError),
    #[error("`{path}` cannot be used ({error}): check the folder's owner and space", path = .path.display())]
    File { path: PathBuf, error: io::Error },
}

/// All workspaces of an instance.
#[derive(Debug, Clone)]
pub struct Workspaces {
    root: PathBuf,
}

/// One workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    pub label: Label,
    folder: PathBuf,
}

/// A workspace with its lock held: exclusive use.
#[derive(Debug)]
pub struct Held {
    workspace: Workspace,
    _lock: File,
}

impl Workspaces {
    pub fn of(home: &Home) -> Self {
        Self { root: home.root().join("workspaces") }
    }

    /// Creates a workspace for changes of `label.folder` from now on. Replaces one of the same name that holds no changes.
    pub fn create(&self, label: Label) -> Result<Workspace, WorkspacesError> {
        check_name(&label.id)?;
        if let Ok(before) = self.find(&label.id) {
            // A workspace that cannot be read through is not empty.
            let _ = before.hold().and_then(Held::remove_if_empty);
        }
        let workspace = self.place_for(label)?;
        let filled = STEPS.iter().try_for_each(|step| step(&workspace));
        filled.map_err(|error| workspace.fault(error)).inspect_err(|_| {
            // No other code has seen it yet.
            let _ = std::fs::remove_dir_all(&workspace.folder);
        })?;
        Ok(workspace)
    }

    /// Creates an empty folder.
    fn place_for(&self, label: Label) -> Result<Workspace, WorkspacesError> {
        let workspace = Workspace { folder: self.root.join(&label.id), label };
        let make = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
            DirBuilder::new().mode(0o700).create(&workspace.folder)
        };
        match make() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(WorkspacesError::Taken(workspace.label.id))
            }
            made => made.map_err(|error| workspace.fault(error)).map(|()| workspace),
        }
    }

    fn root(&self) -> &Path {
        &self.root
    }

    /// Finds the workspace of this name.
    pub fn find(&self, id: &str) -> Result<Workspace, WorkspacesError> {
        check_name(id)?;
        let folder = self.root.join(id);
        let read = std::fs::read(folder.join(LABEL)).ok();
        let label = read.and_then(|bytes| serde_json::from_slice::<Label>(&bytes).ok());
        label
            .filter(|label| label.id == id)
            .map(|label| Workspace { label, folder })
            .ok_or_else(|| WorkspacesError::Unknown(id.to_owned()))
    }

    /// All workspaces, oldest first.
    pub fn all(&self) -> Result<Vec<Workspace>, WorkspacesError> {
        let fault = |error| WorkspacesError::File { path: self.root.clone(), error };
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(fault)?,
        };
        let names =
            entries.take(MAX_WORKSPACES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut all: Vec<Workspace> = names.filter_map(|name| self.find(&name).ok()).collect();
        all.sort_by(|a, b| (&a.label.began, &a.label.id).cmp(&(&b.label.began, &b.label.id)));
        Ok(all)
    }
}

const LABEL: &str = "label.json";
const LOCK: &str = "lock";
const LAYERS: &str = "layers";

/// The steps that make a folder a workspace.
// INVARIANT: the label comes last: a folder with one is complete, and a folder without one holds nothing of value.
const STEPS: [fn(&Workspace) -> io::Result<()>; 3] = [
    |workspace| files::replace(&workspace.lock_path(), b"", Secrecy::Owner),
    |workspace| OverlayDirs::create(workspace.layers().folder(), &workspace.label.folder).map(drop),
    |workspace| {
        let label = serde_json::to_vec(&workspace.label)?;
        files::replace(&workspace.folder.join(LABEL), &label, Secrecy::Owner)
    },
];

impl Workspace {
    pub fn layers(&self) -> OverlayDirs {
        OverlayDirs::new(self.folder.join(LAYERS))
    }

    /// The file that the current user of the workspace locks.
    pub fn lock_path(&self) -> PathBuf {
        self.folder.join(LOCK)
    }

    fn landing_path(&self) -> PathBuf {
        self.folder.join("landing")
    }

    pub fn diff(&self) -> Result<Diff, WorkspacesError> {
        Ok(workspace::diff(&self.label.folder, &self.layers())?)
    }

    /// Whether its program is still running.
    pub fn is_running(&self) -> bool {
        lock(&self.lock_path()).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Takes exclusive use. The program there has ended, so its inaccessible folders are made accessible.
    pub fn hold(self) -> Result<Held, WorkspacesError> {
        match lock(&self.lock_path()) {
            Ok(lock) => {
                // A folder that stays inaccessible is reported as such.
                let _ = self.layers().open_up();
                Ok(Held { workspace: self, _lock: lock })
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(WorkspacesError::Running(self.label.id))
            }
            Err(error) => Err(self.fault(error)),
        }
    }

    fn fault(&self, error: io::Error) -> WorkspacesError {
        WorkspacesError::File { path: self.folder.clone(), error }
    }
}

impl Held {
    pub const fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Discards changes; without paths all of them, with the workspace. Returns how many there were, as far as they can be counted:
    /// inaccessible content can be discarded as well.
    pub fn discard(self, paths: &[PathBuf]) -> Result<u64, WorkspacesError> {
        let (before, id) = (self.workspace.diff(), &self.workspace.label.id);
        if paths.is_empty() {
            let names = || self.workspace.layers().usage().map_or(0, |usage| usage.names);
            let count = before.map_or_else(|_| names(), |diff| diff.changes.len());
            self.remove()?;
            return Ok(count as u64);
        }
        if let Ok(before) = &before {
            let is_change = |path: &Path| before.changes.iter().any(|change| change.path.starts_with(path));
            if let Some(other) = paths.iter().find(|path| !is_change(path)) {
                return Err(WorkspacesError::NoChange(other.display().to_string(), id.clone()));
            }
        }
        workspace::discard(&self.workspace.layers(), &Selection::Paths(paths.to_vec()))?;
        let gone = match (before, self.workspace.diff()) {
            (Ok(before), Ok(after)) => before.changes.len().saturating_sub(after.changes.len()),
            (Err(_), _) | (_, Err(_)) => paths.len(),
        };
        // A workspace that cannot be read through is not empty.
        let _ = self.remove_if_empty();
        Ok(gone as u64)
    }

    /// Removes the workspace if it has no changes left.
    pub fn remove_if_empty(self) -> Result<bool, WorkspacesError> {
        let is_empty = self.workspace.diff()?.changes.is_empty();
        if is_empty {
            self.remove()?;
        }
        Ok(is_empty)
    }

    /// Like [`Self::remove_if_empty`], for a workspace small enough not to delay a start. A larger one has changes, unless they are
    /// copies of unchanged files.
    pub fn remove_if_idle(self) -> Result<bool, WorkspacesError> {
        let usage = self.workspace.layers().usage()?;
        let is_small = usage.names <= MAX_IDLE_NAMES && usage.bytes <= MAX_IDLE_BYTES;
        if is_small { self.remove_if_empty() } else { Ok(false) }
    }

    /// Removes the label first: the next start removes a folder without one.
    fn remove(self) -> Result<(), WorkspacesError> {
        let removed = std::fs::remove_file(self.workspace.folder.join(LABEL));
        removed.map_err(|error| self.workspace.fault(error))?;
        self.workspace.layers().remove()?;
        std::fs::remove_dir_all(&self.workspace.folder).map_err(|error| self.workspace.fault(error))
    }
}

/// Takes the lock, or fails if another user holds it.
pub fn lock(path: &Path) -> io::Result<File> {
    let mode = rustix::fs::Mode::empty();
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(File::from(file))
}

/// Checks a name, which becomes a folder name and a part of a session key, and which people type.
pub fn check_name(name: &str) -> Result<(), WorkspacesError> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name =
        (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('-');
    if is_name { Ok(()) } else { Err(WorkspacesError::Name(name.chars().take(80).collect())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder() {
        for name in ["a", "run-1", "0"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "..", "a/b", "A", "-a", "a b", "a\0", ".", &"x".repeat(41)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    /// A state folder next to a project, and the label of a workspace for it.
    pub(super) fn site() -> (tempfile::TempDir, Workspaces, Label) {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("project");
        std::fs::create_dir(&folder).unwrap();
        let all = Workspaces::of(&Home::at(place.path().join("home")));
        let label = Label {
            id: "one".to_owned(),
            session: "agent:run:run:local:dm:one".to_owned(),
            folder,
            program: "sh".to_owned(),
            began: "2026-01-01T00:00:00Z".to_owned(),
        };
        (place, all, label)
    }

    /// Holes take no space in an overlay, and several names of a file count once. A landing writes all of it.
    #[test]
    fn l3_a_landing_writes_no_more_than_a_sandbox_may() {
        const MOST: u64 = 4 << 20;
        let (_place, all, label) = site();
        let upper = all.create(label).unwrap().layers().upper();
        File::create(upper.join("a")).unwrap().set_len(MOST - 1).unwrap();
        File::create(upper.join("b")).unwrap().set_len(1).unwrap();
        let plan = |paths: &[&str]| {
            let wish = Wish { paths: paths.iter().map(PathBuf::from).collect(), traps: false };
            all.find("one").unwrap().hold().unwrap().plan(&wish, 1, MOST).map(|planned| planned.is_some())
        };
        assert!(plan(&[]).unwrap(), "just as much as may be");
        std::fs::hard_link(upper.join("a"), upper.join("c")).unwrap();
        let refused = plan(&[]).unwrap_err().to_string();
        assert!(refused.contains("would write 8191 KiB, and workspaces.maxBytes is 4096 KiB"), "{refused}");
        assert!(plan(&["a", "c"]).is_err());
        assert!(plan(&["a"]).unwrap());
    }

    #[test]
    fn a_workspace_keeps_its_name_until_it_is_empty() {
        let (_place, all, label) = site();
        assert_eq!(all.all().unwrap().len(), 0);
        let made = all.create(label.clone()).unwrap();
        std::fs::write(made.layers().upper().join("new"), "x").unwrap();
        assert!(matches!(all.create(label.clone()), Err(WorkspacesError::Taken(_))));
        std::fs::remove_file(made.layers().upper().join("new")).unwrap();
        let made = all.create(label).unwrap();
        assert!(matches!(all.find("two"), Err(WorkspacesError::Unknown(_))));
        assert!(matches!(all.find("../one"), Err(WorkspacesError::Name(_))));
        let running = lock(&made.lock_path()).unwrap();
        assert!(all.find("one").unwrap().is_running());
        assert!(matches!(made.clone().hold(), Err(WorkspacesError::Running(_))));
        drop(running);
        std::fs::write(made.layers().upper().join("new"), "x").unwrap();
        assert!(!made.clone().hold().unwrap().remove_if_empty().unwrap());
        assert!(matches!(
            made.clone().hold().unwrap().discard(&["other".into()]),
            Err(WorkspacesError::NoChange(..))
        ));
        assert_eq!(made.hold().unwrap().discard(&["new".into()]).unwrap(), 1);
        assert_eq!(all.all().unwrap().len(), 0, "nothing is left of it");
    }
}
