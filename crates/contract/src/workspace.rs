//! The folder that an agent works in.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A workspace of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WorkspaceMount {
    /// The path inside the sandbox.
    pub target: PathBuf,
    pub source: WorkspaceSource,
    /// Patterns of hidden names: they look empty and cannot be changed.
    ///
    /// A pattern without a slash is matched against every path component, one with a slash against the path from the
    /// root of the workspace. `*` and `?` match within a component, `**` matches any number of them. Matching ignores
    /// case.
    pub hide: Vec<String>,
    /// Patterns of read-only names: they can be read, and neither changed nor moved. If there are any, the files
    /// through which git finds its configuration are read-only too: in every folder that is a repository, whatever its
    /// name, and a `.git` that is a file or a symlink.
    #[serde(rename = "freeze")]
    pub read_only: Vec<String>,
}

/// Where changes go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "mode")]
pub enum WorkspaceSource {
    /// To an overlay; the folder stays unchanged until the changes are landed. `layers` contains the folders `upper`,
    /// which takes the changes, and `work`, which the kernel needs.
    Overlay { lower: PathBuf, layers: PathBuf },
    /// Directly to the folder.
    Direct { folder: PathBuf },
    /// Nowhere: the folder is read-only.
    ReadOnly { folder: PathBuf },
}
