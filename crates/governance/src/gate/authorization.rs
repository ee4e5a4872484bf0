//! The input and the output of a decision of the gate. The decision itself is made by the law.

use serde_json::Value;
use tribune_constitution::{DecisionStage, Facts, Labels, Verdict, Veto};
use tribune_records::approval::action::Files;

use super::{OwnerWords, PolicyContext};

/// The input of a decision: a call and its circumstances.
pub(crate) struct AuthorizationRequest<'a> {
    pub(crate) context: &'a PolicyContext,
    pub(crate) tool: &'a str,
    pub(crate) stage: DecisionStage,
    /// Tells the call apart from others that rely on the same words of the owner.
    pub(crate) call_id: &'a str,
    /// `None` while the list of offered tools is made.
    pub(crate) input: Option<&'a Value>,
    /// The input before a hook narrowed it, if one did.
    pub(crate) original_input: Option<&'a Value>,
    /// The files that the outcome depends on. Reads the disk.
    pub(crate) runs: &'a dyn Fn() -> Option<Files>,
    /// What the owner said: in this turn, or to an external harness lately.
    pub(crate) owner_words: Option<&'a OwnerWords>,
    pub(crate) vetoes: Vec<Veto>,
    /// A person's decision about exactly this call.
    pub(crate) approval: Option<&'a str>,
}

/// A verdict with its facts. Only the gate makes one.
#[derive(Debug)]
pub(crate) struct Authorization {
    pub(super) facts: Facts,
    pub(super) verdict: Verdict,
}

/// Proof that a call is allowed; a [`PendingAdmission`](super::PendingAdmission) is made from it. Only an [`Authorization`] gives one.
#[derive(Debug)]
pub(crate) struct AllowToken {
    pub(super) labels: Labels,
}

impl Authorization {
    /// The proof, if the verdict allows the call.
    pub(crate) fn allow_token(&self) -> Option<AllowToken> {
        self.verdict.is_allowed().then_some(AllowToken { labels: self.facts.labels })
    }

    /// Facts and verdict, for the ledger.
    pub(crate) fn into_parts(self) -> (Facts, Verdict) {
        (self.facts, self.verdict)
    }
}
