//! The transcript of a session, a plain file for people to read: `agents/AGENT/sessions/KEY.jsonl`, one JSON object per
//! line.
//!
//! It is a projection and no evidence: it is not synced, its oldest turns are dropped, and nothing recorded is lost with
//! it. It must not disclose anything: secrets are removed before anything is written, and of conversations with external
//! people only the output of the agent is kept.
//!
//! The size is read from the file system at each turn. Turns are counted from the file once, at the first turn that this
//! process adds, and in memory from then on; a session has one owner, so nothing else appends to the file. When a bound
//! is exceeded, the file is rewritten to three quarters of it, so that a full file is not rewritten at every turn.
//!
//! All functions block.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tribune_ledger::Timestamp;
use tribune_redact::Redactor;
use tribune_runtime::{Role, SessionKey};
use tribune_storage::files;
use tribune_storage::files::Secrecy;

/// Channels on which the operator speaks; `subagent` takes their place in the key of a sub-agent. All other channels
/// are external.
const LOCAL_CHANNELS: [&str; 4] = ["cli", "rpc", "web", "subagent"];

/// Marks where a text was truncated.
const CUT_MARK: &str = "… [cut]";

/// Minimum bytes for each line of a turn that is too large, enough for its names and some text. Lines that would get
/// less are left out, the oldest first.
const MIN_LINE_BYTES: u64 = 256;

/// One message of a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TranscriptLine {
    /// The turn it belongs to.
    pub(crate) turn: String,
    pub(crate) role: Role,
    pub(crate) text: String,
    pub(crate) at: Timestamp,
}

/// The bounds of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptLimits {
    pub max_bytes: u64,
    pub max_turns: u64,
}

/// Why a transcript could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TranscriptError {
    #[error("`{0}` is a link or another kind of file than expected: move it away to continue the transcript")]
    InTheWay(PathBuf),
    #[error("`{path}` cannot be written ({error}): check the disk and the owner of the folder")]
    Io { path: PathBuf, error: io::Error },
}

/// The file of one session. The session is its only writer.
#[derive(Debug)]
pub(crate) struct Transcript {
    /// The folders from the home root down to the file's own.
    folders: [PathBuf; 3],
    path: PathBuf,
    keeps: KeptRoles,
    limits: TranscriptLimits,
    redactor: Redactor,
    /// Number of turns in the file; `None` until they are counted, and again after an error.
    turns: Mutex<Option<u64>>,
}

/// Whose messages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptRoles {
    Everyone,
    /// The external person did not agree to a copy on this instance.
    AssistantOnly,
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    at: Timestamp,
    role: Role,
    text: &'a str,
    turn: &'a str,
}

