//! Why a call was decided as it was: every rule in its order, with its outcome.

use serde::Serialize;

use crate::bundle::Constitution;
use crate::decision_trace::{DecisionTrace, TraceStep};
use crate::facts::Facts;
use crate::verdict::Verdict;

/// A verdict with the steps that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub steps: Vec<TraceStep>,
    pub verdict: Verdict,
}

impl Constitution {
    /// Decides a call and records every step. The verdict equals that of [`Constitution::decide`].
    pub fn explain(&self, facts: &Facts) -> Explanation {
        let mut steps = Vec::new();
        let verdict = self.decide_traced(facts, &mut DecisionTrace::with_steps(&mut steps));
        Explanation { steps, verdict }
    }
}
