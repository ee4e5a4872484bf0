//! The book of first entry. What has to be durable is written here first, for the ledger and the vault together, with one
//! sync for whatever came in meanwhile; then whoever waits goes on. Posting it into the two databases follows in the same
//! order, by the thread that writes each of them, and readers in this process wait for it. At a start, what the book holds
//! and a database does not is posted before anything else.
//!
//! Whoever waits for something to be written and finds the pen writes, in its own thread, for everyone who came meanwhile,
//! and puts it down again. A sync takes less time than waking somebody to do it. Whoever waits for something takes the pen too if it lies
//! there, so nobody waits for somebody who does not get to run. Where the disk is slow a thread does it instead: the others have more to do
//! than to wait for a disk.

mod file;
mod flusher;
mod frame;
pub(crate) mod permits;
mod recovery;
mod watermarks;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::recovery::UnappliedRecords;
pub(crate) use self::watermarks::{ReadPoint, Target};

use self::file::WalFile;
use self::flusher::Flusher;
use self::frame::CheckpointBase;
use self::watermarks::Watermarks;
use crate::store::StoreError;

/// Bytes of a page that goes through the book. What is larger goes to the databases at once, each with a sync of its own.
const LARGEST_PAGE: usize = 1 << 20;

/// Bytes on a sheet after which no further page is added.
const SHEET: usize = 1 << 20;

/// How long a page waits for others that are about to be written.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Which book this is. A database remembers whose records it has; each start begins another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalEpoch(pub(crate) [u8; 16]);

impl WalEpoch {
    pub(crate) fn generate() -> std::io::Result<Self> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self(id))
    }
}

/// What one caller had written, as it is found at a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnappliedRecord {
    pub(crate) number: u64,
    pub(crate) ledger: Vec<u8>,
    pub(crate) vault: Vec<u8>,
}

/// What is to be written for one side: how it stands in the book, and how it is handed to those who post it, once it has
/// its number.
pub struct WalPart {
    pub(crate) bytes: Vec<u8>,
    pub(crate) post: Box<dyn FnOnce(u64) + Send>,
}

/// What is written together, or not at all.
#[derive(Default)]
pub struct WalRecord {
    pub ledger: Option<WalPart>,
    pub vault: Option<WalPart>,
}

/// Why nothing can be written any more.
#[derive(Debug, Clone)]
enum WalFailure {
    Full(PathBuf),
    Io {
        path: PathBuf,
        what: String,
    },
    /// A database could not take what was promised.
    Elsewhere(String),
}

/// The daybook of a home; clones share it.
#[derive(Debug, Clone)]
pub struct Wal(Arc<WalInner>);

#[derive(Debug)]
struct WalInner {
    path: PathBuf,
    book: WalEpoch,
    queue: Mutex<WalQueue>,
    desk: Mutex<WriterState>,
    marks: Watermarks,
    ledger: Mutex<Applier>,
    vault: Mutex<Applier>,
    failure: OnceLock<WalFailure>,
    /// Who writes for those who do not wait.
    scribe: Flusher,
}

/// What whoever posts is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplierRequest {
    /// To sync what it has posted.
    Sync,
    /// Not to wait for more: somebody wants to read.
    Post,
}

/// Who posts into a database.
#[derive(Default)]
enum Applier {
    /// Nobody has come yet.
    #[default]
    Nobody,
    /// Somebody who can be asked for something.
    There(Box<dyn Fn(ApplierRequest) + Send + Sync>),
    /// It has synced everything.
    Gone,
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Poster")
    }
}

/// Who waits to be written.
#[derive(Debug)]
struct WalQueue {
    waiting: VecDeque<QueuedRecord>,
    /// Somebody has the pen.
    leading: bool,
    next: u64,
    /// What an earlier daemon left for the vault, which must be posted before anything is written over it.
    left: Option<UnappliedRecords>,
    /// Nothing is taken any more.
    closed: bool,
}

struct QueuedRecord {
    number: u64,
    page: WalRecord,
    /// Everything is to be overwritten when it is posted.
    wipe: bool,
}

impl std::fmt::Debug for QueuedRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiting({})", self.number)
    }
}

