//! The view of changes that clients receive: kinds, modes, link targets and text diffs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use similar::TextDiff;
use tribune_sandbox::workspace::{self, Change, ChangeKind, Node};

use super::{Workspace, WorkspacesError};

/// Maximum bytes of a file whose text is compared, and maximum bytes of all text diffs in an answer.
const MAX_TEXT: u64 = 1 << 20;
const MAX_PATCHES: usize = 2 << 20;

/// Maximum bytes of all files that are compared for an answer.
const MAX_COMPARED: u64 = 128 << 20;

/// Time limit for comparing two texts; after it the diff becomes coarser.
const COMPARE_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of changes in an answer.
const MAX_SHOWN: usize = 5_000;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeInfo {
    /// From the root of the workspace.
    pub path: String,
    /// `added`, `changed`, `mode` or `removed`.
    pub kind: String,
    /// The state in the folder.
    pub before: Option<NodeInfo>,
    /// The state in the workspace.
    pub after: Option<NodeInfo>,
    /// Programs of this machine load or execute it (an autorun file): it lands only if it is named by itself, or with `traps`.
    pub trap: bool,
    /// A symbolic link to a target outside, which does not land.
    pub leaves: bool,
    /// It has set-id bits, which do not land.
    pub set_id: bool,
    /// The unified diff of the two texts without its header.
    pub patch: Option<String>,
    /// Why there is no diff: `binary`, `too large` or `unreadable`.
    pub unseen: Option<String>,
}

/// A file, a folder, a link or something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// `file`, `folder`, `link` or `other`.
    pub kind: String,
    /// The mode, such as `644`.
    pub mode: Option<String>,
    pub bytes: Option<u64>,
    /// Where a link leads.
    pub to: Option<String>,
}

/// Changes of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub id: String,
    /// The folder that the changes apply to.
    pub folder: String,
    /// Whether its program is still running.
    pub running: bool,
    /// Autorun files come first.
    pub changes: Vec<ChangeInfo>,
    /// The number of autorun files among all of them, also among those not listed.
    pub traps: u64,
    /// The number of changes not listed, because there are too many.
    pub more: u64,
    /// Bytes of everything that was added or changed.
    pub bytes: u64,
}

impl Workspace {
    /// Shows its changes, or those in `paths`.
    pub fn show(&self, paths: &[PathBuf], with_texts: bool) -> Result<Shown, WorkspacesError> {
        let diff = self.diff()?;
        let is_meant =
            |change: &&Change| paths.is_empty() || paths.iter().any(|path| change.path.starts_with(path));
        let mut meant: Vec<&Change> = diff.changes.iter().filter(is_meant).collect();
        if let Some(other) = paths.iter().find(|path| !meant.iter().any(|c| c.path.starts_with(path))) {
            return Err(WorkspacesError::NoChange(other.display().to_string(), self.label.id.clone()));
        }
        // Autorun files come first, so that a large number of other changes cannot push them out of the answer.
        meant.sort_by_key(|change| !change.is_autorun);
        let traps = meant.iter().filter(|change| change.is_autorun).count() as u64;
        let mut budget = DiffBudget { patches: MAX_PATCHES, compared: MAX_COMPARED };
        let changes = meant.iter().take(MAX_SHOWN).map(|change| self.change(change, with_texts, &mut budget));
        Ok(Shown {
            id: self.label.id.clone(),
            folder: self.label.folder.display().to_string(),
            running: self.is_running(),
            changes: changes.collect(),
            traps,
            more: meant.len().saturating_sub(MAX_SHOWN) as u64,
            bytes: diff.bytes,
        })
    }

    fn change(&self, change: &Change, with_texts: bool, budget: &mut DiffBudget) -> ChangeInfo {
        let (mut patch, mut unseen) = (None, change.is_inaccessible.then_some("unreadable"));
        if with_texts && is_text_change(change) {
            match budget.takes(change).then(|| self.patch(change)) {
                Some(Ok(text)) if text.len() <= budget.patches => {
                    budget.patches -= text.len();
                    patch = Some(text).filter(|text| !text.is_empty());
                }
                Some(Ok(_)) | None => unseen = Some("too large"),
                Some(Err(why)) => unseen = Some(why),
            }
        }
        let kind = match change.kind() {
            ChangeKind::Added => "added",
            ChangeKind::Changed => "changed",
            ChangeKind::Mode => "mode",
            ChangeKind::Removed => "removed",
        };
        ChangeInfo {
            path: change.path.display().to_string(),
            kind: kind.to_owned(),
            before: change.before.as_ref().map(node),
            after: change.after.as_ref().map(node),
            trap: change.is_autorun,
            leaves: change.is_escaping_symlink,
            set_id: change.sets_id,
            patch,
            unseen: unseen.map(str::to_owned),
        }
    }

