//! A fake backend that makes the calls of the test, whatever its input: none of its calls is in the owner's words.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tribune_runtime::{
    AgentRuntime, CloseReason, EventKind, EventStream, Handle, RuntimeError, RuntimeEvent, SessionInput,
    SessionState, SessionStatus, StopReason, ToolCall, TurnInput,
};

/// Calls that are made at once.
pub(crate) type Batch = Vec<(&'static str, Value)>;

#[derive(Debug, Default, Clone)]
pub(crate) struct ScriptedAgent {
    /// The batches of each coming turn.
    turns: Arc<Mutex<VecDeque<Vec<Batch>>>>,
    /// Tool, answer, and whether it is an error, in the order of their arrival.
    answers: Arc<Mutex<Vec<(String, String, bool)>>>,
}

impl ScriptedAgent {
    /// Prepares the calls of the next turn without batches.
    pub(crate) fn prepare(&self, batches: Vec<Batch>) {
        self.turns.lock().unwrap().push_back(batches);
    }

    /// Returns the answers since the last call.
    pub(crate) fn answers(&self) -> Vec<(String, String, bool)> {
        std::mem::take(&mut *self.answers.lock().unwrap())
    }
}

#[async_trait]
impl AgentRuntime for ScriptedAgent {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        Ok(Handle { key: Arc::new(input.key), session_id: "scripted".into() })
    }

    fn run_turn(&self, _: &Handle, input: TurnInput) -> EventStream {
        let batches = self.turns.lock().unwrap().pop_front().unwrap_or_default();
        let (answers, tools) = (Arc::clone(&self.answers), input.tools);
        let play = async move {
            let mut n = 0;
            for batch in batches {
                let calls = batch.into_iter().map(|(name, input)| {
                    n += 1;
                    let call = ToolCall { id: format!("call-{n}"), name: name.to_owned(), input };
                    let (tools, answers) = (Arc::clone(&tools), Arc::clone(&answers));
                    async move {
                        let outcome = tools.call(call).await;
                        answers.lock().unwrap().push((name.to_owned(), outcome.content, outcome.is_error));
                    }
                });
                join_all(calls).await;
            }
            let delta = EventKind::TextDelta { text: "it is done".to_owned() };
            let kinds = [delta, EventKind::Done { stop_reason: StopReason::EndTurn }];
            stream::iter(kinds.into_iter().zip(1..).map(|(kind, seq)| Ok(RuntimeEvent { seq, kind })))
        };
        stream::once(play).flatten().boxed()
    }

    async fn cancel(&self, _: &Handle) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn close(&self, _: &Handle, _: CloseReason) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn status(&self, _: &Handle) -> Result<SessionStatus, RuntimeError> {
        Ok(SessionStatus { state: SessionState::Idle, backend: "scripted".into(), model: None })
    }
}
