//! A session as a plain file, for people to read: `agents/AGENT/sessions/KEY.jsonl`, one JSON object per line.
//!
//! It is a projection and proves nothing: it is not synced, it forgets its oldest turns, and losing it loses no record.
//! What it must not do is tell: secrets are taken out before anything is written, and of conversations with people
//! outside the house only the agent's own words are kept.
//!
//! Size is asked of the file system at each turn. Turns are counted from the file once, at the first turn this process
//! adds, and in memory from then on; a session has one owner, so nobody else adds to the file. When a bound is crossed,
//! the file is rewritten to three quarters of it, so that a full file is not rewritten at every turn.
//!
//! Everything here blocks.

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

/// Channels on which the operator speaks; `subagent` stands in their place in the key of a sub-agent. All others are
/// external.
pub const LOCAL_CHANNELS: [&str; 4] = ["cli", "rpc", "web", "subagent"];

/// Stands where a text was cut.
const CUT_MARK: &str = "… [cut]";

/// Bytes that a line of a turn that is too large gets at least, enough for its names and some words; lines that would
/// get less are left out, the oldest first.
const MIN_LINE_BYTES: u64 = 256;

/// One message as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptLine {
    /// The turn it belongs to.
    pub turn: String,
    pub role: Role,
    pub text: String,
    pub at: Timestamp,
}

/// How much of a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscriptLimits {
    pub max_bytes: u64,
    pub max_turns: u64,
}

/// Why a transcript could not be written.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    #[error(
        "`{0}` is a link or something else that does not belong there: move it away, and the transcript goes on"
    )]
    InTheWay(PathBuf),
    #[error("`{path}` cannot be written ({error}): check the disk and who owns the folder")]
    Io { path: PathBuf, error: io::Error },
}

/// The file of one session. The session is its only writer.
#[derive(Debug)]
pub struct Transcript {
    /// The folders from the home root down to the file's own.
    folders: [PathBuf; 3],
    path: PathBuf,
    keeps: Keeps,
    limits: TranscriptLimits,
    redactor: Redactor,
    /// Turns in the file; `None` until they are counted, and again after something went wrong.
    turns: Mutex<Option<u64>>,
}

/// Whose words are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Everyone,
    /// The other side did not ask for a copy in this house.
    AssistantOnly,
}

/// A line in the file.
#[derive(Serialize)]
struct Line<'a> {
    at: Timestamp,
    role: Role,
    text: &'a str,
    turn: &'a str,
}

