//! The history of a session's labels, in an approval.

use serde::Serialize;
use tribune_governance::turn::label_history::Step;
use utoipa::ToSchema;

/// Something that a session read and that lowered its labels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Step)]
pub(crate) struct LabelStep {
    pub(crate) at: String,
    /// Such as `web_fetch of example.org`.
    pub(crate) what: String,
    /// The lowest trust of anything in the context of the session from then on.
    pub(crate) trust: String,
    /// Whether the context contains private data from then on.
    pub(crate) private: bool,
    /// The session that wrote what was read here, and when, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<String>,
}

impl From<Step> for LabelStep {
    fn from(step: Step) -> Self {
        let Step { at, what, trust, private, written } = step;
        Self { at, what, trust, private, written }
    }
}
