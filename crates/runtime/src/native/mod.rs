//! Tribune's own agent: a model, its tools, and a loop between them.
//!
//! A round asks the model, shows what it says while it arrives, carries out the calls it makes, and asks again with their
//! results, until it makes none. Every call goes through the turn's toolbox, so the law sees it; a denial comes back as an
//! error that the model can explain.
//!
//! Reading order: [`host_services`] is what the host gives, [`model_binding`] which model sits where, `turn` the loop, `model_request` one request,
//! `calls` what the model wants done.
//!
//! What it deliberately does not do: keep anything itself (the house remembers), choose another model or provider when one
//! fails, or act on the world in any other way than through its toolbox.

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

pub use host_services::{Asked, Came, HostServicesSource, House, NoHouse, Remembered, Summary};
pub use model_binding::{Seat, Seats};

use crate::runtime::{AgentRuntime, EventStream, Handle, Reach, RuntimeError, SessionInput, TurnInput};
use crate::session::{CloseReason, SessionKey, SessionState, SessionStatus};
use tribune_providers::Correction;

/// The name of this backend.
pub const BACKEND: &str = "native";

/// Sessions whose measured prompts are remembered; the others are estimated anew.
const MAX_REMEMBERED: usize = 10_000;

/// The loop, for every session that has a model.
pub struct NativeBackend {
    seats: Arc<dyn Seats>,
    services: Arc<dyn HostServicesSource>,
    sessions: Arc<Mutex<HashMap<SessionKey, Sitting>>>,
}

/// What is known of a session while the daemon runs.
#[derive(Debug, Clone, Default)]
struct Sitting {
    model: Option<String>,
    correction: Correction,
    /// The turn that runs.
    running: Option<CancellationToken>,
}

impl fmt::Debug for NativeBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NativeBackend")
    }
}

impl NativeBackend {
    /// `seats` finds the model of an agent, `services` what the host gives to each turn.
    pub fn new(seats: Arc<dyn Seats>, services: Arc<dyn HostServicesSource>) -> Self {
        Self { seats, services, sessions: Arc::default() }
    }

    fn sitting<T>(&self, key: &SessionKey, change: impl FnOnce(&mut Sitting) -> T) -> T {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        change(sessions.entry(key.clone()).or_default())
    }
}

#[async_trait]
impl AgentRuntime for NativeBackend {
    /// The id is the text of the key; whoever governs the backend gives sessions an id of their own.
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        // A session whose model is not there is refused when it is opened, and not when someone has typed a question.
        self.seats.seat(input.agent(), input.model.as_deref())?;
        self.sitting(&input.key, |sitting| sitting.model = input.model);
        let session_id = input.key.as_str().into();
        Ok(Handle { key: Arc::new(input.key), session_id })
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        let sitting = self.sitting(&handle.key, |sitting| {
            if sitting.running.is_some() {
                return None;
            }
            sitting.running = Some(input.cancel.clone());
            Some(sitting.clone())
        });
        let Some(Sitting { model, correction, .. }) = sitting else {
            return stream::iter([Err(busy())]).boxed();
        };
        let leave = Leave { sessions: Arc::clone(&self.sessions), key: (*handle.key).clone() };
        let services = self.services.take(handle).ok_or_else(no_services);
        let seat = self.seats.seat(handle.key.agent(), model.as_deref());
        match seat.and_then(|seat| Ok((seat, services?))) {
            Ok((seat, services)) => turn::run(seat, input, services, correction, leave),
            Err(error) => {
                drop(leave);
                stream::iter([Err(error)]).boxed()
            }
        }
    }

    /// Every request is set aside for by the house before it is sent.
    fn reach(&self) -> Reach {
        Reach::Recorded
    }

    /// Its prompt begins with the base prompt.
    fn is_instructed(&self) -> bool {
        true
    }

    async fn cancel(&self, handle: &Handle) -> Result<(), RuntimeError> {
        if let Some(running) = self.sitting(&handle.key, |sitting| sitting.running.clone()) {
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
            self.sitting(&handle.key, |sitting| (sitting.model.clone(), sitting.running.is_some()));
        let state = if running { SessionState::Running } else { SessionState::Idle };
        Ok(SessionStatus { state, backend: BACKEND.to_owned(), model })
    }
}

/// The end of a turn, however it ends.
struct Leave {
    sessions: Arc<Mutex<HashMap<SessionKey, Sitting>>>,
    key: SessionKey,
}

impl Leave {
    /// Keeps what the provider's numbers taught.
    fn learn(&self, correction: &Correction) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() > MAX_REMEMBERED {
            return;
        }
        if let Some(sitting) = sessions.get_mut(&self.key) {
            sitting.correction = correction.clone();
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sitting) = sessions.get_mut(&self.key) {
            sitting.running = None;
        }
    }
}

/// INVARIANT: whoever governs the backend prepares the services before the turn; a turn without them reaches no model.
fn no_services() -> RuntimeError {
    RuntimeError::new("internal", "the turn was not prepared, and no model was asked: try again")
}

fn busy() -> RuntimeError {
    RuntimeError::new("busy", "A turn is running in this session. Wait for its `done`, or cancel it.")
}
