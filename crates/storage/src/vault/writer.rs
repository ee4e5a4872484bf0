//! The single writer of the vault: a thread that commits queued requests. Requests from the WAL are durable before; for the
//! others it replies when they are on disk.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;

use super::cipher::ContentKey;
use super::conversation::ConversationLimits;
use super::titles::TitleUpdate;
use super::{VaultBatch, conversation, titles, wal_codec};
use crate::store::StoreError;
use crate::store::checkpointer::Checkpointer;
use crate::store::sqlite_wal::SqliteWal;
use crate::wal::permits::Permit;
use crate::wal::{Target, UnappliedRecords, Wal, WalEpoch, WalPosition};

/// Largest number of requests in one commit.
const MAX_BATCH: usize = 256;

/// How long a commit waits for more.
const LONGEST_WAIT: Duration = Duration::from_millis(2);

/// Bytes that a commit writes beside its requests: the inner pages of the tables that it touches.
const COMMIT_OVERHEAD: u64 = 24 << 10;

/// The tables. `floor` is the first event that can still exist; it only rises. Events are keyed by one integer, because only
/// such tables keep a row of a few kilobytes in one page.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS sessions (
        session    INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL UNIQUE,
        key        BLOB,                    -- null once shredded
        floor      INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS contents (
        session    INTEGER NOT NULL,
        commitment TEXT NOT NULL,
        body       BLOB NOT NULL,           -- sealed: salt, then the content
        PRIMARY KEY (session, commitment)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS events (
        place       INTEGER PRIMARY KEY,    -- session << 32 | seq
        after_entry INTEGER NOT NULL,       -- seen once this entry of the session's history is durable
        body        BLOB NOT NULL           -- sealed JSON
    ) STRICT;";

pub(super) enum VaultOp {
    Batch(Box<VaultBatch>),
    TruncateEvents {
        session_id: String,
        next_entry: u64,
    },
    Forget(String),
    AppendConversation(Box<ConversationLimits>),
    SetTitle(Box<TitleUpdate>),
    /// Syncs the database with every earlier request.
    Sync,
    /// Commits every earlier request.
    Commit,
}

pub(super) type VaultReceipt = oneshot::Receiver<Result<(), StoreError>>;

pub(super) struct VaultRequest {
    pub(super) work: VaultOp,
    /// Its sequence number in the WAL. Without one it is durable when the database is synced.
    pub(super) number: Option<u64>,
    /// The caller sends more soon and does not wait for this commit.
    pub(super) more_follows: bool,
    /// The permit that it holds while it is queued.
    pub(super) permit: Option<Permit>,
    pub(super) answer: oneshot::Sender<Result<(), StoreError>>,
}

impl std::fmt::Debug for VaultRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Request")
    }
}

pub(super) fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("PRAGMA secure_delete = ON;")?;
    let made: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if made == 0 {
        connection.execute_batch(&format!("BEGIN; {TABLES} COMMIT;"))?;
    }
    connection.execute_batch(conversation::TABLE)?;
    connection.execute_batch(titles::TABLE)?;
    connection.execute_batch(APPLIED)?;
    Ok(())
}

/// The table of the WAL epoch that was applied to the vault, and of the newest applied record.
const APPLIED: &str = "
    CREATE TABLE IF NOT EXISTS posted (
        id     INTEGER PRIMARY KEY CHECK (id = 0),
        book   BLOB NOT NULL,
        number INTEGER NOT NULL
    ) STRICT;";

/// How far the vault has applied the WAL.
pub(super) fn wal_position(connection: &Connection) -> rusqlite::Result<Option<WalPosition>> {
    let row = connection.query_row("SELECT book, number FROM posted", [], |row| {
        Ok(WalPosition { epoch: WalEpoch(row.get(0)?), applied: row.get(1)? })
    });
    row.optional()
}

