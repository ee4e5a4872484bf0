//! The vault: the content of sessions, in a SQLCipher database. The ledger stores only commitments; the content, the salts
//! that open the commitments and the stream of events are here, sealed under a key of each session. Deleting that key erases
//! the session's content for good, and no hash in the ledger changes.
//!
//! Events are written before a client sees them. Each names the ledger entry that it depends on: an event whose entry did not
//! reach the disk before a crash was never shown, and is removed when its session is next used.

mod cipher;
mod conversation;
mod titles;
mod wal_codec;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::oneshot;
use tribune_ledger::commitment::{Commitment, Salt};
use zeroize::Zeroizing;

pub use cipher::{CipherError, ContentKey};
pub use conversation::Conversation;
pub use titles::SessionTitle;

use crate::files;
use crate::files::Secrecy;
use crate::home::Home;
use crate::keys::KeyFileError;
use crate::store::checkpointer::Checkpointer;
use crate::store::connection::Access;
use crate::store::sqlite_wal::SqliteWal;
use crate::store::{Store, StoreError, checkpointer, connection};
use crate::wal::permits::QueuePermits;
use crate::wal::{ApplierRequest, ReadPoint, Target, Wal, WalPart, WalPosition, WalRecord};

/// Largest number of queued requests; the next caller waits for a permit.
const QUEUE: usize = 512;

/// Events kept per session; older ones are dropped at the end of a turn. A client that was disconnected for longer reads the
/// history instead.
pub const EVENTS_KEPT: u64 = 20_000;

/// The open vault. Dropping it finishes queued writes first.
#[derive(Debug)]
pub struct Vault {
    path: PathBuf,
    permits: QueuePermits,
    queue: Option<mpsc::Sender<writer::VaultRequest>>,
    wal: Wal,
    /// Seals the vault's records in the WAL.
    wal_key: ContentKey,
    thread: Option<JoinHandle<()>>,
    // For short reads, which never wait for the writer; one connection is enough.
    reader: Mutex<Connection>,
    failed: Arc<AtomicBool>,
}

/// A session in the vault.
#[derive(Debug, Clone)]
pub struct SessionVault {
    pub session_id: String,
    pub key: ContentKey,
    /// True until the key is stored, which the first write does.
    pub fresh: bool,
    /// The sequence number of the next event.
    pub next_event: u64,
    /// The newest event.
    pub last_event: Option<StoredEvent>,
}

/// One sealed piece of content.
#[derive(Debug)]
pub struct StoredContent {
    pub commitment: Commitment,
    sealed: Vec<u8>,
}

/// One stored event: its sequence number and its JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub seq: u64,
    pub json: String,
}

impl StoredEvent {
    /// Whether it is the last event of a turn.
    pub fn is_done(&self) -> bool {
        #[derive(serde::Deserialize)]
        struct Kind<'a> {
            #[serde(rename = "type", borrow)]
            kind: std::borrow::Cow<'a, str>,
        }
        serde_json::from_str::<Kind<'_>>(&self.json).is_ok_and(|event| event.kind == "done")
    }
}

/// The writes of one commit for a session.
#[derive(Debug, Default)]
pub struct VaultBatch {
    session_id: String,
    /// Stored with the first batch of a session.
    key: Option<ContentKey>,
    contents: Vec<StoredContent>,
    /// Sequence number, position of the ledger entry that it depends on, sealed JSON.
    events: Vec<(u64, u64, Vec<u8>)>,
    /// Events below this number are dropped.
    drop_below: Option<u64>,
}

/// A range of events, as read from the vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRange {
    /// The first event that is still kept.
    pub oldest: u64,
    pub events: Vec<StoredEvent>,
}

/// The bounds of one read. The first event is read however large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    pub events: usize,
    pub bytes: usize,
}

impl ReadLimit {
    /// Bounds only the number of events, where the caller knows that this is enough.
    pub const fn events(events: usize) -> Self {
        Self { events, bytes: usize::MAX }
    }

    /// Counts one more event of this size; false if it is not read.
    pub const fn takes(&mut self, size: usize, is_first: bool) -> bool {
        if self.events == 0 || (size > self.bytes && !is_first) {
            return false;
        }
        self.events -= 1;
        self.bytes = self.bytes.saturating_sub(size);
        true
    }
}

impl VaultBatch {
    pub fn new(session: &SessionVault) -> Self {
        Self { session_id: session.session_id.clone(), ..Self::default() }
    }

