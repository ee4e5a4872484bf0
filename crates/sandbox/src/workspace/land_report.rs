//! The result of a landing.

use std::path::PathBuf;

/// The result of a landing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Landing {
    pub landed: Vec<PathBuf>,
    pub unlanded: Vec<Unlanded>,
}

/// A change that was not landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unlanded {
    pub path: PathBuf,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("it was changed in the workspace since the session began: merge both versions by hand")]
    Conflict,
    #[error("programs of this machine would execute or load it: review it, then name it explicitly")]
    Trap,
    #[error("it is a symlink that leads out of the workspace: create it yourself if you want it")]
    LinkLeaves,
    #[error("it is not a file, folder or symlink")]
    NoFile,
    #[error("its parent folder was not landed")]
    NoFolder,
    #[error("its content is not readable: discard it, or change the folder's mode in the overlay")]
    Closed,
    /// A complete sentence.
    #[error("{0}")]
    Failed(String),
}