/// What whoever has the pen works with.
#[derive(Debug)]
struct WriterState {
    pen: WalFile,
    /// The newest record that each side was handed, and had on disk when the book was begun at its front.
    handed: CheckpointBase,
    base: CheckpointBase,
    /// The sides were asked to sync since the book was begun.
    asked: bool,
}

impl Wal {
    /// Whether a page of this size is written here.
    pub fn fits(&self, bytes: usize) -> bool {
        bytes <= LARGEST_PAGE && self.queue().left.is_none()
    }

    /// Writes a page. It is durable when this returns.
    pub(crate) async fn write(&self, page: WalRecord) -> Result<(), StoreError> {
        self.flush_or_zero_fill(page, false).await
    }

    /// Overwrites the book, when everything in it is posted.
    pub(crate) async fn zero_fill(&self) -> Result<(), StoreError> {
        if self.queue().left.is_none() {
            self.flush_or_zero_fill(WalRecord::default(), true).await
        } else {
            Ok(())
        }
    }

    async fn flush_or_zero_fill(&self, page: WalRecord, wipe: bool) -> Result<(), StoreError> {
        let number = self.enqueue(page, wipe)?;
        self.wait_durable_async(number).await
    }

    /// Waits until everything that has a number is written, or nothing will be.
    pub async fn written(&self) {
        // Whoever comes next is told why.
        let _ = self.wait_durable_async(self.newest()).await;
    }

    /// Waits until this record is durable, and writes if nobody does and the disk is quick.
    pub async fn wait_durable_async(&self, number: u64) -> Result<(), StoreError> {
        if self.0.scribe.disk_is_slow() && self.wake_flusher() {
            return self.completion(number).await;
        }
        loop {
            let told = self.0.marks.told();
            tokio::pin!(told);
            // From here on nothing is missed.
            told.as_mut().enable();
            if let Some(written) = self.0.marks.is_durable(number) {
                return if written { Ok(()) } else { Err(self.refusal()) };
            }
            if !self.flush_as_leader() {
                told.await;
            }
        }
    }

    /// The same outside a runtime.
    pub(crate) fn flush(&self) {
        self.flush_to(self.newest());
    }

    /// Waits until this record is written, or nothing will be.
    pub(crate) fn flush_to(&self, number: u64) {
        loop {
            let seen = self.0.marks.frames();
            if self.0.marks.is_durable(number).is_some() {
                return;
            }
            if !self.flush_as_leader() {
                self.0.marks.wait_written(number, seen);
            }
        }
    }

    /// The number of the newest record.
    pub(crate) fn newest(&self) -> u64 {
        self.queue().next - 1
    }

    /// Waits until this record is durable: written by whoever writes next, or by whoever waits here if nobody does for a
    /// moment.
    pub async fn wait_or_flush(&self, number: u64) -> Result<(), StoreError> {
        tokio::select! {
            biased;
            written = self.completion(number) => written,
            () = tokio::time::sleep(A_MOMENT) => self.wait_durable_async(number).await,
        }
    }

    async fn completion(&self, number: u64) -> Result<(), StoreError> {
        loop {
            let told = self.0.marks.told();
            tokio::pin!(told);
            told.as_mut().enable();
            if let Some(written) = self.0.marks.is_durable(number) {
                return if written { Ok(()) } else { Err(self.refusal()) };
            }
            told.await;
        }
    }

    /// Has a page written before whatever is written later, or when somebody waits for it. Returns its number.
    pub fn enqueue_lazy(&self, page: WalRecord) -> Result<u64, StoreError> {
        self.enqueue(page, false)
    }

    /// What both sides were given so far.
    pub(crate) fn reached(&self) -> ReadPoint {
        self.0.marks.reached()
    }

    /// Waits until readers of this side's database see what was written so far. If nothing can be written any more, they
    /// see what was posted until then.
    pub(crate) fn wait_applied(&self, side: Target) {
        self.wait_applied_to(side, self.reached());
    }

