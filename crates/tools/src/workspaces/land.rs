//! Taking changes over into the folder they were made for.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::json;
use tribune_constitution::{BY_OPERATOR, LAND};
use tribune_governance::gate::Admission;
use tribune_ledger::Cid;
use tribune_runtime::ToolCall;
use tribune_sandbox::workspace::{self, Change, Diff, Node, Selection};
use tribune_storage::files;
use tribune_storage::files::Secrecy;
use utoipa::ToSchema;

use super::{Held, Workspace, WorkspacesError};

/// Paths that are told to hooks and to whoever decides.
const MAX_TOLD: usize = 200;

/// Which changes are to land.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// These and what is in them; without any, all.
    pub paths: Vec<PathBuf>,
    /// Also names that programs of this machine obey, without naming each.
    pub traps: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Landed {
    pub landed: Vec<String>,
    pub left: Vec<Left>,
    /// Names that programs of this machine obey, among the landed.
    #[serde(skip)]
    pub traps: u64,
}

/// A change that was left where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Left {
    pub path: String,
    /// In a sentence.
    pub why: String,
    /// Where the box's version is, if both are to be merged by hand; the other is in the folder. What the box removed has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// A landing that was looked at, and may be judged.
#[derive(Debug)]
pub struct Planned {
    pub held: Held,
    selection: Selection,
    wish: Wish,
    traps: BTreeSet<PathBuf>,
    pub call: ToolCall,
}

/// How much landing a change writes, holes and all.
const fn written(change: &Change) -> u64 {
    match change.after {
        Some(Node::File { bytes, .. }) if !change.same_content => bytes,
        Some(Node::File { .. } | Node::Folder { .. } | Node::Symlink { .. } | Node::Other) | None => 0,
    }
}

impl Held {
    /// What landing would mean now. None if there is nothing to land. No more than `most` bytes may be written at once: a file with
    /// holes, or with several names, takes less in a layer than it does in the folder.
    pub fn plan(self, wish: &Wish, number: u64, most: u64) -> Result<Option<Planned>, WorkspacesError> {
        let diff = self.workspace().diff()?;
        let is_change = |path: &Path| diff.changes.iter().any(|change| change.path.starts_with(path));
        if let Some(other) = wish.paths.iter().find(|path| !is_change(path)) {
            let id = self.workspace().label.id.clone();
            return Err(WorkspacesError::NoChange(other.display().to_string(), id));
        }
        let selection = wish.selection(&diff);
        let meant: Vec<&Change> = diff.changes.iter().filter(|change| wish.means(&change.path)).collect();
        if meant.is_empty() {
            return Ok(None);
        }
        let would = meant.iter().fold(0_u64, |sum, change| sum.saturating_add(written(change)));
        if would > most {
            return Err(WorkspacesError::TooLarge { would, most });
        }
        let is_named = |change: &&Change| match &selection {
            Selection::All => false,
            Selection::Everything => true,
            Selection::Paths(paths) => paths.contains(&change.path),
            Selection::PathsWithAutorun(_) => wish.means(&change.path),
        };
        let traps = diff.changes.iter().filter(|change| change.is_autorun).filter(is_named);
        let traps: BTreeSet<PathBuf> = traps.map(|change| change.path.clone()).collect();
        let shown = |path: &PathBuf| path.display().to_string();
        let input = json!({
            "action": BY_OPERATOR,
            "folder": self.workspace().label.folder.display().to_string(),
            "changes": meant.len(),
            "bytes": diff.bytes,
            "paths": meant.iter().take(MAX_TOLD).map(|change| shown(&change.path)).collect::<Vec<_>>(),
            "traps": traps.iter().take(MAX_TOLD).map(shown).collect::<Vec<_>>(),
        });
        let call = ToolCall { id: format!("land-{number:016x}"), name: LAND.to_owned(), input };
        Ok(Some(Planned { held: self, selection, wish: wish.clone(), traps, call }))
    }

    /// Puts the folder in order after a landing that did not come to its end, and tells what landed.
    pub fn mend(&self) -> Result<Vec<String>, WorkspacesError> {
        let workspace = self.workspace();
        let mended = workspace::recover_landing(&workspace.label.folder, &workspace.layers())?;
        for path in &mended.moved_aside {
            let path = workspace.label.folder.join(path);
            tracing::warn!(path = %path.display(), "an old version of a file was left beside a newer one");
        }
        Ok(mended.landed.iter().map(|path| path.display().to_string()).collect())
    }

    /// The verdict under which changes were being landed when an earlier daemon ended.
    pub fn interrupted(&self) -> Option<Cid> {
        let text = std::fs::read_to_string(self.workspace().landing_path()).ok()?;
        text.trim().parse().ok()
    }

    pub fn landing_is_over(&self) {
        // If it stays, the next start says once more that nobody knows how it ended.
        let _ = std::fs::remove_file(self.workspace().landing_path());
    }
}

impl Wish {
    fn means(&self, path: &Path) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|named| path.starts_with(named))
    }

    /// A name that programs of this machine obey has to be named by itself; the folders around one that is named come along.
    fn selection(&self, diff: &Diff) -> Selection {
        match (self.paths.is_empty(), self.traps) {
            (true, false) => Selection::All,
            (true, true) => Selection::Everything,
            (false, false) => Selection::Paths(with_around(self.paths.clone(), diff)),
            (false, true) => Selection::PathsWithAutorun(self.paths.clone()),
        }
    }
}

/// The paths, and the new folders that programs of this machine obey around those that are such names themselves. To name such a
/// folder brings in nothing but what is named in it.
fn with_around(mut paths: Vec<PathBuf>, diff: &Diff) -> Vec<PathBuf> {
    let around = |change: &&Change| {
        change.is_autorun && paths.iter().any(|path| path != &change.path && path.starts_with(&change.path))
    };
    let more: Vec<PathBuf> = diff.changes.iter().filter(around).map(|change| change.path.clone()).collect();
    paths.extend(more);
    paths
}

impl Planned {
    /// Lands what was admitted. What goes wrong with one change is told; an error is of all of them.
    pub fn land(&self, admission: Admission) -> Result<Landed, WorkspacesError> {
        let workspace = self.held.workspace();
        let verdict = admission.entry().to_string();
        files::replace(&workspace.landing_path(), verdict.as_bytes(), Secrecy::Owner)
            .map_err(|error| workspace.fault(error))?;
        let landing = workspace::land(&workspace.label.folder, &workspace.layers(), &self.selection)?;
        let traps = landing.landed.iter().filter(|path| self.traps.contains(*path)).count() as u64;
        Ok(Landed {
            landed: landing.landed.iter().map(|path| path.display().to_string()).collect(),
            // What only lies beside something that was named was not asked for.
            left: landing
                .not_landed
                .iter()
                .filter(|left| self.wish.means(&left.path))
                .map(|left| workspace.left(left))
                .collect(),
            traps,
        })
    }
}

impl Workspace {
    fn left(&self, left: &workspace::NotLanded) -> Left {
        let is_conflict = left.reason == workspace::LandRefusal::Conflict;
        let version = self.layers().upper().join(&left.path);
        // What the box removed is a device there, or nothing.
        let is_there =
            std::fs::symlink_metadata(&version).is_ok_and(|found| !found.file_type().is_char_device());
        let version = (is_conflict && is_there).then(|| version.display().to_string());
        Left { path: left.path.display().to_string(), why: left.reason.to_string(), version }
    }
}
