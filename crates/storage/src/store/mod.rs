//! The ledger's database: one SQLite database, one writer thread, any number of readers.
//!
//! An append returns once its entry is durable in the write-ahead log, or in the database if it bypasses the log. One
//! transaction holds the entries, the right edge of the Merkle tree, the views and a signed checkpoint. After an I/O error
//! nothing more is written until the store is opened again, because pages that a failed sync left in the page cache cannot
//! be distinguished from pages on disk.

pub(crate) mod checkpointer;
mod cid_index;
pub(crate) mod connection;
mod error;
mod policy_queries;
mod policy_views;
mod reader;
mod readers;
mod rows;
mod schema;
mod sequencer;
mod session_queries;
mod session_views;
mod spend_views;
pub(crate) mod sqlite_wal;
mod views;
mod wal_codec;
mod writer;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

pub use error::StoreError;
pub use policy_queries::ApprovalOrder;
pub use policy_views::ApprovalRow;
pub use reader::{EntryFilter, EntryLookup, Reader};
pub use readers::Readers;
pub use rows::StoredEntry;
use rusqlite::{Connection, OptionalExtension as _};
pub use sequencer::Appended;
pub use session_queries::{OpenSession, RecentSession, SessionFilter};
pub use session_views::{Heartbeat, MessageRow, OpenWork, SessionRow, TurnRow};
use tribune_ledger::key_change::KeyChange;
use tribune_ledger::{Checkpoint, NoteSigner as _, VerifierKey};
pub use views::ViewFault;
pub use writer::{LedgerWriter, Receipt};

use self::connection::Access;
use self::sequencer::Sequencer;
use self::views::Views;
use crate::clock::Clock;
use crate::home::{Home, HomeLock};
use crate::keys;
use crate::wal::{Wal, WalEpoch, WalPosition};

/// The open store. Dropping it finishes queued appends first.
#[derive(Debug)]
pub struct Store {
    home: Home,
    writer: Option<LedgerWriter>,
    thread: Option<JoinHandle<()>>,
    beginning: StoreOrigin,
    // Released last, when the writer has ended.
    _lock: HomeLock,
}

/// Whether opening found a log or started a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreOrigin {
    Found,
    /// A new log, under an existing key or a new one.
    Began,
}

impl Store {
    /// Opens the store of `home` for this process alone. If there is no log, starts one under a new key.
    pub fn open(home: &Home, clock: &dyn Clock) -> Result<Self, StoreError> {
        Self::open_named(home, clock, None)
    }

    /// Like [`Self::open`]; a new log gets this name.
    pub fn open_named(home: &Home, clock: &dyn Clock, name: Option<&str>) -> Result<Self, StoreError> {
        home.prepare()?;
        let lock = home.lock()?;
        keys::sweep(home)?;
        let path = home.database();
        // A key moves to its final path once its log has started. A second log under it would contradict the first.
        let key = keys::secret_path(home);
        let gone = || StoreError::LogIsGone { path: path.clone(), key: key.clone() };
        if key.exists() && !std::fs::metadata(&path).is_ok_and(|found| found.len() > 0) {
            return Err(gone());
        }
        let connection = connection::open(&path, Access::Write)?;
        let failed = |error: rusqlite::Error| StoreError::from_sqlite(&path, &error);
        // What an earlier failure left in SQLite's write-ahead log is checkpointed and synced before anything builds on it.
        checkpointer::copy(&connection)?;
        schema::migrate(&connection).map_err(failed)?;

        let views = load_views(&connection, &path)?;
        if views.size() == 0 && key.exists() {
            return Err(gone());
        }
        let known = if views.size() == 0 { None } else { wal_position(&connection).map_err(failed)? };
        let (wal, unapplied) = Wal::open(home, known)?;
        let (mut sequencer, key, beginning) = if views.size() == 0 {
            let signer = keys::generate(name)?;
            keys::prepare_next(home, &signer)?;
            let key = signer.verifier_key().clone();
            let change = KeyChange { old: None, new: key.clone() };
            let genesis = sequencer::key_change_entry(&change, 0, clock.now(), &signer)?;
            let signer = Box::new(signer);
            let mut sequencer = Sequencer::new(path.clone(), connection, signer, views, wal.clone());
            sequencer.begin(genesis)?;
            keys::adopt(home, &key)?;
            (sequencer, key, StoreOrigin::Began)
        } else {
            let in_force = reader::key_in_force(&connection, &path)?;
            let signer = keys::signer_for(home, &in_force)?;
            check_edge(&connection, &path, &views, &in_force)?;
            let sequencer = Sequencer::new(path.clone(), connection, Box::new(signer), views, wal.clone());
            (sequencer, in_force, StoreOrigin::Found)
        };
        keys::publish(home, &key)?;
        sequencer.apply_unapplied(unapplied)?;
        if wal.unapplied_for_vault().is_none() {
            let number = wal.newest();
            wal.begin(number)?;
            sequencer.bind_wal(wal.epoch(), number)?;
        }
        let started = writer::start(sequencer, wal);
        let (writer, thread) = started.map_err(|error| StoreError::Io { path, what: error.to_string() })?;
        Ok(Self { home: home.clone(), writer: Some(writer), thread: Some(thread), beginning, _lock: lock })
    }

