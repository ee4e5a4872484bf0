//! One governed turn: a state machine that waits for the next event, records it, and emits what is durable.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tribune_constitution::{ChannelClass, Labels, Trust, prompt};
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::{
    BoardCheckinRecord, Turn, TurnPhase, UngovernedRecord, WithheldRecord,
};
use tribune_registry::board::EXCERPT_BYTES;
use tribune_runtime::{
    AUTORUN_FILES, AgentRuntime, ContentBlock, ErrorKind, EventKind, EventStream, Handle, MESSAGE_CHUNK_META,
    RuntimeError, RuntimeEvent, SideEffects, Speaker, StopReason, THOUGHT_CHUNK_META, ToolOutcome, TurnInput,
    Usage,
};
use tribune_storage::vault::EVENTS_KEPT;

use super::backend_stream::{BackendStream, Item, coalesce};
use super::calls::{Calls, Handled};
use super::mailbox_injection::InjectedMail;
use super::native_services::{Prepared, TurnServices};
use super::output_filter::{Instructed, OutputFilter};
use super::session_writer::FlushMode;
use super::tool_offer::offer;
use super::toolbox::{BackendRequest, CALLS_WAITING, ToolRequest, TurnTools};
use super::turn_recorder::TurnRecorder;
use super::turn_timeout::TurnTimeout;
use super::{Governance, native_services, slash_tribune};

/// Updates that an ACP agent sends beside its conversation. Their order relative to the output does not matter, so held
/// output is not flushed before them.
const UNORDERED_UPDATES: [&str; 7] = [
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
    MESSAGE_CHUNK_META,
    THOUGHT_CHUNK_META,
];

/// How long a cancelled backend may take to end its turn before it is cut off. Together with the final writes this
/// stays below one second, the time that a cancel may take.
const CANCEL_GRACE: Duration = Duration::from_millis(800);

/// The output of one turn, text and reasoning together. The bound stops a backend that never ends its output.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// What an event counts in addition to its text, so that empty events count too.
const EVENT_BYTES: usize = 32;

/// The skill name in the ledger entry of a turn, the same for every backend. Turns that the daemon answers have their
/// own name.
const SKILL: &str = "agent_runner";