    /// Adds the session's key if it is not stored yet. Called when the batch is about to be written.
    pub fn take_key(&mut self, session: &mut SessionVault) {
        if std::mem::replace(&mut session.fresh, false) {
            self.key = Some(session.key.clone());
        }
    }

    /// Adds content; returns the commitment by which the ledger refers to it.
    pub fn content(&mut self, session: &SessionVault, text: &[u8]) -> Result<Commitment, CipherError> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt).map_err(|_| CipherError::NoRandomness)?;
        let salt = Salt::from_random(salt);
        let commitment = Commitment::to(text, &salt);
        let mut plain = Zeroizing::new(Vec::with_capacity(32 + text.len()));
        plain.extend_from_slice(salt.expose());
        plain.extend_from_slice(text);
        let sealed = session.key.seal(&plain, commitment.to_string().as_bytes())?;
        self.contents.push(StoredContent { commitment, sealed });
        Ok(commitment)
    }

    /// Adds an event that becomes visible once the entry at `after_entry` of the session's history is durable.
    pub fn event(
        &mut self,
        session: &SessionVault,
        event: &StoredEvent,
        after_entry: u64,
    ) -> Result<(), CipherError> {
        if event.seq > u64::from(u32::MAX) {
            return Err(CipherError::TooManyEvents);
        }
        let sealed = session.key.seal(event.json.as_bytes(), &event.seq.to_be_bytes())?;
        self.events.push((event.seq, after_entry, sealed));
        Ok(())
    }

    pub const fn drop_events_below(&mut self, seq: u64) {
        self.drop_below = Some(seq);
    }

    pub fn is_empty(&self) -> bool {
        self.contents.is_empty() && self.events.is_empty() && self.drop_below.is_none()
    }
}

impl Vault {
    /// Opens the vault of `home`, beside its open store.
    pub fn open(home: &Home, store: &Store) -> Result<Self, StoreError> {
        let path = home.root().join("vault.db");
        let key = vault_key(home, &path)?;
        let connection =
            connection::open_keyed(&path, &key, Access::Write).map_err(|error| wrong_key(home, error))?;
        checkpointer::copy(&connection)?;
        let failed = |error: rusqlite::Error| StoreError::from_sqlite(&path, &error);
        writer::prepare(&connection).map_err(failed)?;
        let (wal, wal_key) = (store.wal()?, wal_codec::key(&key));
        let known = writer::wal_position(&connection).map_err(failed)?;
        let reader = Mutex::new(connection::open_keyed(&path, &key, Access::Read)?);
        let database = path.clone();
        let checkpointer = Checkpointer::new(move || connection::open_keyed(&database, &key, Access::Write));
        let (log, path_of_writer) = (SqliteWal::of(&path), path.clone());
        let mut writing = writer::Writer {
            path: path_of_writer,
            checkpointer,
            connection,
            log,
            wal: wal.clone(),
            shredding: false,
        };
        let left = wal.unapplied_for_vault();
        let applied = match (known, &left) {
            (Some(WalPosition { epoch, applied }), left) if epoch == wal.epoch() => {
                left.as_ref().map_or(Ok(applied), |left| writing.apply_unapplied(left, applied, &wal_key))?
            }
            (Some(_), Some(_)) => {
                let what = "it holds records that this vault never had".to_owned();
                return Err(StoreError::WriteAheadLog { path: wal.file().to_owned(), what });
            }
            // No records are left, or they belong to a vault that no longer exists.
            (_, _) => writing.bind_wal(wal.newest())?,
        };
        if left.is_some() {
            wal.begin(applied)?;
        }

        let (queue, requests) = mpsc::channel();
        let failed = Arc::new(AtomicBool::new(false));
        let failing = Arc::clone(&failed);
        let thread = std::thread::Builder::new()
            .name("vault-writer".to_owned())
            .spawn(move || writer::run(writing, &requests, &failing))
            .map_err(|error| StoreError::Io { path: path.clone(), what: error.to_string() })?;
        let requests = queue.clone();
        wal.attach(Target::Vault, move |ask| {
            let work = match ask {
                ApplierRequest::Sync => writer::VaultOp::Sync,
                ApplierRequest::Commit => writer::VaultOp::Commit,
            };
            drop(requests.send(request(work).0));
        });
        Ok(Self {
            path,
            permits: QueuePermits::of(QUEUE),
            queue: Some(queue),
            wal,
            wal_key,
            thread: Some(thread),
            reader,
            failed,
        })
    }