    /// The same for what had been written when `reached` was asked for.
    pub(crate) fn wait_applied_to(&self, side: Target, reached: ReadPoint) {
        loop {
            let seen = self.0.marks.frames();
            if self.0.marks.is_applied(side, reached) {
                return;
            }
            if !self.flush_as_leader() {
                self.request(side, ApplierRequest::Post);
                self.0.marks.wait_applied(side, reached, seen);
            }
        }
    }

    /// Gives a page its number.
    fn enqueue(&self, page: WalRecord, wipe: bool) -> Result<u64, StoreError> {
        let mut queue = self.queue();
        if queue.closed || self.0.failure.get().is_some() {
            return Err(self.refusal());
        }
        let number = queue.next;
        queue.next += 1;
        for (side, part) in [(Target::Ledger, &page.ledger), (Target::Vault, &page.vault)] {
            if part.is_some() {
                self.0.marks.mark_taken(side, number);
            }
        }
        queue.waiting.push_back(QueuedRecord { number, page, wipe });
        Ok(number)
    }

    /// Takes the pen, writes a sheet of what waits, and puts it down. False if somebody has it, or nothing waits.
    fn flush_as_leader(&self) -> bool {
        let waiting: Vec<QueuedRecord> = {
            let mut queue = self.queue();
            if queue.leading || queue.waiting.is_empty() {
                return false;
            }
            queue.leading = true;
            let mut bytes = 0;
            let full = |waiting: &QueuedRecord| {
                bytes += waiting.page.bytes();
                bytes >= SHEET
            };
            let take = queue.waiting.iter().position(full).map_or(queue.waiting.len(), |last| last + 1);
            queue.waiting.drain(..take).collect()
        };
        let last = waiting.last().map_or(0, |last| last.number);
        let written = self.write_frame(waiting);
        let mut queue = self.queue();
        queue.leading = false;
        if let Err(failure) = &written {
            let _ = self.0.failure.set(failure.clone());
            // Nobody comes in any more, and nobody is left waiting.
            queue.waiting.clear();
        }
        drop(queue);
        match written {
            Ok(()) => self.0.marks.durable(last),
            Err(_) => self.0.marks.fail(),
        }
        true
    }

    /// Writes a sheet and syncs it.
    fn write_frame(&self, waiting: Vec<QueuedRecord>) -> Result<(), WalFailure> {
        let first = waiting.first().map_or(0, |first| first.number);
        let count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let mut sheet = frame::begin(waiting.len(), waiting.iter().map(|waiting| waiting.page.bytes()).sum());
        let (mut posts, mut wipe) = (Vec::with_capacity(2 * waiting.len()), false);
        for QueuedRecord { number, page, wipe: wipes } in waiting {
            let bytes = |part| Option::as_ref(part).map_or(&[][..], |part: &WalPart| &part.bytes);
            frame::push(&mut sheet, bytes(&page.ledger), bytes(&page.vault));
            posts.extend(page.ledger.map(|part| (Target::Ledger, number, part.post)));
            posts.extend(page.vault.map(|part| (Target::Vault, number, part.post)));
            wipe |= wipes;
        }
        let mut desk = self.writer_state();
        let desk = &mut *desk;
        if !desk.pen.has_room(sheet.len()) {
            self.sync_sides(desk)?;
            desk.pen.rewind();
            desk.begun();
        }
        frame::finish(&mut sheet, &self.0.book, desk.base, first, count);
        // Whoever posts gets to work while the disk does, and commits when the book is on disk.
        for (side, number, post) in posts {
            match side {
                Target::Ledger => desk.handed.ledger = number,
                Target::Vault => desk.handed.vault = number,
            }
            post(number);
        }
        let failed = |error: std::io::Error| failure(&self.0.path, &error);
        let began = Instant::now();
        desk.pen.write(&sheet).map_err(failed)?;
        self.0.scribe.record_latency(began.elapsed());
        if wipe {
            // Those who post wait for this.
            self.0.marks.durable(first + u64::from(count) - 1);
            self.sync_sides(desk)?;
            desk.pen.zero_fill().map_err(failed)?;
            desk.begun();
        } else if desk.pen.is_half_full() && !std::mem::replace(&mut desk.asked, true) {
            // So that little is left to sync when the book is full.
            self.ask_syncs();
        }
        Ok(())
    }