/// Binds the vault to this WAL epoch; it has applied everything up to `number`.
pub(super) fn bind_wal(connection: &Connection, epoch: WalEpoch, number: u64) -> rusqlite::Result<()> {
    let mut replace =
        connection.prepare_cached("INSERT OR REPLACE INTO posted (id, book, number) VALUES (0, ?1, ?2)")?;
    replace.execute(params![epoch.0, number]).map(drop)
}

/// The state of the writer thread.
pub(super) struct Writer {
    pub(super) path: PathBuf,
    // Declared before the connection, so that it is dropped first: the last connection to close cleans up the database's
    // side files, and the checkpointer may have one of its own.
    pub(super) checkpointer: Checkpointer,
    pub(super) connection: Connection,
    pub(super) log: SqliteWal,
    pub(super) wal: Wal,
    /// SQLite's log still holds pages from before a shredding.
    pub(super) shredding: bool,
}

/// Handles requests until every handle is dropped. After an error nothing more is written, because pages that a failed sync
/// left behind cannot be distinguished from pages on disk.
pub(super) fn run(mut writer: Writer, requests: &mpsc::Receiver<VaultRequest>, failed: &AtomicBool) {
    let mut failure: Option<String> = None;
    while let Ok(first) = requests.recv() {
        let batch = gather(first, requests);
        if batch.iter().all(|request| matches!(request.work, VaultOp::Commit)) {
            // Every earlier request is committed.
            continue;
        }
        let result = match &failure {
            Some(why) => Err(StoreError::ReadOnly(why.clone())),
            None => writer.commit(&batch),
        };
        writer.note_failure(&result, &mut failure, failed);
        for request in batch {
            // A caller that stopped waiting needs no reply.
            let _ = request.answer.send(match (&result, &failure) {
                (Ok(()), _) => Ok(()),
                (Err(_), Some(why)) => Err(StoreError::ReadOnly(why.clone())),
                (Err(_), None) => Err(StoreError::Closed),
            });
        }
        if failure.is_none() {
            let copied = writer.checkpointer.advance(&writer.connection);
            writer.note_failure(&copied, &mut failure, failed);
        }
    }
    if failure.is_none() {
        // The next start would copy the rest of the log too, but until then pages of old content would stay in two files.
        let done = writer.sync().and_then(|()| writer.truncate().map(drop));
        writer.note_failure(&done, &mut failure, failed);
    }
}

/// Collects the queued requests after `first`. After one that announces more, it waits for that.
fn gather(first: VaultRequest, requests: &mpsc::Receiver<VaultRequest>) -> Vec<VaultRequest> {
    let until = Instant::now() + LONGEST_WAIT;
    let mut batch = vec![first];
    while batch.len() < MAX_BATCH {
        let next = match requests.try_recv() {
            Ok(next) => next,
            Err(_) if batch.last().is_some_and(|last| last.more_follows) => {
                match requests.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(next) => next,
                    Err(_) => break,
                }
            }
            Err(_) => break,
        };
        batch.push(next);
    }
    batch
}

impl Writer {
    fn note_failure(
        &self,
        result: &Result<(), StoreError>,
        failure: &mut Option<String>,
        failed: &AtomicBool,
    ) {
        if let (Err(error), None) = (result, &failure) {
            *failure = Some(error.to_string());
            failed.store(true, Ordering::Relaxed);
            self.wal.fail(error);
        }
    }

    fn commit(&mut self, batch: &[VaultRequest]) -> Result<(), StoreError> {
        let applied = batch.iter().filter_map(|request| request.number).max();
        self.write(batch, applied)?;
        self.checkpointer
            .wrote(batch.iter().map(|request| request.work.bytes()).sum::<u64>() + COMMIT_OVERHEAD);
        if batch.iter().any(|request| request.number.is_none() && !matches!(request.work, VaultOp::Commit)) {
            self.log.sync()?;
        }
        let bypassed = batch.iter().filter(|request| request.bypasses_the_wal()).count();
        self.wal.mark_applied(Target::Vault, applied, bypassed);
        if batch.iter().any(|request| matches!(request.work, VaultOp::Sync)) {
            self.wal.mark_synced(Target::Vault);
        }
        self.shredding |= batch.iter().any(|request| matches!(request.work, VaultOp::Forget(_)));
        if self.shredding {
            // If a reader blocked it, the next commit tries again.
            self.shredding = !self.truncate()?;
        }
        Ok(())
    }

