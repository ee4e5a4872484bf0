//! Authentication: resolves a caller to a principal. What a caller may do follows from what it proved; it cannot request it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq as _;
use tribune_constitution::DEFAULT_MANDATE;
use tribune_ledger::AttestationKey;
use tribune_records::agents::{ANONYMOUS, GATE_PASS, PrincipalTier, UNREGISTERED};
use tribune_records::approval::approver::Approver;
use tribune_registry::{Agents, Approvers};
use tribune_runtime::{AgentId, SessionKey, Speaker};
use tribune_sessions::session::{Opener, RequestedTerms};

use crate::api_types::{AuthAgent, AuthDaemon, DaemonProof, WhoAmI};
use crate::error::ApiError;

/// Failed attempts within [`WINDOW`] that get a specific error; further ones are told to wait. Correct proof always succeeds.
const ATTEMPTS: usize = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// What the text of a proof of the daemon begins with; the texts are described with [`AuthDaemon`] and [`DaemonProof`].
const DAEMON_PROOF: &str = "tribune/daemon-auth/v1";
const TOKEN_HINT: &str = "tribune/daemon-auth/v1/hint";
const HINT_DIGITS: usize = 16;

/// A caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Principal {
    /// Has the operator token: may do everything.
    Operator,
    /// Has an approver's token: may decide what its roles cover, and nothing else.
    Approver(Approver),
    /// Proved the key that the roster lists for this agent.
    Agent { id: AgentId, pubkey: String },
    /// Has a gate pass of this agent: may ask the gate about the agent's calls, and nothing else.
    GatePass { id: AgentId },
    /// Proved a key that is not in the roster, and was let in as a guest: an unregistered agent.
    Unregistered { id: AgentId, pubkey: String },
    /// Has the guest token and proved no key, or proved nothing where the configuration accepts anonymous callers.
    Anonymous { id: AgentId },
}

/// The anonymous principal.
pub fn anonymous() -> Option<Principal> {
    // INVARIANT: the name is a valid id.
    ANONYMOUS.parse().ok().map(|id| Principal::Anonymous { id })
}

impl Principal {
    /// The class whose quotas it uses.
    pub(crate) const fn tier(&self) -> PrincipalTier {
        match self {
            Self::Operator => PrincipalTier::Operator,
            Self::Approver(_) | Self::Agent { .. } | Self::GatePass { .. } => PrincipalTier::Member,
            Self::Unregistered { .. } | Self::Anonymous { .. } => PrincipalTier::Guest,
        }
    }

    /// Refuses every caller but the operator.
    pub(crate) fn operator(&self) -> Result<(), ApiError> {
        match self {
            Self::Operator => Ok(()),
            Self::Approver(_)
            | Self::Agent { .. }
            | Self::GatePass { .. }
            | Self::Unregistered { .. }
            | Self::Anonymous { .. } => {
                Err(ApiError::forbidden("only the operator may do this: use the token in run/token"))
            }
        }
    }

    /// Refuses a session that the caller does not own.
    pub(crate) fn owns(&self, key: &SessionKey) -> Result<(), ApiError> {
        match (self, self.agent()) {
            (Self::Approver(_), _) => Err(ApiError::forbidden("an approver decides, and has no sessions")),
            (_, None) => Ok(()),
            (_, Some(own)) if own == key.agent() => Ok(()),
            (_, Some(own)) => Err(ApiError::forbidden(format!(
                "this connection is the agent `{own}` and may use sessions that begin with agent:{own}: only"
            ))),
        }
    }

    /// The approver that the caller decides as; refuses callers that may not decide.
    pub(crate) fn approver(&self) -> Result<Approver, ApiError> {
        match self {
            Self::Operator => Ok(Approver::operator()),
            Self::Approver(approver) => Ok(approver.clone()),
            Self::Agent { .. }
            | Self::GatePass { .. }
            | Self::Unregistered { .. }
            | Self::Anonymous { .. } => Err(ApiError::forbidden(
                "only approvers may do this: use the operator's token or an approver's",
            )),
        }
    }

