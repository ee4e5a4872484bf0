//! Copying a write-ahead log back into its database. Commits go on meanwhile: the bulk is copied by a thread that comes and
//! goes, and the writer copies only the little that was written in that time. A log that is copied whole is begun again at
//! its front, so it stays short and its blocks stay where they are.

use std::thread::JoinHandle;

use rusqlite::Connection;

use super::error::StoreError;

/// Bytes written to the log before it is copied. A short log is written over and over in place, and readers and the next
/// start have less of it to go through.
const COPY_AFTER: u64 = 8 << 20;

/// What the writer may be asked to copy itself.
const LITTLE: u64 = 256 << 10;

/// Bytes in the log at which the writer waits and copies itself however much there is: one that outruns the copying does not
/// get away.
const AT_MOST: u64 = 2 * COPY_AFTER;

type CheckpointFile = Result<Connection, StoreError>;

/// Who keeps one log short.
pub(crate) struct Checkpointer {
    /// Makes another connection to the same database.
    open: std::sync::Arc<dyn Fn() -> CheckpointFile + Send + Sync>,
    /// Bytes written since the last round began, and since the log did, about.
    since: u64,
    all: u64,
    under_way: Option<JoinHandle<Result<(), StoreError>>>,
}

impl Checkpointer {
    pub(crate) fn new(open: impl Fn() -> CheckpointFile + Send + Sync + 'static) -> Self {
        Self { open: std::sync::Arc::new(open), since: 0, all: 0, under_way: None }
    }

    /// Counts what a commit wrote.
    pub(crate) const fn wrote(&mut self, bytes: u64) {
        self.since += bytes;
        self.all += bytes;
    }

    /// Copies on, if it is time to. Called behind a commit, by the one who made it, when callers have their answers.
    pub(crate) fn go_on(&mut self, own: &Connection) -> Result<(), StoreError> {
        match &self.under_way {
            Some(round) if !round.is_finished() && self.all < AT_MOST => Ok(()),
            Some(_) => {
                self.settle()?;
                if self.since > LITTLE && self.all < AT_MOST { self.begin(own) } else { self.finish(own) }
            }
            None if self.since >= COPY_AFTER => self.begin(own),
            None => Ok(()),
        }
    }

    /// Waits for what is under way, so that nobody else has the log.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        match self.under_way.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(done) => done.unwrap_or(Err(StoreError::Closed)),
        }
    }

    fn begin(&mut self, own: &Connection) -> Result<(), StoreError> {
        let open = std::sync::Arc::clone(&self.open);
        let round = std::thread::Builder::new().name("log-copier".to_owned()).spawn(move || {
            let connection = open()?;
            copy(&connection)
        });
        match round {
            Ok(round) => {
                self.under_way = Some(round);
                self.since = 0;
                Ok(())
            }
            // Without threads to be had it takes longer, and is still done.
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
        // Whatever it says: the next start copies what is left.
        let _ = self.settle();
    }
}

/// Copies what the log holds into the database, as far as readers allow, and syncs both.
pub(crate) fn copy(connection: &Connection) -> Result<(), StoreError> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(|error| {
        let path = connection.path().map(std::path::PathBuf::from).unwrap_or_default();
        StoreError::from_sqlite(&path, &error)
    })
}
