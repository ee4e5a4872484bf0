//! The result of a landing.

use std::path::PathBuf;

/// The result of a landing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LandReport {
    pub landed: Vec<PathBuf>,
    pub not_landed: Vec<NotLanded>,
}

/// A change that was not landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotLanded {
    pub path: PathBuf,
    pub reason: LandRefusal,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LandRefusal {
    #[error("it was changed in the workspace since the session began: merge both versions by hand")]
    Conflict,
    #[error("programs of this machine would execute or load it: review it, then name it explicitly")]
    Autorun,
    #[error("it is a symlink that leads out of the workspace: create it yourself if you want it")]
    EscapingSymlink,
    #[error("it is not a file, folder or symlink")]
    UnsupportedType,
    #[error("its parent folder was not landed")]
    ParentNotLanded,
    #[error("its content is not readable: discard it, or change the folder's mode in the overlay")]
    Inaccessible,
    /// A complete sentence.
    #[error("{0}")]
    Failed(String),
}
