//! Proxy tokens ("passes"): tokens with which an agent's own programs may use the model proxy, and nothing else. The operator
//! issues them, or the agent requests one over the connection on which it proved its key.
//!
//! A pass identifies its holder but grants no model: the roster decides that at each request. It is stored in memory only, as a
//! hash, and ends when it expires or the daemon stops.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tribune_runtime::AgentId;

use crate::{Api, ApiError, Principal};

/// Maximum valid passes: many for each agent of a daemon.
const MAX_PASSES: usize = 1_024;

/// The default and the maximum lifetime of a pass.
const DEFAULT_MINUTES: u32 = 60;
const MAX_MINUTES: u32 = 24 * 60;

/// The params of `proxy.pass`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassAsk {
    /// The agent that the pass is for; an agent may omit it.
    #[serde(default)]
    pub agent_id: Option<String>,
    #[serde(default)]
    pub minutes: Option<u32>,
}

/// A new pass. The token is shown only once.
#[derive(Debug, Clone, Serialize)]
pub struct PassGiven {
    pub agent_id: String,
    pub token: String,
    pub minutes: u32,
    /// The model that the agent may use.
    pub model: String,
}

/// The issued passes, by the hash of their token.
#[derive(Debug, Default)]
pub(super) struct Passes(Mutex<HashMap<[u8; 32], Pass>>);

#[derive(Debug)]
struct Pass {
    agent: AgentId,
    until: Instant,
}

impl Passes {
    /// The agent that holds this token, if it is a valid pass.
    pub(super) fn holder(&self, token: &str) -> Option<AgentId> {
        self.holder_at(token, Instant::now())
    }

    fn holder_at(&self, token: &str, now: Instant) -> Option<AgentId> {
        let passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pass = passes.get(blake3::hash(token.as_bytes()).as_bytes())?;
        (now < pass.until).then(|| pass.agent.clone())
    }

    /// Issues a pass and returns its token.
    fn give(&self, agent: AgentId, time: Duration, now: Instant) -> Result<String, ApiError> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| ApiError::new("internal", error.to_string()))?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = format!("trbp_{hex}");
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        passes.retain(|_, pass| now < pass.until);
        if passes.len() >= MAX_PASSES {
            let what = format!("{MAX_PASSES} passes are in use: wait until some expire");
            return Err(ApiError::new("too_many_requests", what));
        }
        passes.insert(*blake3::hash(token.as_bytes()).as_bytes(), Pass { agent, until: now + time });
        Ok(token)
    }
}

impl Api {
    /// Issues a pass: to an agent for itself, to the operator for any agent of the roster that has a model.
    pub fn proxy_pass(&self, who: &Principal, ask: PassAsk) -> Result<PassGiven, ApiError> {
        let agent = match (who, ask.agent_id) {
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
                | Principal::Approver(_)
                | Principal::Stranger { .. }
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
        let model = self.proxy.model_of(&agent).ok_or_else(|| {
            let what =
                format!("the agent `{agent}` has no model: give it one in the roster as provider:model");
            ApiError::params(what)
        })?;
        let minutes = ask.minutes.unwrap_or(DEFAULT_MINUTES);
        if !(1..=MAX_MINUTES).contains(&minutes) {
            return Err(ApiError::params(format!("a pass is valid for 1 to {MAX_MINUTES} minutes")));
        }
        let time = Duration::from_secs(u64::from(minutes) * 60);
        let token = self.proxy.passes.give(agent.clone(), time, Instant::now())?;
        Ok(PassGiven { agent_id: agent.to_string(), token, minutes, model: model.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_valid_until_it_expires_and_for_its_holder_only() {
        let (passes, now) = (Passes::default(), Instant::now());
        let minute = Duration::from_secs(60);
        let scribe: AgentId = "scribe".parse().unwrap();
        let token = passes.give(scribe.clone(), minute, now).unwrap();
        let other = passes.give("other".parse().unwrap(), minute, now).unwrap();
        assert_ne!(token, other);
        assert_eq!(passes.holder_at(&token, now), Some(scribe));
        assert_eq!(passes.holder_at(&token, now + minute), None);
        for wrong in ["", "trbp_", &token[..token.len() - 1], &token.to_uppercase()] {
            assert_eq!(passes.holder_at(wrong, now), None);
        }
        assert!(!format!("{passes:?}").contains(&token[5..]), "only a hash is stored");
    }

    #[test]
    fn the_number_of_passes_is_bounded_and_expired_ones_are_removed() {
        let (passes, now) = (Passes::default(), Instant::now());
        let agent: AgentId = "scribe".parse().unwrap();
        for _ in 0..MAX_PASSES {
            passes.give(agent.clone(), Duration::from_secs(60), now).unwrap();
        }
        assert_eq!(
            passes.give(agent.clone(), Duration::from_secs(60), now).unwrap_err().code,
            "too_many_requests"
        );
        assert!(passes.give(agent, Duration::from_secs(60), now + Duration::from_secs(61)).is_ok());
    }
}