    /// Checks that the key opens the vault of `home`, if there is one. Changes nothing.
    pub fn check(home: &Home) -> Result<(), StoreError> {
        let path = home.root().join("vault.db");
        if !path.exists() {
            return Ok(());
        }
        let key = vault_key(home, &path)?;
        connection::open_keyed(&path, &key, Access::Read).map(drop).map_err(|error| wrong_key(home, error))
    }

    /// Whether the vault is read-only since an earlier error.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Writes a batch; returns when it is durable.
    pub async fn write(&self, batch: VaultBatch) -> Result<(), StoreError> {
        let part = self.part(batch, false).await?;
        if self.wal.fits(part.bytes.len()) {
            self.wal.write(WalRecord { ledger: None, vault: Some(part.into_part()) }).await
        } else {
            self.wal.wait_all_durable().await;
            part.bypass_wal()?.await.map_err(|_| StoreError::Closed)?
        }
    }

    /// Prepares a batch for writing.
    pub async fn part(&self, batch: VaultBatch, more_follows: bool) -> Result<VaultPart, StoreError> {
        self.prepare(writer::VaultOp::Batch(Box::new(batch)), more_follows).await
    }

    /// Queues an operation without flushing it: it is on disk before every later record.
    async fn write_lazy(&self, work: writer::VaultOp) -> Result<(), StoreError> {
        let part = self.prepare(work, true).await?;
        if self.wal.fits(part.bytes.len()) {
            self.wal.enqueue_lazy(WalRecord { ledger: None, vault: Some(part.into_part()) }).map(drop)
        } else {
            self.wal.wait_all_durable().await;
            part.bypass_wal().map(drop)
        }
    }

    async fn prepare(&self, work: writer::VaultOp, more_follows: bool) -> Result<VaultPart, StoreError> {
        let bytes = wal_codec::write(&self.wal_key, &work).map_err(|error| self.cipher(error))?;
        let (mut request, receipt) = request(work);
        request.more_follows = more_follows;
        request.permit = Some(self.permits.enter().await);
        let queue = self.queue.clone().ok_or(StoreError::Closed)?;
        Ok(VaultPart { bytes, request, receipt, queue, wal: self.wal.clone() })
    }

    /// Shreds all content of a session. The numbers of its later events continue from the current one.
    pub async fn forget(&self, session_id: &str) -> Result<(), StoreError> {
        self.send(writer::VaultOp::Forget(session_id.to_owned())).await?;
        // The WAL holds the content and the key too.
        self.wal.zero_fill().await
    }

    /// Executes an operation without the WAL; returns when it is on disk.
    async fn send(&self, work: writer::VaultOp) -> Result<(), StoreError> {
        self.wal.wait_all_durable().await;
        let (mut request, receipt) = request(work);
        request.permit = Some(self.permits.enter().await);
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue.send(request).map_err(|_| StoreError::Closed)?;
        self.wal.mark_bypassed(Target::Vault);
        receipt.await.map_err(|_| StoreError::Closed)?
    }

    /// Finds a session, or prepares a new one, and removes events whose ledger entry never became durable.
    /// `next_entry` is the position of the next entry in the session's history.
    pub async fn session(&self, session_id: &str, next_entry: u64) -> Result<SessionVault, StoreError> {
        let found = self.read(|connection| find_session(connection, session_id, next_entry))?;
        let Some((key, next_event, ahead)) = found else {
            let key = ContentKey::generate().map_err(|error| self.cipher(error))?;
            return Ok(SessionVault {
                session_id: session_id.to_owned(),
                key,
                fresh: true,
                next_event: 1,
                last_event: None,
            });
        };
        if ahead {
            self.send(writer::VaultOp::TruncateEvents { session_id: session_id.to_owned(), next_entry })
                .await?;
        }
        let (fresh, key) = match key {
            Some(key) => (false, key),
            None => (true, ContentKey::generate().map_err(|error| self.cipher(error))?),
        };
        let mut session =
            SessionVault { session_id: session_id.to_owned(), key, fresh, next_event, last_event: None };
        if ahead {
            let found = self.read(|connection| find_session(connection, session_id, next_entry))?;
            session.next_event = found.map_or(1, |(_, next_event, _)| next_event);
        }
        if !session.fresh && session.next_event > 1 {
            let last = self.events(&session.session_id, session.next_event - 2, ReadLimit::events(1))?;
            session.last_event = last.events.into_iter().next();
        }
        Ok(session)
    }

