//! Which changes to land or discard.

use std::path::{Path, PathBuf};

use super::change::Change;
use super::node::Node;

/// Which changes to land or discard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All but autorun files.
    All,
    /// All, including autorun files.
    Everything,
    /// These paths and what is below them. An autorun file only if it is named itself.
    Paths(Vec<PathBuf>),
    /// These paths and what is below them, including autorun files.
    PathsWithAutorun(Vec<PathBuf>),
}

impl Selection {
    pub(super) fn includes(&self, change: &Change, all: &[Change]) -> bool {
        match self {
            Self::All | Self::Everything => true,
            Self::Paths(paths) | Self::PathsWithAutorun(paths) => paths.iter().any(|path| {
                // New folders around a named path are included.
                let is_around =
                    || matches!(change.after, Some(Node::Folder { .. })) && change.before.is_none();
                change.path.starts_with(path)
                    || (path.starts_with(&change.path)
                        && is_around()
                        && all.iter().any(|other| other.path.starts_with(path)))
            }),
        }
    }

    pub(super) fn allows_autorun(&self, path: &Path) -> bool {
        match self {
            Self::All => false,
            Self::Everything | Self::PathsWithAutorun(_) => true,
            Self::Paths(paths) => paths.iter().any(|named| named == path),
        }
    }
}
