//! `data/agent-roster.jsonl`: the agents of this instance, one JSON object per line.
//!
//! A person edits the file, so every fault is reported with its line, and unknown fields are errors: a misspelt field could be
//! the mandate. Only the form is checked here; whether a backend or a mandate exists is checked when a session is opened.

mod line;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

pub use line::LineFault;
use rustix::fs::FlockOperation;
use tribune_constitution::ApprovalMode;
use tribune_records::agents::is_unregistered;
use tribune_records::deciders::{Decider, DeciderKind};
use tribune_runtime::AgentId;
use tribune_storage::files;
use tribune_storage::files::Secrecy;

/// Most lines of a roster: far more agents than one instance runs, and few enough to read at every start.
pub const MAX_LINES: usize = 10_000;

/// Longest line in bytes; an entry is a few names and a key.
pub const MAX_LINE_BYTES: usize = 4096;

/// The roster of a new state folder.
pub const DEFAULT_ROSTER: &str = "{\"id\":\"main\",\"name\":\"Main\",\"backend\":\"rehearsal\",\"mandate\":\"default\",\"standing\":true}\n";

/// All agents, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    agents: Vec<RosterAgent>,
    /// The line number of each agent, for errors about duplicates.
    lines: Vec<usize>,
    by_id: HashMap<AgentId, usize>,
    by_pubkey: HashMap<String, usize>,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RosterAgent {
    pub id: AgentId,
    /// Display name.
    pub name: Option<String>,
    /// The backend that runs its turns.
    pub backend: String,
    /// The profile of a CLI agent.
    pub profile: Option<String>,
    pub model: Option<String>,
    /// Name of its mandate, which is also the name of the mandate's file.
    pub mandate: String,
    /// Its approval mode; `None`: the one that the law sets.
    pub mode: Option<ApprovalMode>,
    /// Whether its session is opened before the first connection is accepted.
    pub standing: bool,
    /// `ed25519:` and 64 lowercase hex digits. A caller that proves this key is this agent.
    pub pubkey: Option<String>,
    /// The agents whose messages it gets: their ids, or [`EVERY_AGENT`]. Without any it gets none.
    pub accepts_from: Vec<String>,
}

/// Stands for all agents of the roster in [`RosterAgent::accepts_from`]. A guest is accepted under its own id only.
pub const EVERY_AGENT: &str = "*";

impl RosterAgent {
    /// This agent, as entries about changes name it.
    pub fn decider(&self) -> Decider {
        let line = line::print(self.clone()).unwrap_or_default();
        let fingerprint = crate::fingerprint(&line);
        Decider { kind: DeciderKind::Agent, id: self.id.to_string(), roles: Vec::new(), fingerprint }
    }

    /// Whether it accepts messages from this agent. Every agent accepts its own.
    pub fn accepts(&self, from: &AgentId) -> bool {
        let names =
            |name: &String| name == from.as_str() || (name == EVERY_AGENT && !is_unregistered(from.as_str()));
        *from == self.id || self.accepts_from.iter().any(names)
    }
}

/// Why a roster cannot be used. Each message ends with the next step.
#[derive(Debug, thiserror::Error)]
pub enum RosterError {
    #[error("{path}:{line}: {fault}")]
    Line { path: PathBuf, line: usize, fault: LineFault },
    #[error("the agent cannot be added to the roster: {0}")]
    Entry(LineFault),
    #[error("{0}: a roster has at most {MAX_LINES} lines: remove agents that are no longer used")]
    TooManyLines(PathBuf),
    #[error("the roster `{path}` cannot be used ({error}): check that it is a file owned by this user")]
    Io { path: PathBuf, error: io::Error },
}

impl Roster {
    /// The roster of a new home.
    pub fn initial() -> Self {
        // INVARIANT: the built-in text is a valid roster.
        Self::parse(DEFAULT_ROSTER.as_bytes(), Path::new("")).unwrap_or_default()
    }

    /// Loads the roster. A missing file is an empty roster.
    pub fn load(path: &Path) -> Result<Self, RosterError> {
        Self::parse(&content(path)?, path)
    }