    /// The agent that is calling; `None` for the operator and for approvers.
    pub(crate) const fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Operator | Self::Approver(_) => None,
            Self::Agent { id, .. }
            | Self::GatePass { id }
            | Self::Unregistered { id, .. }
            | Self::Anonymous { id } => Some(id),
        }
    }

    /// The speaker of the caller's turn input, which decides how far it is trusted.
    pub(crate) const fn speaker(&self) -> Speaker {
        match self {
            Self::Operator => Speaker::Owner,
            Self::Approver(_) => Speaker::Guest,
            Self::Agent { .. } | Self::GatePass { .. } => Speaker::Agent,
            Self::Unregistered { .. } | Self::Anonymous { .. } => Speaker::Guest,
        }
    }

    pub(crate) fn opener(&self) -> Opener {
        match self {
            Self::Operator => Opener {
                name: "operator".to_owned(),
                pubkey: None,
                is_unregistered: false,
                requested: RequestedTerms::default(),
            },
            Self::Approver(approver) => Opener {
                name: approver.id.clone(),
                pubkey: None,
                is_unregistered: true,
                requested: RequestedTerms::default(),
            },
            Self::Agent { id, pubkey } => Opener {
                name: id.to_string(),
                pubkey: Some(pubkey.clone()),
                is_unregistered: false,
                requested: RequestedTerms::default(),
            },
            Self::GatePass { id } => Opener {
                name: id.to_string(),
                pubkey: Some(GATE_PASS.to_owned()),
                is_unregistered: false,
                requested: RequestedTerms::default(),
            },
            Self::Unregistered { id, pubkey } => Opener {
                name: id.to_string(),
                pubkey: Some(pubkey.clone()),
                is_unregistered: true,
                requested: RequestedTerms::default(),
            },
            Self::Anonymous { id } => Opener {
                name: id.to_string(),
                pubkey: None,
                is_unregistered: true,
                requested: RequestedTerms::default(),
            },
        }
    }

    pub(crate) fn describe(&self, agents: &Agents) -> WhoAmI {
        let (principal, mandate) = match self {
            Self::Operator => ("operator", None),
            Self::Approver(_) => ("approver", None),
            Self::Agent { id, .. } => ("agent", agents.agent(id).map(|agent| agent.mandate)),
            Self::GatePass { id } => ("pass", agents.agent(id).map(|agent| agent.mandate)),
            Self::Unregistered { .. } => ("stranger", Some(DEFAULT_MANDATE.to_owned())),
            Self::Anonymous { .. } => ("anonymous", Some(DEFAULT_MANDATE.to_owned())),
        };
        WhoAmI { principal: principal.to_owned(), agent_id: self.agent().map(ToString::to_string), mandate }
    }
}

/// Checks tokens and signatures, and limits failed attempts.
pub struct Authenticator {
    /// BLAKE3 of the token: hashes have one length for the constant-time comparison, and the token itself is not kept.
    token: [u8; 32],
    guest_token: [u8; 32],
    audience: String,
    approvers: Arc<Approvers>,
    failures: Mutex<FailedAttempts>,
}

/// Failed attempts to authenticate.
#[derive(Debug, Default)]
struct FailedAttempts {
    /// When the newest of them came.
    newest: Vec<Instant>,
    /// When the last log message was written, and how many attempts came since.
    last_logged: Option<Instant>,
    unlogged: u64,
}

impl FailedAttempts {
    /// Counts one attempt for the log. Returns how many to log, at most once in a [`WINDOW`].
    fn count_for_log(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self.last_logged.is_some_and(|logged| now.duration_since(logged) < WINDOW) {
            return None;
        }
        self.last_logged = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authenticator")
    }
}

impl Authenticator {
    pub fn new(token: &str, guest_token: &str, audience: String, approvers: Arc<Approvers>) -> Self {
        let (token, guest_token) = (digest(token), digest(guest_token));
        Self { token, guest_token, audience, approvers, failures: Mutex::default() }
    }

    pub(crate) fn audience(&self) -> &str {
        &self.audience
    }

    /// Resolves the operator's token, an approver's, or the guest token. A valid token is always accepted, however many
    /// failures came before.
    pub(crate) fn check_token(&self, token: &str) -> Result<Principal, ApiError> {
        if bool::from(digest(token).ct_eq(&self.token)) {
            return Ok(Principal::Operator);
        }
        if let Some(approver) = self.approvers.by_token(token) {
            return Ok(Principal::Approver(approver));
        }
        if bool::from(digest(token).ct_eq(&self.guest_token))
            && let Some(guest) = anonymous()
        {
            return Ok(guest);
        }
        Err(self.refuse("this is neither the operator's token, which is in run/token of the daemon's home, nor an approver's"))
    }

    /// Proves to the owner of a token, who has not sent it yet, that this daemon knows it and listens on `address`.
    pub(crate) fn prove_daemon(
        &self,
        asked: &AuthDaemon,
        address: SocketAddr,
    ) -> Result<DaemonProof, ApiError> {
        let nonce = hex::<32>(&asked.nonce).map(|_| &asked.nonce);
        let nonce = nonce.ok_or_else(|| ApiError::params("nonce is 64 lowercase hex digits"))?;
        let keys = std::iter::once(self.token).chain(self.approvers.token_hashes());
        let is_meant = |key: &[u8; 32]| {
            let hint = blake3::keyed_hash(key, TOKEN_HINT.as_bytes()).to_hex();
            hint[..HINT_DIGITS] == asked.token_hint
        };
        let Some(key) = keys.into_iter().find(is_meant) else {
            return Err(self.refuse("no token of this daemon is meant: check the address, and the token"));
        };
        let text = format!("{DAEMON_PROOF}\n{address}\n{nonce}\n");
        let proof = blake3::keyed_hash(&key, text.as_bytes()).to_hex().to_string();
        Ok(DaemonProof { address: address.to_string(), proof })
    }

