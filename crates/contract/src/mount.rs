//! What a sandbox sees of the host besides the system and its workspace.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Folders of the running system: processes, devices, services. A sandbox gets its own or none.
pub const SYSTEM_FOLDERS: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Returns whether a path is in a system folder or contains all of them. The path must not contain `.` or `..`.
#[must_use]
pub fn is_system_path(path: &Path) -> bool {
    path == Path::new("/") || SYSTEM_FOLDERS.iter().any(|folder| path.starts_with(folder))
}

/// One thing to put into the sandbox. `target` is an absolute path inside, `source` an absolute path on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "kind")]
pub enum Mount {
    /// A file or folder of the host, readable and executable. Names that match `hide` look empty, as in a
    /// [`crate::WorkspaceMount`].
    ReadOnly { source: PathBuf, target: PathBuf, hide: Vec<String> },
    /// A file or folder of the host, writable.
    ReadWrite { source: PathBuf, target: PathBuf },
    /// A Unix socket of the host.
    Socket { source: PathBuf, target: PathBuf },
    /// An empty tmpfs.
    Tmpfs { target: PathBuf, bytes: u64, inodes: u64 },
    /// A small read-only file with this content.
    Text { target: PathBuf, text: String },
    /// A symlink.
    Symlink { target: PathBuf, to: PathBuf },
}

impl Mount {
    /// The path inside the sandbox.
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

    /// The path on the host, if the mount has one.
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