impl Transcript {
    /// The transcript of `key` under the home `root`. Does not access the disk yet.
    pub(crate) fn new(root: &Path, key: &SessionKey, limits: TranscriptLimits, redactor: Redactor) -> Self {
        let agents = root.join("agents");
        let agent = agents.join(key.agent().as_str());
        let sessions = agent.join("sessions");
        let path = sessions.join(format!("{key}.jsonl"));
        let keeps = if is_external(key) { KeptRoles::AssistantOnly } else { KeptRoles::Everyone };
        Self { folders: [agents, agent, sessions], path, keeps, limits, redactor, turns: Mutex::new(None) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds one turn with a single write.
    pub(crate) fn append_turn(&self, lines: &[TranscriptLine]) -> Result<(), TranscriptError> {
        let fresh = self.encoded(lines);
        if fresh.is_empty() {
            return Ok(());
        }
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // The number is unknown until this succeeds.
        let counted = turns.take();
        self.prepare_folders()?;
        let mut file = self.open()?;
        let appended = self.append(&mut file, counted, &fresh);
        *turns = Some(appended.map_err(|error| self.io_error(error))?);
        Ok(())
    }

    /// Whether the file has lines of this turn.
    pub(crate) fn has_turn(&self, turn: &str) -> Result<bool, TranscriptError> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.io_error(error)),
            Ok(_) => {}
        }
        let file = self.open()?;
        let mut content = Vec::new();
        // Reads `max_bytes` from the end: a newest turn is in there, even if an operator made the file longer by hand.
        let bytes = file.metadata().map_err(|error| self.io_error(error))?.len();
        let mut tail = &file;
        tail.seek(SeekFrom::Start(bytes.saturating_sub(self.limits.max_bytes)))
            .and_then(|_| tail.take(self.limits.max_bytes).read_to_end(&mut content))
            .map_err(|error| self.io_error(error))?;
        let lines = content.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(turn_of).any(|name| name == turn))
    }

    /// Removes the file, if there is one.
    pub(crate) fn forget(&self) -> Result<(), TranscriptError> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        *turns = None;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.io_error(error)),
            _ => Ok(()),
        }
    }

    /// Appends or rewrites. Returns the number of turns in the file.
    fn append(&self, file: &mut File, counted: Option<u64>, fresh: &[u8]) -> io::Result<u64> {
        let bytes = file.metadata()?.len();
        if bytes.saturating_add(fresh.len() as u64) <= self.limits.max_bytes {
            let turns = match counted {
                _ if bytes == 0 => Some(0),
                Some(turns) => Some(turns),
                None => count_turns(file)?,
            };
            if let Some(turns) = turns.filter(|turns| *turns < self.limits.max_turns) {
                file.write_all(fresh)?;
                return Ok(turns + 1);
            }
        }
        self.rewrite(file, bytes, fresh)
    }

    /// KeptRoles the newest turns that fit three quarters of the bounds, with the new one at the end.
    fn rewrite(&self, file: &mut File, bytes: u64, fresh: &[u8]) -> io::Result<u64> {
        let TranscriptLimits { max_bytes, max_turns } = self.limits;
        let start = bytes.saturating_sub(max_bytes);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.take(max_bytes).read_to_end(&mut tail)?;
        let mut turns = turns_in(&tail);
        if start > 0 && !turns.is_empty() {
            // The first turn may have started before the part that was read.
            turns.remove(0);
        }
        let mut room = (max_bytes - max_bytes / 4).saturating_sub(fresh.len() as u64);
        let most = (max_turns - max_turns / 4).saturating_sub(1);
        let mut kept: u64 = 0;
        let mut from = tail.len();
        let mut to = from;
        for turn in turns.iter().rev() {
            let size = turn.len() as u64;
            if kept == most || size > room {
                break;
            }
            if kept == 0 {
                to = turn.end;
            }
            (kept, room, from) = (kept + 1, room - size, turn.start);
        }
        let mut content = tail[from..to].to_vec();
        content.extend_from_slice(fresh);
        files::replace(&self.path, &content, Secrecy::Owner)?;
        Ok(kept + 1)
    }

    /// The encoded lines of a turn, at most `max_bytes`.
    fn encoded(&self, lines: &[TranscriptLine]) -> Vec<u8> {
        let kept =
            lines.iter().filter(|line| self.keeps == KeptRoles::Everyone || line.role == Role::Assistant);
        let redacted: Vec<(&TranscriptLine, _)> =
            kept.map(|line| (line, self.redactor.redact(&line.text))).collect();
        let whole: Vec<u8> = redacted.iter().flat_map(|(line, text)| encode(line, text)).collect();
        if whole.len() as u64 <= self.limits.max_bytes {
            return whole;
        }
        let fits = usize::try_from(self.limits.max_bytes / MIN_LINE_BYTES).unwrap_or(usize::MAX).max(1);
        let newest = &redacted[redacted.len().saturating_sub(fits)..];
        let share = self.limits.max_bytes / newest.len() as u64;
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        newest.iter().flat_map(|(line, text)| encode_cut(line, text, share)).collect()
    }

    /// Creates missing folders with access for their owner only. Follows no link.
    fn prepare_folders(&self) -> Result<(), TranscriptError> {
        for folder in &self.folders {
            let found = match fs::symlink_metadata(folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    match DirBuilder::new().mode(0o700).create(folder) {
                        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                            return Err(self.io_error(error));
                        }
                        _ => fs::symlink_metadata(folder),
                    }
                }
                found => found,
            };
            if !found.map_err(|error| self.io_error(error))?.is_dir() {
                return Err(TranscriptError::InTheWay(folder.clone()));
            }
        }
        Ok(())
    }

    fn open(&self) -> Result<File, TranscriptError> {
        // Non-blocking: a pipe in the place of the file must not block the session.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
        let file = options.open(&self.path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP | Errno::ISDIR) => TranscriptError::InTheWay(self.path.clone()),
            _ => self.io_error(error),
        })?;
        if !file.metadata().map_err(|error| self.io_error(error))?.is_file() {
            return Err(TranscriptError::InTheWay(self.path.clone()));
        }
        Ok(file)
    }

    fn io_error(&self, error: io::Error) -> TranscriptError {
        TranscriptError::Io { path: self.path.clone(), error }
    }
}

/// Whether the other side is external. The channel is found by its position in the key, since a peer may be called
/// `subagent` too.
fn is_external(key: &SessionKey) -> bool {
    key.as_str().split(':').nth(2).is_none_or(|channel| !LOCAL_CHANNELS.contains(&channel))
}

fn encode(line: &TranscriptLine, text: &str) -> Vec<u8> {
    let kept = Line { at: line.at, role: line.role, text, turn: &line.turn };
    // Strings and a timestamp always serialize to JSON.
    let mut encoded = serde_json::to_vec(&kept).unwrap_or_default();
    encoded.push(b'\n');
    encoded
}

/// The line in at most `share` bytes: whole, truncated, or empty if not even its names fit.
fn encode_cut(line: &TranscriptLine, text: &str, share: usize) -> Vec<u8> {
    let whole = encode(line, text);
    if whole.len() <= share {
        return whole;
    }
    let Some(mut room) = share.checked_sub(encode(line, CUT_MARK).len()) else { return Vec::new() };
    let mut end = 0;
    for c in text.chars() {
        let size = match c {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{C}' => 2,
            '\0'..='\u{1F}' => 6,
            c => c.len_utf8(),
        };
        let Some(left) = room.checked_sub(size) else { break };
        (room, end) = (left, end + c.len_utf8());
    }
    encode(line, &format!("{}{CUT_MARK}", &text[..end]))
}

/// Number of turns in the file, or `None` if its last line is incomplete.
fn count_turns(file: &mut File) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(0))?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let whole = content.ends_with(b"\n");
    Ok(whole.then(|| turns_in(&content).len() as u64))
}

/// The byte range of each turn: adjacent lines with the same turn. An unreadable line belongs to the turn before it; an
/// incomplete last line belongs to none.
fn turns_in(content: &[u8]) -> Vec<Range<usize>> {
    let mut turns: Vec<Range<usize>> = Vec::new();
    let mut current: Option<String> = None;
    let mut start = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let end = start + line.len();
        let name = turn_of(line);
        match turns.last_mut() {
            Some(turn) if name.is_none() || name == current => turn.end = end,
            _ => {
                turns.push(start..end);
                current = name;
            }
        }
        start = end;
    }
    turns
}

/// The turn of a line, if it can be read.
fn turn_of(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct TurnField {
        turn: String,
    }
    serde_json::from_slice::<TurnField>(line).ok().map(|line| line.turn)
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
