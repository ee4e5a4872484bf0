//! Everything that a decision depends on. Nothing else takes part in it, so the law and the facts always lead to
//! the same verdict again.
//!
//! Facts contain names, labels, counts and bounded attributes of the arguments; never the text of a message, a
//! command line or a page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tribune_ledger::jcs::{self, JcsError};

use crate::args::CallArgs;
use crate::labels::Labels;

/// The version of the facts that this kernel writes and reads.
pub const FACTS_VERSION: u32 = 1;

/// Characters of a veto's reason: a sentence.
pub const MAX_VETO_CHARS: usize = 200;

/// Characters of a veto's author: the name of a hook or verifier.
const MAX_VETO_BY_CHARS: usize = 64;

/// When the decision is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionStage {
    /// For the list of tools that an agent is offered; there are no arguments yet.
    Offer,
    /// When the agent calls.
    Call,
    /// Again, right before the effect.
    Dispatch,
}

/// The kind of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    Main,
    /// Started by another agent.
    Subagent,
}

impl SessionKind {
    pub const ALL: [Self; 2] = [Self::Main, Self::Subagent];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Subagent => "subagent",
        }
    }
}

/// Where the arguments come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentProvenance {
    /// Every value of the arguments appears as such in the owner's own words.
    Owner,
    Other,
}

/// How much an agent may do without a person, if its roster entry restricts or extends the mandate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalMode {
    /// A side effect waits for a person, unless the law says otherwise.
    Ask,
    /// A side effect needs no person. Every denial and every other question stays.
    ApproveAll,
    /// Read-only tools are allowed, and nothing else.
    ApproveReads,
    DenyAll,
}

impl ApprovalMode {
    pub const ALL: [Self; 4] = [Self::Ask, Self::ApproveAll, Self::ApproveReads, Self::DenyAll];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::ApproveAll => "approve-all",
            Self::ApproveReads => "approve-reads",
            Self::DenyAll => "deny-all",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|asking| asking.as_str() == word)
    }
}

/// The objection of a hook or verifier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Veto {
    pub by: String,
    pub reason: String,
}

impl Veto {
    /// Cuts both texts to their bounds.
    pub fn new(by: &str, reason: &str) -> Self {
        let cut = |text: &str, chars: usize| {
            text.chars().take(chars).map(|c| if c.is_control() { ' ' } else { c }).collect()
        };
        Self { by: cut(by, MAX_VETO_BY_CHARS), reason: cut(reason, MAX_VETO_CHARS) }
    }
}

/// A call before a hook narrowed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct OriginalCall {
    pub provenance: ArgumentProvenance,
    pub args: CallArgs,
    /// The standing grant that covers it.
    pub grant: Option<String>,
}

/// The facts of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Facts {
    pub v: u32,
    pub stage: DecisionStage,
    pub agent: String,
    pub session: String,
    pub kind: SessionKind,
    /// From the session's key, such as `telegram`.
    pub channel: String,
    /// The agent's own mandate, then that of the agent that started it, and so on. All of them must allow a call.
    pub mandates: Vec<String>,
    pub tool: String,
    pub labels: Labels,
    pub provenance: ArgumentProvenance,
    pub args: CallArgs,
    /// Whether the stop switch is set.
    pub frozen: bool,
    /// Whether an approver can be reached.
    pub approver: bool,
    /// Whether the agent is a guest: a caller that is not in the roster. Nobody is asked about its calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guest: bool,
    /// The standing grant that covers this call.
    pub grant: Option<String>,
    /// A person's decision about exactly this call.
    pub approval: Option<String>,
    /// For each exception of this tool that has a limit: its uses within its period.
    pub exception_uses: BTreeMap<String, u64>,
    pub vetoes: Vec<Veto>,
    /// The call before a hook narrowed it, if one did. Both calls are decided, because a rule may read what the
    /// hook removed.
    #[serde(rename = "asked", default, skip_serializing_if = "Option::is_none")]
    pub original_call: Option<Box<OriginalCall>>,
    /// The approval mode of the agent's roster entry, if it has one.
    #[serde(rename = "asking", default, skip_serializing_if = "Option::is_none")]
    pub approval_mode: Option<ApprovalMode>,
}

