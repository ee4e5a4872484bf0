//! Proxy tokens ("passes" in the product's words): who may request one, for which agent and for what.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::Api;
use crate::error::ApiError;
use crate::principal::Principal;
use crate::proxy::PassScope;

/// The default and the maximum lifetime of a pass.
const DEFAULT_MINUTES: u32 = 60;
const MAX_MINUTES: u32 = 24 * 60;

/// The params of `proxy.pass`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyTokenRequest {
    /// The agent that the pass is for; an agent may omit it.
    #[serde(default)]
    pub(crate) agent_id: Option<String>,
    #[serde(default)]
    pub(crate) minutes: Option<u32>,
    /// Without it: for the models.
    #[serde(default, rename = "for")]
    pub(crate) scope: PassScope,
}

/// A new pass. The token is shown only once.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct IssuedProxyToken {
    pub(crate) agent_id: String,
    pub(crate) token: String,
    pub(crate) minutes: u32,
    #[serde(rename = "for")]
    pub(crate) scope: PassScope,
    /// The model that the agent may use with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
}

impl Api {
    /// Issues a pass: to an agent for itself, to the operator for any agent of the roster. One for the models needs a model.
    pub(crate) fn proxy_pass(
        &self,
        who: &Principal,
        request: ProxyTokenRequest,
    ) -> Result<IssuedProxyToken, ApiError> {
        let agent = match (who, request.agent_id) {
            (Principal::Agent { id, .. }, None) => id.clone(),
            (Principal::Agent { id, .. }, Some(asked)) if asked == id.as_str() => id.clone(),
            (Principal::Operator, Some(asked)) => {
                asked.parse().map_err(|error| ApiError::params(format!("{error}")))?
            }
            (Principal::Operator, None) => {
                return Err(ApiError::params("agent_id is missing: it names the agent that the pass is for"));
            }
            (
                Principal::Agent { .. }
                | Principal::GatePass { .. }
                | Principal::Approver(_)
                | Principal::Unregistered { .. }
                | Principal::Anonymous { .. },
                _,
            ) => {
                return Err(ApiError::forbidden(
                    "only the operator, or an agent of the roster for itself, may request a pass",
                ));
            }
        };
        if !self.agents.knows(&agent) {
            let what = format!("there is no agent `{agent}`: add it with `tribune agents add {agent}`");
            return Err(ApiError::new("unknown_agent", what));
        }
        let model = match request.scope {
            PassScope::Gate => None,
            PassScope::Models => Some(self.proxy.model_of(&agent).ok_or_else(|| {
                ApiError::params(format!(
                    "the agent `{agent}` has no model: give it one in the roster as provider:model, or ask for a pass for the gate"
                ))
            })?),
        };
        let minutes = request.minutes.unwrap_or(DEFAULT_MINUTES);
        if !(1..=MAX_MINUTES).contains(&minutes) {
            return Err(ApiError::params(format!("a pass is valid for 1 to {MAX_MINUTES} minutes")));
        }
        let time = Duration::from_secs(u64::from(minutes) * 60);
        let token = self.proxy.issue_token(agent.clone(), request.scope, time)?;
        let (agent_id, model) = (agent.to_string(), model.map(|model| model.to_string()));
        Ok(IssuedProxyToken { agent_id, token, minutes, scope: request.scope, model })
    }
}
