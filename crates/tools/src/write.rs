//! `write`: creates or replaces a file of the workspace.

use serde_json::{Value, json};
use tribune_records::outcome::{AccessLog, ToolAnswer};
use tribune_runtime::ToolSpec;

use super::input::Input;
use super::workspace_dir::Workspace;
use super::write_target::{Parents, Target};

pub(super) const NAME: &str = "write";

/// Maximum bytes of a file written in one call: less than the limit of a call.
pub(super) const MAX_CONTENT_BYTES: usize = 1000 * 1000;

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Write {
    path: String,
    content: String,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description:
            "Write a text file in your workspace. A file that is there is replaced whole; folders that \
                      are missing are made. To change a part of a file use `edit`. Paths are relative to the \
                      workspace and cannot lead out of it, nor through links."
                .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "The file, relative to the workspace, such as `notes/plan.md`."
                },
                "content": {
                    "type": "string",
                    "description": format!("All of the file, at most {MAX_CONTENT_BYTES} bytes.")
                }
            },
            "required": ["path", "content"],
            "additionalProperties": false
        }),
    }
}

impl Write {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["path", "content"])?;
        let path = input.text("path")?.to_owned();
        let content = input.bounded_text("content", MAX_CONTENT_BYTES)?.to_owned();
        Ok(Self { path, content })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn run(&self, workspace: &Workspace, trail: &AccessLog) -> ToolAnswer {
        let target = Target::open(workspace, &self.path, Parents::Make)?;
        let found = target.found()?;
        trail.write(target.resource())?;
        target.replace(self.content.as_bytes(), found.as_ref())?;
        let did = if found.is_some() { "replaced" } else { "made" };
        Ok(format!("{did} `{}`, {} bytes", tribune_records::text::shown(&self.path), self.content.len()))
    }
}
