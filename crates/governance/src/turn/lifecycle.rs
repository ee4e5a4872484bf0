//! One governed turn: a state machine that waits for the next event, records it, and emits what is durable. Its start is
//! in [`turn_start`](super::turn_start), the output of its backend is handled in
//! [`backend_events`](super::backend_events).

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::{Turn, TurnPhase, WithheldRecord};
use tribune_runtime::{
    AgentRuntime, ContentBlock, ErrorKind, EventKind, EventStream, Handle, RuntimeError, RuntimeEvent,
    StopReason, ToolOutcome, TurnInput,
};
use tribune_storage::vault::EVENTS_KEPT;

use super::Governance;
use super::backend_events::TurnOutput;
use super::backend_stream::{BackendStream, Item};
use super::calls::{CallStep, Calls};
use super::mailbox_injection::InjectedMail;
use super::native_services::Prepared;
use super::session_writer::FlushMode;
use super::toolbox::{BackendRequest, ToolRequest};
use super::turn_recorder::TurnRecorder;
use super::turn_timeout::TurnTimeout;
use super::turn_transcript::{CompletedTurn, Exchange};
use crate::gate::OwnerWords;

/// How long a cancelled backend may take to end its turn before it is cut off. Together with the final writes this
/// stays below one second, the time that a cancel may take.
const CANCEL_GRACE: Duration = Duration::from_millis(800);

