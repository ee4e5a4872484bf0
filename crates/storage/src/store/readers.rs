//! A few readers, shared: a query takes one, sees a fresh snapshot, and gives it back.

use std::sync::{Arc, Mutex, PoisonError};

use super::error::StoreError;
use super::reader::Reader;
use crate::home::Home;
use crate::wal::{Side, Wal};

/// Readers kept open between queries. More may be open at once; they are closed afterwards.
const KEPT: usize = 4;

/// A pool of readers of one home.
#[derive(Debug, Clone)]
pub struct Readers {
    home: Home,
    wal: Wal,
    idle: Arc<Mutex<Vec<Reader>>>,
}

impl Readers {
    /// They see what was written through this book.
    pub(super) fn behind(home: &Home, wal: Wal) -> Self {
        Self { home: home.clone(), wal, idle: Arc::default() }
    }

    /// Runs `read` over the log as it is now, on this thread.
    pub fn now<T>(&self, read: impl FnOnce(&Reader) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.wal.wait_posted(Side::Ledger);
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = match idle {
            Some(reader) => {
                reader.refresh()?;
                reader
            }
            None => Reader::of_this_process(&self.home)?,
        };
        let result = read(&reader);
        // A snapshot that nobody needs would keep the write-ahead log from being begun again.
        if reader.release().is_ok() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < KEPT {
                idle.push(reader);
            }
        }
        result
    }

    /// The same for longer reads, on a thread where waiting for the disk holds up nobody.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self.clone();
        tokio::task::spawn_blocking(move || readers.now(read)).await.map_err(|_| StoreError::Closed)?
    }
}
