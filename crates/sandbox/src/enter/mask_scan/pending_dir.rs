//! What a scan knows about a folder before it looks into it.

use std::path::PathBuf;
use std::rc::Rc;

use tribune_contract::PatternProgress;

/// How a path is masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MaskKind {
    Hide,
    ReadOnly,
    /// Not at all, but what the path leads through is pinned.
    Pin,
}

/// The masks that apply to a symlink by its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkMask {
    pub(super) is_hidden: bool,
    pub(super) is_read_only: bool,
}

/// A folder to scan.
#[derive(Debug, Clone, Default)]
pub(super) struct PendingDir {
    /// Its path without symlinks.
    pub(super) path: PathBuf,
    /// The progress of the path to it in the patterns.
    pub(super) hide: PatternProgress,
    pub(super) read_only: PatternProgress,
    /// Whether it is masked as a whole already.
    pub(super) is_hidden: bool,
    pub(super) is_read_only: bool,
    /// If the path contains symlinks: what must be pinned so that it leads here.
    pub(super) through: Option<Rc<Vec<PathBuf>>>,
}

impl PendingDir {
    pub(super) fn hidden(path: PathBuf) -> Self {
        Self { path, is_hidden: true, ..Self::default() }
    }

    pub(super) const fn matches_nothing(&self) -> bool {
        self.hide.is_empty() && self.read_only.is_empty() && !self.is_hidden && !self.is_read_only
    }
}
