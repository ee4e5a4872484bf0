//! The transcripts of all sessions, where they are wanted.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tribune_agents::SessionKey;
use tribune_redact::Redactor;

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

    pub fn path(&self, key: &SessionKey) -> PathBuf {
        self.transcript(key).path().to_owned()
    }

    /// Adds a turn. Blocks on the disk.
    pub fn append_turn(&self, key: &SessionKey, lines: &[TranscriptLine]) -> Result<(), TranscriptError> {
        match self.projection {
            Projection::On => self.transcript(key).append_turn(lines),
            Projection::Off => Ok(()),
        }
    }

    /// Removes what was written, whether or not more would be.
    pub fn forget(&self, key: &SessionKey) -> Result<(), TranscriptError> {
        self.transcript(key).forget()?;
        self.let_go(key);
        Ok(())
    }

    /// The session is closed; its file stays.
    pub fn let_go(&self, key: &SessionKey) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn transcript(&self, key: &SessionKey) -> Arc<Transcript> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Transcript::new(&self.root, key, self.limits, self.redactor.clone()));
        Arc::clone(open.entry(key.clone()).or_insert_with(fresh))
    }
}
