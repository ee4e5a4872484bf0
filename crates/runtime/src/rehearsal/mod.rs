//! A scripted model: no key, no network. It answers before any model is set up, it is the model of the demo, and tests
//! make it do what a real model does once in a thousand turns.
//!
//! It does not think. The text of the user alone decides what it does:
//!
//! | the text is | the turn |
//! |---|---|
//! | `/scenes` | lists the scenes |
//! | `/play NAME` | plays that scene |
//! | lines that all begin with `!` | plays them as a script |
//! | anything after an `ask` | is its answer, and the script goes on |
//! | anything else | says that no model is connected, and repeats what reached it |
//!
//! A script has one command per line. Blank lines and lines that begin with `#` are ignored.
//!
//! | command | what it does |
//! |---|---|
//! | `say TEXT` | one `text_delta`, on a new line after what was said before |
//! | `think TEXT` | one `reasoning_delta`, on a new line after what was thought before |
//! | `slowly 20ms TEXT` | `say`, word by word with that pause between |
//! | `call TOOL JSON` | asks the toolbox; no JSON is `{}` |
//! | `arguments TOOL JSON` | `call`, its input streamed before as `tool_call_update` events |
//! | `together` … `end` | makes the calls between them concurrently |
//! | `expect ok`, `expect error` | ends the turn with the error `unexpected` if the last calls came out otherwise |
//! | `repeat TIMES` … `end` | plays the lines between them so often |
//! | `wait 200ms`, `wait 2s` | waits; a cancel wakes it |
//! | `flood DELTAS BYTES` | so many `text_delta` events of so many bytes, without a pause |
//! | `ask QUESTION` | says it and ends the turn; the next text is the answer |
//! | `usage IN OUT` | one `usage_update`, in place of the estimate |
//! | `stop REASON` | ends the turn: `end_turn`, `max_tokens` or `refusal` |
//! | `fail CODE MESSAGE` | ends the stream with that error |
//! | `hang` | waits for the cancel |
//! | `deaf` | waits a minute and ignores the cancel |
//! | `panic TEXT` | panics inside the stream |
//!
//! `$input`, `$answer` and `$result` in what is said, thought or asked stand for the text that began the script, the
//! last answer, and the results of the last calls. `docs/guide/rehearsal.md` explains all of it with examples.
//!
//! Reading order: `script` is a parsed script, `parse` parses one, `cursor` decides the next step, `player` takes it.
//! What it does not do: it never sends `tool_call` or `tool_result`, which the owner of the toolbox does, and it
//! keeps nothing on disk.

mod answer;
mod command;
mod cursor;
mod error;
mod keyword;
mod limits;
mod line;
mod parse;
mod player;
mod scenes;
mod script;
mod select;
mod sessions;
mod template;
mod text;
mod turn_counter;

#[cfg(test)]
mod fakes;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream;

pub use error::{ScriptError, ScriptPosition, ScriptProblem};
pub use scenes::{SceneError, Scenes};

use crate::error::{ErrorKind, RuntimeError};
use crate::runtime::{AgentRuntime, EventStream, Handle, SessionInput, SideEffects, TurnInput};
use crate::session::{CloseReason, SessionStatus};
use sessions::RehearsalSessions;

/// The name of this backend.
pub const BACKEND: &str = "rehearsal";

/// The scripted model.
#[derive(Debug)]
pub struct RehearsalBackend {
    scenes: Scenes,
    sessions: Arc<RehearsalSessions>,
}

impl RehearsalBackend {
    pub fn new(scenes: Scenes) -> Self {
        Self { scenes, sessions: Arc::default() }
    }
}

#[async_trait]
impl AgentRuntime for RehearsalBackend {
    /// Stores nothing: every session is open. The id is the text of the key; the governance layer gives sessions an id
    /// of their own.
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        let session_id = input.key.as_str().into();
        Ok(Handle { key: Arc::new(input.key), session_id })
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        match self.sessions.begin(&handle.key, &input.cancel) {
            Some(turn) => player::play(turn, self.scenes.clone(), input),
            None => stream::iter([Err(busy())]).boxed(),
        }
    }

    /// A script has no model, process or connection.
    fn side_effects(&self) -> SideEffects {
        SideEffects::None
    }

    async fn cancel(&self, handle: &Handle) -> Result<(), RuntimeError> {
        self.sessions.cancel(&handle.key);
        Ok(())
    }

    async fn close(&self, handle: &Handle, _reason: CloseReason) -> Result<(), RuntimeError> {
        self.sessions.close(&handle.key);
        Ok(())
    }

    /// Never says `closed`, since a session that was never opened looks the same.
    async fn status(&self, handle: &Handle) -> Result<SessionStatus, RuntimeError> {
        let state = self.sessions.state(&handle.key);
        Ok(SessionStatus { state, backend: BACKEND.to_owned(), model: None })
    }
}

fn busy() -> RuntimeError {
    RuntimeError::new(
        ErrorKind::Busy,
        "A turn is running in this session. Wait for its `done`, or cancel it.",
    )
}
