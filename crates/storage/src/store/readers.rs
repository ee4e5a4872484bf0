//! A pool of readers: a query takes one, reads a fresh snapshot, and returns it.

use std::sync::{Arc, Mutex, PoisonError};

use super::error::StoreError;
use super::reader::Reader;
use crate::home::Home;
use crate::wal::{Target, Wal};

/// Readers kept open between queries. More can be open at once; they are closed afterwards.
const KEPT: usize = 4;

/// A pool of readers of one home.
#[derive(Debug, Clone)]
pub struct Readers {
    home: Home,
    wal: Wal,
    idle: Arc<Mutex<Vec<Reader>>>,
}

impl Readers {
    /// A pool whose readers see everything that was written through this WAL.
    pub(super) fn new(home: &Home, wal: Wal) -> Self {
        Self { home: home.clone(), wal, idle: Arc::default() }
    }

    /// Runs `read` over the log as it is now, on this thread.
    pub fn now<T>(&self, read: impl FnOnce(&Reader) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.wal.wait_applied(Target::Ledger);
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = match idle {
            Some(reader) => {
                reader.refresh()?;
                reader
            }
            None => Reader::of_this_process(&self.home)?,
        };
        let result = read(&reader);
        // An unused snapshot would keep SQLite from restarting its write-ahead log.
        if reader.release().is_ok() {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < KEPT {
                idle.push(reader);
            }
        }
        result
    }

    /// The same for longer reads, on a blocking thread.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = self.clone();
        tokio::task::spawn_blocking(move || readers.now(read)).await.map_err(|_| StoreError::Closed)?
    }
}
