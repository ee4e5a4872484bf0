//! Proxy tokens ("passes" in the product's words): tokens with which an agent's own programs may use the model proxy, or ask the
//! gate, and nothing else.
//!
//! A token identifies its holder but grants nothing: the roster and the law decide at each request. It is stored in memory only,
//! as a hash, and ends when it expires or the daemon stops.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tribune_runtime::AgentId;

use crate::error::ApiError;

/// Maximum valid tokens: many for each agent of a daemon.
const MAX_TOKENS: usize = 1_024;

/// The issued tokens, by their hash.
#[derive(Debug, Default)]
pub(super) struct ProxyTokens(Mutex<HashMap<[u8; 32], ProxyToken>>);

/// What a token is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PassScope {
    /// The model proxy.
    #[default]
    Models,
    /// The requests of `/v1/gate/`.
    Gate,
}

impl PassScope {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Models => "trbp_",
            Self::Gate => "trbq_",
        }
    }
}

#[derive(Debug)]
struct ProxyToken {
    agent: AgentId,
    scope: PassScope,
    until: Instant,
}

impl ProxyTokens {
    /// The agent that holds this token, if it is valid for `scope`.
    pub(super) fn holder(&self, token: &str, scope: PassScope) -> Option<AgentId> {
        self.holder_at(token, scope, Instant::now())
    }

    fn holder_at(&self, token: &str, scope: PassScope, now: Instant) -> Option<AgentId> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tokens.get(blake3::hash(token.as_bytes()).as_bytes())?;
        (found.scope == scope && now < found.until).then(|| found.agent.clone())
    }

    /// Issues a token.
    pub(super) fn issue(
        &self,
        agent: AgentId,
        scope: PassScope,
        time: Duration,
        now: Instant,
    ) -> Result<String, ApiError> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| ApiError::new("internal", error.to_string()))?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = format!("{}{hex}", scope.prefix());
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.retain(|_, token| now < token.until);
        if tokens.len() >= MAX_TOKENS {
            let what = format!("{MAX_TOKENS} passes are in use: wait until some expire");
            return Err(ApiError::new("too_many_requests", what));
        }
        tokens.insert(
            *blake3::hash(token.as_bytes()).as_bytes(),
            ProxyToken { agent, scope, until: now + time },
        );
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::PassScope::{Gate, Models};
    use super::*;

    #[test]
    fn a_pass_is_valid_until_it_expires_and_for_its_holder_and_scope_only() {
        let (tokens, now) = (ProxyTokens::default(), Instant::now());
        let minute = Duration::from_secs(60);
        let writer: AgentId = "writer".parse().unwrap();
        for (scope, other_scope) in [(Models, Gate), (Gate, Models)] {
            let token = tokens.issue(writer.clone(), scope, minute, now).unwrap();
            let other = tokens.issue("other".parse().unwrap(), scope, minute, now).unwrap();
            assert_ne!(token, other);
            assert_eq!(tokens.holder_at(&token, scope, now), Some(writer.clone()));
            assert_eq!(tokens.holder_at(&token, other_scope, now), None);
            assert_eq!(tokens.holder_at(&token, scope, now + minute), None);
            for wrong in ["", scope.prefix(), &token[..token.len() - 1], &token.to_uppercase()] {
                assert_eq!(tokens.holder_at(wrong, scope, now), None);
            }
            assert!(!format!("{tokens:?}").contains(&token[5..]), "only a hash is stored");
        }
    }

    #[test]
    fn the_number_of_passes_is_bounded_and_expired_ones_are_removed() {
        let (tokens, now) = (ProxyTokens::default(), Instant::now());
        let agent: AgentId = "writer".parse().unwrap();
        let issue = |at: Instant| tokens.issue(agent.clone(), Models, Duration::from_secs(60), at);
        for _ in 0..MAX_TOKENS {
            issue(now).unwrap();
        }
        assert_eq!(issue(now).unwrap_err().code, "too_many_requests");
        assert!(issue(now + Duration::from_secs(61)).is_ok());
    }
}
