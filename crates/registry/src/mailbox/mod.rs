//! `data/agent-mailbox.jsonl`: messages between agents, kept until they are read.
//!
//! The file is append-only, one JSON object per line: a message, or the acknowledgement of one. A message that
//! [`Mailbox::send`] accepted is durable. A malformed line is skipped and counted; other programs write to the file too, and a
//! crash can tear the last line.
//!
//! Compaction: once the file is large and at least half of it is acknowledged, it is replaced by a file with the unread
//! messages only. A writer loses nothing if it appends while holding `flock` on the file, after checking that the name still
//! refers to the same file; Tribune's own processes do so. A program that only opens, appends one line and closes is nearly as
//! safe: lines that it adds during a compaction are carried over, and a line is lost only if it is written to the old file
//! after that. Programs that need certainty send with `tribune`. No other program may rename or rewrite the file.
//!
//! This module does not decide who may write to whom, and does not check who the sender is. [`Mailbox::send`] trusts its caller
//! for the sender; any program of this user can append a line that claims another one. Delivery is at least once: a message
//! read but not acknowledged before a crash is delivered again. If two messages have the same id, the first counts, for as
//! long as it is in the file.

mod index;
mod line;
mod sender;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use index::{Index, Kept};
pub use sender::DAEMON_SENDER;
use sender::SenderClass;
use tribune_ledger::Timestamp;
use tribune_redact::Redactor;
use tribune_runtime::AgentId;
use tribune_storage::files;
use tribune_storage::files::Secrecy;

use super::locked_jsonl::{Identity, LineFile};

/// Longest message in bytes. Longer text belongs in a file whose name is sent.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Longest line in bytes, from any program. A message in which every second byte needs the longest escape still fits.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Longest id or sender in bytes.
pub const MAX_NAME_BYTES: usize = 128;

/// Most messages that an agent gets in one turn, so that a full mailbox does not fill the whole prompt.
pub const MESSAGES_PER_TURN: usize = 32;

/// Most of them that come from guests.
pub(crate) const GUEST_MESSAGES_PER_TURN: usize = 8;

/// Most unread messages of an agent, of each class of senders. At this limit, further ones are rejected.
pub(crate) const MAX_UNREAD: usize = 1000;

/// Most bytes of unread lines per agent and class of senders, so that an agent that never reads cannot fill the file for all.
pub(crate) const MAX_UNREAD_BYTES: u64 = 2 * 1024 * 1024;

/// Largest file in bytes. In a file that other programs made larger, messages beyond it wait for compaction.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// A smaller file is not worth compacting.
pub(crate) const COMPACT_ABOVE_BYTES: u64 = 1024 * 1024;

/// One mailbox message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailboxMessage {
    pub id: String,
    pub to: AgentId,
    /// The claimed sender; the module docs say how far it can be trusted.
    pub from: String,
    pub text: String,
    pub at: Timestamp,
}

/// The result of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The message is durable.
    Kept,
    /// A message with this id existed already; it is durable and unchanged.
    AlreadyThere,
}

/// Why a message was rejected or could not be read. Each message ends with the next step.
#[derive(Debug, thiserror::Error)]
pub enum MailboxError {
    #[error("the message is empty: write a text")]
    Empty,
    #[error(
        "the message has {0} bytes, and {MAX_TEXT_BYTES} are allowed: send it in parts, or put it in a file and send the file name"
    )]
    TextTooLong(usize),
    #[error("the message contains so many control characters that its line would be too long: remove them")]
    LineTooLong,
    #[error("this cannot be the {0} of a message: use 1 to {MAX_NAME_BYTES} letters, digits and `._+@=:/-`")]
    Name(&'static str),
    #[error("agent `{0}` has too many unread messages: wait until it has run a turn")]
    AgentFull(AgentId),
    #[error("the mailbox is full of unread messages: wait until the agents have run turns")]
    Full,
    #[error(
        "the mailbox `{path}` cannot be used ({error}): it must be a regular file that its owner can write"
    )]
    Io { path: PathBuf, error: io::Error },
}

/// The mailbox at a path. Opens nothing until it is used. Several instances, also in several processes, can use one file.
#[derive(Debug)]
pub struct Mailbox {
    path: PathBuf,
    redactor: Redactor,
    /// Serializes the writers of this process, before they wait for the file lock.
    writing: Mutex<()>,
    /// Never held while waiting for another process or an fsync.
    index: Mutex<Index>,
}

