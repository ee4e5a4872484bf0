//! Stage `registry`: loads the roster and the approvers, and opens the mailbox and the board. A missing roster gets the default
//! agents.

use std::sync::Arc;

use tribune_config::Config;
use tribune_governance::decider_log::DeciderLog;
use tribune_records::deciders::Decider;
use tribune_redact::Redactor;
use tribune_registry::{Agents, Approvers, Board, DEFAULT_ROSTER, Mailbox, Roster, RosterAgent};

use super::StartContext;
use crate::start_error::StartError;
use crate::state_folder::write_if_missing;

/// The agents and the people, and how they reach each other.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) agents: Arc<Agents>,
    pub(crate) approvers: Arc<Approvers>,
    pub(crate) deciders: Arc<DeciderLog>,
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
    let deciders = Arc::new(DeciderLog::new(context.storage.clone()));
    Ok(Registry { agents, approvers, deciders, mailbox, board })
}

/// Records the approvers and agents that were added, changed or removed in the files since the last start.
pub(crate) async fn record_file_changes(registry: &Registry) -> Result<(), StartError> {
    let listed = registry.approvers.deciders().into_iter().chain(registry.agents.deciders());
    let initial: Vec<Decider> = Roster::initial().iter().map(RosterAgent::decider).collect();
    let found = registry.deciders.record_file_changes(listed.collect(), &initial).await?;
    if found > 0 {
        tracing::warn!(
            changes = found,
            "approvers or agents were changed in their files: `tribune approvers list` shows them"
        );
    }
    Ok(())
}

/// Checks that `sessions.maxOpen` has room for all standing agents.
pub fn check_standing(standing: usize, config: &Config) -> Result<(), StartError> {
    let max_open = config.sessions.max_open;
    if standing <= max_open { Ok(()) } else { Err(StartError::TooManyStanding { standing, max_open }) }
}