    /// A handle for appending.
    pub fn writer(&self) -> Result<LedgerWriter, StoreError> {
        self.writer.clone().ok_or(StoreError::Closed)
    }

    /// Readers that see everything that this process has written.
    pub fn readers(&self) -> Result<Readers, StoreError> {
        Ok(Readers::new(&self.home, self.writer()?.wal().clone()))
    }

    /// The write-ahead log that ledger and vault are applied from.
    pub(crate) fn wal(&self) -> Result<Wal, StoreError> {
        Ok(self.writer()?.wal().clone())
    }

    pub const fn beginning(&self) -> StoreOrigin {
        self.beginning
    }

    /// Rotates the log's key: the new key is written beside the old one, recorded in the log, then moved to its place.
    pub fn rotate_key(&self, clock: &dyn Clock) -> Result<(VerifierKey, Appended), StoreError> {
        let reader = Reader::open(&self.home)?;
        let old = keys::signer_for(&self.home, &reader.key_in_force()?)?;
        let new = keys::generate(Some(old.verifier_key().name()))?;
        let key = new.verifier_key().clone();
        let change = KeyChange { old: Some(old.verifier_key().clone()), new: key.clone() };
        let seq = reader.next_seq(KeyChange::ENTITY)?;
        let entry = sequencer::key_change_entry(&change, seq, clock.now(), &old)?;
        keys::prepare_next(&self.home, &new)?;
        let appended = self.writer()?.rotate_blocking(new, entry)?;
        keys::adopt(&self.home, &key)?;
        Ok((key, appended))
    }

    /// Finishes queued appends and ends the writer.
    pub fn close(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        if let Some(writer) = self.writer.take() {
            let clean = writer.wal().close();
            writer.stop(clean);
        }
        if let Some(thread) = self.thread.take() {
            // The thread does not panic. If it did, there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

fn load_views(connection: &Connection, path: &Path) -> Result<Views, StoreError> {
    let loaded = Views::load(connection).map_err(|error| StoreError::from_sqlite(path, &error))?;
    loaded.ok_or_else(|| damaged(path, "the stored tree does not fit the number of entries"))
}

/// How far this database has applied the WAL.
fn wal_position(connection: &Connection) -> rusqlite::Result<Option<WalPosition>> {
    let row = connection.query_row("SELECT book, posted FROM checkpoint", [], |row| {
        Ok((row.get::<_, Option<[u8; 16]>>(0)?, row.get::<_, u64>(1)?))
    });
    Ok(row.optional()?.and_then(|(epoch, applied)| Some(WalPosition { epoch: WalEpoch(epoch?), applied })))
}

/// A cheap check of the newest state, so that nothing is appended to a log that is broken at its end. `verify` checks
/// everything.
fn check_edge(
    connection: &Connection,
    path: &Path,
    views: &Views,
    key: &VerifierKey,
) -> Result<(), StoreError> {
    let note = reader::checkpoint(connection, path)?;
    let checkpoint =
        Checkpoint::open(&note, key).map_err(|error| damaged(path, format!("its checkpoint: {error}")))?;
    if (checkpoint.size, checkpoint.root) != (views.size(), views.root()) {
        return Err(damaged(path, "its entries do not have the root that is signed"));
    }
    let last = reader::entry(connection, path, views.size() - 1)?;
    match last {
        Some(last) if last.entry.compute_cid() == last.entry.cid => Ok(()),
        _ => Err(damaged(path, "its last entry was altered")),
    }
}

fn damaged(path: &Path, what: impl Into<String>) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), what: what.into() }
}

