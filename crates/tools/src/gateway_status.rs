//! `gateway`: reports the status of the daemon to an agent. It changes nothing.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_records::outcome::{ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_runtime::ToolSpec;

use super::input::Input;

pub(super) const NAME: &str = "gateway";

/// The status that agents may see, once the daemon is ready.
pub type StatusReport = Arc<dyn Fn() -> Option<Value> + Send + Sync>;

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Gateway {
    action: String,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description:
            "Ask the daemon you live in how it is. `status` is the only action that is provided; starting, \
                      stopping and settings are the operator's."
                .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": { "action": { "type": "string", "description": "`status`." } },
            "required": ["action"],
            "additionalProperties": false
        }),
    }
}

impl Gateway {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["action"])?;
        Ok(Self { action: input.text("action")?.to_owned() })
    }

    /// Refuses an action that is not provided.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        if self.action == "status" {
            return Ok(());
        }
        let sentence = format!(
            "`{}` is not provided here: `status` is; the rest is the operator's, with the command `tribune`",
            shown(&self.action)
        );
        Err(ToolError::new(ToolErrorCode::Unavailable, sentence))
    }

    pub(super) fn run(&self, status: &StatusReport) -> ToolAnswer {
        self.check()?;
        let facts = status().ok_or_else(|| {
            ToolError::new(ToolErrorCode::Unavailable, "the daemon is still starting: ask again shortly")
        })?;
        Ok(facts.to_string())
    }
}
