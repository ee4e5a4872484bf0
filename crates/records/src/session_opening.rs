//! The ledger payload for the opening of a session.
//!
//! It joins what the caller decides ([`SessionTerms`]) with what a sub-agent inherits from its parents
//! ([`InheritedLimits`]). It does not hold the state of a session, which the store derives from all entries.

use serde::{Deserialize, Serialize};
use tribune_constitution::Labels;
use tribune_runtime::SessionTerms;

/// A session is opened, or opened again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpeningRecord {
    pub agent_id: String,
    pub session_id: String,
    #[serde(flatten)]
    pub terms: SessionTerms,
    pub opened_by: String,
    #[serde(flatten)]
    pub inherited: InheritedLimits,
    /// The labels of the session before its first input.
    #[serde(default)]
    pub labels: Labels,
}

/// The limits that a sub-agent inherits from its parents. They are fixed by the first opening of the session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedLimits {
    /// The mandates of the parent agents, nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<String>,
    /// The only tools that it may use, if they were restricted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
}

impl InheritedLimits {
    /// The mandates that bind a session: its own, then those of its parents.
    pub fn mandates(&self, own: &str) -> impl Iterator<Item = String> {
        std::iter::once(own.to_owned()).chain(self.ancestors.iter().cloned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tribune_ledger::jcs;
    use tribune_runtime::SessionMode;

    use super::*;
    use crate::ledger_payloads::Lifecycle;

    fn record(terms: SessionTerms, inherited: InheritedLimits) -> Lifecycle {
        Lifecycle::Opened(SessionOpeningRecord {
            agent_id: "main".into(),
            session_id: "01".into(),
            terms,
            opened_by: "operator".into(),
            inherited,
            labels: Labels::FRESH,
        })
    }

    fn canonical(value: &Value) -> String {
        String::from_utf8(jcs::to_vec(value).unwrap()).unwrap()
    }

    #[test]
    fn the_ledger_format_is_flat_and_leaves_out_what_is_empty() {
        let terms = SessionTerms::new("native", SessionMode::Domain, "default");
        let labels = serde_json::to_value(Labels::FRESH).unwrap();
        let plain = json!({
            "event": "opened", "agent_id": "main", "session_id": "01", "backend": "native", "model": null,
            "mode": "domain", "pubkey": null, "mandate": "default", "opened_by": "operator", "labels": labels,
        });
        let child = json!({
            "event": "opened", "agent_id": "main", "session_id": "01", "backend": "native", "model": "fake:small",
            "mode": "oneshot", "pubkey": "key", "mandate": "default", "opened_by": "operator",
            "ancestors": ["all"], "tools": [], "labels": labels, "workspace": "/srv/app", "further": ["/srv/lib"],
        });
        let inherited = InheritedLimits { ancestors: vec!["all".into()], tools: Some(Vec::new()) };
        let whole = SessionTerms {
            model: Some("fake:small".into()),
            mode: SessionMode::Oneshot,
            pubkey: Some("key".into()),
            workspace: Some("/srv/app".into()),
            additional_directories: vec!["/srv/lib".into()],
            ..terms.clone()
        };
        for (record, json) in
            [(record(terms, InheritedLimits::default()), plain), (record(whole, inherited), child)]
        {
            assert_eq!(canonical(&serde_json::to_value(&record).unwrap()), canonical(&json));
            assert_eq!(serde_json::from_str::<Lifecycle>(&json.to_string()).unwrap(), record);
        }
    }
}