impl Transcript {
    /// The transcript of `key` under the home `root`. Touches nothing yet.
    pub fn new(root: &Path, key: &SessionKey, limits: TranscriptLimits, redactor: Redactor) -> Self {
        let agents = root.join("agents");
        let agent = agents.join(key.agent().as_str());
        let sessions = agent.join("sessions");
        let path = sessions.join(format!("{key}.jsonl"));
        let keeps = if is_external(key) { Keeps::AssistantOnly } else { Keeps::Everyone };
        Self { folders: [agents, agent, sessions], path, keeps, limits, redactor, turns: Mutex::new(None) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds one turn with a single write.
    pub fn append_turn(&self, lines: &[TranscriptLine]) -> Result<(), TranscriptError> {
        let fresh = self.encoded(lines);
        if fresh.is_empty() {
            return Ok(());
        }
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Until this ends well, the number is unknown.
        let counted = turns.take();
        self.prepare_folders()?;
        let mut file = self.open()?;
        let appended = self.append(&mut file, counted, &fresh);
        *turns = Some(appended.map_err(|error| self.refused(error))?);
        Ok(())
    }

    /// Whether lines of this turn are in the file.
    pub fn has_turn(&self, turn: &str) -> Result<bool, TranscriptError> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.refused(error)),
            Ok(_) => {}
        }
        let file = self.open()?;
        let mut content = Vec::new();
        // What an operator made longer than that by hand says nothing of a turn that is the newest.
        let bytes = file.metadata().map_err(|error| self.refused(error))?.len();
        let mut tail = &file;
        tail.seek(SeekFrom::Start(bytes.saturating_sub(self.limits.max_bytes)))
            .and_then(|_| tail.take(self.limits.max_bytes).read_to_end(&mut content))
            .map_err(|error| self.refused(error))?;
        let lines = content.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(named).any(|named| named == turn))
    }

    /// Removes the file. It is fine if there is none.
    pub fn forget(&self) -> Result<(), TranscriptError> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        *turns = None;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.refused(error)),
            _ => Ok(()),
        }
    }

    /// Appends or rewrites, and says how many turns the file has now.
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

    /// Leaves the newest turns that fit three quarters of the bounds, with the fresh one at the end.
    fn rewrite(&self, file: &mut File, bytes: u64, fresh: &[u8]) -> io::Result<u64> {
        let TranscriptLimits { max_bytes, max_turns } = self.limits;
        let start = bytes.saturating_sub(max_bytes);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.take(max_bytes).read_to_end(&mut tail)?;
        let mut turns = turns_in(&tail);
        if start > 0 && !turns.is_empty() {
            // It may have begun before what was read.
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

    /// The lines of a turn as they go to the file, at most `max_bytes` of them.
    fn encoded(&self, lines: &[TranscriptLine]) -> Vec<u8> {
        let kept = lines.iter().filter(|line| self.keeps == Keeps::Everyone || line.role == Role::Assistant);
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

    /// Makes the folders that are missing, for their owner alone, and goes through no link.
    fn prepare_folders(&self) -> Result<(), TranscriptError> {
        for folder in &self.folders {
            let found = match fs::symlink_metadata(folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    match DirBuilder::new().mode(0o700).create(folder) {
                        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                            return Err(self.refused(error));
                        }
                        _ => fs::symlink_metadata(folder),
                    }
                }
                found => found,
            };
            if !found.map_err(|error| self.refused(error))?.is_dir() {
                return Err(TranscriptError::InTheWay(folder.clone()));
            }
        }
        Ok(())
    }

    fn open(&self) -> Result<File, TranscriptError> {
        // Without waiting, or a pipe in the file's place would hold the session for good.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
        let file = options.open(&self.path).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP | Errno::ISDIR) => TranscriptError::InTheWay(self.path.clone()),
            _ => self.refused(error),
        })?;
        if !file.metadata().map_err(|error| self.refused(error))?.is_file() {
            return Err(TranscriptError::InTheWay(self.path.clone()));
        }
        Ok(file)
    }

    fn refused(&self, error: io::Error) -> TranscriptError {
        TranscriptError::Io { path: self.path.clone(), error }
    }
}

/// Whether the other side is outside the house. The channel is looked up by its place in the key: a peer may be called
/// `subagent` too.
fn is_external(key: &SessionKey) -> bool {
    key.as_str().split(':').nth(2).is_none_or(|channel| !LOCAL_CHANNELS.contains(&channel))
}

fn encode(line: &TranscriptLine, text: &str) -> Vec<u8> {
    let kept = Line { at: line.at, role: line.role, text, turn: &line.turn };
    // Strings and a time always have a JSON form; a line without one is no line.
    let mut encoded = serde_json::to_vec(&kept).unwrap_or_default();
    encoded.push(b'\n');
    encoded
}

/// The line in at most `share` bytes: whole, cut, or not at all if there is not even room for its names.
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

/// Turns in the file, or `None` if its last line was torn.
fn count_turns(file: &mut File) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(0))?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let whole = content.ends_with(b"\n");
    Ok(whole.then(|| turns_in(&content).len() as u64))
}

/// Where each turn stands: neighbouring lines that name the same turn. A line that cannot be read belongs to the turn
/// before it; what follows the last end of line was torn and belongs to none.
fn turns_in(content: &[u8]) -> Vec<Range<usize>> {
    let mut turns: Vec<Range<usize>> = Vec::new();
    let mut current: Option<String> = None;
    let mut start = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let end = start + line.len();
        let named = named(line);
        match turns.last_mut() {
            Some(turn) if named.is_none() || named == current => turn.end = end,
            _ => {
                turns.push(start..end);
                current = named;
            }
        }
        start = end;
    }
    turns
}

/// The turn that a line belongs to, if it can be read.
fn named(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        turn: String,
    }
    serde_json::from_slice::<Named>(line).ok().map(|named| named.turn)
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
