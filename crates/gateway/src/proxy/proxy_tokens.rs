//! Proxy tokens ("passes" in the product's words): tokens with which an agent's own programs may use the model proxy, and nothing else.
//!
//! A token identifies its holder but grants no model: the roster decides that at each request. It is stored in memory only, as a
//! hash, and ends when it expires or the daemon stops.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tribune_runtime::AgentId;

use crate::error::ApiError;

/// Maximum valid tokens: many for each agent of a daemon.
const MAX_TOKENS: usize = 1_024;

/// The issued tokens, by their hash.
#[derive(Debug, Default)]
pub(super) struct ProxyTokens(Mutex<HashMap<[u8; 32], ProxyToken>>);

#[derive(Debug)]
struct ProxyToken {
    agent: AgentId,
    until: Instant,
}

impl ProxyTokens {
    /// The agent that holds this token, if it is valid.
    pub(super) fn holder(&self, token: &str) -> Option<AgentId> {
        self.holder_at(token, Instant::now())
    }

    fn holder_at(&self, token: &str, now: Instant) -> Option<AgentId> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = tokens.get(blake3::hash(token.as_bytes()).as_bytes())?;
        (now < found.until).then(|| found.agent.clone())
    }

    /// Issues a token.
    pub(super) fn issue(&self, agent: AgentId, time: Duration, now: Instant) -> Result<String, ApiError> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| ApiError::new("internal", error.to_string()))?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = format!("trbp_{hex}");
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.retain(|_, token| now < token.until);
        if tokens.len() >= MAX_TOKENS {
            let what = format!("{MAX_TOKENS} passes are in use: wait until some expire");
            return Err(ApiError::new("too_many_requests", what));
        }
        tokens.insert(*blake3::hash(token.as_bytes()).as_bytes(), ProxyToken { agent, until: now + time });
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_valid_until_it_expires_and_for_its_holder_only() {
        let (tokens, now) = (ProxyTokens::default(), Instant::now());
        let minute = Duration::from_secs(60);
        let writer: AgentId = "writer".parse().unwrap();
        let token = tokens.issue(writer.clone(), minute, now).unwrap();
        let other = tokens.issue("other".parse().unwrap(), minute, now).unwrap();
        assert_ne!(token, other);
        assert_eq!(tokens.holder_at(&token, now), Some(writer));
        assert_eq!(tokens.holder_at(&token, now + minute), None);
        for wrong in ["", "trbp_", &token[..token.len() - 1], &token.to_uppercase()] {
            assert_eq!(tokens.holder_at(wrong, now), None);
        }
        assert!(!format!("{tokens:?}").contains(&token[5..]), "only a hash is stored");
    }

    #[test]
    fn the_number_of_passes_is_bounded_and_expired_ones_are_removed() {
        let (tokens, now) = (ProxyTokens::default(), Instant::now());
        let agent: AgentId = "writer".parse().unwrap();
        for _ in 0..MAX_TOKENS {
            tokens.issue(agent.clone(), Duration::from_secs(60), now).unwrap();
        }
        assert_eq!(
            tokens.issue(agent.clone(), Duration::from_secs(60), now).unwrap_err().code,
            "too_many_requests"
        );
        assert!(tokens.issue(agent, Duration::from_secs(60), now + Duration::from_secs(61)).is_ok());
    }
}
