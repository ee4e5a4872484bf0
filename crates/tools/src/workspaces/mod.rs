//! The changes of boxes that nobody has landed yet, below `workspaces` of the home: one folder for each, named like the run that
//! made it.
//!
//! `label.json` says what it belongs to, `layers` has the changes, `lock` is held by whoever uses them: the program while it
//! runs, the daemon while it lands or discards. `landing` is there while changes are landed, and tells the next start of a
//! landing that did not come to its end; `layers` has what it did. [`shown`] tells changes, [`landing`] takes them over,
//! [`unfinished`] removes what was not made or removed to its end.

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

/// Workspaces that are looked at; more than anyone keeps.
const MAX_WORKSPACES: usize = 10_000;

/// Names and bytes of a layer that is compared with its folder when the daemon starts, which waits for that.
const MAX_IDLE_NAMES: usize = 1_000;
const MAX_IDLE_BYTES: u64 = 16 * 1024 * 1024;

/// Letters of a name.
pub const MAX_NAME: usize = 40;

/// Whose changes they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Label {
    pub id: String,
    /// The session whose box made them.
    pub session: String,
    /// The folder they were made for.
    pub folder: PathBuf,
    /// What ran, without its arguments.
    pub program: String,
    pub began: String,
}

/// Why nothing can be done with a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspacesError {
    #[error(
        "`{0}` is no name of a run: use 1 to {MAX_NAME} lowercase letters, digits and dashes, beginning with a letter or digit"
    )]
    Name(String),
    #[error("there are no changes under the name `{0}`: `tribune workspace list` shows those there are")]
    Unknown(String),
    #[error(
        "`{0}` has changes that nobody landed or discarded: do that first (tribune workspace diff {0}), or choose another name"
    )]
    Taken(String),
    #[error("`{0}` is still running, or being landed: wait for its end, or end it, and try again")]
    Running(String),
    #[error("`{0}` is no change of `{1}`: `tribune workspace diff {1}` shows what is")]
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

/// All workspaces of a house.
#[derive(Debug, Clone)]
pub struct Workspaces {
    root: PathBuf,
}

/// One of them.
#[derive(Debug, Clone)]
pub struct Workspace {
    pub label: Label,
    folder: PathBuf,
}

/// Leave to use a workspace, alone.
#[derive(Debug)]
pub struct Held {
    workspace: Workspace,
    _lock: File,
}

impl Workspaces {
    pub fn of(home: &Home) -> Self {
        Self { root: home.root().join("workspaces") }
    }

    /// Makes a workspace for changes of `label.folder`, which begins now. One that holds nothing makes room.
    pub fn create(&self, label: Label) -> Result<Workspace, WorkspacesError> {
        check_name(&label.id)?;
        if let Ok(before) = self.find(&label.id) {
            // What cannot be looked through is not empty.
            let _ = before.hold().and_then(Held::remove_if_empty);
        }
        let workspace = self.place_for(label)?;
        let filled = STEPS.iter().try_for_each(|step| step(&workspace));
        filled.map_err(|error| workspace.fault(error)).inspect_err(|_| {
            // Nobody has seen it yet.
            let _ = std::fs::remove_dir_all(&workspace.folder);
        })?;
        Ok(workspace)
    }

    /// A folder with nothing in it.
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

    /// The workspace of this name.
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

    /// All there are, oldest first.
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

/// What makes a workspace of its folder.
// INVARIANT: the label comes last: what has one is whole, and what has none holds nothing that anybody wants.
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

    /// The file that is locked by whoever uses it.
    pub fn lock_path(&self) -> PathBuf {
        self.folder.join(LOCK)
    }

    fn landing_path(&self) -> PathBuf {
        self.folder.join("landing")
    }

    pub fn diff(&self) -> Result<Diff, WorkspacesError> {
        Ok(workspace::diff(&self.label.folder, &self.layers())?)
    }

    /// Whether its program still runs.
    pub fn is_running(&self) -> bool {
        lock(&self.lock_path()).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Keeps everyone else from using it. Whatever ran there has ended, so nothing of it stays closed.
    pub fn hold(self) -> Result<Held, WorkspacesError> {
        match lock(&self.lock_path()) {
            Ok(lock) => {
                // What stays closed is told as that.
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

    /// Throws changes away, all of them and the workspace too if none is named. Returns how many there were, as far as they can be
    /// told: what its owner closed can be thrown away all the same.
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
        // One that cannot be looked through is not empty.
        let _ = self.remove_if_empty();
        Ok(gone as u64)
    }

    /// Removes it if there are no changes left.
    pub fn remove_if_empty(self) -> Result<bool, WorkspacesError> {
        let is_empty = self.workspace.diff()?.changes.is_empty();
        if is_empty {
            self.remove()?;
        }
        Ok(is_empty)
    }

    /// The same, of one so small that looking through it holds up no start. What is larger has changes, but for copies of what there
    /// was.
    pub fn remove_if_idle(self) -> Result<bool, WorkspacesError> {
        let usage = self.workspace.layers().usage()?;
        let is_small = usage.names <= MAX_IDLE_NAMES && usage.bytes <= MAX_IDLE_BYTES;
        if is_small { self.remove_if_empty() } else { Ok(false) }
    }

    /// The label goes first: what has none is removed by the next start.
    fn remove(self) -> Result<(), WorkspacesError> {
        let removed = std::fs::remove_file(self.workspace.folder.join(LABEL));
        removed.map_err(|error| self.workspace.fault(error))?;
        self.workspace.layers().remove()?;
        std::fs::remove_dir_all(&self.workspace.folder).map_err(|error| self.workspace.fault(error))
    }
}

/// Takes the lock, or says that someone else has it.
pub fn lock(path: &Path) -> io::Result<File> {
    let mode = rustix::fs::Mode::empty();
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(File::from(file))
}

/// A name that is a folder's, a part of a session's key and a word that can be typed.
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
    fn names_lead_nowhere_else() {
        for name in ["a", "run-1", "0"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "..", "a/b", "A", "-a", "a b", "a\0", ".", &"x".repeat(41)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    /// A home beside a project, and the label of a workspace for it.
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

    /// Holes take no room in a layer, and several names of a file take it once. Landed, all of it is written.
    #[test]
    fn l3_no_more_lands_at_once_than_a_box_may_write() {
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
    fn a_workspace_is_its_own_until_it_is_empty() {
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