    /// Checks that the owner of the key signed this connection's nonce, and resolves the key to its agent. An unknown key
    /// alone admits nobody, because anyone can make one: the connection has a principal already (`is_admitted`), or is
    /// refused.
    pub(crate) fn check_agent(
        &self,
        nonce: &str,
        proof: &AuthAgent,
        agents: &Agents,
        is_admitted: bool,
    ) -> Result<Principal, ApiError> {
        let wrong = || {
            self.refuse("the signature does not prove this key: sign the text that docs/guide/rpc.md gives")
        };
        let key: AttestationKey = proof
            .public_key
            .parse()
            .map_err(|_| ApiError::params("public_key is `ed25519:` followed by 64 lowercase hex digits"))?;
        let signature = hex::<64>(&proof.signature)
            .ok_or_else(|| ApiError::params("signature is 128 lowercase hex digits"))?;
        let text = challenge_text(&self.audience, nonce, &proof.public_key);
        if !key.verifies(text.as_bytes(), &signature) {
            return Err(wrong());
        }
        let pubkey = proof.public_key.clone();
        match agents.by_pubkey(&pubkey) {
            Some(agent) => Ok(Principal::Agent { id: agent.id, pubkey }),
            None if is_admitted => Ok(Principal::Unregistered { id: unregistered_id(&pubkey)?, pubkey }),
            None => Err(ApiError::new(
                "unauthorized",
                "this key is not in the roster: send the guest token in run/guest-token with auth.token first, or let the operator add the key",
            )),
        }
    }

    fn refuse(&self, why: &str) -> ApiError {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(attempts) = failures.count_for_log(now) {
            tracing::warn!(attempts, "authentication failed: wrong token or signature");
        }
        failures.newest.retain(|at| now.duration_since(*at) < WINDOW);
        if failures.newest.len() >= ATTEMPTS {
            return ApiError::new(
                "rate_limited",
                format!("too many wrong attempts: wait {} seconds", WINDOW.as_secs()),
            );
        }
        failures.newest.push(now);
        ApiError::new("unauthorized", why)
    }
}

/// The text that an agent signs to prove its key.
pub fn challenge_text(audience: &str, nonce: &str, public_key: &str) -> String {
    format!("tribune/agent-auth/v1\n{audience}\n{nonce}\n{public_key}\n")
}

/// The agent id of an unregistered key. It comes from the key's hash, so that it is the same each time.
fn unregistered_id(pubkey: &str) -> Result<AgentId, ApiError> {
    let hash = blake3::hash(pubkey.as_bytes()).to_hex();
    format!("{UNREGISTERED}{}", &hash[..24])
        .parse()
        .map_err(|error| ApiError::new("internal", format!("{error}")))
}

fn digest(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

pub(crate) fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = [0; N];
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_attempts_are_logged_at_most_once_in_a_window() {
        let (mut failures, start) = (FailedAttempts::default(), Instant::now());
        let logged =
            [0, 1, 59, 60, 61, 200].map(|second| failures.count_for_log(start + Duration::from_secs(second)));
        assert_eq!(logged, [Some(1), None, None, Some(3), None, Some(2)]);
    }

    #[test]
    fn wrong_tokens_are_refused_and_valid_ones_always_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let approvers = Arc::new(Approvers::load(folder.path().join("approvers.json")).unwrap());
        let token = approvers.prepare("alice", &[], |_| false).and_then(|new| approvers.add(new)).unwrap();
        let authenticator = Authenticator::new("right", "guest", "log".into(), approvers);
        assert!(
            matches!(authenticator.check_token(&token).unwrap(), Principal::Approver(alice) if alice.id == "alice")
        );
        for _ in 0..ATTEMPTS {
            assert_eq!(authenticator.check_token("wrong").unwrap_err().code, "unauthorized");
        }
        assert_eq!(authenticator.check_token("wrong").unwrap_err().code, "rate_limited");
        assert_eq!(authenticator.check_token("right").unwrap(), Principal::Operator);
        assert_eq!(authenticator.check_token("guest").unwrap().tier(), PrincipalTier::Guest);
        for near in ["righ", "right ", "Right", ""] {
            assert!(authenticator.check_token(near).is_err(), "{near:?}");
        }
    }

    #[test]
    fn an_agent_owns_its_sessions_and_no_others() {
        let unregistered =
            Principal::Unregistered { id: "stranger-1".parse().unwrap(), pubkey: String::new() };
        let own = "agent:stranger-1:rpc:local:dm:x".parse().unwrap();
        let other = "agent:stranger-12:rpc:local:dm:x".parse().unwrap();
        assert!(unregistered.owns(&own).is_ok());
        assert_eq!(unregistered.owns(&other).unwrap_err().code, "forbidden");
        assert!(unregistered.operator().is_err());
        assert!(Principal::Operator.owns(&other).is_ok());
    }
}
