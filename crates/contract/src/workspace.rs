//! The folder that an agent works in.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The workspace of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Workspace {
    /// Where it is inside.
    pub target: PathBuf,
    pub source: WorkspaceSource,
    /// PatternSet of what is there and shall not be seen. It looks empty and cannot be changed.
    ///
    /// A pattern without a slash is compared with each name, one with a slash with the path from the workspace's root; `*`
    /// and `?` stay within a name, `**` does not. Case makes no difference.
    pub hide: Vec<String>,
    /// PatternSet of what can be read and shall not be changed or moved. If there are any, what leads git to its configuration
    /// is frozen with them: in folders that are repositories, whatever they are called, and a `.git` that is no folder.
    pub freeze: Vec<String>,
}

/// Where changes go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "mode")]
pub enum WorkspaceSource {
    /// To a layer of their own; the folder stays as it is until somebody lands them. `layers` holds the folders `upper`,
    /// which takes the changes, and `work`, which the kernel needs beside it.
    Overlay { lower: PathBuf, layers: PathBuf },
    /// To the folder at once.
    Direct { folder: PathBuf },
    /// Nowhere.
    ReadOnly { folder: PathBuf },
}
