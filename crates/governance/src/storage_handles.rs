//! The storage handles that the parts of governance share. Opens nothing: the daemon opens the store and the vault.

use std::fmt;
use std::sync::Arc;

use tribune_storage::clock::Clock;
use tribune_storage::store::{LedgerWriter, Readers};
use tribune_storage::vault::Vault;

/// The handles to the ledger, its views, the vault and the clock; clones share them.
#[derive(Clone)]
pub struct StorageHandles {
    /// Appends entries to the ledger.
    pub ledger: LedgerWriter,
    /// Read the ledger and its views.
    pub readers: Readers,
    /// Holds content and events, encrypted.
    pub vault: Arc<Vault>,
    /// Gives the time of entries.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for StorageHandles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StorageHandles")
    }
}
