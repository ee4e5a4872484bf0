//! What a sandbox may use up.

use serde::{Deserialize, Serialize};

/// Bounds of one sandbox. None of them can be left out; what cannot be enforced as asked is enforced the next best way,
/// and the report says which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Limits {
    /// Bytes of memory of everything in the sandbox, its scratch folders included.
    pub memory_bytes: u64,
    /// Processes and threads at a time.
    pub processes: u32,
    /// Hundredths of one core.
    pub cpu_percent: u32,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Milliseconds from the start to the end, whatever happens inside; nothing means no end.
    pub wall_ms: Option<u64>,
    /// What `/tmp` holds.
    pub tmp: Tmpfs,
    /// What `/dev/shm` holds.
    pub shm: Tmpfs,
    /// What the home folder holds.
    pub home: Tmpfs,
}

/// The size of a folder in memory. Files without content use no bytes, so their number is bounded too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Tmpfs {
    pub bytes: u64,
    pub inodes: u64,
}

const MIB: u64 = 1024 * 1024;

impl Default for Limits {
    /// Enough for a compiler and its tests on a laptop.
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