/// Runs a turn. The stream does nothing before it is polled.
pub(super) fn run<R: AgentRuntime + 'static>(
    runtime: R,
    governance: Arc<Governance>,
    handle: Handle,
    input: TurnInput,
) -> EventStream {
    let begin = async move {
        match TurnState::begin(runtime, governance, handle, input).await {
            Ok((state, events)) => (Some(state), Ok(events)),
            Err(error) => (None, Err(error)),
        }
    };
    // First the beginning, then one step after another until the turn is over.
    let steps = futures_util::stream::once(begin).flat_map(|(state, first)| {
        let rest = futures_util::stream::unfold(state, |state| async {
            let mut state = state?;
            match state.step().await {
                Ok(Step::More(events)) => Some((Ok(events), Some(state))),
                Ok(Step::Over) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        futures_util::stream::once(async { first }).chain(rest)
    });
    let events = steps.flat_map(|step| {
        futures_util::stream::iter(match step {
            Ok(events) => events.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(error) => vec![Err(error)],
        })
    });
    events.boxed()
}

/// The result of one step of a turn.
pub(super) enum Step {
    More(Vec<RuntimeEvent>),
    Over,
}

/// A running turn.
pub(super) struct TurnState<R> {
    pub(super) recorder: TurnRecorder,
    /// Mailbox messages in the first batch; they are marked as read when it is durable.
    pub(super) mail: Option<InjectedMail>,
    pub(super) backend: BackendConnection<R>,
    pub(super) calls: Calls,
    pub(super) origin: TurnOrigin,
    pub(super) output: TurnOutput,
    pub(super) deadlines: Deadlines,
    /// The end is recorded and was shown.
    pub(super) is_over: bool,
}

/// The backend of a turn, and what connects it to the turn.
pub(super) struct BackendConnection<R> {
    pub(super) runtime: R,
    pub(super) stream: BackendStream,
    /// The calls that it requests.
    pub(super) requests: mpsc::Receiver<BackendRequest>,
    pub(super) cancel: CancellationToken,
    /// Removes the services of the turn if the backend did not take them.
    pub(super) _prepared: Option<Prepared>,
}

/// What a turn started from.
pub(super) struct TurnOrigin {
    /// The entry of its start.
    pub(super) entry: Cid,
    pub(super) record: Turn,
    /// The input, if the owner said it.
    pub(super) owner_words: Option<OwnerWords>,
    pub(super) input_text: String,
}

/// The times at which a turn is ended.
pub(super) struct Deadlines {
    pub(super) timeout: TurnTimeout,
    /// When a cancelled backend is cut off.
    pub(super) cut_off: Option<Pin<Box<Sleep>>>,
}

/// How a turn ends.
pub(super) struct End {
    pub(super) stop_reason: StopReason,
    pub(super) error: Option<RuntimeError>,
}

impl End {
    const CANCELLED: Self = Self { stop_reason: StopReason::Cancelled, error: None };
}

impl From<RuntimeError> for End {
    fn from(error: RuntimeError) -> Self {
        Self { stop_reason: StopReason::Error, error: Some(error) }
    }
}

impl<R: AgentRuntime + 'static> TurnState<R> {
    /// Writes the batch and starts a new one. Returns its events when everything in it is durable.
    pub(super) async fn write(&mut self) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        let written = self.recorder.write().await?;
        self.acknowledge_mail().await;
        Ok(written.events)
    }

    /// Same as `write`, while the backend continues. What it emits meanwhile comes after this batch.
    pub(super) async fn write_listening(
        &mut self,
        mode: FlushMode,
    ) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        let pending = self.recorder.submit(mode).await?;
        let written = self.backend.stream.meanwhile(self.recorder.wait_durable(pending)).await?;
        self.acknowledge_mail().await;
        Ok(written.events)
    }

    /// Acknowledges the mailbox messages of the turn: the first batch is durable.
    async fn acknowledge_mail(&mut self) {
        if let Some(mail) = self.mail.take() {
            mail.acknowledge().await;
        }
    }

    /// Waits for one event and records it.
    async fn step(&mut self) -> Result<Step, RuntimeError> {
        if self.is_over {
            self.publish_transcript().await;
            return Ok(Step::Over);
        }
        if !self.recorder.batch.is_empty() {
            let first = self.backend.stream.now();
            return self.write_first_batch(first).await;
        }
        self.deadlines.timeout.run(!self.calls.is_parked());
        let shutdown = self.recorder.governance.shutdown.clone();
        tokio::select! {
            biased;
            // The ends of a turn come first, so that a backend that never pauses can be stopped.
            () = self.backend.cancel.cancelled(), if self.deadlines.cut_off.is_none() => {
                self.deadlines.cut_off = Some(Box::pin(tokio::time::sleep_until(Instant::now() + CANCEL_GRACE)));
                // A backend whose cancel fails or hangs is cut off when the grace time is over.
                let cancelled = AssertUnwindSafe(self.backend.runtime.cancel(&self.recorder.handle)).catch_unwind();
                let _ = tokio::time::timeout(CANCEL_GRACE, cancelled).await;
                Ok(Step::More(Vec::new()))
            }
            () = wait(&mut self.deadlines.cut_off) => {
                self.end(Vec::new(), End::CANCELLED).await
            }
            // A turn that only waits for a person does not delay the stop of the daemon.
            () = shutdown.cancelled(), if self.calls.is_parked() => {
                self.end(Vec::new(), End::CANCELLED).await
            }
            () = self.deadlines.timeout.over() => {
                let what = "the turn took longer than `sessions.turnMinutes` allows, and was ended";
                self.end(Vec::new(), RuntimeError::new(ErrorKind::TurnLimit, what).into()).await
            }
            // Output from before a request is handled before the request.
            items = self.backend.stream.next() => match items {
                Some(items) => self.on_backend_events(items).await,
                None => self.end(Vec::new(), ended_early().into()).await,
            },
            Some(request) = self.backend.requests.recv() => self.on_request(request).await,
            progress = self.calls.next() => {
                let owner_words = self.origin.owner_words.as_ref();
                let turn = self.origin.entry;
                let step = self.calls.handle(&mut self.recorder, progress, turn, owner_words).await?;
                self.emit(step)
            }
        }
    }

    /// Writes the first batch, together with output or requests that the backend has ready at once: a backend that
    /// responds without waiting costs one batch, not two.
    async fn write_first_batch(&mut self, first: Option<Option<Vec<Item>>>) -> Result<Step, RuntimeError> {
        match first {
            Some(Some(items)) => self.on_backend_events(items).await,
            Some(None) => self.end(Vec::new(), ended_early().into()).await,
            None => match self.backend.requests.try_recv() {
                Ok(request) => self.on_request(request).await,
                Err(_) => self.write().await.map(Step::More),
            },
        }
    }

    async fn on_request(&mut self, request: BackendRequest) -> Result<Step, RuntimeError> {
        match request {
            BackendRequest::Call(request) => self.on_tool_request(request).await,
            BackendRequest::ExecuteGranted(id, waiting) => {
                self.calls.execute_granted(&self.recorder, &id, waiting);
                Ok(Step::More(Vec::new()))
            }
            BackendRequest::Report(id, outcome, recorded) => {
                let step = self.calls.record_report(&mut self.recorder, &id, outcome, recorded).await?;
                self.acknowledge_mail().await;
                self.emit(step)
            }
        }
    }

    /// Step 6: the gate sees the call with its input.
    async fn on_tool_request(&mut self, request: ToolRequest) -> Result<Step, RuntimeError> {
        if let Some(text) = self.output.pause() {
            self.recorder.event(text);
        }
        if self.output.filter.discloses(&request.call.input) {
            // The gate decides nothing about this call, and nothing of it is stored.
            let what = "withheld: the call would disclose instructions that are for the agent only";
            request.answer.refuse(ToolOutcome::error(what));
            return self.write().await.map(Step::More);
        }
        let owner_words = self.origin.owner_words.as_ref();
        let turn = self.origin.entry;
        let step = self.calls.on_tool_request(&mut self.recorder, request, turn, owner_words).await?;
        self.acknowledge_mail().await;
        self.emit(step)
    }

    /// Emits the events of a step of a call, and cancels the turn if a person stopped it.
    fn emit(&mut self, step: CallStep) -> Result<Step, RuntimeError> {
        if step.stop {
            self.backend.cancel.cancel();
        }
        Ok(Step::More(step.events))
    }

    /// The code and message of an error as they are shown. Some messages quote the request, and with it the
    /// instructions of the agent.
    fn error_words(&mut self, error: RuntimeError) -> (String, String) {
        let code = error.code().to_owned();
        let message = self.recorder.governance.policy.redactor.redact(&error.message).into_owned();
        if self.output.filter.discloses(&Value::from(message.as_str())) {
            return (
                code,
                "it failed; the reason is withheld because it quotes the instructions of the agent"
                    .to_owned(),
            );
        }
        (code, message)
    }

    /// Step 8: the turn is complete. `pending` is what came before its end and is not written yet.
    pub(super) async fn end(&mut self, pending: Vec<EventKind>, end: End) -> Result<Step, RuntimeError> {
        for kind in pending {
            self.recorder.event(kind);
        }
        for kind in self.output.finish() {
            self.recorder.event(kind);
        }
        self.backend.requests.close();
        // Drops the backend, so that what it cost is recorded before the end of the turn.
        self.backend.stream.let_go();
        self.calls.abandon_all(&mut self.recorder).await?;
        let outputs_hash = self.recorder.content(&[ContentBlock::text(&self.output.text)])?;
        let End { stop_reason, error } = end;
        let error = error.map(|error| self.error_words(error));
        let record = Turn {
            phase: TurnPhase::Completed { outputs_hash, stop_reason, usage: self.output.usage },
            timestamp: self.recorder.writer.now().to_string(),
            labels: self.recorder.writer.context.labels,
            ..self.origin.record.clone()
        };
        if self.output.filter.is_withheld {
            let record =
                WithheldRecord { event: "withheld".to_owned(), rule: "prompt.disclosure".to_owned() };
            let target = Arc::clone(&self.recorder.handle.session_id);
            self.recorder.line(EntryQuality::Note, &target, vec![self.origin.entry], &record)?;
        }
        let parents = [Some(self.origin.entry), self.calls.last_result].into_iter().flatten().collect();
        let session_id = Arc::clone(&self.recorder.handle.session_id);
        let entry = self.recorder.line(EntryQuality::Turn, &session_id, parents, &record)?;
        if let Some((code, message)) = error {
            self.recorder.event(EventKind::Error { code, message });
        }
        self.recorder.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        self.recorder.event(EventKind::Done { stop_reason });
        self.recorder.writer.drop_old_events(&mut self.recorder.batch, EVENTS_KEPT);
        let events = self.write().await?;
        self.is_over = true;
        Ok(Step::More(events))
    }

    /// Publishes the turn to the board and the transcript. The turn is complete whether or not they can be written, and
    /// its end was already shown.
    async fn publish_transcript(&mut self) {
        let completed = CompletedTurn {
            governance: Arc::clone(&self.recorder.governance),
            key: Arc::clone(&self.recorder.handle.key),
            turn: self.origin.entry.to_string(),
            exchange: Exchange {
                input: std::mem::take(&mut self.origin.input_text),
                output: std::mem::take(&mut self.output.text),
            },
            denied: std::mem::take(&mut self.calls.denied),
            now: self.recorder.writer.now(),
        };
        // This fails only when the daemon is shutting down.
        let _ = tokio::task::spawn_blocking(move || completed.publish()).await;
    }
}

async fn wait(sleep: &mut Option<Pin<Box<Sleep>>>) {
    match sleep {
        Some(sleep) => sleep.await,
        None => std::future::pending().await,
    }
}

fn ended_early() -> RuntimeError {
    RuntimeError::new(ErrorKind::EndedEarly, "the stream of the backend ended before the turn was done")
}