/// The versions of the libraries that read and write databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreVersions {
    pub sqlite: &'static str,
    /// The version of SQLCipher; none if this build cannot seal a vault.
    pub cipher: Option<String>,
}

/// The versions of SQLite and of the cipher in this build.
pub fn versions() -> StoreVersions {
    let cipher = connection::scratch()
        .and_then(|scratch| scratch.query_row("PRAGMA cipher_version", [], |row| row.get(0)))
        .ok()
        .filter(|version: &String| !version.is_empty());
    StoreVersions { sqlite: rusqlite::version(), cipher }
}

/// The result of a comparison of the views with the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewCheck {
    pub entries: u64,
    /// The first place where a stored view differs from what the entries give.
    pub fault: Option<ViewFault>,
}

/// Rebuilds every view beside the stored ones and compares them. Changes nothing, and needs no lock.
pub fn check_views(home: &Home, progress: &mut dyn FnMut(u64)) -> Result<ViewCheck, StoreError> {
    let reader = Reader::open(home)?;
    let path = home.database();
    let failed = |error: rusqlite::Error| StoreError::from_sqlite(&path, &error);
    let scratch = connection::scratch().map_err(failed)?;
    let (views, mut fault) = views::check(reader.connection(), &scratch, progress).map_err(failed)?;
    if fault.is_none() {
        fault = checkpoint_fault(&reader.checkpoint()?, &views);
    }
    Ok(ViewCheck { entries: views.size(), fault })
}

/// Deletes every view and rebuilds it from the entries. Refuses if the entries do not have the signed root, because then
/// the entries are wrong and not the views. Returns the number of entries.
pub fn rebuild_views(home: &Home, progress: &mut dyn FnMut(u64)) -> Result<u64, StoreError> {
    home.prepare()?;
    let _lock = home.lock()?;
    rebuild_held(home, progress)
}

/// Like [`rebuild_views`], without the WAL: its file is moved to the path that is returned, and the log goes on with what it
/// has. Acknowledged records that exist only in the WAL are then not in the log.
pub fn rebuild_without_wal(
    home: &Home,
    progress: &mut dyn FnMut(u64),
) -> Result<(u64, Option<PathBuf>), StoreError> {
    home.prepare()?;
    let _lock = home.lock()?;
    let entries = rebuild_held(home, progress)?;
    let path = home.database();
    let connection = connection::open(&path, Access::Write)?;
    let aside = Wal::put_aside(home)?;
    let forgotten = connection.execute("UPDATE checkpoint SET book = NULL, posted = 0", []);
    forgotten.map_err(|error| StoreError::from_sqlite(&path, &error))?;
    sqlite_wal::SqliteWal::of(&path).sync()?;
    Ok((entries, aside))
}

fn rebuild_held(home: &Home, progress: &mut dyn FnMut(u64)) -> Result<u64, StoreError> {
    let path = home.database();
    if !path.exists() {
        return Err(StoreError::NoLedger(home.root().to_owned()));
    }
    let failed = |error: rusqlite::Error| StoreError::from_sqlite(&path, &error);
    let mut connection = connection::open(&path, Access::Write)?;
    let transaction = connection.transaction().map_err(failed)?;
    let views::Rebuild { views, back_pointers } =
        views::rebuild(&transaction, &transaction, progress).map_err(failed)?;
    views::mend_back_pointers(&transaction, &back_pointers).map_err(failed)?;
    let unsigned = checkpoint_fault(&reader::checkpoint(&transaction, &path)?, &views);
    if let Some(unsigned) = unsigned {
        return Err(damaged(&path, format!("{unsigned}: nothing was changed")));
    }
    transaction.commit().map_err(failed)?;
    Ok(views.size())
}

fn checkpoint_fault(note: &str, views: &Views) -> Option<ViewFault> {
    let table = "checkpoint".to_owned();
    match Checkpoint::parse(note) {
        Err(error) => Some(ViewFault { table, what: error.to_string() }),
        Ok(signed) if (signed.size, signed.root) == (views.size(), views.root()) => None,
        Ok(signed) => {
            let (size, root) = (views.size(), views.root());
            let what = format!(
                "{} entries with root {} are signed; {size} with root {root} are there",
                signed.size, signed.root
            );
            Some(ViewFault { table, what })
        }
    }
}
