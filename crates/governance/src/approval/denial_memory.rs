//! What persons denied: a denied action stays denied for its session, and a stopped session stays stopped, until the owner
//! of the session speaks in it again. An action in another context has another digest, so it is asked about.

use std::collections::HashMap;

use tribune_constitution::{LAND, MCP_SERVER, SPEND};
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{DecisionKind, Requested};
use tribune_storage::store::ApprovalRow;

/// What the inbox knows of an action before a person is asked about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KnownAction {
    /// A person denied it in this session. The sentence is for the agent.
    Denied(String),
    /// A person is being asked about it, under this approval.
    Waits(String),
}

impl KnownAction {
    /// The denial as text for the agent.
    pub(crate) fn sentence(&self) -> String {
        match self {
            Self::Denied(sentence) => sentence.clone(),
            Self::Waits(id) => {
                format!("denied (ask.waits): the same call already waits for a person, as approval `{id}`")
            }
        }
    }
}

/// The denials of each session, by its key.
#[derive(Debug, Default)]
pub(super) struct DenialMemory(HashMap<String, SessionDenials>);

#[derive(Debug, Default)]
struct SessionDenials {
    /// The sentence of the denial, by the digest of the action.
    actions: HashMap<String, String>,
    /// Who stopped the session, if someone did.
    stopped_by: Option<String>,
}

impl DenialMemory {
    /// Restores a denial from the ledger.
    pub(super) fn restore(&mut self, row: ApprovalRow) {
        let stop = row.decision.as_deref() == Some(DecisionKind::DenyStop.as_str());
        let by = row.decided_by.unwrap_or_default();
        self.insert(&row.requested, &ApprovalDecision::Denied { by, reason: row.reason, stop });
    }

    /// Remembers a denial. Ignores every other decision.
    pub(super) fn insert(&mut self, requested: &Requested, decision: &ApprovalDecision) {
        let ApprovalDecision::Denied { by, stop, .. } = decision else { return };
        let denials = self.0.entry(requested.session.clone()).or_default();
        if *stop {
            denials.stopped_by = Some(by.clone());
        }
        let before = format!("{}; it was denied before, and nothing has changed since", decision.sentence());
        denials.actions.insert(requested.digest.clone(), before);
    }

    /// The sentence of the denial of an action.
    pub(super) fn denial(&self, session: &str, digest: &str) -> Option<&String> {
        self.0.get(session)?.actions.get(digest)
    }

    /// Who stopped the session, if someone did.
    pub(super) fn stopped_by(&self, session: &str) -> Option<&str> {
        self.0.get(session)?.stopped_by.as_deref()
    }

    pub(super) fn contains(&self, session: &str) -> bool {
        self.0.contains_key(session)
    }

    /// Forgets the denials of a session.
    pub(super) fn lift(&mut self, session: &str) {
        self.0.remove(session);
    }
}

/// Whether a tool is the agent's own. The others are the daemon's and the operator's, who may ask again.
pub(super) fn is_agents_own(tool: &str) -> bool {
    ![SPEND, LAND, MCP_SERVER].contains(&tool)
}
