//! Agents: the roster and unregistered agents that were seen, adding one, and testing whether the gate holds it.

use std::sync::Arc;

use tribune_constitution::ApprovalMode;
use tribune_records::agents::is_canary;
use tribune_records::deciders::{ChangeKind, DeciderChange};
use tribune_registry::roster::LineFault;
use tribune_registry::{RosterAgent, RosterError, backend_for};
use tribune_runtime::AgentId;
use tribune_sessions::canary::{ClearMark, ProbeStep, Tested, millis};
use tribune_sessions::session::SessionError;

use super::Answer;
use crate::api::Api;
use crate::api_types::{AgentAdd, AgentInfo, AgentList, AgentTested, TestStep};
use crate::error::{ApiError, misnamed, shortened};
use crate::principal::Principal;

impl Api {
    pub(crate) async fn agents(&self, who: &Principal) -> Answer<AgentList> {
        who.operator()?;
        let heartbeats = self.readers.read(|reader| reader.heartbeats()).await?;
        let constitution = &self.sessions.governance().policy.gate.law;
        let tools = |mandate: &str| {
            constitution.mandate(mandate).map(|mandate| mandate.tools().to_vec()).unwrap_or_default()
        };
        let mut agents: Vec<AgentInfo> = self
            .agents
            .all()
            .into_iter()
            .map(|agent| {
                let info = AgentInfo {
                    tools: tools(&agent.mandate),
                    agent_id: agent.id.to_string(),
                    name: agent.name,
                    backend: Some(agent.backend),
                    profile: agent.profile,
                    model: agent.model,
                    mandate: agent.mandate,
                    mode: agent.mode.map(|mode| mode.as_str().to_owned()),
                    standing: agent.standing,
                    pubkey: agent.pubkey,
                    accepts_from: agent.accepts_from,
                    rostered: true,
                    last_seen: None,
                    sessions: 0,
                    turns: 0,
                };
                match heartbeats.iter().find(|seen| seen.agent_id == info.agent_id) {
                    Some(seen) => info.seen(seen),
                    None => info,
                }
            })
            .collect();
        for seen in &heartbeats {
            // The agent of a canary is not listed.
            let is_canary = seen.agent_id.parse().is_ok_and(|agent| is_canary(&agent));
            if !is_canary && !agents.iter().any(|agent| agent.agent_id == seen.agent_id) {
                let mandate = tribune_constitution::DEFAULT_MANDATE.to_owned();
                let unregistered = AgentInfo {
                    agent_id: seen.agent_id.clone(),
                    name: None,
                    backend: None,
                    profile: None,
                    model: None,
                    tools: tools(&mandate),
                    mandate,
                    mode: None,
                    standing: false,
                    pubkey: None,
                    accepts_from: Vec::new(),
                    rostered: false,
                    last_seen: None,
                    sessions: 0,
                    turns: 0,
                };
                agents.push(unregistered.seen(seen));
            }
        }
        Ok(AgentList { agents })
    }

    pub(crate) async fn agent(&self, who: &Principal, id: &str) -> Answer<AgentInfo> {
        let all = self.agents(who).await?;
        all.agents.into_iter().find(|agent| agent.agent_id == id).ok_or_else(unknown_agent)
    }

    pub(crate) async fn agent_add(&self, who: &Principal, add: AgentAdd) -> Answer<AgentInfo> {
        who.operator()?;
        self.takes_work()?;
        let id: AgentId = add.agent_id.parse().map_err(|error| misnamed(&error))?;
        if self.approvers.knows(id.as_str()) {
            let what = format!(
                "`{id}` is the name of an approver, who could then decide about itself: choose another name"
            );
            return Err(ApiError::params(what));
        }
        let (home, backend, profile, model) =
            (self.sessions.governance().home.clone(), add.backend, add.profile, add.model.clone());
        let found =
            tokio::task::spawn_blocking(move || backend_for(&home, backend, profile, model.as_deref())).await;
        let (backend, profile) =
            found.map_err(|error| ApiError::new("internal", error.to_string()))?.map_err(ApiError::params)?;
        let agent = RosterAgent {
            id: id.clone(),
            name: add.name,
            backend,
            profile,
            model: add.model,
            mandate: add.mandate.unwrap_or_else(|| tribune_constitution::DEFAULT_MANDATE.to_owned()),
            mode: add.mode.as_deref().map(approval_mode).transpose()?,
            standing: add.standing,
            pubkey: add.pubkey,
            accepts_from: add.accepts_from,
        };
        self.sessions
            .governance()
            .mandate(&agent.mandate)
            .map_err(|error| ApiError::params(error.message))?;
        if !self.status.backends.contains(&agent.backend) {
            let known = self.status.backends.join(", ");
            return Err(ApiError::params(format!(
                "there is no backend `{}`: this build has {known}",
                shortened(&agent.backend)
            )));
        }
        self.agents.check(&agent).map_err(roster_error)?;
        let agents = Arc::clone(&self.agents);
        let (change, by, decider) = (ChangeKind::Added, who.opener().name, agent.decider());
        let added = self.deciders.change(DeciderChange { change, by, decider }, move || agents.add(agent));
        added.await?.map_err(roster_error)?;
        self.agent(who, id.as_str()).await
    }

    /// Runs the canary of an agent: tests whether the gate holds it.
    pub(crate) async fn agent_test(
        &self,
        who: &Principal,
        id: &str,
        absolve: ClearMark,
    ) -> Answer<AgentTested> {
        who.operator()?;
        self.takes_work()?;
        let agent: AgentId = id.parse().map_err(|error| misnamed(&error))?;
        if !self.agents.knows(&agent) {
            return Err(unknown_agent());
        }
        let by = who.opener().name;
        let tested = self.canaries.test(&agent, &by, absolve).await.map_err(SessionError::from)?;
        let Tested { trial, mark, cleared, is_excepted } = tested;
        let step = |step: ProbeStep| TestStep {
            step: step.name.to_owned(),
            ok: step.is_good,
            took_ms: millis(step.took),
            detail: step.detail,
        };
        Ok(AgentTested {
            agent_id: agent.to_string(),
            outcome: trial.outcome.as_str().to_owned(),
            detail: trial.outcome.detail().map(str::to_owned),
            mark,
            cleared: cleared.map(|grounds| grounds.as_str().to_owned()),
            excepted: is_excepted,
            steps: trial.steps.into_iter().map(step).collect(),
            took_ms: millis(trial.took),
            session_key: trial.session,
        })
    }
}

/// Parses an approval mode.
fn approval_mode(word: &str) -> Answer<ApprovalMode> {
    ApprovalMode::parse(word).ok_or_else(|| {
        let known = ApprovalMode::ALL.map(ApprovalMode::as_str).join(", ");
        ApiError::params(format!("mode must be one of {known}"))
    })
}

fn roster_error(error: RosterError) -> ApiError {
    let code = match &error {
        RosterError::Entry(LineFault::SameId { .. } | LineFault::SameKey { .. }) => "conflict",
        RosterError::Entry(_) => "invalid_params",
        RosterError::Line { .. } | RosterError::TooManyLines(_) | RosterError::Io { .. } => "storage",
    };
    ApiError::new(code, error.to_string())
}

fn unknown_agent() -> ApiError {
    SessionError::UnknownAgent(String::new()).into()
}
