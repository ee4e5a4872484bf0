//! Tribune's own agent loop: a model, its tools, and rounds between them.
//!
//! A round sends a request, streams the answer, executes the calls in it, and goes on with their results until the
//! model makes no call. Every call goes through the turn's toolbox, so that the law sees it; a denial comes back as an
//! error that the model can explain.
//!
//! Reading order: [`host_services`] is what the host gives, [`model_binding`] the model of an agent, `turn` the loop,
//! `model_request` one request, `calls` the calls of an answer. `compaction` and `truncate_results` keep a request
//! within the context window.
//!
//! What it deliberately does not do: store anything itself (the host does), fall back to another model or provider when
//! one fails, or act on the world in any other way than through its toolbox.

mod calls;
mod compaction;
mod history_repair;
pub mod host_services;
pub mod model_binding;
mod model_request;
mod truncate_results;
mod turn;
mod user_message;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

pub use host_services::{
    Compaction, HostServices, HostServicesSource, NoHostServices, RequestOutcome, RequestStats, StoredMessage,
};
pub use model_binding::{ModelBinding, ModelResolver};

use crate::error::{ErrorKind, RuntimeError};
use crate::runtime::{AgentRuntime, EventStream, Handle, SessionInput, SideEffects, TurnInput};
use crate::session::{CloseReason, SessionKey, SessionState, SessionStatus};
use tribune_providers::TokenCalibration;

/// The name of this backend.
pub const BACKEND: &str = "native";

/// Sessions whose measured prompts are remembered; those of others are estimated anew.
const MAX_SESSIONS: usize = 10_000;

/// The loop, for every session that has a model.
pub struct NativeBackend {
    resolver: Arc<dyn ModelResolver>,
    services: Arc<dyn HostServicesSource>,
    sessions: Arc<Mutex<HashMap<SessionKey, NativeSession>>>,
}

/// What is known of a session while the daemon runs.
#[derive(Debug, Clone, Default)]
struct NativeSession {
    model: Option<String>,
    correction: TokenCalibration,
    /// Cancels the running turn.
    running: Option<CancellationToken>,
}

impl fmt::Debug for NativeBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NativeBackend")
    }
}

impl NativeBackend {
    /// `resolver` finds the model of an agent; `services` gives the services of the host to each turn.
    pub fn new(resolver: Arc<dyn ModelResolver>, services: Arc<dyn HostServicesSource>) -> Self {
        Self { resolver, services, sessions: Arc::default() }
    }

    fn session<T>(&self, key: &SessionKey, change: impl FnOnce(&mut NativeSession) -> T) -> T {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        change(sessions.entry(key.clone()).or_default())
    }
}

#[async_trait]
impl AgentRuntime for NativeBackend {
    /// The id is the text of the key; the governance layer gives sessions an id of their own.
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        // A session without a usable model is refused when it is opened, and not after a question was typed.
        self.resolver.resolve(input.agent(), input.terms.model.as_deref())?;
        self.session(&input.key, |session| session.model = input.terms.model);
        let session_id = input.key.as_str().into();
        Ok(Handle { key: Arc::new(input.key), session_id })
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        let session = self.session(&handle.key, |session| {
            if session.running.is_some() {
                return None;
            }
            session.running = Some(input.cancel.clone());
            Some(session.clone())
        });
        let Some(NativeSession { model, correction, .. }) = session else {
            return stream::iter([Err(busy())]).boxed();
        };
        let guard = TurnEndGuard { sessions: Arc::clone(&self.sessions), key: (*handle.key).clone() };
        let services = self.services.take(handle).ok_or_else(no_services);
        let binding = self.resolver.resolve(handle.key.agent(), model.as_deref());
        match binding.and_then(|binding| Ok((binding, services?))) {
            Ok((binding, services)) => turn::run(binding, input, services, correction, guard),
            Err(error) => {
                drop(guard);
                stream::iter([Err(error)]).boxed()
            }
        }
    }

    /// The host reserves the tokens of every request before it is sent.
    fn side_effects(&self) -> SideEffects {
        SideEffects::AfterRecord
    }

    /// Its prompt begins with the base prompt.
    fn has_system_prompt(&self) -> bool {
        true
    }

    async fn cancel(&self, handle: &Handle) -> Result<(), RuntimeError> {
        if let Some(running) = self.session(&handle.key, |session| session.running.clone()) {
            running.cancel();
        }
        Ok(())
    }

    async fn close(&self, handle: &Handle, _reason: CloseReason) -> Result<(), RuntimeError> {
        self.cancel(handle).await?;
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&*handle.key);
        Ok(())
    }

    async fn status(&self, handle: &Handle) -> Result<SessionStatus, RuntimeError> {
        let (model, running) =
            self.session(&handle.key, |session| (session.model.clone(), session.running.is_some()));
        let state = if running { SessionState::Running } else { SessionState::Idle };
        Ok(SessionStatus { state, backend: BACKEND.to_owned(), model })
    }
}

/// Marks the turn as over when dropped, however it ends.
struct TurnEndGuard {
    sessions: Arc<Mutex<HashMap<SessionKey, NativeSession>>>,
    key: SessionKey,
}

impl TurnEndGuard {
    /// Keeps the correction that the provider's token counts gave.
    fn learn(&self, correction: &TokenCalibration) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() > MAX_SESSIONS {
            return;
        }
        if let Some(session) = sessions.get_mut(&self.key) {
            session.correction = correction.clone();
        }
    }
}

impl Drop for TurnEndGuard {
    fn drop(&mut self) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.get_mut(&self.key) {
            session.running = None;
        }
    }
}

/// INVARIANT: the governance layer prepares the services before the turn; a turn without them sends no request.
fn no_services() -> RuntimeError {
    RuntimeError::new(ErrorKind::Internal, "the turn was not prepared, and no model was asked: try again")
}

fn busy() -> RuntimeError {
    RuntimeError::new(
        ErrorKind::Busy,
        "A turn is running in this session. Wait for its `done`, or cancel it.",
    )
}
