//! Tools that have a name and rules but no implementation: `browser` and `nodes`.

use serde_json::json;
use tribune_records::outcome::{ToolError, ToolErrorCode};
use tribune_runtime::ToolSpec;

pub(super) const BROWSER: &str = "browser";
pub(super) const NODES: &str = "nodes";

/// An unsupported tool.
#[derive(Debug, Clone, Copy)]
pub(super) enum Absent {
    Browser,
    Nodes,
}

pub(super) fn browser_spec() -> ToolSpec {
    spec(BROWSER, "Use a web browser. Not provided by this host: use `web_fetch` to read a page.")
}

pub(super) fn nodes_spec() -> ToolSpec {
    spec(NODES, "Use devices that are paired with this host. Not provided by this host.")
}

fn spec(name: &str, description: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "action": { "type": "string", "description": "What to do." }
            },
            "required": ["action"],
            "additionalProperties": false
        }),
    }
}

impl Absent {
    pub(super) fn refused(self) -> ToolError {
        let instead = match self {
            Self::Browser => "read pages with `web_fetch`",
            Self::Nodes => "work without it",
        };
        ToolError::new(
            ToolErrorCode::Unavailable,
            format!("`{}` is not provided here: {instead}", self.name()),
        )
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Browser => BROWSER,
            Self::Nodes => NODES,
        }
    }
}
