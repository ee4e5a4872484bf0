//! The in-memory index of the mailbox file. A refresh reads only the bytes added since the last one.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use tribune_runtime::AgentId;

use super::super::locked_jsonl;
use super::super::locked_jsonl::Identity;
use super::line::Line;
use super::sender::SenderClass;
use super::{COMPACT_ABOVE_BYTES, GUEST_MESSAGES_PER_TURN, MAX_FILE_BYTES, MAX_LINE_BYTES, MailboxMessage};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 * 1024;

/// The state of the file up to `read`.
#[derive(Debug, Default)]
pub(super) struct Index {
    source: Option<Source>,
    /// INVARIANT: the start of a line, or, if `overlong`, an offset inside a line that is skipped.
    read: u64,
    /// Length of the file at the last refresh.
    seen_len: u64,
    overlong: bool,
    /// Offset of the first message that is not indexed before the next compaction, because it is beyond [`MAX_FILE_BYTES`].
    overflow: Option<u64>,
    malformed: u64,
    ids: HashMap<String, Mark>,
    /// By offset in the file, which is by age.
    unread: HashMap<AgentId, BTreeMap<u64, Stored>>,
    /// Bytes of the lines of unread messages.
    kept_bytes: u64,
}

/// The open file. While it is open, its inode number is not reused.
#[derive(Debug)]
struct Source {
    file: File,
    identity: Identity,
}

#[derive(Debug)]
enum Mark {
    Unread { to: AgentId, at: u64 },
    Acknowledged,
}

#[derive(Debug)]
struct Stored {
    message: MailboxMessage,
    /// Including the newline.
    line_bytes: u64,
}

impl Stored {
    fn is_of(&self, class: SenderClass) -> bool {
        SenderClass::of(&self.message.from) == class
    }
}

/// The parts of the file that a compaction keeps.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// Offset and length of the lines of unread messages, in the order of the file.
    pub(super) lines: Vec<(u64, u64)>,
    /// Everything from this offset on is kept unchanged.
    pub(super) rest_from: u64,
}

impl Index {
    /// Reads the bytes that were added. A file that was truncated or replaced is read from its start.
    pub(super) fn refresh(&mut self, path: &Path) -> io::Result<()> {
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                *self = Self::default();
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let known = self.source.as_ref().is_some_and(|source| source.identity == Identity::of(&found));
        if !known || found.len() < self.seen_len {
            let file = locked_jsonl::open_to_read(path)?;
            let identity = Identity::of(&file.metadata()?);
            *self = Self { source: Some(Source { file, identity }), ..Self::default() };
        }
        self.read_on()
    }

    /// The oldest unread messages. Those of guests beyond their share wait for a later turn.
    pub(super) fn unread(&self, to: &AgentId, most: usize) -> Vec<MailboxMessage> {
        let mut of_guests = 0;
        let messages = self.unread.get(to).into_iter().flat_map(BTreeMap::values).filter(|stored| {
            of_guests += usize::from(stored.is_of(SenderClass::Guest));
            !stored.is_of(SenderClass::Guest) || of_guests <= GUEST_MESSAGES_PER_TURN
        });
        messages.take(most).map(|stored| stored.message.clone()).collect()
    }

    /// Number of unread messages of an agent from a class of senders, and the bytes of their lines.
    pub(super) fn waiting(&self, to: &AgentId, from: SenderClass) -> (usize, u64) {
        let messages = self.unread.get(to).into_iter().flat_map(BTreeMap::values);
        messages
            .filter(|stored| stored.is_of(from))
            .fold((0, 0), |(count, bytes), stored| (count + 1, bytes + stored.line_bytes))
    }

    /// Bytes of the lines of all unread messages from a class of senders.
    pub(super) fn bytes_of(&self, from: SenderClass) -> u64 {
        let messages = self.unread.values().flat_map(BTreeMap::values);
        messages.filter(|stored| stored.is_of(from)).map(|stored| stored.line_bytes).sum()
    }

