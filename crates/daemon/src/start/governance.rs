//! Stage `governance`: what governs every turn. Ends the turns that an earlier daemon left unfinished, and resumes the calls
//! that wait for a person. It runs no turn.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use tribune_governance::models::AgentPrompts;
use tribune_governance::transcript::TranscriptLimits;
use tribune_governance::transcripts::{Projection, Transcripts};
use tribune_governance::turn::{
    AgentFiles, Governance, GovernanceParts, ModelRequests, Policy, Recovered, ToolExecutor,
};
use tribune_sessions::cli_agents;
use tribune_sessions::session::SessionError;

use super::StartContext;
use super::gate::GateServices;
use super::registry::Registry;
use super::secrets::Secrets;
use super::tools::ToolServices;
use crate::start_error::StartError;

/// Governance after the recovery.
#[derive(Debug)]
pub(crate) struct RecoveredGovernance {
    pub(crate) governance: Arc<Governance>,
    /// The unfinished work of an earlier daemon.
    pub(crate) recovered: Recovered,
}

/// Builds governance and recovers the work of an earlier daemon. If everything is stopped, calls that wait for a person stay
/// as they are.
pub(crate) async fn recover(
    context: StartContext<'_>,
    secrets: &Secrets,
    registry: &Registry,
    gate: &GateServices,
    tools: &ToolServices,
    background: TaskTracker,
) -> Result<RecoveredGovernance, StartError> {
    let governance = Arc::new(Governance::new(parts(context, secrets, registry, gate, tools, background)));
    let recovered = governance.recover().await?;
    governance.withdraw_unreadable().await.map_err(SessionError::from)?;
    governance.policy.out_of_turn.withdraw_interrupted_requests().await?;
    if !governance.policy.gate.is_frozen() {
        governance.resume_parked().await.map_err(SessionError::from)?;
    }
    Ok(RecoveredGovernance { governance, recovered })
}

fn parts(
    context: StartContext<'_>,
    secrets: &Secrets,
    registry: &Registry,
    gate: &GateServices,
    tools: &ToolServices,
    background: TaskTracker,
) -> GovernanceParts {
    let StartContext { home, config, storage } = context;
    let limits =
        TranscriptLimits { max_bytes: config.transcript.max_bytes, max_turns: config.transcript.max_turns };
    let projection = if config.transcript.enabled { Projection::On } else { Projection::Off };
    let redactor = (*secrets.redactor).clone();
    let session_home = home.clone();
    GovernanceParts {
        home: home.clone(),
        storage: storage.clone(),
        policy: Policy {
            gate: Arc::clone(&gate.gate),
            out_of_turn: Arc::clone(&gate.out_of_turn),
            redactor: Arc::clone(&secrets.redactor),
            turn_limit: config.sessions.turn,
        },
        agent_files: AgentFiles {
            mailbox: Arc::clone(&registry.mailbox),
            board: Arc::clone(&registry.board),
            prompts: AgentPrompts::new(home.root().to_owned()),
            transcripts: Transcripts::new(home.root().to_owned(), limits, redactor, projection),
        },
        model_requests: ModelRequests {
            budgets: Arc::clone(&gate.budgets),
            log: gate.requests.clone(),
            health: secrets.providers.answers().clone(),
        },
        tools: Arc::clone(&tools.tools) as Arc<dyn ToolExecutor>,
        on_forget: Box::new(move |session| cli_agents::forget_session(&session_home, session)),
        background,
    }
}
