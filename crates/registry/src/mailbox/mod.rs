//! `data/agent-mailbox.jsonl`: what agents write to each other, kept until it was read.
//!
//! The file is only ever added to, one JSON object per line: a letter, or the acknowledgement of one. A letter that
//! [`Mailbox::send`] accepted is on the disk. A line that is not well formed (other programs write here too, and a crash
//! can tear the last one) is passed over and counted.
//!
//! Once the file is large and half of it done with, it is replaced by one with the unread letters alone. Whoever adds
//! while holding `flock` on the file, and sees after taking it that the name still leads to the same file, loses nothing:
//! our own processes do. A program that only opens, appends one line and closes is nearly as safe: what it adds while the
//! file is being rewritten is carried over, and a line is lost only if it is written to the old file after that. Programs
//! that need certainty send with `tribune`. Nobody else may rename or rewrite the file.
//!
//! Not decided here: who may write to whom, and whether a sender is who the line says. A letter that came through
//! [`Mailbox::send`] has the sender its caller vouches for; any program of this user can add a line that claims another.
//! Delivery is at least once: a letter read but not acknowledged before a crash comes again. Of two letters with one id
//! the first counts, for as long as it is in the file.

mod index;
mod line;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use index::{Index, Kept};
use tribune_ledger::Timestamp;
use tribune_redact::Redactor;
use tribune_runtime::AgentId;
use tribune_storage::files;
use tribune_storage::files::Secrecy;

use super::locked_jsonl::{Identity, LineFile};

/// Bytes of a message: a long letter. What is longer belongs in a file whose name is sent.
pub const MAX_TEXT_BYTES: usize = 16 * 1024;

/// Bytes of a line, ours or another program's: a message whose every second byte needs the longest escape still fits.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// Bytes of an id or of a sender's name.
pub const MAX_NAME_BYTES: usize = 128;

/// Letters an agent gets in one turn, so that a full mailbox does not become the whole prompt.
pub const LETTERS_PER_TURN: usize = 32;

/// Letters an agent may leave unread before no more are taken for it.
pub const MAX_UNREAD: usize = 1000;

/// Bytes of unread lines an agent may have, so that one who never reads cannot fill the file for everyone.
pub const MAX_UNREAD_BYTES: u64 = 2 * 1024 * 1024;

/// Bytes of the whole file; what stands behind them in a file that others filled waits for compaction.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// A smaller file is not worth rewriting.
pub const COMPACT_ABOVE_BYTES: u64 = 1024 * 1024;

/// One message, as it waits for its reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    pub id: String,
    pub to: AgentId,
    /// Who says they wrote it; see the module's words on senders.
    pub from: String,
    pub text: String,
    pub at: Timestamp,
}

/// What came of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The letter is on the disk.
    Kept,
    /// There was a letter with this id, which is on the disk and stays as it was.
    AlreadyThere,
}

/// Why a letter was not taken or could not be read. Each sentence ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum MailboxError {
    #[error("the message is empty: write what the other is to know")]
    Empty,
    #[error(
        "the message has {0} bytes, and {MAX_TEXT_BYTES} are allowed: send it in pieces, or put it in a file and send its name"
    )]
    TextTooLong(usize),
    #[error("the message holds so many control characters that its line would be too long: leave them out")]
    LineTooLong,
    #[error("this cannot be the {0} of a message: use 1 to {MAX_NAME_BYTES} letters, digits and `._+@=:/-`")]
    Name(&'static str),
    #[error("agent `{0}` has too many unread messages: wait until it has taken a turn")]
    AgentFull(AgentId),
    #[error("the mailbox is full of unread messages: wait until agents have taken their turns")]
    Full,
    #[error("the mailbox `{path}` cannot be used ({error}): make it a plain file that its owner can write")]
    Io { path: PathBuf, error: io::Error },
}

/// The mailbox at a path. Nothing is opened until it is used; several in several processes can use one file.
#[derive(Debug)]
pub struct Mailbox {
    path: PathBuf,
    redactor: Redactor,
    /// Our writers wait for each other here and only then for other processes.
    writing: Mutex<()>,
    /// Never held while waiting for another process or for an fsync.
    index: Mutex<Index>,
}

impl Mailbox {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let redactor = Redactor::new();
        Self { path: path.into(), redactor, writing: Mutex::default(), index: Mutex::default() }
    }

    /// With what takes secrets out of letters: they lie on disk in the clear.
    #[must_use]
    pub fn with_redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes a letter for `to`, durable when this returns. The caller vouches for `from` and makes up the id.
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
            let (letters, bytes) = index.waiting(to);
            if letters >= MAX_UNREAD || bytes + line.len() as u64 > MAX_UNREAD_BYTES {
                return Err(MailboxError::AgentFull(to.clone()));
            }
        }
        let len = file.len().map_err(|error| self.refused(error))?;
        if len + line.len() as u64 > MAX_FILE_BYTES {
            return Err(MailboxError::Full);
        }
        self.append(&file, &line)?;
        if len == 0 {
            files::sync_parent(&self.path).map_err(|error| self.refused(error))?;
        }
        Ok(Sent::Kept)
    }

    /// The oldest letters that `to` has not acknowledged, at most [`LETTERS_PER_TURN`].
    pub fn unread(&self, to: &AgentId) -> Result<Vec<Letter>, MailboxError> {
        Ok(self.fresh_index()?.unread(to, LETTERS_PER_TURN))
    }

    /// Marks letters as read, durable when this returns. Ids that are not those of unread letters are passed over. Gives
    /// back how many it marked.
    pub fn ack(&self, ids: &[impl AsRef<str>], at: Timestamp) -> Result<usize, MailboxError> {
        let _writing = held(&self.writing);
        let index = self.fresh_index()?;
        if !ids.iter().any(|id| index.is_unread(id.as_ref())) {
            // Without taking the lock, which would create the file.
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
            // The letters are acknowledged; if the file cannot be rewritten now, the next writer tries again.
            let _ = self.compact_if_due(&file);
        }
        Ok(marked)
    }

    /// Lines of the file, as it is now, that could not be understood.
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

    /// Whether the file was rewritten; then `locked` is the old one.
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

    /// Puts a file with what is `kept` in place of `old`, which is locked.
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
        // What programs that do not lock have added to the old file in the meantime.
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
    let letter =
        Letter { id: id.to_owned(), to: to.clone(), from: from.to_owned(), text: text.to_owned(), at };
    line::of_letter(letter).ok().filter(|line| line.len() <= MAX_LINE_BYTES).ok_or(MailboxError::LineTooLong)
}

/// Copies at most `len` bytes of `from`, beginning at `at`.
fn copy(mut from: &File, at: u64, len: u64, to: &mut impl io::Write) -> io::Result<u64> {
    from.seek(SeekFrom::Start(at))?;
    io::copy(&mut from.take(len), to)
}

/// What a thread that panicked left behind is whole: the index changes one line at a time, and the lock guards nothing.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
