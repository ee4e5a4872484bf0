//! The backend of the sessions of `tribune run`. It takes no turns.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use tribune_records::agents::RUN_BACKEND;
use tribune_runtime::{
    AgentRuntime, CloseReason, ErrorKind, EventStream, Handle, RuntimeError, SessionInput, SessionState,
    SessionStatus, SideEffects, TurnInput,
};

/// The backend [`RUN_BACKEND`]: it takes no turns, and no agent of a roster has it.
#[derive(Debug)]
pub struct RunBackend;

#[async_trait]
impl AgentRuntime for RunBackend {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        let session_id = input.key.as_str().into();
        Ok(Handle { key: Arc::new(input.key), session_id })
    }

    fn run_turn(&self, _: &Handle, _: TurnInput) -> EventStream {
        let what = "a program runs in this session, and it takes no turns: talk to an agent instead";
        stream::iter([Err(RuntimeError::new(ErrorKind::InvalidParams, what))]).boxed()
    }

    fn side_effects(&self) -> SideEffects {
        SideEffects::None
    }

    async fn cancel(&self, _: &Handle) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn close(&self, _: &Handle, _: CloseReason) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn status(&self, _: &Handle) -> Result<SessionStatus, RuntimeError> {
        Ok(SessionStatus { state: SessionState::Idle, backend: RUN_BACKEND.to_owned(), model: None })
    }
}
