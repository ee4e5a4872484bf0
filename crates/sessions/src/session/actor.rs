//! The actor of a session: one task that runs one command after the other, so that turns of a session never overlap.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tribune_governance::event_buffer::EventBuffer;
use tribune_governance::storage_handles::StorageHandles;
use tribune_runtime::{
    AgentExecutedCall, AgentRuntime, CloseReason, ContentBlock, EventKind, EventStream, Handle,
    PermissionOutcome, ReportedOutcome, RuntimeError, RuntimeEvent, SessionMode, Speaker, StopReason,
    ToolCall, ToolOutcome, ToolSpec, Toolbox, TurnInput, Usage,
};
use tribune_storage::store::StoreError;

use super::error::SessionError;
use super::lifecycle::Closing;
use super::session_limit::SessionLimit;

/// The shared handle of a loaded session; its actor owns the rest.
#[derive(Debug)]
pub struct Session {
    pub(super) handle: Handle,
    pub(super) inbox: mpsc::Sender<Command>,
    pub(crate) feed: Arc<EventBuffer>,
    running: Mutex<Option<CancellationToken>>,
    mode: Mutex<SessionMode>,
    /// Set when closing is requested: queued turns are refused.
    closing: AtomicBool,
    /// Why the end of a turn could not be recorded. The session is unloaded then.
    failure: OnceLock<RuntimeError>,
}

/// A command for a session's actor. Large variants are heap-allocated, because every idle session preallocates a queue of these.
#[derive(Debug)]
pub(super) enum Command {
    Run(Box<Run>),
    Close(Box<Close>),
}

#[derive(Debug)]
pub(super) struct Run {
    pub(super) content: Vec<ContentBlock>,
    pub(super) speaker: Speaker,
    pub(super) stored_as: Option<String>,
    pub(super) in_line: Arc<QueueClaim>,
    pub(super) accepted: oneshot::Sender<Result<Accepted, SessionError>>,
    pub(super) ended: oneshot::Sender<Result<TurnEnd, SessionError>>,
}

/// The claim on a queued turn, taken exactly once: by the actor, which runs the turn, or by the caller, which withdraws it.
#[derive(Debug, Default)]
pub(super) struct QueueClaim(AtomicBool);

impl QueueClaim {
    /// Takes the claim. `false` if the other side has it already.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub(super) struct Close {
    pub(super) closing: Closing,
    pub(super) answer: oneshot::Sender<Result<(), SessionError>>,
}

/// The turn's input is durable and the turn runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// CID of the turn.
    pub turn: String,
    /// Sequence number of its first event.
    pub first_seq: u64,
}

/// The result of a turn that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TurnEnd {
    /// CID of the turn.
    pub turn: String,
    pub stop_reason: StopReason,
    pub usage: Usage,
    /// Sequence number of its last event.
    pub last_seq: u64,
}

