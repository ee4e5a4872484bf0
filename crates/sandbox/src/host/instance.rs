//! The name of a daemon instance.

use std::path::Path;

/// The name of an instance (one state folder), under which its cgroups are found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceId(String);

impl InstanceId {
    /// Derives the name from the path of the state folder, so that it is the same after each start.
    #[must_use]
    pub fn of_state_folder(folder: &Path) -> Self {
        // FNV-1a: the name need not be secret, only stable.
        let bytes = folder.as_os_str().as_encoded_bytes().iter();
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(format!("{hash:016x}"))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
