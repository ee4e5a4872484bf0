//! Stage `storage`: opens the ledger, which locks the state folder, and the vault. It repairs no session; stage `governance` does.

use std::sync::Arc;

use tribune_governance::storage_handles::StorageHandles;
use tribune_storage::clock::Clock;
use tribune_storage::home::Home;
use tribune_storage::store::{Store, StoreError};
use tribune_storage::vault::Vault;

use crate::start_error::StartError;

/// The open storage.
#[derive(Debug)]
pub(crate) struct OpenStorage {
    pub(crate) handles: StorageHandles,
    /// The name of the ledger, which is that of the key that signs its checkpoints.
    pub(crate) log: String,
    /// INVARIANT: the last field, because dropping the store syncs it and releases the lock.
    pub(crate) store: Arc<Store>,
}

/// Opens the ledger and locks the state folder: a second daemon fails here.
pub(crate) async fn open(home: &Home, clock: Arc<dyn Clock>) -> Result<OpenStorage, StartError> {
    let store = open_store(home, &clock).await?;
    let ledger = store.writer()?;
    let readers = store.readers()?;
    let log = readers.now(|reader| Ok(reader.key_in_force()?.name().to_owned()))?;
    let vault = Arc::new(Vault::open(home, &store)?);
    Ok(OpenStorage { handles: StorageHandles { ledger, readers, vault, clock }, log, store })
}

async fn open_store(home: &Home, clock: &Arc<dyn Clock>) -> Result<Arc<Store>, StartError> {
    let (home, clock) = (home.clone(), Arc::clone(clock));
    let opened = tokio::task::spawn_blocking(move || Store::open(&home, &*clock)).await;
    Ok(Arc::new(opened.map_err(|_| StoreError::Closed)??))
}
