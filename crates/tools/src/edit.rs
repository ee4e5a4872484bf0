//! `edit`: replaces a text in a file of the workspace.

use serde_json::{Value, json};
use tribune_records::outcome::{AccessLog, ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_runtime::ToolSpec;

use super::input::Input;
use super::workspace_dir::Workspace;
use super::write::MAX_CONTENT_BYTES;
use super::write_target::{Parents, Target};

pub(super) const NAME: &str = "edit";

/// Maximum bytes of a file, before and after the edit.
const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of replacements of one call.
const MAX_COUNT: u64 = 10_000;

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Edit {
    path: String,
    old: String,
    new: String,
    count: usize,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description:
            "Change a text file in your workspace: every place where `old` stands gets `new`. `old` is \
                      taken literally, line breaks and spaces included, and must stand there exactly `count` \
                      times, or nothing is changed. Give enough of what is around it to make it the only one."
                .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "The file, relative to the workspace, such as `notes/plan.md`."
                },
                "old": { "type": "string", "minLength": 1, "description": "The text that stands there now." },
                "new": { "type": "string", "description": "The text to put there; empty to take it out." },
                "count": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_COUNT,
                    "description": "How many times `old` stands there. 1 if left out."
                }
            },
            "required": ["path", "old", "new"],
            "additionalProperties": false
        }),
    }
}

impl Edit {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["path", "old", "new", "count"])?;
        let path = input.text("path")?.to_owned();
        let old = input.bounded_text("old", MAX_CONTENT_BYTES)?.to_owned();
        let new = input.bounded_text("new", MAX_CONTENT_BYTES)?.to_owned();
        if old.is_empty() {
            return Err("`old` is empty: say what stands there now, or use `write` for a new file".to_owned());
        }
        if old == new {
            return Err("`old` and `new` are the same: there is nothing to change".to_owned());
        }
        let count = input.optional_number("count")?.unwrap_or(1);
        if !(1..=MAX_COUNT).contains(&count) {
            return Err(format!("`count` is a whole number from 1 to {MAX_COUNT}, not {count}"));
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Ok(Self { path, old, new, count })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn run(&self, workspace: &Workspace, trail: &AccessLog) -> ToolAnswer {
        let target = Target::open(workspace, &self.path, Parents::Find)?;
        trail.read(target.resource())?;
        let (content, found) = target.read(MAX_FILE_BYTES)?;
        let path = shown(&self.path);
        let Ok(text) = String::from_utf8(content) else {
            return Err(ToolError::new(
                ToolErrorCode::Refused,
                format!("`{path}` is not UTF-8 text: it cannot be edited"),
            ));
        };
        let there = text.matches(&self.old).count();
        if there != self.count {
            let sentence = match there {
                0 => format!("`old` does not stand in `{path}`: read the file and copy the text exactly"),
                _ => format!(
                    "`old` stands {there} times in `{path}`, not {}: give more of what is around it, or set \
                     `count` to {there}",
                    self.count
                ),
            };
            return Err(ToolError::new(ToolErrorCode::Conflict, sentence));
        }
        let bytes = text.len() - there * self.old.len() + there * self.new.len();
        if bytes > MAX_FILE_BYTES {
            let sentence = format!("`{path}` would have {bytes} bytes, and {MAX_FILE_BYTES} are allowed");
            return Err(ToolError::new(
                ToolErrorCode::TooLarge,
                format!("{sentence}: put some of it in another file"),
            ));
        }
        trail.write(target.resource())?;
        target.replace(text.replace(&self.old, &self.new).as_bytes(), Some(&found))?;
        let places = if there == 1 { "one place".to_owned() } else { format!("{there} places") };
        Ok(format!("changed {places} in `{path}`, {bytes} bytes"))
    }
}
