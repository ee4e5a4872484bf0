//! The changes of a workspace, and the result of landing them.

use serde::Serialize;
use tribune_tools::workspaces::{ChangeInfo, Landed, Left, NodeInfo, Shown};
use utoipa::ToSchema;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ChangeInfo)]
pub(crate) struct ChangeView {
    /// From the root of the workspace.
    pub(crate) path: String,
    /// `added`, `changed`, `mode` or `removed`.
    pub(crate) kind: String,
    /// The state in the folder.
    pub(crate) before: Option<NodeView>,
    /// The state in the workspace.
    pub(crate) after: Option<NodeView>,
    /// Programs of this machine load or execute it (an autorun file): it lands only if it is named by itself, or with `traps`.
    pub(crate) trap: bool,
    /// A symbolic link to a target outside, which does not land.
    pub(crate) leaves: bool,
    /// It has set-id bits, which do not land.
    pub(crate) set_id: bool,
    /// The unified diff of the two texts without its header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<String>,
    /// Why there is no diff: `binary`, `too large` or `unreadable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unseen: Option<String>,
}

/// A file, a folder, a link or something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = NodeInfo)]
pub(crate) struct NodeView {
    /// `file`, `folder`, `link` or `other`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The mode, such as `644`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// Where a link leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
}

/// Changes of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Shown)]
pub(crate) struct DiffView {
    pub(crate) id: String,
    /// The folder that the changes apply to.
    pub(crate) folder: String,
    /// Whether its program is still running.
    pub(crate) running: bool,
    /// Autorun files come first.
    pub(crate) changes: Vec<ChangeView>,
    /// The number of autorun files among all of them, also among those not listed.
    pub(crate) traps: u64,
    /// The number of changes not listed, because there are too many.
    pub(crate) more: u64,
    /// Bytes of everything that was added or changed.
    pub(crate) bytes: u64,
}

/// The result of a landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Landed)]
pub(crate) struct LandingView {
    pub(crate) landed: Vec<String>,
    pub(crate) left: Vec<UnlandedChange>,
}

/// A change that did not land.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Left)]
pub(crate) struct UnlandedChange {
    pub(crate) path: String,
    /// The reason, as a sentence.
    pub(crate) why: String,
    /// For a conflict: the path of the sandbox's version, to be merged by hand with the one in the folder. Absent if the sandbox
    /// removed the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
}

impl From<ChangeInfo> for ChangeView {
    fn from(change: ChangeInfo) -> Self {
        let ChangeInfo { path, kind, before, after, trap, leaves, set_id, patch, unseen } = change;
        Self {
            path,
            kind,
            before: before.map(NodeView::from),
            after: after.map(NodeView::from),
            trap,
            leaves,
            set_id,
            patch,
            unseen,
        }
    }
}

impl From<NodeInfo> for NodeView {
    fn from(node: NodeInfo) -> Self {
        let NodeInfo { kind, mode, bytes, to } = node;
        Self { kind, mode, bytes, to }
    }
}

impl From<Shown> for DiffView {
    fn from(shown: Shown) -> Self {
        let Shown { id, folder, running, changes, traps, more, bytes } = shown;
        let changes = changes.into_iter().map(ChangeView::from).collect();
        Self { id, folder, running, changes, traps, more, bytes }
    }
}

impl From<Landed> for LandingView {
    fn from(landing: Landed) -> Self {
        // The caller sees the landed paths; the number of autorun files among them is for the ledger.
        let Landed { landed, left, traps: _ } = landing;
        Self { landed, left: left.into_iter().map(UnlandedChange::from).collect() }
    }
}

impl From<Left> for UnlandedChange {
    fn from(left: Left) -> Self {
        let Left { path, why, version } = left;
        Self { path, why, version }
    }
}