impl Session {
    pub(super) fn new(
        handle: Handle,
        mode: SessionMode,
        head: u64,
        queue: usize,
    ) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (inbox, commands) = mpsc::channel(queue);
        let session = Self {
            handle,
            inbox,
            feed: Arc::new(EventBuffer::new(head)),
            running: Mutex::new(None),
            mode: Mutex::new(mode),
            closing: AtomicBool::new(false),
            failure: OnceLock::new(),
        };
        (Arc::new(session), commands)
    }

    fn mode(&self) -> SessionMode {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_mode(&self, mode: SessionMode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    pub(super) fn set_closing(&self, closing: bool) {
        self.closing.store(closing, Ordering::SeqCst);
    }

    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Why the stream of events ended before its turn did.
    pub(super) fn failure(&self) -> Option<SessionError> {
        self.failure.get().cloned().map(SessionError::from)
    }

    /// Cancels the running turn. Returns `false` if there is none.
    pub(super) fn cancel(&self) -> bool {
        match &*self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(token) => {
                token.cancel();
                true
            }
            None => false,
        }
    }

    fn set_running(&self, token: Option<CancellationToken>) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

/// The dependencies of a session's task.
pub(super) struct Actor {
    pub(super) session: Arc<Session>,
    pub(super) runtime: Arc<dyn AgentRuntime>,
    /// Held while the session closes, so that no opening interleaves.
    pub(super) opening: Arc<tokio::sync::Mutex<()>>,
    pub(super) room: SessionLimit,
    pub(super) storage: StorageHandles,
    pub(super) draining: CancellationToken,
}

/// Takes commands until the session is closed or the daemon stops.
pub(super) async fn run(actor: Actor, mut commands: mpsc::Receiver<Command>) {
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            // Queued commands were not accepted; `refuse` answers their callers.
            () = actor.draining.cancelled() => None,
        };
        match command {
            // Withdrawn by its caller.
            Some(Command::Run(run)) if !run.in_line.take() => {}
            Some(Command::Run(run)) => {
                // Pinned on the heap, so that an idle session's task stays small.
                let ended = match Box::pin(actor.run_turn(*run)).await {
                    TurnOutcome::Answered => None,
                    TurnOutcome::Ended(answer, end) => Some((answer, end)),
                    TurnOutcome::Unrecorded => {
                        refuse(&actor, &mut commands, unrecorded);
                        return;
                    }
                };
                let finished = Closing { reason: CloseReason::Finished, unused_since: None };
                let is_closed = actor.session.mode() == SessionMode::Oneshot
                    && close_session(&actor, &mut commands, &finished).await.is_ok();
                if let Some((answer, end)) = ended {
                    let _ = answer.send(Ok(end));
                }
                if is_closed {
                    return;
                }
            }
            Some(Command::Close(close)) => {
                let result = close_session(&actor, &mut commands, &close.closing).await;
                let is_closed = result.is_ok();
                let _ = close.answer.send(result);
                if is_closed {
                    return;
                }
            }
            None => {
                refuse(&actor, &mut commands, |_| SessionError::Draining);
                return;
            }
        }
    }
}

fn closed(actor: &Actor) -> SessionError {
    SessionError::Closed(actor.session.handle.key.to_string())
}

fn unrecorded(actor: &Actor) -> SessionError {
    actor.session.failure().unwrap_or(SessionError::Draining)
}

/// Closes the session and its queue.
async fn close_session(
    actor: &Actor,
    commands: &mut mpsc::Receiver<Command>,
    closing: &Closing,
) -> Result<(), SessionError> {
    let _opening = actor.opening.lock().await;
    if closing.unused_since.is_some() {
        // `last_activity` does not know queued turns, which are not recorded yet; so the queue must be empty too.
        let key = &actor.session.handle.key;
        let name = key.as_str().to_owned();
        let row = actor.storage.readers.read(move |reader| reader.session(&name)).await?;
        if !commands.is_empty() || row.is_some_and(|row| closing.is_too_early(&row)) {
            return Err(SessionError::InUse(key.to_string()));
        }
    }
    actor.close(closing.reason).await?;
    actor.room.leave(&actor.session.handle.key);
    refuse(actor, commands, closed);
    Ok(())
}

/// Answers every queued command with an error.
fn refuse(actor: &Actor, commands: &mut mpsc::Receiver<Command>, why: fn(&Actor) -> SessionError) {
    commands.close();
    while let Ok(command) = commands.try_recv() {
        match command {
            Command::Run(run) => drop(run.accepted.send(Err(why(actor)))),
            Command::Close(close) => drop(close.answer.send(Err(why(actor)))),
        }
    }
}

impl Actor {
    async fn close(&self, reason: CloseReason) -> Result<(), SessionError> {
        Ok(self.runtime.close(&self.session.handle, reason).await?)
    }