    /// Commits a batch, once the WAL has it.
    fn write(&self, batch: &[VaultRequest], newest: Option<u64>) -> Result<(), StoreError> {
        let failed = |error: rusqlite::Error| StoreError::from_sqlite(&self.path, &error);
        if batch.iter().all(|request| matches!(request.work, VaultOp::Sync | VaultOp::Commit)) {
            return Ok(());
        }
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        for request in batch {
            apply(&self.connection, &request.work).map_err(failed)?;
        }
        if let Some(newest) = newest {
            bind_wal(&self.connection, self.wal.epoch(), newest).map_err(failed)?;
            // Nothing that could still be lost becomes visible to readers.
            if !self.wal.wait_durable(newest) {
                return Err(self.wal.refusal());
            }
        }
        self.connection.execute_batch("COMMIT").map_err(failed)
    }

    /// Binds the vault to the current WAL epoch; it has applied everything up to `number`.
    pub(super) fn bind_wal(&mut self, number: u64) -> Result<u64, StoreError> {
        let joined = bind_wal(&self.connection, self.wal.epoch(), number);
        joined.map_err(|error| StoreError::from_sqlite(&self.path, &error))?;
        self.log.sync()?;
        Ok(number)
    }

    /// Applies the records that the WAL holds and the vault, which has applied everything up to `applied`, does not. Returns
    /// the newest applied record.
    pub(super) fn apply_unapplied(
        &mut self,
        left: &UnappliedRecords,
        applied: u64,
        wal_key: &ContentKey,
    ) -> Result<u64, StoreError> {
        let path = self.wal.file().to_owned();
        let unusable = |what: String| StoreError::WriteAheadLog { path: path.clone(), what };
        if applied < left.base {
            return Err(unusable("it continues from a newer state than the vault has".to_owned()));
        }
        let has = left.records.last().map_or(applied, |last| last.number.max(applied));
        if left.stray > has {
            return Err(unusable("a frame in it cannot be read, and newer frames follow it".to_owned()));
        }
        for record in left.records.iter().filter(|record| record.number > applied) {
            let number = record.number;
            let work = wal_codec::read(wal_key, &record.vault)
                .ok_or_else(|| unusable(format!("its record {number} does not open")))?;
            let request = VaultRequest {
                work,
                number: Some(number),
                more_follows: false,
                permit: None,
                answer: oneshot::channel().0,
            };
            match self.write(&[request], Some(number)) {
                Err(StoreError::Damaged { what, .. }) => {
                    return Err(unusable(format!("its record {number} does not fit: {what}")));
                }
                written => written?,
            }
        }
        self.sync()?;
        Ok(has)
    }

    /// Syncs the database: everything that was committed is on disk when this returns.
    fn sync(&mut self) -> Result<(), StoreError> {
        self.log.sync()?;
        self.wal.mark_synced(Target::Vault);
        Ok(())
    }

    /// Checkpoints and truncates SQLite's log. Returns false if a reader blocked it.
    fn truncate(&mut self) -> Result<bool, StoreError> {
        self.checkpointer.settle()?;
        let busy: i64 = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .map_err(|error| StoreError::from_sqlite(&self.path, &error))?;
        Ok(busy == 0)
    }
}

impl VaultRequest {
    fn bypasses_the_wal(&self) -> bool {
        self.number.is_none() && !matches!(self.work, VaultOp::Sync | VaultOp::Commit)
    }
}