pub(super) fn run<R: AgentRuntime + 'static>(
    inner: R,
    governance: Arc<Governance>,
    handle: Handle,
    input: TurnInput,
) -> EventStream {
    let begin = async move {
        match TurnState::begin(inner, governance, handle, input).await {
            Ok((running, events)) => (Some(running), Ok(events)),
            Err(error) => (None, Err(error)),
        }
    };
    // First the beginning, then one step after another until the turn is over.
    let steps = futures_util::stream::once(begin).flat_map(|(running, first)| {
        let rest = futures_util::stream::unfold(running, |running| async {
            let mut running = running?;
            match running.step().await {
                Ok(Step::More(events)) => Some((Ok(events), Some(running))),
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

enum Step {
    More(Vec<RuntimeEvent>),
    Over,
}

/// A running turn.
struct TurnState<R> {
    inner: R,
    recorder: TurnRecorder,
    /// Mailbox messages in the first batch; they are marked as read when it is durable.
    mail: Option<InjectedMail>,
    cancel: tokio_util::sync::CancellationToken,
    backend: BackendStream,
    /// Removes the services of the turn if its backend did not take them.
    _prepared: Option<Prepared>,
    requests: mpsc::Receiver<BackendRequest>,
    calls: Calls,
    turn: Cid,
    started: Turn,
    speaker: Speaker,
    input_text: String,
    /// The part of the output that was shown.
    output: String,
    filter: OutputFilter,
    /// Bytes of output so far, see [`MAX_OUTPUT_BYTES`].
    output_bytes: usize,
    /// Whether any output was shown.
    has_spoken: bool,
    usage: Usage,
    cut_off: Option<Pin<Box<Sleep>>>,
    limit: TurnTimeout,
    /// The end is recorded and was shown.
    is_over: bool,
}

/// How a turn ends.
struct End {
    stop_reason: StopReason,
    error: Option<RuntimeError>,
}

impl From<RuntimeError> for End {
    fn from(error: RuntimeError) -> Self {
        Self { stop_reason: StopReason::Error, error: Some(error) }
    }
}

impl<R: AgentRuntime + 'static> TurnState<R> {
    /// Steps 2 to 4, and the start of step 5.
    async fn begin(
        inner: R,
        governance: Arc<Governance>,
        handle: Handle,
        input: TurnInput,
    ) -> Result<(Self, Vec<RuntimeEvent>), RuntimeError> {
        if governance.policy.gate.is_frozen() {
            let what = "everything is stopped: an approver can resume it with `tribune resume`";
            return Err(RuntimeError::new(ErrorKind::Frozen, what));
        }
        let journal = governance.journal(&handle).await?.lock_owned().await;
        // Read while the rest is prepared.
        let recalling = (inner.side_effects() == SideEffects::AfterRecord)
            .then(|| native_services::recall(&governance, &journal.conversation()));
        let mandate = governance.mandate(journal.standing.mandate())?.clone();
        let text = tribune_runtime::content::text_of(&input.content);
        let trust = trust_in(input.speaker);
        let trust = governance.ask_hooks(&journal.standing, (&text, trust), &input.cancel).await?;
        let gate = || inner.gate_status(&handle);
        let answer = slash_tribune::answer(&governance, &handle, (&input, trust), gate).await?;
        let (mail, board) = match &answer {
            None => load_turn_context(&governance, &handle)?,
            // Mailbox messages wait for a turn that the agent itself answers.
            Some(_) => (InjectedMail::none(&governance, &handle), String::new()),
        };
        let mut recorder = TurnRecorder::new(governance, handle, journal);
        let input_labels = Labels::new(trust, false);
        let input_labels = match &input.schedule_id {
            Some(resource) => input_labels.meet(recorder.governance.policy.gate.stored_labels(resource)?),
            None => input_labels,
        };
        let taken_in = input_labels.meet(mail.labels());
        let labels = recorder.journal.standing.labels.meet(taken_in);
        recorder.journal.standing.labels = labels;

        let inputs_hash = recorder.content(&input.content)?;
        let started = Turn {
            phase: TurnPhase::Started,
            skill_name: if answer.is_none() { SKILL } else { slash_tribune::SKILL }.to_owned(),
            inputs_hash,
            timestamp: recorder.journal.now().to_string(),
            actor: recorder.handle.key.agent().as_str().to_owned(),
            prev_cid: recorder.journal.prev_turn.map(|cid| cid.to_string()),
            constitution_hash: recorder.governance.policy.gate.law.hash().to_string(),
            labels,
        };
        let parents = recorder.journal.prev_turn.into_iter().collect();
        let session_id = Arc::clone(&recorder.handle.session_id);
        let entry = recorder.line(EntryQuality::Turn, &session_id, parents, &started)?;
        let turn = entry.cid;
        recorder.event(EventKind::TurnStarted { turn: turn.to_string() });
        recorder.event(EventKind::LedgerAppend { entry: Box::new(entry) });

        let (request_sender, requests) = mpsc::channel(CALLS_WAITING);
        let cancel = input.cancel.clone();
        // Input without owner trust does not count as words of the owner.
        let speaker = if trust == Trust::Owner { Speaker::Owner } else { Speaker::Guest };
        let is_instructed = answer.is_none() && inner.has_system_prompt();
        let mut prepared = None;
        let backend = match answer {
            Some(answer) => BackendStream::new(answer),
            None => {
                let injected_messages = mail.inject(&mut recorder, turn)?;
                let services = TurnServices::new(&recorder, &mandate, turn, (&board, &text), recalling)?;
                prepared = Some(recorder.governance.live.prepared_services.put(&recorder.handle, services));
                let agent = recorder.handle.key.agent().as_str();
                let system = prompt::assemble(&recorder.governance.policy.gate.law, &mandate, &board, agent);
                let specs = offer(&mut recorder, &mandate, turn)?;
                let tools = Arc::new(TurnTools { specs, wishes: request_sender });
                let input =
                    TurnInput { system, injected_messages, tools, cancel: cancel.child_token(), ..input };
                let started_stream = AssertUnwindSafe(|| inner.run_turn(&recorder.handle, input));
                match std::panic::catch_unwind(started_stream) {
                    Ok(events) => BackendStream::new(events),
                    Err(panicked) => BackendStream::panicked(panicked),
                }
            }
        };
        recorder.journal.prev_turn = Some(turn);
        let limit = TurnTimeout::new(recorder.governance.policy.turn_limit);
        let class = ChannelClass::from_settings(
            recorder.handle.key.channel(),
            recorder.governance.policy.gate.law.settings(),
        );
        let instructed = if is_instructed { Instructed::Yes } else { Instructed::No };
        let filter = OutputFilter::new(&recorder.governance.policy.redactor, class, instructed);
        let mut running = Self {
            inner,
            recorder,
            mail: Some(mail),
            cancel,
            backend,
            _prepared: prepared,
            requests,
            calls: Calls::default(),
            turn,
            started,
            speaker,
            input_text: text,
            output: String::new(),
            filter,
            output_bytes: 0,
            has_spoken: false,
            usage: Usage::default(),
            cut_off: None,
            limit,
            is_over: false,
        };
        let events = match running.inner.side_effects() {
            SideEffects::None => Vec::new(),
            // What the native backend records for its first model request flushes this batch too.
            SideEffects::AfterRecord => running.write_listening(FlushMode::Next).await?,
            SideEffects::Unbounded => running.write().await?,
        };
        Ok((running, events))
    }

    /// Writes the batch and starts a new one. Returns its events when everything in it is durable.
    async fn write(&mut self) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        let written = self.recorder.write().await?;
        self.emit().await;
        Ok(written.events)
    }

    /// Same as `write`, while the backend continues. What it emits meanwhile comes after this batch.
    async fn write_listening(&mut self, mode: FlushMode) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        let page = self.recorder.submit(mode).await?;
        let written = self.backend.meanwhile(self.recorder.wait_durable(page)).await?;
        self.emit().await;
        Ok(written.events)
    }

    /// Acknowledges the mailbox messages of the turn: the first batch is durable.
    async fn emit(&mut self) {
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
        if !self.recorder.page.is_empty() {
            let first = self.backend.now();
            return self.write_first_batch(first).await;
        }
        self.limit.run(!self.calls.is_parked());
        let shutdown = self.recorder.governance.shutdown.clone();
        tokio::select! {
            biased;
            // The ends of a turn come first, so that a backend that never pauses can be stopped.
            () = self.cancel.cancelled(), if self.cut_off.is_none() => {
                self.cut_off = Some(Box::pin(tokio::time::sleep_until(Instant::now() + CANCEL_GRACE)));
                // A backend whose cancel fails or hangs is cut off when the grace time is over.
                let cancelled = AssertUnwindSafe(self.inner.cancel(&self.recorder.handle)).catch_unwind();
                let _ = tokio::time::timeout(CANCEL_GRACE, cancelled).await;
                Ok(Step::More(Vec::new()))
            }
            () = wait(&mut self.cut_off) => {
                let end = End { stop_reason: StopReason::Cancelled, error: None };
                self.end(Vec::new(), end).await
            }
            // A turn that only waits for a person does not delay the stop of the daemon.
            () = shutdown.cancelled(), if self.calls.is_parked() => {
                let end = End { stop_reason: StopReason::Cancelled, error: None };
                self.end(Vec::new(), end).await
            }
            () = self.limit.over() => {
                let what = "the turn took longer than `sessions.turnMinutes` allows, and was ended";
                self.end(Vec::new(), RuntimeError::new(ErrorKind::TurnLimit, what).into()).await
            }
            // Output from before a request is handled before the request.
            items = self.backend.next() => match items {
                Some(items) => self.said(items).await,
                None => self.end(Vec::new(), ended_early().into()).await,
            },
            Some(request) = self.requests.recv() => self.on_request(request).await,
            progress = self.calls.next() => {
                let owner_words = owner_words(self.speaker, &self.input_text);
                let on_tool_reply = self.calls.handle(&mut self.recorder, progress, self.turn, &owner_words).await?;
                self.on_tool_reply(on_tool_reply)
            }
        }
    }

    /// Writes the first batch, together with output or requests that the backend has ready at once: a backend that
    /// responds without waiting costs one batch, not two.
    async fn write_first_batch(&mut self, first: Option<Option<Vec<Item>>>) -> Result<Step, RuntimeError> {
        match first {
            Some(Some(items)) => self.said(items).await,
            Some(None) => self.end(Vec::new(), ended_early().into()).await,
            None => match self.requests.try_recv() {
                Ok(request) => self.on_request(request).await,
                Err(_) => self.write().await.map(Step::More),
            },
        }
    }

    async fn on_request(&mut self, request: BackendRequest) -> Result<Step, RuntimeError> {
        match request {
            BackendRequest::Call(on_tool_request) => self.on_tool_request(on_tool_request).await,
            BackendRequest::CarryOut(id, waiting) => {
                self.calls.carry_out(&self.recorder, &id, waiting);
                Ok(Step::More(Vec::new()))
            }
            BackendRequest::Report(id, outcome, recorded) => {
                let on_tool_reply = self.calls.reported(&mut self.recorder, &id, outcome, recorded).await?;
                self.emit().await;
                self.on_tool_reply(on_tool_reply)
            }
        }
    }

    /// Step 6: the gate sees the call with its input.
    async fn on_tool_request(&mut self, asked: ToolRequest) -> Result<Step, RuntimeError> {
        if let Some(text) = self.filter.pause() {
            self.output.push_str(&text);
            self.recorder.event(EventKind::TextDelta { text });
        }
        if self.filter.discloses(&asked.call.input) {
            // The gate decides nothing about this call, and nothing of it is stored.
            let what = "withheld: the call would disclose instructions that are for the agent only";
            asked.answer.refuse(ToolOutcome::error(what));
            return self.write().await.map(Step::More);
        }
        let owner_words = owner_words(self.speaker, &self.input_text);
        let on_tool_reply = self.calls.asked(&mut self.recorder, asked, self.turn, &owner_words).await?;
        self.emit().await;
        self.on_tool_reply(on_tool_reply)
    }

    fn on_tool_reply(&mut self, handled: Handled) -> Result<Step, RuntimeError> {
        if handled.stop {
            self.cancel.cancel();
        }
        Ok(Step::More(handled.events))
    }

    /// Handles output of the backend. Ends the turn when the backend reports that it is done.
    async fn said(&mut self, items: Vec<Item>) -> Result<Step, RuntimeError> {
        let mut kinds = Vec::new();
        for item in items {
            let event = match item {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => return self.end(kinds, error.into()).await,
                Err(_) => {
                    let what = "the backend failed unexpectedly: see the daemon log";
                    return self.end(kinds, RuntimeError::new(ErrorKind::BackendPanicked, what).into()).await;
                }
            };
            // Counted before anything is held back, so that a backend cannot emit without limit while nothing is shown.
            self.output_bytes += EVENT_BYTES;
            let shown = match event.kind {
                EventKind::Done { stop_reason } => {
                    return self.end(kinds, End { stop_reason, error: None }).await;
                }
                EventKind::TextDelta { text } => {
                    self.output_bytes += text.len();
                    let shown = self.filter.say(&text);
                    self.output.push_str(shown.as_deref().unwrap_or_default());
                    shown.map(|text| EventKind::TextDelta { text })
                }
                EventKind::ReasoningDelta { text } => {
                    self.output_bytes += text.len();
                    self.filter.think(&text).map(|text| EventKind::ReasoningDelta { text })
                }
                EventKind::ToolCallUpdate { id, input_delta } => {
                    self.output_bytes += input_delta.len();
                    let shown = self.filter.write_call(&id, &input_delta);
                    shown.map(|input_delta| EventKind::ToolCallUpdate { id, input_delta })
                }
                EventKind::UsageUpdate { input_tokens, output_tokens } => {
                    self.usage = Usage { input_tokens, output_tokens };
                    Some(event.kind)
                }
                EventKind::Error { ref message, .. } => {
                    self.output_bytes += message.len();
                    Some(event.kind)
                }
                EventKind::Notice { code, message } => {
                    self.output_bytes += message.len();
                    if code == AUTORUN_FILES {
                        kinds.push(self.record_notice(&code, &message)?);
                    }
                    Some(EventKind::Notice { code, message })
                }
                EventKind::AgentUpdate { kind, line } => {
                    self.output_bytes += line.len();
                    if !UNORDERED_UPDATES.contains(&kind.as_str()) {
                        self.flush_held_output(&mut kinds);
                    }
                    let line = self.recorder.governance.policy.redactor.redact(&line).into_owned();
                    Some(EventKind::AgentUpdate { kind, line })
                }
                EventKind::Ungoverned { id, tool, what } => {
                    return self.ungoverned(kinds, id, tool, what).await;
                }
                // Only governance emits these events. A backend that emits one is stopped.
                EventKind::ToolCall { .. }
                | EventKind::ToolResult { .. }
                | EventKind::TurnStarted { .. }
                | EventKind::PolicyGate { .. }
                | EventKind::ApprovalRequested { .. }
                | EventKind::ApprovalDecided { .. }
                | EventKind::MailboxInjected { .. }
                | EventKind::LedgerAppend { .. } => {
                    let what =
                        "the backend reported an effect without asking for permission, and was stopped";
                    return self.end(kinds, RuntimeError::new(ErrorKind::Ungoverned, what).into()).await;
                }
            };
            if let Some(shown) = shown {
                coalesce(&mut kinds, shown);
            }
            if self.output_bytes > MAX_OUTPUT_BYTES {
                let what =
                    format!("the turn produced more than {MAX_OUTPUT_BYTES} bytes of output, and was ended");
                return self.end(kinds, RuntimeError::new(ErrorKind::TooLong, what).into()).await;
            }
        }
        let is_heard = !kinds.is_empty();
        for kind in kinds {
            self.recorder.event(kind);
        }
        // The caller flushes the first output, which is faster. The background thread flushes later output, while more
        // comes in.
        let is_first = !self.has_spoken;
        self.has_spoken |= is_heard;
        let flush_inline = is_first || self.inner.side_effects() == SideEffects::None;
        let mode = if flush_inline { FlushMode::Midway } else { FlushMode::Scribe };
        self.write_listening(mode).await.map(Step::More)
    }

    /// Records a notice that people should see, in addition to the event stream.
    fn record_notice(&mut self, code: &str, message: &str) -> Result<EventKind, RuntimeError> {
        let what_hash = self.recorder.content(message)?;
        let record = BoardCheckinRecord { event: code.to_owned(), what_hash };
        let target = Arc::clone(&self.recorder.handle.session_id);
        let entry = self.recorder.line(EntryQuality::Note, &target, vec![self.turn], &record)?;
        tracing::warn!(session = %self.recorder.handle.key, code, "the agent changed something that a person should check");
        Ok(EventKind::LedgerAppend { entry: Box::new(entry) })
    }

    /// Shows held output before an event that comes after it.
    fn flush_held_output(&mut self, kinds: &mut Vec<EventKind>) {
        if let Some(text) = self.filter.pause_in_thought() {
            coalesce(kinds, EventKind::ReasoningDelta { text });
        }
        if let Some(text) = self.filter.pause() {
            self.output.push_str(&text);
            coalesce(kinds, EventKind::TextDelta { text });
        }
    }

    /// Records that the agent acted without permission, and ends the turn.
    async fn ungoverned(
        &mut self,
        mut pending: Vec<EventKind>,
        id: String,
        tool: String,
        what: String,
    ) -> Result<Step, RuntimeError> {
        let what = self.recorder.governance.policy.redactor.redact(&what).into_owned();
        let what_hash = self.recorder.content(&what)?;
        let record = UngovernedRecord {
            event: "ungoverned".to_owned(),
            tool: tool.clone(),
            call_id: id.clone(),
            what_hash,
        };
        let target = Arc::clone(&self.recorder.handle.session_id);
        let entry = self.recorder.line(EntryQuality::Note, &target, vec![self.turn], &record)?;
        tracing::error!(session = %self.recorder.handle.key, tool, "an agent acted without permission");
        pending.push(EventKind::Ungoverned { id, tool, what });
        pending.push(EventKind::LedgerAppend { entry: Box::new(entry) });
        let what =
            "the agent executed a call without permission, and was stopped: see the ledger of its session";
        self.end(pending, RuntimeError::new(ErrorKind::Ungoverned, what).into()).await
    }

    /// The code and message of an error as they are shown. Some messages quote the request, and with it the
    /// instructions of the agent.
    fn error_words(&mut self, error: RuntimeError) -> (String, String) {
        let code = error.code().to_owned();
        let message = self.recorder.governance.policy.redactor.redact(&error.message).into_owned();
        if self.filter.discloses(&Value::from(message.as_str())) {
            return (
                code,
                "it failed; the reason is withheld because it quotes the instructions of the agent"
                    .to_owned(),
            );
        }
        (code, message)
    }

    /// Step 8: the turn is complete. `pending` is what came before its end and is not written yet.
    async fn end(&mut self, pending: Vec<EventKind>, end: End) -> Result<Step, RuntimeError> {
        for kind in pending {
            self.recorder.event(kind);
        }
        if let Some(text) = self.filter.rest_of_thoughts() {
            self.recorder.event(EventKind::ReasoningDelta { text });
        }
        for text in self.filter.rest() {
            self.output.push_str(&text);
            self.recorder.event(EventKind::TextDelta { text });
        }
        self.requests.close();
        // Drops the backend, so that what it cost is recorded before the end of the turn.
        self.backend.let_go();
        self.calls.abandon_all(&mut self.recorder).await?;
        let outputs_hash = self.recorder.content(&[ContentBlock::text(&self.output)])?;
        let End { stop_reason, error } = end;
        let error = error.map(|error| self.error_words(error));
        let record = Turn {
            phase: TurnPhase::Completed { outputs_hash, stop_reason, usage: self.usage },
            timestamp: self.recorder.journal.now().to_string(),
            labels: self.recorder.journal.standing.labels,
            ..self.started.clone()
        };
        if self.filter.is_withheld {
            let record =
                WithheldRecord { event: "withheld".to_owned(), rule: "prompt.disclosure".to_owned() };
            let target = Arc::clone(&self.recorder.handle.session_id);
            self.recorder.line(EntryQuality::Note, &target, vec![self.turn], &record)?;
        }
        let parents = [Some(self.turn), self.calls.last_result].into_iter().flatten().collect();
        let session_id = Arc::clone(&self.recorder.handle.session_id);
        let entry = self.recorder.line(EntryQuality::Turn, &session_id, parents, &record)?;
        if let Some((code, message)) = error {
            self.recorder.event(EventKind::Error { code, message });
        }
        self.recorder.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        self.recorder.event(EventKind::Done { stop_reason });
        self.recorder.journal.drop_old_events(&mut self.recorder.page, EVENTS_KEPT);
        let events = self.write().await?;
        self.is_over = true;
        Ok(Step::More(events))
    }

    /// Publishes the turn to the board and the transcript. The turn is complete whether or not they can be written, and
    /// its end was already shown.
    async fn publish_transcript(&mut self) {
        let completed = super::turn_transcript::CompletedTurn {
            governance: Arc::clone(&self.recorder.governance),
            key: Arc::clone(&self.recorder.handle.key),
            turn: self.turn.to_string(),
            input: std::mem::take(&mut self.input_text),
            output: std::mem::take(&mut self.output),
            denied: std::mem::take(&mut self.calls.denied),
            now: self.recorder.journal.now(),
        };
        // This fails only when the daemon is shutting down.
        let _ = tokio::task::spawn_blocking(move || completed.tell()).await;
    }
}

/// What a turn reads from files before it starts: its mailbox messages and the board. Both are small and read on this
/// thread: passing them to another thread would take longer than reading them.
fn load_turn_context(
    governance: &Arc<Governance>,
    handle: &Handle,
) -> Result<(InjectedMail, String), RuntimeError> {
    let mail = InjectedMail::claim(governance, handle)?;
    let board = governance.agent_files.board.excerpt(EXCERPT_BYTES).unwrap_or_else(|error| {
        tracing::warn!(%error, "the board could not be read");
        String::new()
    });
    Ok((mail, board))
}

/// The trust level of a speaker.
const fn trust_in(speaker: Speaker) -> Trust {
    match speaker {
        Speaker::Owner => Trust::Owner,
        Speaker::Agent => Trust::Verified,
        Speaker::Guest => Trust::Community,
        // Lowered further by the labels of the stored text.
        Speaker::Schedule => Trust::Verified,
    }
}

/// The words of the owner in this turn.
fn owner_words(speaker: Speaker, input: &str) -> Vec<&str> {
    match speaker {
        Speaker::Owner => vec![input],
        Speaker::Agent | Speaker::Guest | Speaker::Schedule => Vec::new(),
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
