//! Stage `registry`: loads the roster and the approvers, and opens the mailbox and the board. A missing roster gets the default
//! agents.

use std::sync::Arc;

use tribune_config::Config;
use tribune_redact::Redactor;
use tribune_registry::{Agents, Approvers, Board, DEFAULT_ROSTER, Mailbox};

use super::StartContext;
use crate::start_error::StartError;
use crate::state_folder::write_if_missing;

/// The agents and the people, and how they reach each other.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) agents: Arc<Agents>,
    pub(crate) approvers: Arc<Approvers>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) board: Arc<Board>,
}

/// Loads the registry. `redactor` removes secrets from mailbox messages.
pub(crate) fn load(context: StartContext<'_>, redactor: &Redactor) -> Result<Registry, StartError> {
    let StartContext { home, config, .. } = context;
    let data = home.root().join("data");
    let roster = data.join("agent-roster.jsonl");
    write_if_missing(&roster, DEFAULT_ROSTER.as_bytes())?;
    let agents = Arc::new(Agents::load(roster)?);
    check_standing(agents.standing().len(), config)?;
    let approvers = Arc::new(Approvers::load(data.join("approvers.json"))?);
    let mailbox = Arc::new(Mailbox::new(data.join("agent-mailbox.jsonl")).with_redactor(redactor.clone()));
    let board = Arc::new(Board::new(home.root().join("board.md")));
    Ok(Registry { agents, approvers, mailbox, board })
}

/// Checks that `sessions.maxOpen` has room for all standing agents.
pub fn check_standing(standing: usize, config: &Config) -> Result<(), StartError> {
    let max_open = config.sessions.max_open;
    if standing <= max_open { Ok(()) } else { Err(StartError::TooManyStanding { standing, max_open }) }
}
