//! What a sandbox sees of the host beside the system and its workspace.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Folders in which the running system is: its processes, devices and services. A sandbox has its own, or none.
pub const SYSTEM_FOLDERS: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Whether a folder is one of the running system's, is in one or holds all of them. The path has no `.` and `..`.
#[must_use]
pub fn is_the_systems(path: &Path) -> bool {
    path == Path::new("/") || SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// One thing to put into the sandbox. `target` is an absolute path inside it; `source` one outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "kind")]
pub enum Mount {
    /// A folder or file that can be read and run. What these patterns are about is hidden in it, as in a
    /// [`crate::Workspace`].
    ReadOnly { source: PathBuf, target: PathBuf, hide: Vec<String> },
    /// A folder or file that can be changed, and is the host's all the same.
    ReadWrite { source: PathBuf, target: PathBuf },
    /// The socket of a broker.
    Socket { source: PathBuf, target: PathBuf },
    /// An empty folder in memory.
    Tmpfs { target: PathBuf, bytes: u64, inodes: u64 },
    /// A small file that cannot be changed.
    Text { target: PathBuf, text: String },
    /// A link.
    Symlink { target: PathBuf, to: PathBuf },
}

impl Mount {
    /// Where it is inside.
    #[must_use]
    pub fn target(&self) -> &Path {
        match self {
            Self::ReadOnly { target, .. }
            | Self::ReadWrite { target, .. }
            | Self::Socket { target, .. }
            | Self::Tmpfs { target, .. }
            | Self::Text { target, .. }
            | Self::Symlink { target, .. } => target,
        }
    }

    /// Where it is on the host, if it is from there.
    #[must_use]
    pub fn source(&self) -> Option<&Path> {
        match self {
            Self::ReadOnly { source, .. } | Self::ReadWrite { source, .. } | Self::Socket { source, .. } => {
                Some(source)
            }
            Self::Tmpfs { .. } | Self::Text { .. } | Self::Symlink { .. } => None,
        }
    }
}
