//! What a client may choose for a session: the permission mode, the agent, and the model.

use serde_json::{Value, json};
use tribune_runtime::{AgentId, native};

use super::client_session::{ClientSession, SessionBinding};
use super::connection::Connection;
use super::wire::Fault;

/// How permission requests of a session are answered while its client is connected. A mode never allows what the constitution
/// denies, and it is not stored: a reconnected client starts with [`Mode::Ask`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// The first approver decides.
    #[default]
    Ask,
    /// Calls that only read are allowed.
    ApproveReads,
    ApproveAll,
    DenyAll,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Ask, Self::ApproveReads, Self::ApproveAll, Self::DenyAll];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::ApproveReads => "approve-reads",
            Self::ApproveAll => "approve-all",
            Self::DenyAll => "deny-all",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }

    /// The decision on a call of this ACP kind; `None` if a person must be asked.
    pub(super) fn answer(self, kind: &str) -> Option<&'static str> {
        match self {
            Self::Ask => None,
            Self::ApproveReads => matches!(kind, "read" | "search").then_some("allow_once"),
            Self::ApproveAll => Some("allow_once"),
            Self::DenyAll => Some("deny"),
        }
    }

    fn described(self) -> Value {
        let (name, description) = match self {
            Self::Ask => {
                ("Ask", "Every call that needs approval is asked here, and at every other approver.")
            }
            Self::ApproveReads => ("Approve reads", "Approves calls that read and search."),
            Self::ApproveAll => (
                "Approve all",
                "Approves every call, except writes to files that programs on this machine run automatically. What the rules deny stays denied.",
            ),
            Self::DenyAll => ("Deny all", "Denies every call that needs approval."),
        };
        json!({ "id": self.as_str(), "name": name, "description": description })
    }
}

/// The `modes` of a session: all of them, and the current one.
pub(super) fn modes(mode: Mode) -> Value {
    let all: Vec<Value> = Mode::ALL.into_iter().map(Mode::described).collect();
    json!({ "currentModeId": mode.as_str(), "availableModes": all })
}

/// The value of the option `model` that selects the agent's own model.
pub(super) const OWN_MODEL: &str = "default";

impl Connection {
    /// The `configOptions` of a session.
    pub(super) fn options(&self, binding: &SessionBinding) -> Vec<Value> {
        let api = &self.gateway.api;
        let roster = api.agents.all();
        let agents = roster.iter().filter(|agent| self.who.agent().is_none_or(|own| *own == agent.id));
        let mut agents: Vec<Value> = agents
            .map(|agent| {
                let name = agent.name.clone().unwrap_or_else(|| agent.id.to_string());
                let run_by = agent.profile.as_deref().or(agent.model.as_deref()).unwrap_or(&agent.backend);
                json!({ "value": agent.id, "name": name, "description": format!("run by {run_by}") })
            })
            .collect();
        let current = binding.key.agent();
        if !roster.iter().any(|agent| agent.id == *current) {
            agents.push(json!({ "value": current, "name": current }));
        }
        let mut options = vec![json!({
            "id": "agent", "name": "Agent", "type": "select", "currentValue": current, "options": agents,
            "description": "The agent of this session. It can be changed before the first prompt.",
        })];
        let talks_to_model = api.agents.agent(current).is_some_and(|agent| agent.backend == native::BACKEND);
        if talks_to_model && let Ok(survey) = api.providers(&self.who) {
            let usable = survey
                .providers
                .iter()
                .filter(|provider| provider.enabled && (provider.key_set || provider.key_env.is_none()));
            let models = usable.flat_map(|provider| &provider.models);
            let models = models.map(|model| json!({ "value": model.model, "name": model.model }));
            let own = json!({ "value": OWN_MODEL, "name": "The agent's own" });
            options.push(json!({
                "id": "model", "name": "Model", "type": "select", "category": "model",
                "currentValue": binding.model.as_deref().unwrap_or(OWN_MODEL),
                "options": std::iter::once(own).chain(models).collect::<Vec<_>>(),
            }));
        }
        options
    }

    /// The context window of the session's model in tokens, if known. CLI agents report their context usage themselves.
    pub(super) fn window(&self, session: &ClientSession) -> Option<u32> {
        let binding = session.binding().clone();
        let backend = self.gateway.api.agents.agent(binding.key.agent())?.backend;
        if binding.model.is_none() && backend != native::BACKEND {
            return None;
        }
        let survey = self.gateway.api.providers(&self.who).ok()?;
        let of_agent = survey.agents.iter().find(|agent| agent.agent_id == binding.key.agent().as_str());
        let model = binding.model.or_else(|| of_agent?.model.clone())?;
        let mut models = survey.providers.iter().flat_map(|provider| &provider.models);
        models.find(|info| info.model == model).map(|info| info.context_window)
    }

    pub(super) async fn set_mode(&self, params: &Value) -> Result<Value, Fault> {
        let session = self.session(params)?;
        let word = params["modeId"].as_str().unwrap_or_default();
        let mode = Mode::parse(word).ok_or_else(|| {
            let known = Mode::ALL.map(Mode::as_str).join(", ");
            Fault::params(format!("`modeId` is not a mode: the modes are {known}"))
        })?;
        if mode != Mode::Ask {
            // A mode decides for its principal, so the principal must be an approver.
            self.who.approver()?;
        }
        session.binding().mode = mode;
        Ok(json!({}))
    }

    /// The agent that a value of the option `agent` names.
    pub(super) fn agent_named(&self, value: &str) -> Result<AgentId, Fault> {
        let unknown = || Fault::params("`value` is not an agent: `tribune agents list` shows the agents");
        let agent: AgentId = value.parse().map_err(|_| unknown())?;
        self.gateway.api.agents.agent(&agent).map(|found| found.id).ok_or_else(unknown)
    }
}
