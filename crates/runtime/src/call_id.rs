//! Ids of calls in two namespaces: those that the host gives, and those that an agent chose. An agent can name no call of
//! the host's, neither in the ledger nor at a client.

use std::borrow::Cow;

/// The beginning of every id that the host gives to a call of its own.
const HOST_PREFIX: &str = "tribune-";

/// Bytes of an agent's id in the ledger.
const MAX_AGENT_ID: usize = 100;

/// The id of a call that the host makes for an agent.
pub fn host_call_id(name: &str) -> String {
    format!("{HOST_PREFIX}{name}")
}

/// The id that a client sees for a call of the host's own record. Call ids are unique within a turn only, so the turn is
/// part of it.
pub fn client_call_id(turn: u64, id: &str) -> String {
    format!("t{turn}-{id}")
}

/// The id in the ledger of a call that an agent named itself: its own, or a hash of one that the ledger cannot have or that
/// is the host's to give.
pub fn agent_call_id(own: &str) -> Cow<'_, str> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    match own.len() <= MAX_AGENT_ID && own.bytes().all(word) && !is_reserved(own) {
        true => Cow::Borrowed(own),
        false => Cow::Owned(format!("call-{:016x}", fingerprint(own))),
    }
}

/// Whether an id is in a namespace of the host: those of its own calls, and those of calls at a client.
pub fn is_reserved(id: &str) -> bool {
    let at_client = id.strip_prefix('t').and_then(|rest| rest.split_once('-'));
    let is_turn = |turn: &str| !turn.is_empty() && turn.bytes().all(|byte| byte.is_ascii_digit());
    id.starts_with(HOST_PREFIX) || at_client.is_some_and(|(turn, _)| is_turn(turn))
}

/// FNV-1a: an id need not be secret, only the same for the same call.
fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_of_agents_stay_readable() {
        for own in ["toolu_01AbC", "call_7", "t", "t-1", "tx5-1", "bash.2", "trib-une"] {
            assert_eq!(agent_call_id(own), own);
        }
        assert!(agent_call_id("a:b").starts_with("call-"));
        assert_eq!(agent_call_id(&"x".repeat(101)).len(), "call-".len() + 16);
    }

    proptest! {
        /// Whatever an agent calls its calls, and whatever part of one is numbered.
        #[test]
        fn no_id_of_an_agent_is_one_of_the_host(
            own in prop_oneof![".*", "(tribune-|t[0-9]{1,9}-|served-|callback-)[a-z0-9.-]{0,20}"],
            part in 2..9_u32,
        ) {
            let id = agent_call_id(&own);
            prop_assert!(!is_reserved(&id) && !is_reserved(&format!("{id}.{part}")), "{own}");
            prop_assert!(is_reserved(&host_call_id(&own)) && is_reserved(&client_call_id(7, &own)));
        }
    }
}