impl Mailbox {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let redactor = Redactor::new();
        Self { path: path.into(), redactor, writing: Mutex::default(), index: Mutex::default() }
    }

    /// Sets the redactor that removes secrets from messages, because the file is not encrypted.
    #[must_use]
    pub fn with_redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a message for `to`, durable when this returns. The caller vouches for `from` and chooses the id.
    pub fn send(
        &self,
        from: &str,
        to: &AgentId,
        text: &str,
        at: Timestamp,
        id: &str,
    ) -> Result<Sent, MailboxError> {
        let line = checked_line(from, to, &self.redactor.redact(text), at, id)?;
        let _writing = held(&self.writing);
        let mut file = self.lock()?;
        if self.compact_if_due(&file)? {
            file = self.lock()?;
        }
        {
            let index = self.fresh_index()?;
            if index.knows(id) {
                file.file().sync_data().map_err(|error| self.refused(error))?;
                return Ok(Sent::AlreadyThere);
            }
            let class = SenderClass::of(from);
            let (messages, bytes) = index.waiting(to, class);
            if messages >= class.most_unread() || bytes + line.len() as u64 > class.most_unread_bytes() {
                return Err(MailboxError::AgentFull(to.clone()));
            }
            if class == SenderClass::Guest && index.bytes_of(class) + line.len() as u64 > MAX_UNREAD_BYTES {
                return Err(MailboxError::Full);
            }
        }
        let len = file.len().map_err(|error| self.refused(error))?;
        if len + line.len() as u64 > SenderClass::of(from).most_file_bytes() {
            return Err(MailboxError::Full);
        }
        self.append(&file, &line)?;
        if len == 0 {
            files::sync_parent(&self.path).map_err(|error| self.refused(error))?;
        }
        Ok(Sent::Kept)
    }

    /// The oldest messages that `to` has not acknowledged, at most [`MESSAGES_PER_TURN`], and few of them from guests.
    pub fn unread(&self, to: &AgentId) -> Result<Vec<MailboxMessage>, MailboxError> {
        Ok(self.fresh_index()?.unread(to, MESSAGES_PER_TURN))
    }

    /// Marks messages as read, durable when this returns. Ignores ids that are not those of unread messages. Returns the number
    /// of marked messages.
    pub fn ack(&self, ids: &[impl AsRef<str>], at: Timestamp) -> Result<usize, MailboxError> {
        let _writing = held(&self.writing);
        let index = self.fresh_index()?;
        if !ids.iter().any(|id| index.is_unread(id.as_ref())) {
            // Return before taking the lock, which would create the file.
            return Ok(0);
        }
        drop(index);
        let file = self.lock()?;
        let mut lines = Vec::new();
        let mut marked = 0;
        {
            let index = self.fresh_index()?;
            for id in ids.iter().map(AsRef::as_ref).filter(|id| index.is_unread(id)) {
                lines.append(&mut line::of_ack(id, at).map_err(|error| self.refused(error.into()))?);
                marked += 1;
            }
        }
        if marked > 0 {
            self.append(&file, &lines)?;
            // The messages are acknowledged; if compaction fails now, the next writer tries again.
            let _ = self.compact_if_due(&file);
        }
        Ok(marked)
    }

    /// Number of malformed lines in the current file.
    pub fn malformed(&self) -> Result<u64, MailboxError> {
        Ok(self.fresh_index()?.malformed())
    }

    fn append(&self, file: &LineFile, lines: &[u8]) -> Result<(), MailboxError> {
        file.append(lines).and_then(|()| file.file().sync_data()).map_err(|error| self.refused(error))
    }

    fn lock(&self) -> Result<LineFile, MailboxError> {
        LineFile::lock(&self.path).map_err(|error| self.refused(error))
    }

    fn fresh_index(&self) -> Result<MutexGuard<'_, Index>, MailboxError> {
        let mut index = held(&self.index);
        index.refresh(&self.path).map_err(|error| self.refused(error))?;
        Ok(index)
    }

    /// Whether the file was compacted; then `locked` is the old file.
    fn compact_if_due(&self, locked: &LineFile) -> Result<bool, MailboxError> {
        let compact = || {
            let identity = Identity::of(&locked.file().metadata()?);
            let mut index = held(&self.index);
            index.refresh(&self.path)?;
            let kept = index.compaction(identity);
            drop(index);
            kept.map_or(Ok(false), |kept| self.compact(locked.file(), &kept).map(|()| true))
        };
        compact().map_err(|error| self.refused(error))
    }

    /// Replaces `old`, which is locked, by a file with the `kept` parts.
    fn compact(&self, old: &File, kept: &Kept) -> io::Result<()> {
        let mut copied_to = kept.rest_from;
        files::replace_with(&self.path, Secrecy::Owner, |fresh| {
            let mut fresh = BufWriter::new(fresh);
            for &(at, len) in &kept.lines {
                if copy(old, at, len, &mut fresh)? < len {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            copied_to += copy(old, kept.rest_from, u64::MAX, &mut fresh)?;
            fresh.flush()
        })?;
        // Lines that programs without the lock have appended to the old file meanwhile.
        let mut late = Vec::new();
        copy(old, copied_to, MAX_FILE_BYTES, &mut late)?;
        if late.is_empty() {
            return Ok(());
        }
        let fresh = LineFile::lock(&self.path)?;
        fresh.append(&late).and_then(|()| fresh.file().sync_data())
    }

    fn refused(&self, error: io::Error) -> MailboxError {
        MailboxError::Io { path: self.path.clone(), error }
    }
}

fn checked_line(
    from: &str,
    to: &AgentId,
    text: &str,
    at: Timestamp,
    id: &str,
) -> Result<Vec<u8>, MailboxError> {
    if text.is_empty() {
        return Err(MailboxError::Empty);
    }
    if text.len() > MAX_TEXT_BYTES {
        return Err(MailboxError::TextTooLong(text.len()));
    }
    for (field, name) in [("id", id), ("sender", from)] {
        if !line::is_name(name) {
            return Err(MailboxError::Name(field));
        }
    }
    let message = MailboxMessage {
        id: id.to_owned(),
        to: to.clone(),
        from: from.to_owned(),
        text: text.to_owned(),
        at,
    };
    line::of_message(message)
        .ok()
        .filter(|line| line.len() <= MAX_LINE_BYTES)
        .ok_or(MailboxError::LineTooLong)
}

/// Copies at most `len` bytes of `from`, starting at `at`.
fn copy(mut from: &File, at: u64, len: u64, to: &mut impl io::Write) -> io::Result<u64> {
    from.seek(SeekFrom::Start(at))?;
    io::copy(&mut from.take(len), to)
}

/// Ignores poisoning. After a panic the state is still consistent: the index changes one line at a time, and the writer lock
/// protects no data.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
