//! `spawn`: gives a task to a sub-agent and returns its answer. A [`Spawner`] creates the sub-agent.

use async_trait::async_trait;
use serde_json::{Value, json};
use tribune_records::outcome::{AccessLog, Resource, ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_runtime::{SessionKey, ToolSpec};

use super::input::Input;

pub(super) const NAME: &str = "spawn";

/// Maximum bytes of a task.
const MAX_TASK_BYTES: usize = 32 * 1024;

/// Creates sub-agents. Dropping the future ends the sub-agent.
#[async_trait]
pub trait Spawner: Send + Sync {
    /// Gives `task` to a sub-agent of `parent`, with at most these tools, or with every tool that the parent may pass on if
    /// none are named.
    async fn spawn(
        &self,
        parent: &SessionKey,
        task: &str,
        tools: Option<&[String]>,
    ) -> Result<Spawned, ToolError>;
}

/// A sub-agent that has finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawned {
    pub session: SessionKey,
    pub answer: String,
}

/// Creates no sub-agents.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NoSpawner;

#[async_trait]
impl Spawner for NoSpawner {
    async fn spawn(&self, _: &SessionKey, _: &str, _: Option<&[String]>) -> Result<Spawned, ToolError> {
        Err(not_provided())
    }
}

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Spawn {
    task: String,
    tools: Option<Vec<String>>,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description:
            "Have a sub-agent do a task and get its answer. It sees nothing of your conversation, so say \
                      everything it needs to know, and it can do no more than you."
                .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "task": {
                    "type": "string",
                    "minLength": 1,
                    "description": format!("What to do, at most {MAX_TASK_BYTES} bytes.")
                },
                "tools": {
                    "type": "array",
                    "items": { "type": "string" },
                    "maxItems": super::NAMES.len(),
                    "description": "The tools it may use, by name. As many as it may have if left out."
                }
            },
            "required": ["task"],
            "additionalProperties": false
        }),
    }
}

impl Spawn {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["task", "tools"])?;
        let task = input.bounded_text("task", MAX_TASK_BYTES)?;
        if task.trim().is_empty() {
            return Err("`task` is empty: say what to do".to_owned());
        }
        let tools = input.optional_texts("tools", super::NAMES.len())?;
        if let Some(unknown) = tools.iter().flatten().find(|name| !super::NAMES.contains(name)) {
            return Err(format!("there is no tool `{}`: see `tools` for the ones you have", shown(unknown)));
        }
        let tools = tools.map(|tools| tools.into_iter().map(str::to_owned).collect());
        Ok(Self { task: task.to_owned(), tools })
    }

    pub(super) async fn run(
        self,
        spawner: &dyn Spawner,
        parent: Option<&SessionKey>,
        trail: &AccessLog,
    ) -> ToolAnswer {
        let parent = parent.ok_or_else(not_provided)?;
        let spawned = spawner.spawn(parent, &self.task, self.tools.as_deref()).await?;
        trail.read(Resource::Session(spawned.session.to_string()))?;
        Ok(spawned.answer)
    }
}

fn not_provided() -> ToolError {
    ToolError::new(ToolErrorCode::Unavailable, "sub-agents are not provided here: do the task yourself")
}