    /// Appends an agent, keeps the other lines unchanged, and returns the new roster.
    pub fn add(path: &Path, agent: RosterAgent) -> Result<Self, RosterError> {
        let refused = |error| RosterError::Io { path: path.to_owned(), error };
        let _lock = lock_folder_of(path).map_err(refused)?;
        // A symlinked roster stays a symlink.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut text = content(path)?;
        let mut roster = Self::parse(&text, path)?;
        let mut new = line::print(agent).map_err(|error| refused(error.into()))?;
        // The new line is checked exactly as it will be parsed next time.
        let agent = line::parse(&new).map_err(RosterError::Entry)?;
        if text.last().is_some_and(|&last| last != b'\n') {
            text.push(b'\n');
        }
        let number = memchr::memchr_iter(b'\n', &text).count() + 1;
        if number > MAX_LINES {
            return Err(RosterError::TooManyLines(path.to_owned()));
        }
        roster.insert(agent, number).map_err(RosterError::Entry)?;
        new.push(b'\n');
        text.append(&mut new);
        files::replace(&target, &text, Secrecy::Owner).map_err(refused)?;
        Ok(roster)
    }

    /// Whether an agent could be added to this roster.
    pub fn check(&self, agent: &RosterAgent) -> Result<(), RosterError> {
        let line = line::print(agent.clone()).map_err(|error| {
            let fault = LineFault::Form { what: error.to_string(), column: error.column() };
            RosterError::Entry(fault)
        })?;
        let agent = line::parse(&line).map_err(RosterError::Entry)?;
        self.clone().insert(agent, 0).map_err(RosterError::Entry)
    }

    pub fn agent(&self, id: &AgentId) -> Option<&RosterAgent> {
        self.by_id.get(id).map(|&at| &self.agents[at])
    }

    /// The agent with this key, in the form `ed25519:` and 64 lowercase hex digits.
    pub fn by_pubkey(&self, pubkey: &str) -> Option<&RosterAgent> {
        self.by_pubkey.get(pubkey).map(|&at| &self.agents[at])
    }

    /// The agents whose sessions are opened at the start, in the order of the file.
    pub fn standing(&self) -> impl Iterator<Item = &RosterAgent> {
        self.iter().filter(|agent| agent.standing)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, RosterAgent> {
        self.agents.iter()
    }

    pub fn len(&self) -> usize {
        self.agents.len()
    }

    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    fn parse(text: &[u8], path: &Path) -> Result<Self, RosterError> {
        let mut roster = Self::default();
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let number = at + 1;
            if number > MAX_LINES {
                return Err(RosterError::TooManyLines(path.to_owned()));
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            line::parse(line)
                .and_then(|agent| roster.insert(agent, number))
                .map_err(|fault| RosterError::Line { path: path.to_owned(), line: number, fault })?;
        }
        Ok(roster)
    }

    fn insert(&mut self, agent: RosterAgent, line: usize) -> Result<(), LineFault> {
        let at = self.agents.len();
        if let Some(&first) = self.by_id.get(&agent.id) {
            return Err(LineFault::SameId { id: agent.id, line: self.lines[first] });
        }
        if let Some(pubkey) = &agent.pubkey {
            if let Some(&first) = self.by_pubkey.get(pubkey) {
                return Err(LineFault::SameKey {
                    id: self.agents[first].id.clone(),
                    line: self.lines[first],
                });
            }
            self.by_pubkey.insert(pubkey.clone(), at);
        }
        self.by_id.insert(agent.id.clone(), at);
        self.agents.push(agent);
        self.lines.push(line);
        Ok(())
    }
}

impl<'a> IntoIterator for &'a Roster {
    type Item = &'a RosterAgent;
    type IntoIter = std::slice::Iter<'a, RosterAgent>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

fn content(path: &Path) -> Result<Vec<u8>, RosterError> {
    let bound = MAX_LINES * (MAX_LINE_BYTES + 1);
    let mut text = Vec::new();
    match File::open(path).and_then(|file| file.take(bound as u64 + 1).read_to_end(&mut text)) {
        Ok(read) if read <= bound => Ok(text),
        Ok(_) => Err(RosterError::TooManyLines(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(text),
        Err(error) => Err(RosterError::Io { path: path.to_owned(), error }),
    }
}

/// Prevents concurrent additions from losing an agent. Locks the folder, because the file itself is replaced and may not exist
/// yet.
fn lock_folder_of(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let folder = File::open(folder)?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}
