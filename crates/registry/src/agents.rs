//! The roster of the running daemon: loaded at the start, and again whenever an agent is added.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use tribune_records::deciders::Decider;
use tribune_runtime::AgentId;

use super::roster::{Roster, RosterAgent, RosterError};

/// The shared, current roster.
#[derive(Debug)]
pub struct Agents {
    path: PathBuf,
    roster: RwLock<Arc<Roster>>,
}

impl Agents {
    pub fn load(path: PathBuf) -> Result<Self, RosterError> {
        let roster = Roster::load(&path)?;
        Ok(Self { path, roster: RwLock::new(Arc::new(roster)) })
    }

    fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn agent(&self, id: &AgentId) -> Option<RosterAgent> {
        self.roster().agent(id).cloned()
    }

    pub fn knows(&self, id: &AgentId) -> bool {
        self.roster().agent(id).is_some()
    }

    pub fn by_pubkey(&self, pubkey: &str) -> Option<RosterAgent> {
        self.roster().by_pubkey(pubkey).cloned()
    }

    pub fn standing(&self) -> Vec<RosterAgent> {
        self.roster().standing().cloned().collect()
    }

    /// In the order of the file.
    pub fn all(&self) -> Vec<RosterAgent> {
        self.roster().iter().cloned().collect()
    }

    /// All agents, as entries about changes name them.
    pub fn deciders(&self) -> Vec<Decider> {
        self.roster().iter().map(RosterAgent::decider).collect()
    }

    /// Whether an agent could be added. Nothing is changed.
    pub fn check(&self, agent: &RosterAgent) -> Result<(), RosterError> {
        self.roster().check(agent)
    }

    /// Adds an agent to the file and to the shared roster.
    pub fn add(&self, agent: RosterAgent) -> Result<(), RosterError> {
        let mut roster = self.roster.write().unwrap_or_else(PoisonError::into_inner);
        *roster = Arc::new(Roster::add(&self.path, agent)?);
        Ok(())
    }
}
