//! Checkpoints SQLite's write-ahead log: copies it back into its database. Commits go on meanwhile. A short-lived thread
//! copies the bulk, and the writer copies only the little that was written in that time. SQLite restarts a log that is
//! copied completely at its start, so the log stays short and its blocks stay where they are.

use std::thread::JoinHandle;

use rusqlite::Connection;

use super::error::StoreError;

/// Bytes written to the log before a checkpoint begins. A short log is overwritten in place again and again, and readers and
/// the next start have less of it to read.
const CHECKPOINT_AFTER: u64 = 8 << 20;

/// The most that the writer copies itself, in bytes.
const INLINE_MAX: u64 = 256 << 10;

/// Bytes in the log at which the writer waits and copies everything itself, so that a writer faster than the checkpoints
/// cannot grow the log without bound.
const LOG_MAX: u64 = 2 * CHECKPOINT_AFTER;

type CheckpointFile = Result<Connection, StoreError>;

/// Keeps one log short.
pub(crate) struct Checkpointer {
    /// Opens another connection to the same database.
    open: std::sync::Arc<dyn Fn() -> CheckpointFile + Send + Sync>,
    /// Approximate bytes written since the last checkpoint began.
    since: u64,
    /// Approximate bytes written since the log was last restarted.
    all: u64,
    running: Option<JoinHandle<Result<(), StoreError>>>,
}

impl Checkpointer {
    pub(crate) fn new(open: impl Fn() -> CheckpointFile + Send + Sync + 'static) -> Self {
        Self { open: std::sync::Arc::new(open), since: 0, all: 0, running: None }
    }

    /// Counts the bytes that a commit wrote.
    pub(crate) const fn wrote(&mut self, bytes: u64) {
        self.since += bytes;
        self.all += bytes;
    }

    /// Starts or finishes a checkpoint if one is due. The writer calls this after a commit, once callers have their replies.
    pub(crate) fn advance(&mut self, own: &Connection) -> Result<(), StoreError> {
        match &self.running {
            Some(checkpoint) if !checkpoint.is_finished() && self.all < LOG_MAX => Ok(()),
            Some(_) => {
                self.settle()?;
                if self.since > INLINE_MAX && self.all < LOG_MAX { self.begin(own) } else { self.finish(own) }
            }
            None if self.since >= CHECKPOINT_AFTER => self.begin(own),
            None => Ok(()),
        }
    }

    /// Waits for a running checkpoint, so that no other connection holds the log.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        match self.running.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(done) => done.unwrap_or(Err(StoreError::Closed)),
        }
    }

    fn begin(&mut self, own: &Connection) -> Result<(), StoreError> {
        let open = std::sync::Arc::clone(&self.open);
        let checkpoint = std::thread::Builder::new().name("checkpointer".to_owned()).spawn(move || {
            let connection = open()?;
            copy(&connection)
        });
        match checkpoint {
            Ok(checkpoint) => {
                self.running = Some(checkpoint);
                self.since = 0;
                Ok(())
            }
            // If no thread can be started, the writer does it: slower, but it is done.
            Err(_) => self.finish(own),
        }
    }

    fn finish(&mut self, own: &Connection) -> Result<(), StoreError> {
        (self.since, self.all) = (0, 0);
        copy(own)
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        // The result does not matter: the next start copies what is left.
        let _ = self.settle();
    }
}

/// Copies the log into the database, as far as readers allow, and syncs both.
pub(crate) fn copy(connection: &Connection) -> Result<(), StoreError> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(|error| {
        let path = connection.path().map(std::path::PathBuf::from).unwrap_or_default();
        StoreError::from_sqlite(&path, &error)
    })
}