    /// Stores one more piece of content of a session that has content; returns when it is durable. None if the session has no
    /// key.
    pub async fn keep(&self, session_id: &str, text: &[u8]) -> Result<Option<Commitment>, StoreError> {
        let found = self.read(|connection| find_session(connection, session_id, u64::MAX))?;
        let Some((Some(key), next_event, _)) = found else { return Ok(None) };
        let session_id = session_id.to_owned();
        let session = SessionVault { session_id, key, fresh: false, next_event, last_event: None };
        let mut batch = VaultBatch::new(&session);
        let commitment = batch.content(&session, text).map_err(|error| self.cipher(error))?;
        self.write(batch).await?;
        Ok(Some(commitment))
    }

    /// The sequence number of a session's newest event; 0 before the first.
    pub fn newest_event(&self, session_id: &str) -> Result<u64, StoreError> {
        let found = self.read(|connection| find_session(connection, session_id, u64::MAX))?;
        Ok(found.map_or(0, |(_, next_event, _)| next_event - 1))
    }

    /// Events after `after`, in order.
    pub fn events(&self, session_id: &str, after: u64, most: ReadLimit) -> Result<EventRange, StoreError> {
        let (key, oldest, sealed) =
            self.read(|connection| read_events(connection, session_id, after, most))?;
        let Some(key) = key else { return Ok(EventRange { oldest, events: Vec::new() }) };
        let mut events = Vec::with_capacity(sealed.len());
        for (seq, body) in sealed {
            let json = key.open(&body, &seq.to_be_bytes()).map_err(|error| self.cipher(error))?;
            let json = String::from_utf8(json).map_err(|_| self.cipher(CipherError::DoesNotOpen))?;
            events.push(StoredEvent { seq, json });
        }
        Ok(EventRange { oldest, events })
    }

    /// The content of a commitment, checked against it. None if it was shredded or never stored.
    pub fn content(&self, session_id: &str, commitment: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.read(|connection| read_content(connection, session_id, commitment))?;
        let Some((key, sealed)) = found else { return Ok(None) };
        let plain = key.open(&sealed, commitment.as_bytes()).map_err(|error| self.cipher(error))?;
        let opens = plain.split_first_chunk::<32>().filter(|(salt, text)| {
            let expected = Commitment::to(text, &Salt::from_random(**salt));
            expected.to_string() == commitment
        });
        match opens {
            Some((_, text)) => Ok(Some(text.to_vec())),
            None => Err(self.cipher(CipherError::DoesNotOpen)),
        }
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        self.read_as_of(self.wal.read_point(), read)
    }

    /// Reads once everything up to `as_of` is applied. It may see more.
    fn read_as_of<T>(
        &self,
        as_of: ReadPoint,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.wal.wait_applied_to(Target::Vault, as_of);
        let reader = self.reader.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        read(&reader).map_err(|error| StoreError::from_sqlite(&self.path, &error))
    }

    fn cipher(&self, error: CipherError) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), what: error.to_string() }
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        self.wal.flush();
        self.wal.detach(Target::Vault);
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // The thread does not panic. If it did, there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

/// A vault operation that is ready to be written, with its sealed encoding for the WAL.
pub struct VaultPart {
    bytes: Vec<u8>,
    request: writer::VaultRequest,
    receipt: writer::VaultReceipt,
    queue: mpsc::Sender<writer::VaultRequest>,
    wal: Wal,
}

impl std::fmt::Debug for VaultPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VaultPart")
    }
}

impl VaultPart {
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The part for a WAL record.
    pub fn into_part(self) -> WalPart {
        let Self { bytes, request, queue, .. } = self;
        // If the writer has ended, the vault is closed; the WAL reports it.
        let send = move |number| drop(queue.send(writer::VaultRequest { number: Some(number), ..request }));
        WalPart { bytes, send: Box::new(send) }
    }

    /// Sends it to the writer without the WAL. It is on disk once the receipt says so.
    pub fn bypass_wal(self) -> Result<writer::VaultReceipt, StoreError> {
        self.queue.send(self.request).map_err(|_| StoreError::Closed)?;
        self.wal.mark_bypassed(Target::Vault);
        Ok(self.receipt)
    }
}

fn request(work: writer::VaultOp) -> (writer::VaultRequest, writer::VaultReceipt) {
    let (answer, receipt) = oneshot::channel();
    (writer::VaultRequest { work, number: None, more_follows: false, permit: None, answer }, receipt)
}

type VaultSession = (Option<ContentKey>, u64, bool);