/// Why a text is not a facts document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    #[error("the facts cannot be read ({0}): they were not written by this version, or were changed")]
    NotFacts(String),
    #[error(
        "the facts have version {0}, but this version decides {FACTS_VERSION} only: use the one that wrote them"
    )]
    Version(u32),
    #[error("the facts have no canonical form: {0}")]
    Canonical(#[from] JcsError),
}

impl Facts {
    /// A call in an owner's own session that has read nothing yet, with an approver who can be reached. The base of
    /// examples.
    pub fn for_owner_call(agent: &str, session: &str, mandate: &str, tool: &str) -> Self {
        Self {
            v: FACTS_VERSION,
            stage: DecisionStage::Call,
            agent: agent.to_owned(),
            session: session.to_owned(),
            kind: SessionKind::Main,
            channel: "cli".to_owned(),
            mandates: vec![mandate.to_owned()],
            tool: tool.to_owned(),
            labels: Labels::FRESH,
            provenance: ArgumentProvenance::Other,
            args: CallArgs::default(),
            frozen: false,
            approver: true,
            guest: false,
            grant: None,
            approval: None,
            exception_uses: BTreeMap::new(),
            vetoes: Vec::new(),
            original_call: None,
            approval_mode: None,
        }
    }

    /// The facts of the original call, if a hook narrowed it.
    pub(crate) fn original(&self) -> Option<Self> {
        let OriginalCall { provenance, args, grant } = (**self.original_call.as_ref()?).clone();
        Some(Self { provenance, args, grant, original_call: None, ..self.clone() })
    }

    /// The canonical form in which facts are recorded and hashed.
    pub fn canonical(&self) -> Result<Vec<u8>, FactsError> {
        let value = serde_json::to_value(self).map_err(|error| FactsError::NotFacts(error.to_string()))?;
        Ok(jcs::to_vec(&value)?)
    }

    /// Parses recorded facts, strictly.
    pub fn parse(text: &[u8]) -> Result<Self, FactsError> {
        Self::from_value(jcs::parse(text)?)
    }

    /// Reads facts from a record, strictly.
    pub fn from_value(value: serde_json::Value) -> Result<Self, FactsError> {
        let facts: Self =
            serde_json::from_value(value).map_err(|error| FactsError::NotFacts(error.to_string()))?;
        facts.check_version()
    }

    /// The same facts, if this kernel can decide them.
    pub(crate) fn check_version(self) -> Result<Self, FactsError> {
        if self.v == FACTS_VERSION { Ok(self) } else { Err(FactsError::Version(self.v)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_have_one_canonical_form() {
        let mut facts = Facts::for_owner_call("main", "agent:main:cli:local:dm:op", "default", "read");
        facts.vetoes.push(Veto::new("scanner", &format!("a\nb{}", "x".repeat(500))));
        facts.exception_uses.insert("honeypot".to_owned(), 3);
        let text = facts.canonical().unwrap();
        assert_eq!(Facts::parse(&text).unwrap(), facts);
        assert_eq!(Facts::parse(&text).unwrap().canonical().unwrap(), text);
        assert_eq!(facts.vetoes[0].reason.chars().count(), MAX_VETO_CHARS);
        assert!(!facts.vetoes[0].reason.contains('\n'));

        let bare = Facts::for_owner_call("main", "s", "default", "read").canonical().unwrap();
        assert_eq!(
            String::from_utf8(bare).unwrap(),
            r#"{"agent":"main","approval":null,"approver":true,"args":{},"channel":"cli","exceptionUses":{},"frozen":false,"grant":null,"kind":"main","labels":{"private":false,"trust":"owner"},"mandates":["default"],"provenance":"other","session":"s","stage":"call","tool":"read","v":1,"vetoes":[]}"#
        );
    }

    #[test]
    fn l3_facts_with_other_keys_or_versions_are_refused() {
        let text = String::from_utf8(Facts::for_owner_call("a", "s", "m", "t").canonical().unwrap()).unwrap();
        for (from, to) in [
            ("\"v\":1", "\"v\":2"),
            ("\"v\":1", "\"v\":1,\"w\":1"),
            ("\"trust\":\"owner\"", "\"trust\":\"root\""),
            ("\"args\":{}", "\"args\":{\"body\":\"hello\"}"),
            ("\"frozen\":false,", ""),
        ] {
            assert!(Facts::parse(text.replace(from, to).as_bytes()).is_err(), "{to}");
        }
    }
}
