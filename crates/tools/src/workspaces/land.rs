//! Lands changes of a workspace in the folder that they apply to.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use tribune_constitution::{BY_OPERATOR, LAND};
use tribune_governance::gate::Admission;
use tribune_ledger::Cid;
use tribune_runtime::ToolCall;
use tribune_sandbox::workspace::{self, Change, Diff, Node, Selection};
use tribune_storage::files;
use tribune_storage::files::Secrecy;

use super::{Held, Workspace, WorkspacesError};

/// Maximum number of paths that hooks and approvers see.
const MAX_TOLD: usize = 200;

/// Which changes to land.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// These paths and their content; all changes if empty.
    pub paths: Vec<PathBuf>,
    /// Also autorun files, without naming each.
    pub traps: bool,
}

/// The result of a landing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Landed {
    pub landed: Vec<String>,
    pub left: Vec<Left>,
    /// The number of autorun files among the landed ones.
    pub traps: u64,
}

/// A change that did not land.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    pub path: String,
    /// The reason, as a sentence.
    pub why: String,
    /// For a conflict: the path of the sandbox's version, to be merged by hand with the one in the folder. Absent if the sandbox
    /// removed the file.
    pub version: Option<String>,
}

/// A planned landing, ready for its verdict.
#[derive(Debug)]
pub struct Planned {
    pub held: Held,
    selection: Selection,
    wish: Wish,
    traps: BTreeSet<PathBuf>,
    /// The changes that are to land.
    pub paths: Vec<PathBuf>,
    pub call: ToolCall,
}

/// How many bytes the landing of a change writes, holes included.
const fn written(change: &Change) -> u64 {
    match change.after {
        Some(Node::File { bytes, .. }) if !change.same_content => bytes,
        Some(Node::File { .. } | Node::Folder { .. } | Node::Symlink { .. } | Node::Other) | None => 0,
    }
}

impl Held {
    /// Plans a landing of the current changes; `None` if there is nothing to land. A landing may write at most `most` bytes: a file
    /// with holes, or with several names, takes less space in the overlay than in the folder.
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
        let paths = meant.iter().map(|change| change.path.clone()).collect();
        Ok(Some(Planned { held: self, selection, wish: wish.clone(), traps, paths, call }))
    }

    /// Repairs the folder after an interrupted landing and returns what landed.
    pub fn mend(&self) -> Result<Vec<String>, WorkspacesError> {
        let workspace = self.workspace();
        let mended = workspace::recover_landing(&workspace.label.folder, &workspace.layers())?;
        for path in &mended.moved_aside {
            let path = workspace.label.folder.join(path);
            tracing::warn!(path = %path.display(), "kept an old version of a file next to a newer one");
        }
        Ok(mended.landed.iter().map(|path| path.display().to_string()).collect())
    }

    /// The verdict of a landing that was interrupted by the end of an earlier daemon.
    pub fn interrupted(&self) -> Option<Cid> {
        let text = std::fs::read_to_string(self.workspace().landing_path()).ok()?;
        text.trim().parse().ok()
    }

    pub fn landing_is_over(&self) {
        // If the file stays, the next start reports the unknown result once more.
        let _ = std::fs::remove_file(self.workspace().landing_path());
    }
}

impl Wish {
    fn means(&self, path: &Path) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|named| path.starts_with(named))
    }

    /// Selects changes. An autorun file has to be named by itself; new folders around a named path are included.
    fn selection(&self, diff: &Diff) -> Selection {
        match (self.paths.is_empty(), self.traps) {
            (true, false) => Selection::All,
            (true, true) => Selection::Everything,
            (false, false) => Selection::Paths(with_around(self.paths.clone(), diff)),
            (false, true) => Selection::PathsWithAutorun(self.paths.clone()),
        }
    }
}

/// Adds the new folders around the paths that are autorun paths themselves. Naming such a folder includes only what is named
/// inside it.
fn with_around(mut paths: Vec<PathBuf>, diff: &Diff) -> Vec<PathBuf> {
    let around = |change: &&Change| {
        change.is_autorun && paths.iter().any(|path| path != &change.path && path.starts_with(&change.path))
    };
    let more: Vec<PathBuf> = diff.changes.iter().filter(around).map(|change| change.path.clone()).collect();
    paths.extend(more);
    paths
}

impl Planned {
    /// Lands the admitted changes. A failure of one change is part of the result; an error concerns all of them.
    pub fn land(&self, admission: Admission) -> Result<Landed, WorkspacesError> {
        let workspace = self.held.workspace();
        let verdict = admission.entry().to_string();
        files::replace(&workspace.landing_path(), verdict.as_bytes(), Secrecy::Owner)
            .map_err(|error| workspace.fault(error))?;
        let landing = workspace::land(&workspace.label.folder, &workspace.layers(), &self.selection)?;
        let traps = landing.landed.iter().filter(|path| self.traps.contains(*path)).count() as u64;
        Ok(Landed {
            landed: landing.landed.iter().map(|path| path.display().to_string()).collect(),
            // A change that is only next to a named one was not requested.
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
        // In the overlay a removed file is a device, or absent.
        let is_there =
            std::fs::symlink_metadata(&version).is_ok_and(|found| !found.file_type().is_char_device());
        let version = (is_conflict && is_there).then(|| version.display().to_string());
        Left { path: left.path.display().to_string(), why: left.reason.to_string(), version }
    }
}