/// The session's key, the sequence number of its next event, and whether it has events that are ahead of the ledger.
fn find_session(
    connection: &Connection,
    session_id: &str,
    next_entry: u64,
) -> rusqlite::Result<Option<VaultSession>> {
    let mut select =
        connection.prepare_cached("SELECT session, key, floor FROM sessions WHERE session_id = ?1")?;
    let row = select.query_row([session_id], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<[u8; 32]>>(1)?, row.get::<_, u64>(2)?))
    });
    let Some((session, key, floor)) = row.optional()? else { return Ok(None) };
    let mut newest = connection.prepare_cached(
        "SELECT place & 0xffffffff, after_entry FROM events
             WHERE place >= ?1 << 32 AND place < (?1 + 1) << 32 ORDER BY place DESC LIMIT 1",
    )?;
    let newest =
        newest.query_row([session], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?))).optional()?;
    let next_event = newest.map_or(floor, |(seq, _)| (seq + 1).max(floor));
    let ahead = newest.is_some_and(|(_, after_entry)| after_entry >= next_entry);
    Ok(Some((key.map(ContentKey::from_bytes), next_event, ahead)))
}

type SealedEvents = (Option<ContentKey>, u64, Vec<(u64, Vec<u8>)>);

fn read_events(
    connection: &Connection,
    session_id: &str,
    after: u64,
    mut most: ReadLimit,
) -> rusqlite::Result<SealedEvents> {
    let mut select =
        connection.prepare_cached("SELECT session, key, floor FROM sessions WHERE session_id = ?1")?;
    let row = select.query_row([session_id], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<[u8; 32]>>(1)?, row.get::<_, u64>(2)?))
    });
    let Some((session, key, floor)) = row.optional()? else { return Ok((None, 1, Vec::new())) };
    let mut select = connection.prepare_cached(
        "SELECT place & 0xffffffff, body FROM events
         WHERE place > (?1 << 32) + ?2 AND place < (?1 + 1) << 32 ORDER BY place LIMIT ?3",
    )?;
    let after = after.min(u64::from(u32::MAX));
    let mut rows = select.query(params![session, after, most.events as u64])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        if !most.takes(row.get_ref(1)?.as_blob()?.len(), events.is_empty()) {
            break;
        }
        events.push((row.get(0)?, row.get(1)?));
    }
    Ok((key.map(ContentKey::from_bytes), floor, events))
}

fn read_content(
    connection: &Connection,
    session_id: &str,
    commitment: &str,
) -> rusqlite::Result<Option<(ContentKey, Vec<u8>)>> {
    let mut select = connection.prepare_cached(
        "SELECT key, body FROM sessions JOIN contents USING (session)
         WHERE session_id = ?1 AND commitment = ?2 AND key IS NOT NULL",
    )?;
    let row = select.query_row([session_id, commitment], |row| Ok((row.get::<_, [u8; 32]>(0)?, row.get(1)?)));
    Ok(row.optional()?.map(|(key, body)| (ContentKey::from_bytes(key), body)))
}

/// Under a wrong key a vault looks damaged, so damage is reported as a problem of the key.
fn wrong_key(home: &Home, error: StoreError) -> StoreError {
    match error {
        StoreError::Damaged { .. } | StoreError::NotOurs(_) => StoreError::VaultKey {
            path: key_path(home),
            what: "it does not open the vault, unless the vault is damaged",
        },
        other => other,
    }
}

fn key_path(home: &Home) -> PathBuf {
    home.keys().join("vault.key")
}

/// The key of the database file. Both are created together.
fn vault_key(home: &Home, database: &std::path::Path) -> Result<Zeroizing<String>, StoreError> {
    let path = key_path(home);
    let failed = |error: std::io::Error| StoreError::Key(KeyFileError::Io { path: path.clone(), error });
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let text = Zeroizing::new(text);
            let hex = text.trim();
            if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Ok(Zeroizing::new(hex.to_owned()));
            }
            Err(StoreError::VaultKey { path, what: "it does not hold 64 hex digits" })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if database.exists() {
                return Err(StoreError::VaultKey {
                    path,
                    what: "it is missing, and the vault opens with nothing else",
                });
            }
            let mut bytes = Zeroizing::new([0_u8; 32]);
            getrandom::fill(bytes.as_mut_slice())
                .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
            let hex: Zeroizing<String> =
                Zeroizing::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
            files::replace(&path, format!("{}\n", *hex).as_bytes(), Secrecy::Owner).map_err(failed)?;
            Ok(hex)
        }
        Err(error) => Err(failed(error)),
    }
}
