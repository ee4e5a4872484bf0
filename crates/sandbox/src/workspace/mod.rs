//! Changes of a sandbox to its workspace, seen from the host: listing ([`diff()`]), landing ([`land()`]) and discarding
//! ([`discard()`]) them, and reading a single file ([`content()`]). [`AutorunSnapshot`] and [`DirGrowth`] are for folders that are
//! changed directly.
//!
//! The agent controls everything in the upper layer, so none of it is trusted: names are opened beneath their folder
//! without following symlinks, only regular files, folders and symlinks that stay inside are landed, and set-id bits
//! are dropped. The gate decides who may land what.

mod apply;
mod autorun_scan;
mod autorun_snapshot;
mod change;
mod content;
mod diff;
mod discard;
mod disk_usage;
mod git_config;
mod inaccessible_dirs;
mod land;
mod land_journal;
mod land_report;
mod node;
mod overlay;
mod path_encoding;
mod quarantine;
mod remove_tree;
mod resolve_beneath;
mod selection;
mod symlink_paths;

pub use autorun_snapshot::AutorunSnapshot;
pub use change::{Change, ChangeKind};
pub use content::content;
pub use diff::{Diff, diff};
pub use discard::discard;
pub use disk_usage::{DirGrowth, DiskUsage, MAX_GROWTH};
pub use land::land;
pub use land_journal::{LandRecovery, recover_landing};
pub use land_report::{LandRefusal, LandReport, NotLanded};
pub use node::Node;
pub use overlay::OverlayDirs;
pub use quarantine::{AutorunGuard, QuarantineReport, quarantine};
pub use selection::Selection;

use std::path::PathBuf;

/// Why a workspace operation failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("`{path}` cannot be read ({error}): check its permissions")]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("`{path}` cannot be written ({error}): check its permissions and the free disk space")]
    Unwritable { path: PathBuf, error: std::io::Error },
    #[error("the workspace has more than {MAX_CHANGES} changes: discard some, or land them from a copy")]
    TooMany,
    #[error("`{path}` was changed in a way that this version does not support: discard the change")]
    Unknown { path: PathBuf },
    #[error("the record of the session at `{path}` cannot be read ({error}): discard its changes")]
    Record { path: PathBuf, error: std::io::Error },
}

/// Maximum number of changes of one session.
pub const MAX_CHANGES: usize = 200_000;

/// Maximum depth of nested folders.
const MAX_DEPTH: usize = 256;

fn unreadable(path: impl Into<PathBuf>, error: impl Into<std::io::Error>) -> WorkspaceError {
    WorkspaceError::Unreadable { path: path.into(), error: error.into() }
}

fn unwritable(path: impl Into<PathBuf>, error: impl Into<std::io::Error>) -> WorkspaceError {
    WorkspaceError::Unwritable { path: path.into(), error: error.into() }
}
