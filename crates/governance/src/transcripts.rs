//! The transcripts of all sessions, if they are enabled.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tribune_redact::Redactor;
use tribune_runtime::SessionKey;

use super::transcript::{Transcript, TranscriptError, TranscriptLimits, TranscriptLine};

/// Whether turns are written to files for people to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    On,
    Off,
}

/// Transcripts by session.
#[derive(Debug)]
pub struct Transcripts {
    root: PathBuf,
    limits: TranscriptLimits,
    redactor: Redactor,
    projection: Projection,
    open: Mutex<HashMap<SessionKey, Arc<Transcript>>>,
}

impl Transcripts {
    pub fn new(root: PathBuf, limits: TranscriptLimits, redactor: Redactor, projection: Projection) -> Self {
        Self { root, limits, redactor, projection, open: Mutex::default() }
    }

    pub(crate) fn path(&self, key: &SessionKey) -> PathBuf {
        self.transcript(key).path().to_owned()
    }

    /// Appends a turn. Blocks on the disk.
    pub(crate) fn append_turn(
        &self,
        key: &SessionKey,
        lines: &[TranscriptLine],
    ) -> Result<(), TranscriptError> {
        match self.projection {
            Projection::On => self.transcript(key).append_turn(lines),
            Projection::Off => Ok(()),
        }
    }

    /// Appends a turn unless it is in the file already. Blocks on the disk.
    pub(crate) fn append_missing(
        &self,
        key: &SessionKey,
        lines: &[TranscriptLine],
    ) -> Result<(), TranscriptError> {
        let Some(first) = lines.first().filter(|_| self.projection == Projection::On) else { return Ok(()) };
        let transcript = self.transcript(key);
        if transcript.has_turn(&first.turn)? { Ok(()) } else { transcript.append_turn(lines) }
    }

    /// Removes the file of a session, also if transcripts are disabled now.
    pub(crate) fn forget(&self, key: &SessionKey) -> Result<(), TranscriptError> {
        self.transcript(key).forget()?;
        self.unload(key);
        Ok(())
    }

    /// Drops the state of a closed session; its file stays.
    pub(crate) fn unload(&self, key: &SessionKey) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn transcript(&self, key: &SessionKey) -> Arc<Transcript> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Transcript::new(&self.root, key, self.limits, self.redactor.clone()));
        Arc::clone(open.entry(key.clone()).or_insert_with(fresh))
    }
}

#[cfg(test)]
mod tests {
    use tribune_runtime::Role;

    use super::*;

    /// A start that is killed between the transcript and the ledger handles the same turn again.
    #[test]
    fn a_turn_in_the_file_is_not_added_again() {
        let home = tempfile::tempdir().unwrap();
        let key: SessionKey = "agent:main:cli:local:dm:op".parse().unwrap();
        let at = "2026-11-15T19:41:04.000000Z".parse().unwrap();
        let line =
            |turn: &str| TranscriptLine { turn: turn.to_owned(), role: Role::User, text: "x".to_owned(), at };
        let all = |projection| {
            let limits = TranscriptLimits { max_bytes: 1 << 20, max_turns: 10 };
            Transcripts::new(home.path().to_owned(), limits, Redactor::new(), projection)
        };
        let (on, off) = (all(Projection::On), all(Projection::Off));
        off.append_missing(&key, &[line("0")]).unwrap();
        assert!(!on.path(&key).exists(), "disabled");
        for turn in ["1", "1", "2", "1"] {
            on.append_missing(&key, &[line(turn)]).unwrap();
        }
        let kept = std::fs::read_to_string(on.path(&key)).unwrap();
        assert_eq!(kept.lines().count(), 2, "{kept}");
    }
}
