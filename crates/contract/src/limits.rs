//! Resource limits of a sandbox.

use serde::{Deserialize, Serialize};

/// The limits of one sandbox. Every limit is set. A limit that the machine cannot enforce as requested is enforced with
/// the next weaker mechanism, and the start report says which one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ResourceLimits {
    /// Memory of all processes in bytes, including the tmpfs folders.
    pub memory_bytes: u64,
    /// Concurrent processes and threads.
    pub processes: u32,
    /// CPU time in percent of one core.
    pub cpu_percent: u32,
    /// Size of a single file in bytes.
    pub file_bytes: u64,
    /// Open files per process.
    pub open_files: u64,
    /// Wall-clock time in milliseconds from start to end. `None` is unlimited.
    pub wall_ms: Option<u64>,
    /// Size of `/tmp`.
    pub tmp: Tmpfs,
    /// Size of `/dev/shm`.
    pub shm: Tmpfs,
    /// Size of the home folder.
    pub home: Tmpfs,
}

/// The size of a tmpfs. Empty files use no bytes, so inodes are limited too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Tmpfs {
    pub bytes: u64,
    pub inodes: u64,
}

const MIB: u64 = 1024 * 1024;

impl Default for ResourceLimits {
    /// Defaults that let a compiler and its tests run on a laptop.
    fn default() -> Self {
        Self {
            memory_bytes: 4096 * MIB,
            processes: 512,
            cpu_percent: 400,
            file_bytes: 4096 * MIB,
            open_files: 4096,
            wall_ms: None,
            tmp: Tmpfs { bytes: 512 * MIB, inodes: 65_536 },
            shm: Tmpfs { bytes: 64 * MIB, inodes: 1024 },
            home: Tmpfs { bytes: 256 * MIB, inodes: 65_536 },
        }
    }
}
