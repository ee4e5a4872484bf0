//! Checks the canary before each turn of a backend: an agent whose gate is not known to be live is tested first, and an agent that
//! the gate does not hold is not run.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use tribune_runtime::{
    AgentRuntime, CloseReason, EventKind, EventStream, Handle, RuntimeError, RuntimeEvent, SessionInput,
    SessionStatus, SideEffects, StopReason, TurnInput,
};

use super::Canaries;

/// The end of a turn that was cancelled before it began.
const CANCELLED: RuntimeEvent =
    RuntimeEvent { seq: 1, kind: EventKind::Done { stop_reason: StopReason::Cancelled } };

/// A backend whose agents are checked before each turn.
#[derive(Clone)]
pub struct Guarded {
    pub inner: Arc<dyn AgentRuntime>,
    pub canaries: Arc<Canaries>,
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guarded")
    }
}

#[async_trait]
impl AgentRuntime for Guarded {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        self.inner.ensure_session(input).await
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        let (guarded, own) = (self.clone(), handle.clone());
        let begin = async move {
            let agent = own.key.agent();
            let admitted = tokio::select! {
                admitted = guarded.canaries.admit(agent) => admitted,
                () = input.cancel.cancelled() => match guarded.canaries.check_known(agent) {
                    // The agent got no message.
                    Ok(()) => return stream::iter([Ok(CANCELLED)]).boxed(),
                    Err(refused) => Err(refused),
                },
            };
            match admitted {
                Ok(()) => guarded.inner.run_turn(&own, input),
                Err(error) => {
                    // A process of the agent that still runs is ended.
                    let _ = guarded.inner.close(&own, CloseReason::Requested).await;
                    stream::iter([Err(error)]).boxed()
                }
            }
        };
        let (canaries, key) = (Arc::clone(&self.canaries), Arc::clone(&handle.key));
        let events = stream::once(begin).flatten().inspect(move |event| {
            if let Ok(event) = event
                && let EventKind::Ungoverned { tool, what, .. } = &event.kind
            {
                canaries.mark(&key, tool, what);
            }
        });
        events.boxed()
    }

    fn side_effects(&self) -> SideEffects {
        self.inner.side_effects()
    }

    fn has_system_prompt(&self) -> bool {
        self.inner.has_system_prompt()
    }

    fn gate_status(&self, handle: &Handle) -> Option<String> {
        self.canaries.told_of(handle.key.agent())
    }

    async fn cancel(&self, handle: &Handle) -> Result<(), RuntimeError> {
        self.inner.cancel(handle).await
    }

    async fn close(&self, handle: &Handle, reason: CloseReason) -> Result<(), RuntimeError> {
        self.inner.close(handle, reason).await
    }

    async fn status(&self, handle: &Handle) -> Result<SessionStatus, RuntimeError> {
        self.inner.status(handle).await
    }
}