    /// Everything that was handed over is on disk in its database when this returns.
    fn sync_sides(&self, desk: &WriterState) -> Result<(), WalFailure> {
        self.ask_syncs();
        for (side, number) in [(Target::Ledger, desk.handed.ledger), (Target::Vault, desk.handed.vault)] {
            let is_nobody = matches!(*self.applier(side), Applier::Nobody);
            if !is_nobody && !self.0.marks.wait_synced(side, number) {
                let why = "a database could not be written";
                return Err(self.0.failure.get().cloned().unwrap_or(WalFailure::Elsewhere(why.to_owned())));
            }
        }
        Ok(())
    }

    fn ask_syncs(&self) {
        for side in [Target::Ledger, Target::Vault] {
            self.request(side, ApplierRequest::Sync);
        }
    }

    /// Asks whoever posts into this side's database for something.
    pub(crate) fn request(&self, side: Target, what: ApplierRequest) {
        if let Applier::There(ask) = &*self.applier(side) {
            ask(what);
        }
    }

    /// Whether the book has what was given this number. False if it could not be written.
    pub(crate) fn wait_durable(&self, number: u64) -> bool {
        self.0.marks.wait_durable(number)
    }

    /// Something is on its way to this side's database without the book.
    pub(crate) fn mark_bypassed(&self, side: Target) {
        self.0.marks.mark_bypassed(side);
    }

    /// Readers see everything up to `number` of this side, and so many more that went past the book.
    pub(crate) fn mark_applied(&self, side: Target, number: Option<u64>, past: usize) {
        self.0.marks.mark_applied(side, number, past);
    }

    /// What this side posted is on disk.
    pub(crate) fn mark_synced(&self, side: Target) {
        self.0.marks.mark_synced(side);
    }

    /// A database failed: nothing more is promised.
    pub(crate) fn fail(&self, why: &StoreError) {
        let _ = self.0.failure.set(WalFailure::Elsewhere(why.to_string()));
        self.0.marks.fail();
    }

    /// Why nothing can be written any more.
    pub(crate) fn refusal(&self) -> StoreError {
        self.0.failure.get().cloned().map_or(StoreError::Closed, StoreError::from)
    }

    /// The same as a sentence, if so.
    pub(crate) fn failure(&self) -> Option<String> {
        self.0.failure.get().cloned().map(|failure| StoreError::from(failure).to_string())
    }

    fn broken(&self, error: &std::io::Error) -> StoreError {
        let _ = self.0.failure.set(failure(&self.0.path, error));
        self.0.marks.fail();
        self.refusal()
    }

    fn queue(&self) -> MutexGuard<'_, WalQueue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer_state(&self) -> MutexGuard<'_, WriterState> {
        self.0.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn applier(&self, side: Target) -> MutexGuard<'_, Applier> {
        let poster = match side {
            Target::Ledger => &self.0.ledger,
            Target::Vault => &self.0.vault,
        };
        poster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriterState {
    /// The book is begun at its front: everything is on disk in the databases.
    const fn begun(&mut self) {
        self.base = self.handed;
        self.asked = false;
    }
}

impl WalRecord {
    fn bytes(&self) -> usize {
        let bytes = |part: &Option<WalPart>| part.as_ref().map_or(0, |part| part.bytes.len());
        bytes(&self.ledger) + bytes(&self.vault)
    }
}

fn failure(path: &std::path::Path, error: &std::io::Error) -> WalFailure {
    let path = path.to_owned();
    match error.kind() {
        std::io::ErrorKind::StorageFull => WalFailure::Full(path),
        _ if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
            WalFailure::Io { path, what: "disk I/O error".to_owned() }
        }
        _ => WalFailure::Io { path, what: error.to_string() },
    }
}

impl From<WalFailure> for StoreError {
    fn from(failure: WalFailure) -> Self {
        match failure {
            WalFailure::Full(path) => Self::DiskFull(path),
            WalFailure::Io { path, what } => Self::Io { path, what },
            WalFailure::Elsewhere(why) => Self::ReadOnly(why),
        }
    }
}