    /// Whether a message with this id is in the file, read or unread.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.ids.contains_key(id)
    }

    pub(super) fn is_unread(&self, id: &str) -> bool {
        matches!(self.ids.get(id), Some(Mark::Unread { .. }))
    }

    pub(super) fn malformed(&self) -> u64 {
        self.malformed
    }

    /// The parts that a compaction of the file `identity` keeps, if one is due: the file is large and at most half of it is
    /// unread.
    pub(super) fn compaction(&self, identity: Identity) -> Option<Kept> {
        let source = self.source.as_ref()?;
        let rest_from = self.overflow.unwrap_or(self.read);
        let due = rest_from > COMPACT_ABOVE_BYTES && self.kept_bytes <= rest_from / 2;
        (due && source.identity == identity).then(|| {
            let messages = self.unread.values().flatten();
            let mut lines: Vec<_> = messages.map(|(&at, stored)| (at, stored.line_bytes)).collect();
            lines.sort_unstable();
            Kept { lines, rest_from }
        })
    }

    fn read_on(&mut self) -> io::Result<()> {
        let Some(source) = self.source.take() else { return Ok(()) };
        let read = self.read_from(&source.file);
        self.source = Some(source);
        read
    }

    fn read_from(&mut self, file: &File) -> io::Result<()> {
        // A fixed end, so that a fast writer cannot keep this loop running.
        let until = file.metadata()?.len();
        if until == self.seen_len {
            return Ok(());
        }
        let mut chunk = vec![0; CHUNK_BYTES];
        // Bytes read beyond `self.read`.
        let mut pending = Vec::new();
        loop {
            let at = self.read + pending.len() as u64;
            let most =
                usize::try_from(until.saturating_sub(at)).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let got = match file.read_at(&mut chunk[..most], at) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            pending.extend_from_slice(&chunk[..got]);
            let mut taken = 0;
            while let Some(len) = memchr::memchr(b'\n', &pending[taken..]) {
                self.take(&pending[taken..taken + len]);
                taken += len + 1;
            }
            pending.drain(..taken);
            if pending.len() > MAX_LINE_BYTES {
                self.overlong = true;
                self.read += pending.len() as u64;
                pending.clear();
            }
        }
        self.seen_len = until;
        Ok(())
    }

    /// Indexes one line, given without its newline.
    fn take(&mut self, line: &[u8]) {
        let at = self.read;
        let line_bytes = line.len() as u64 + 1;
        self.read += line_bytes;
        if std::mem::take(&mut self.overlong) || line.len() > MAX_LINE_BYTES {
            self.malformed += 1;
            return;
        }
        if line.trim_ascii().is_empty() {
            return;
        }
        match Line::parse(line) {
            None => self.malformed += 1,
            Some(Line::Ack(id)) => self.acknowledge(&id),
            Some(Line::Message(_)) if at >= MAX_FILE_BYTES => {
                self.overflow.get_or_insert(at);
            }
            Some(Line::Message(message)) => self.keep(at, Stored { message, line_bytes }),
        }
    }

    fn keep(&mut self, at: u64, stored: Stored) {
        let MailboxMessage { id, to, .. } = &stored.message;
        if self.knows(id) {
            return;
        }
        self.ids.insert(id.clone(), Mark::Unread { to: to.clone(), at });
        self.kept_bytes += stored.line_bytes;
        self.unread.entry(to.clone()).or_default().insert(at, stored);
    }

    fn acknowledge(&mut self, id: &str) {
        let Some(mark) = self.ids.get_mut(id) else { return };
        let Mark::Unread { to, at } = std::mem::replace(mark, Mark::Acknowledged) else { return };
        if let Some(messages) = self.unread.get_mut(&to) {
            if let Some(stored) = messages.remove(&at) {
                self.kept_bytes -= stored.line_bytes;
            }
            if messages.is_empty() {
                self.unread.remove(&to);
            }
        }
    }
}
