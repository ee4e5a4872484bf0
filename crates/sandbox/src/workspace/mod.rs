//! The changes of a sandbox to its workspace, seen from the host: what they are ([`diff`]), taking them over ([`land`]) and
//! throwing them away ([`discard`]); [`content`] is what one of the files holds. [`Standing`] and [`Growth`] are for
//! folders that are changed at once.
//!
//! Whatever lies in the upper layer was put there by the agent. It is never followed, run or believed: every name is opened
//! beneath its folder without following links, only plain files, folders and links that stay inside are landed, and set-id
//! bits are dropped on the way. Who may land what is the gate's to say.

mod apply;
mod autorun_scan;
mod autorun_snapshot;
mod content;
mod diff;
mod discard;
mod disk_usage;
mod git_config;
mod inaccessible_dirs;
mod land;
mod land_journal;
mod node;
mod overlay;
mod path_encoding;
mod resolve_beneath;
mod symlink_paths;

pub use autorun_snapshot::Standing;
pub use content::content;
pub use diff::{Change, Diff, Kind, diff};
pub use discard::discard;
pub use disk_usage::{Growth, MAX_GROWTH, Usage};
pub use land::{Landing, Selection, Unlanded, Why, land};
pub use land_journal::{LandRecovery, mend};
pub use node::Node;
pub use overlay::Layers;

use std::path::PathBuf;

/// Why changes cannot be told or taken over at all.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("`{path}` cannot be read ({error}): check who may read it")]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("`{path}` cannot be written ({error}): check who may write it, and how much room is left")]
    Unwritable { path: PathBuf, error: std::io::Error },
    #[error("the workspace has more than {MAX_CHANGES} changes: discard some, or land them from a copy")]
    TooMany,
    #[error("`{path}` was changed in a way that this version does not know: discard it")]
    Unknown { path: PathBuf },
    #[error("the record of the session at `{path}` cannot be read ({error}): discard its changes")]
    Record { path: PathBuf, error: std::io::Error },
}

/// Changes of one session.
pub const MAX_CHANGES: usize = 200_000;

/// Folders in folders.
const MAX_DEPTH: usize = 256;

fn unreadable(path: impl Into<PathBuf>, error: impl Into<std::io::Error>) -> WorkspaceError {
    WorkspaceError::Unreadable { path: path.into(), error: error.into() }
}

fn unwritable(path: impl Into<PathBuf>, error: impl Into<std::io::Error>) -> WorkspaceError {
    WorkspaceError::Unwritable { path: path.into(), error: error.into() }
}