impl VaultOp {
    /// Approximate bytes that it writes.
    fn bytes(&self) -> u64 {
        match self {
            Self::Batch(batch) => {
                let contents = batch.contents.iter().map(|content| content.sealed.len());
                let events = batch.events.iter().map(|(_, _, sealed)| sealed.len());
                contents.chain(events).sum::<usize>() as u64
            }
            Self::AppendConversation(own) => conversation::bytes(own),
            Self::SetTitle(own) => own.body.len() as u64,
            Self::TruncateEvents { .. } | Self::Forget(_) | Self::Sync | Self::Commit => 0,
        }
    }
}

fn apply(connection: &Connection, work: &VaultOp) -> rusqlite::Result<()> {
    match work {
        VaultOp::Batch(batch) => write(connection, batch)?,
        VaultOp::TruncateEvents { session_id, next_entry } => {
            if let Some(session) = session(connection, session_id)? {
                connection
                    .prepare_cached("DELETE FROM events WHERE place >= ?1 << 32 AND place < (?1 + 1) << 32 AND after_entry >= ?2")?
                    .execute(params![session, next_entry])?;
            }
        }
        VaultOp::Forget(session_id) => forget(connection, session_id)?,
        VaultOp::AppendConversation(own) => conversation::write(connection, own)?,
        VaultOp::SetTitle(own) => titles::write(connection, own)?,
        VaultOp::Sync | VaultOp::Commit => {}
    }
    Ok(())
}

fn write(connection: &Connection, batch: &VaultBatch) -> rusqlite::Result<()> {
    if let Some(key) = &batch.key {
        connection
            .prepare_cached(
                "INSERT INTO sessions (session_id, key, floor) VALUES (?1, ?2, 1)
                 ON CONFLICT (session_id) DO UPDATE SET key = ?2",
            )?
            .execute(params![batch.session_id, key.expose()])?;
    }
    let session = session(connection, &batch.session_id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let mut insert = connection
        .prepare_cached("INSERT OR REPLACE INTO contents (session, commitment, body) VALUES (?1, ?2, ?3)")?;
    for content in &batch.contents {
        insert.execute(params![session, content.commitment.to_string(), content.sealed])?;
    }
    let mut insert = connection
        .prepare_cached("INSERT INTO events (place, after_entry, body) VALUES ((?1 << 32) + ?2, ?3, ?4)")?;
    for (seq, after_entry, sealed) in &batch.events {
        insert.execute(params![session, seq, after_entry, sealed])?;
    }
    if let Some(below) = batch.drop_below {
        connection
            .prepare_cached("DELETE FROM events WHERE place >= ?1 << 32 AND place < (?1 << 32) + ?2")?
            .execute(params![session, below])?;
        connection
            .prepare_cached("UPDATE sessions SET floor = max(floor, ?2) WHERE session = ?1")?
            .execute(params![session, below])?;
    }
    Ok(())
}

fn forget(connection: &Connection, session_id: &str) -> rusqlite::Result<()> {
    let Some(session) = session(connection, session_id)? else { return Ok(()) };
    connection.execute(
        "UPDATE sessions
         SET key = NULL, floor = max(floor, coalesce(
             (SELECT (max(place) & 0xffffffff) + 1 FROM events WHERE place >= ?1 << 32 AND place < (?1 + 1) << 32), floor))
         WHERE session = ?1",
        [session],
    )?;
    connection.execute("DELETE FROM events WHERE place >= ?1 << 32 AND place < (?1 + 1) << 32", [session])?;
    connection.execute("DELETE FROM contents WHERE session = ?1", [session])?;
    conversation::forget(connection, session)?;
    titles::forget(connection, session)?;
    Ok(())
}

fn session(connection: &Connection, session_id: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT session FROM sessions WHERE session_id = ?1")?
        .query_row([session_id], |row| row.get(0))
        .optional()
}
