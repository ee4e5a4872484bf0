//! The terms of a session: which backend runs it, under which mandate, and in which folders.
//!
//! The request to open a session, its ledger entry and its row in the store all embed [`SessionTerms`], so a new term is
//! declared here and nowhere else. The terms do not hold the names of a session, what a sub-agent inherits, or what
//! changes while the session runs, such as its labels.

use serde::{Deserialize, Serialize};

use crate::session::SessionMode;

/// The terms of a session. They change only when it is opened again. The names of the fields are part of the ledger
/// format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTerms {
    pub backend: String,
    pub model: Option<String>,
    pub mode: SessionMode,
    /// The key that the agent proved, or `pass` if it came with a gate pass; `None` for other openers.
    pub pubkey: Option<String>,
    /// The name of the mandate that it acts under.
    pub mandate: String,
    /// The operator's folder that it works in, if that is not its agent's own workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The operator's folders that it may use beside its workspace.
    #[serde(rename = "further", default, skip_serializing_if = "Vec::is_empty")]
    pub additional_directories: Vec<String>,
}

impl SessionTerms {
    /// Terms without a model, a key or folders.
    pub fn new(backend: impl Into<String>, mode: SessionMode, mandate: impl Into<String>) -> Self {
        Self {
            backend: backend.into(),
            model: None,
            mode,
            pubkey: None,
            mandate: mandate.into(),
            workspace: None,
            additional_directories: Vec::new(),
        }
    }

    /// Whether an open session can take `new` terms without being closed. Its mode, key and mandate may change; the other
    /// terms hold for as long as it is open.
    pub fn can_become(&self, new: &Self) -> bool {
        let Self { mode, pubkey, mandate, .. } = new.clone();
        Self { mode, pubkey, mandate, ..self.clone() } == *new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mode_key_and_mandate_change_without_closing() {
        let terms = SessionTerms::new("native", SessionMode::Domain, "default");
        type Edit = fn(&mut SessionTerms);
        let edits: [(Edit, bool); 7] = [
            (|terms| terms.mode = SessionMode::Oneshot, true),
            (|terms| terms.pubkey = Some("key".into()), true),
            (|terms| terms.mandate = "clerk".into(), true),
            (|terms| terms.backend = "rehearsal".into(), false),
            (|terms| terms.model = Some("fake:small".into()), false),
            (|terms| terms.workspace = Some("/srv/app".into()), false),
            (|terms| terms.additional_directories.push("/srv/lib".into()), false),
        ];
        assert!(terms.can_become(&terms));
        for (edit, expected) in edits {
            let mut new = terms.clone();
            edit(&mut new);
            assert_ne!(new, terms);
            assert_eq!(terms.can_become(&new), expected, "{new:?}");
        }
    }

    #[test]
    fn empty_folders_are_not_written() {
        let mut terms = SessionTerms::new("native", SessionMode::Domain, "default");
        let json = r#"{"backend":"native","model":null,"mode":"domain","pubkey":null,"mandate":"default"}"#;
        assert_eq!(serde_json::to_string(&terms).unwrap(), json);
        terms.additional_directories = vec!["/srv/lib".to_owned()];
        let json = serde_json::to_string(&terms).unwrap();
        assert!(json.ends_with(r#","further":["/srv/lib"]}"#), "{json}");
        assert_eq!(serde_json::from_str::<SessionTerms>(&json).unwrap(), terms);
    }
}