    /// The diff of the two sides, of which one may not exist.
    fn patch(&self, change: &Change) -> Result<String, &'static str> {
        let read = |node: &Option<Node>, folder: &Path| match node {
            Some(Node::File { .. }) => text(folder, &change.path),
            Some(Node::Folder { .. } | Node::Symlink { .. } | Node::Other) | None => Ok(String::new()),
        };
        let before = read(&change.before, &self.label.folder)?;
        let after = read(&change.after, &self.layers().upper())?;
        let diff = TextDiff::configure().timeout(COMPARE_TIMEOUT).diff_lines(&before, &after);
        Ok(diff.unified_diff().context_radius(3).to_string())
    }
}

/// What remains of the limits of an answer.
struct DiffBudget {
    patches: usize,
    compared: u64,
}

impl DiffBudget {
    /// Whether the two sides of a change may still be compared.
    fn takes(&mut self, change: &Change) -> bool {
        let size = |node: &Option<Node>| match node {
            Some(Node::File { bytes, .. }) => (*bytes).min(MAX_TEXT),
            Some(Node::Folder { .. } | Node::Symlink { .. } | Node::Other) | None => 0,
        };
        let left = self.compared.checked_sub(size(&change.before) + size(&change.after));
        self.compared = left.unwrap_or(self.compared);
        left.is_some()
    }
}

fn is_text_change(change: &Change) -> bool {
    let is_file = |node: &Option<Node>| matches!(node, Some(Node::File { .. }));
    change.kind() != ChangeKind::Mode && (is_file(&change.before) || is_file(&change.after))
}

fn text(folder: &Path, path: &Path) -> Result<String, &'static str> {
    let bytes = match workspace::content(folder, path, MAX_TEXT) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err("too large"),
        Err(_) => return Err("unreadable"),
    };
    if bytes.contains(&0) {
        return Err("binary");
    }
    String::from_utf8(bytes).map_err(|_| "binary")
}

fn node(node: &Node) -> NodeInfo {
    let octal = |mode: &u32| Some(format!("{mode:03o}"));
    let (kind, mode, bytes, to) = match node {
        Node::File { mode, bytes } => ("file", octal(mode), Some(*bytes), None),
        Node::Folder { mode } => ("folder", octal(mode), None, None),
        Node::Symlink { to } => ("link", None, None, Some(to.display().to_string())),
        Node::Other => ("other", None, None, None),
    };
    NodeInfo { kind: kind.to_owned(), mode, bytes, to }
}

#[cfg(test)]
mod tests {
    use tribune_storage::home::Home;

    use super::*;
    use crate::workspaces::{Label, Workspaces};

    fn workspace(place: &Path, files: &[(&str, &str)]) -> Workspace {
        let folder = place.join("project");
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let label = Label {
            id: "one".to_owned(),
            session: "agent:run:run:local:dm:one".to_owned(),
            folder,
            program: "sh".to_owned(),
            began: "2026-01-01T00:00:00Z".to_owned(),
        };
        Workspaces::of(&Home::at(place.join("home"))).create(label).unwrap()
    }

    #[test]
    fn a_mode_change_does_not_hide_a_text_change() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let workspace = workspace(place.path(), &[(".envrc", "export A=1\n")]);
        let upper = workspace.layers().upper().join(".envrc");
        std::fs::write(&upper, "export B=2\n").unwrap();
        std::fs::set_permissions(&upper, std::fs::Permissions::from_mode(0o600)).unwrap();
        let shown = workspace.show(&[], true).unwrap();
        assert_eq!((shown.changes[0].kind.as_str(), shown.changes[0].trap), ("changed", true));
        let patch = shown.changes[0].patch.as_deref();
        assert_eq!(patch, Some("@@ -1 +1 @@\n-export A=1\n+export B=2\n"));
    }

    #[test]
    fn many_changes_do_not_hide_autorun_files() {
        let place = tempfile::tempdir().unwrap();
        let workspace = workspace(place.path(), &[]);
        let upper = workspace.layers().upper();
        for number in 0..MAX_SHOWN {
            std::fs::write(upper.join(format!("a{number}")), "").unwrap();
        }
        std::fs::create_dir(upper.join("z")).unwrap();
        std::fs::write(upper.join("z/.envrc"), "evil\n").unwrap();
        let shown = workspace.show(&[], true).unwrap();
        assert_eq!((shown.more, shown.traps, shown.changes.len()), (2, 1, MAX_SHOWN));
        assert_eq!((shown.changes[0].path.as_str(), shown.changes[0].patch.is_some()), ("z/.envrc", true));
    }
}