    /// Runs one turn to its end, also without listeners.
    async fn run_turn(&self, run: Run) -> TurnOutcome {
        let Run { content, speaker, stored_as, accepted, ended, in_line: _ } = run;
        let cancel = CancellationToken::new();
        self.session.set_running(Some(cancel.clone()));
        // INVARIANT: this reads `closing` after it stores the token; a closing request sets `closing` before it reads the token.
        // So at least one of the two sees the other.
        if self.session.is_closing() {
            self.session.set_running(None);
            drop(accepted.send(Err(closed(self))));
            return TurnOutcome::Answered;
        }
        let input = TurnInput {
            content,
            speaker,
            schedule_id: stored_as,
            system: String::new(),
            injected_messages: Vec::new(),
            tools: Arc::new(NoTools),
            cancel: cancel.clone(),
        };
        let (mut accepted, mut ended) = (Some(accepted), Some(ended));
        let mut end = TurnEnd {
            turn: String::new(),
            stop_reason: StopReason::Error,
            usage: Usage::default(),
            last_seq: 0,
        };
        let (mut failure, mut is_done) = (None, false);
        let mut events = self.runtime.run_turn(&self.session.handle, input);
        let mut unrecordable = std::pin::pin!(self.storage.ledger.wait_failed());
        while let Some(event) = next_event(&mut events, unrecordable.as_mut()).await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            };
            end.last_seq = event.seq;
            match &event.kind {
                EventKind::TurnStarted { turn } => {
                    end.turn.clone_from(turn);
                    // Published before the reply, so that the caller can read the event as soon as it is accepted.
                    self.session.feed.publish(&event);
                    if let Some(accepted) = accepted.take() {
                        let _ = accepted.send(Ok(Accepted { turn: turn.clone(), first_seq: event.seq }));
                    }
                    continue;
                }
                EventKind::UsageUpdate { input_tokens, output_tokens } => {
                    end.usage = Usage { input_tokens: *input_tokens, output_tokens: *output_tokens };
                }
                EventKind::Done { stop_reason } => {
                    end.stop_reason = *stop_reason;
                    is_done = true;
                    // Before the end is published: a client that sees it may request the next turn at once.
                    self.session.set_running(None);
                    self.session.feed.publish(&event);
                    if self.session.mode() != SessionMode::Oneshot
                        && let Some(ended) = ended.take()
                    {
                        let _ = ended.send(Ok(end.clone()));
                    }
                    continue;
                }
                _ => {}
            }
            self.session.feed.publish(&event);
        }
        if failure.is_some() {
            // What is dropped in the middle of its work stops too.
            cancel.cancel();
        }
        drop(events);
        self.session.set_running(None);
        let Some(error) = failure.filter(|_| !is_done) else {
            return ended.map_or(TurnOutcome::Answered, |ended| TurnOutcome::Ended(ended, end));
        };
        self.answer_failed(error, accepted, ended)
    }

    /// Answers the caller of a turn whose end could not be recorded.
    fn answer_failed(
        &self,
        error: RuntimeError,
        accepted: Option<oneshot::Sender<Result<Accepted, SessionError>>>,
        ended: Option<oneshot::Sender<Result<TurnEnd, SessionError>>>,
    ) -> TurnOutcome {
        tracing::error!(session = %self.session.handle.key, code = error.code(), "the end of a turn could not be recorded");
        if let Some(accepted) = accepted {
            // Nothing of the turn was shown, and the session goes on.
            let _ = accepted.send(Err(error.into()));
            return TurnOutcome::Answered;
        }
        // Before the answer: a client that has it can read the state of the session at once.
        let _ = self.session.failure.set(error.clone());
        if let Some(ended) = ended {
            let _ = ended.send(Err(error.into()));
        }
        TurnOutcome::Unrecorded
    }
}

/// The next event of a turn. Fails when nothing can be recorded any more, whatever the turn waits for.
async fn next_event(
    events: &mut EventStream,
    unrecordable: Pin<&mut impl Future<Output = StoreError>>,
) -> Option<Result<RuntimeEvent, RuntimeError>> {
    tokio::select! {
        biased;
        event = events.next() => event,
        error = unrecordable => Some(Err(error.into())),
    }
}

/// How a turn was left.
enum TurnOutcome {
    /// Its caller has its answer.
    Answered,
    /// The caller of a oneshot session is answered after the session is closed.
    Ended(oneshot::Sender<Result<TurnEnd, SessionError>>, TurnEnd),
    /// Its beginning was shown and its end cannot be recorded: the session is unloaded, and its next writer recovers it.
    Unrecorded,
}

/// An empty toolbox, for a runtime that gets its tools elsewhere or gets none.
#[derive(Debug)]
pub struct NoTools;

#[async_trait::async_trait]
impl Toolbox for NoTools {
    fn tools(&self) -> &[ToolSpec] {
        &[]
    }

    async fn call(&self, _: ToolCall) -> ToolOutcome {
        ToolOutcome::error("there are no tools here")
    }

    async fn request_permission(&self, _: AgentExecutedCall) -> PermissionOutcome {
        PermissionOutcome::Denied("there are no tools here".to_owned())
    }

    async fn execute_granted(&self, _: &str) -> ToolOutcome {
        ToolOutcome::error("there are no tools here")
    }

    async fn report_result(&self, _: &str, _: ReportedOutcome) {}
}
