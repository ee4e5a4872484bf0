//! A single change of a session.

use std::path::PathBuf;

use super::node::Node;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the root of the workspace.
    pub path: PathBuf,
    /// The current state in the workspace.
    pub before: Option<Node>,
    /// The state after landing.
    pub after: Option<Node>,
    /// Programs of the host would execute or load it.
    pub is_autorun: bool,
    /// A symlink that leads out of the workspace.
    pub is_escaping_symlink: bool,
    /// The file has a set-id bit, which does not land.
    pub sets_id: bool,
    /// Both are files with the same content.
    pub same_content: bool,
    /// Overlayfs copied it from a file of the workspace.
    pub is_copied_up: bool,
    /// A folder without read or search permission, so its content is unknown.
    pub is_inaccessible: bool,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Changed,
    /// Only the permissions changed.
    Mode,
    Removed,
}

impl Change {
    pub(super) const fn removed(path: PathBuf, before: Node) -> Self {
        Self {
            path,
            before: Some(before),
            after: None,
            is_autorun: false,
            is_escaping_symlink: false,
            sets_id: false,
            same_content: false,
            is_copied_up: false,
            is_inaccessible: false,
        }
    }

    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        match (&self.before, &self.after) {
            (None, _) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Removed,
            (Some(Node::Folder { .. }), Some(Node::Folder { .. })) => ChangeKind::Mode,
            (Some(_), Some(_)) if self.same_content => ChangeKind::Mode,
            (Some(_), Some(_)) => ChangeKind::Changed,
        }
    }
}
