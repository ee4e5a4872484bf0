//! One governed turn: a machine that waits for whatever comes next, writes it down, and hands out what is durable.

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
    AUTORUN_FILES, AgentRuntime, ContentBlock, EventKind, EventStream, Handle, MESSAGE_CHUNK_META,
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

/// What an ACP agent tells beside its conversation. It has no place in the order of what is said, so that nothing has to be let out
/// before it.
const ASIDE: [&str; 7] = [
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
    MESSAGE_CHUNK_META,
    THOUGHT_CHUNK_META,
];

/// How long a cancelled backend may take to end its turn before it is cut off. Together with what is written down
/// afterwards it stays below the second that a cancel may take.
const CANCEL_GRACE: Duration = Duration::from_millis(800);

/// What is said in one turn, aloud or in thought: beyond it a backend is talking to itself.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// What an event counts beside its text, so that empty ones count too.
const EVENT_BYTES: usize = 32;

/// What a turn does for the record; every turn of every backend is run by this. Those that the house answers have their
/// own word.
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
    // First the beginning, then step after step until one says that it was the last.
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

/// A turn under way.
struct TurnState<R> {
    inner: R,
    desk: TurnRecorder,
    /// Letters on the first page; they are marked as read when it is written.
    letters: Option<InjectedMail>,
    cancel: tokio_util::sync::CancellationToken,
    backend: BackendStream,
    /// Takes back the services of the turn, if its backend did not take them.
    _prepared: Option<Prepared>,
    wishes: mpsc::Receiver<BackendRequest>,
    calls: Calls,
    turn: Cid,
    started: Turn,
    speaker: Speaker,
    input_text: String,
    /// What was shown of what the backend said.
    output: String,
    speech: OutputFilter,
    /// Bytes that the backend said, see [`MAX_OUTPUT_BYTES`].
    on_backend_events: usize,
    /// Something of it was shown.
    has_spoken: bool,
    usage: Usage,
    cut_off: Option<Pin<Box<Sleep>>>,
    limit: TurnTimeout,
    /// The end is on record and was shown.
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
    /// Steps two to four, and the start of five.
    async fn begin(
        inner: R,
        governance: Arc<Governance>,
        handle: Handle,
        input: TurnInput,
    ) -> Result<(Self, Vec<RuntimeEvent>), RuntimeError> {
        if governance.gate.is_frozen() {
            let what = "everything is stopped: an approver can let the agents go on with `tribune resume`";
            return Err(RuntimeError::new("frozen", what));
        }
        let journal = governance.journal(&handle).await?.lock_owned().await;
        // Read while the rest is prepared.
        let recalling = (inner.side_effects() == SideEffects::AfterRecord)
            .then(|| native_services::recall(&governance, &journal.conversation()));
        let mandate = governance.mandate(journal.standing.mandate())?.clone();
        let words = tribune_runtime::content::text_of(&input.content);
        let trust = trust_in(input.speaker);
        let trust = governance.ask_hooks(&journal.standing, (&words, trust), &input.cancel).await?;
        let gate = || inner.gate_status(&handle);
        let answer = slash_tribune::answer(&governance, &handle, (&input, trust), gate).await?;
        let (letters, board) = match &answer {
            None => look_around(&governance, &handle)?,
            // What is for the agent waits until it is the agent that hears.
            Some(_) => (InjectedMail::none(&governance, &handle), String::new()),
        };
        let mut desk = TurnRecorder::new(governance, handle, journal);
        let said = Labels::new(trust, false);
        let said = match &input.schedule_id {
            Some(resource) => said.meet(desk.governance.gate.stored_labels(resource)?),
            None => said,
        };
        let taken_in = said.meet(letters.labels());
        let labels = desk.journal.standing.labels.meet(taken_in);
        desk.journal.standing.labels = labels;

        let inputs_hash = desk.content(&input.content)?;
        let started = Turn {
            phase: TurnPhase::Started,
            skill_name: if answer.is_none() { SKILL } else { slash_tribune::SKILL }.to_owned(),
            inputs_hash,
            timestamp: desk.journal.now().to_string(),
            actor: desk.handle.key.agent().as_str().to_owned(),
            prev_cid: desk.journal.prev_turn.map(|cid| cid.to_string()),
            constitution_hash: desk.governance.gate.law.hash().to_string(),
            labels,
        };
        let parents = desk.journal.prev_turn.into_iter().collect();
        let session_id = Arc::clone(&desk.handle.session_id);
        let entry = desk.line(EntryQuality::Turn, &session_id, parents, &started)?;
        let turn = entry.cid;
        desk.event(EventKind::TurnStarted { turn: turn.to_string() });
        desk.event(EventKind::LedgerAppend { entry: Box::new(entry) });

        let (wish, wishes) = mpsc::channel(CALLS_WAITING);
        let cancel = input.cancel.clone();
        // What is not believed as the owner's is not the owner's word.
        let speaker = if trust == Trust::Owner { Speaker::Owner } else { Speaker::Guest };
        let is_instructed = answer.is_none() && inner.has_system_prompt();
        let mut prepared = None;
        let backend = match answer {
            Some(answer) => BackendStream::new(answer),
            None => {
                let preceding = letters.inject(&mut desk, turn)?;
                let house = TurnServices::new(&desk, &mandate, turn, (&board, &words), recalling)?;
                prepared = Some(desk.governance.prepared.put(&desk.handle, house));
                let agent = desk.handle.key.agent().as_str();
                let system = prompt::assemble(&desk.governance.gate.law, &mandate, &board, agent);
                let specs = offer(&mut desk, &mandate, turn)?;
                let tools = Arc::new(TurnTools { specs, wishes: wish });
                let input = TurnInput {
                    system,
                    injected_messages: preceding,
                    tools,
                    cancel: cancel.child_token(),
                    ..input
                };
                let begun = AssertUnwindSafe(|| inner.run_turn(&desk.handle, input));
                match std::panic::catch_unwind(begun) {
                    Ok(events) => BackendStream::new(events),
                    Err(panicked) => BackendStream::panicked(panicked),
                }
            }
        };
        desk.journal.prev_turn = Some(turn);
        let limit = TurnTimeout::new(desk.governance.turn_limit);
        let class =
            ChannelClass::from_settings(desk.handle.key.channel(), desk.governance.gate.law.settings());
        let instructed = if is_instructed { Instructed::Yes } else { Instructed::No };
        let speech = OutputFilter::new(&desk.governance.redactor, class, instructed);
        let mut running = Self {
            inner,
            desk,
            letters: Some(letters),
            cancel,
            backend,
            _prepared: prepared,
            wishes,
            calls: Calls::default(),
            turn,
            started,
            speaker,
            input_text: words,
            output: String::new(),
            speech,
            on_backend_events: 0,
            has_spoken: false,
            usage: Usage::default(),
            cut_off: None,
            limit,
            is_over: false,
        };
        let events = match running.inner.side_effects() {
            SideEffects::None => Vec::new(),
            // What the house writes for its first request takes this along.
            SideEffects::AfterRecord => running.write_listening(FlushMode::Next).await?,
            SideEffects::Unbounded => running.write().await?,
        };
        Ok((running, events))
    }

    /// Writes the page and begins another. Its events come back when everything on it is durable.
    async fn write(&mut self) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        let written = self.desk.write().await?;
        self.emit().await;
        Ok(written.events)
    }

    /// The same, while the backend goes on; whatever it has written comes after the page.
    async fn write_listening(&mut self, hand: FlushMode) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        let page = self.desk.hand_in(hand).await?;
        let written = self.backend.meanwhile(self.desk.written(page)).await?;
        self.emit().await;
        Ok(written.events)
    }

    /// The turn's beginning is durable.
    async fn emit(&mut self) {
        if let Some(letters) = self.letters.take() {
            letters.acknowledge().await;
        }
    }

    /// Waits for one thing and writes it down.
    async fn step(&mut self) -> Result<Step, RuntimeError> {
        if self.is_over {
            self.publish_transcript().await;
            return Ok(Step::Over);
        }
        if !self.desk.page.is_empty() {
            let first = self.backend.now();
            return self.write_first_batch(first).await;
        }
        self.limit.run(!self.calls.is_parked());
        let leaving = self.desk.governance.shutdown.clone();
        tokio::select! {
            biased;
            // Ends come first, so that a backend that never stops talking can be stopped.
            () = self.cancel.cancelled(), if self.cut_off.is_none() => {
                self.cut_off = Some(Box::pin(tokio::time::sleep_until(Instant::now() + CANCEL_GRACE)));
                // A backend that cannot be told is cut off a moment later.
                let told = AssertUnwindSafe(self.inner.cancel(&self.desk.handle)).catch_unwind();
                let _ = tokio::time::timeout(CANCEL_GRACE, told).await;
                Ok(Step::More(Vec::new()))
            }
            () = wait(&mut self.cut_off) => {
                let end = End { stop_reason: StopReason::Cancelled, error: None };
                self.end(Vec::new(), end).await
            }
            // A turn that only waits for a person does not hold up a daemon that stops.
            () = leaving.cancelled(), if self.calls.is_parked() => {
                let end = End { stop_reason: StopReason::Cancelled, error: None };
                self.end(Vec::new(), end).await
            }
            () = self.limit.over() => {
                let what = "the turn took longer than sessions.turnMinutes allows, and was ended";
                self.end(Vec::new(), RuntimeError::new("turn_limit", what).into()).await
            }
            // What the backend said before it asked comes before what it asked.
            heard = self.backend.next() => match heard {
                Some(heard) => self.said(heard).await,
                None => self.end(Vec::new(), ended_early().into()).await,
            },
            Some(wish) = self.wishes.recv() => self.on_request(wish).await,
            progress = self.calls.next() => {
                let owner_words = owner_words(self.speaker, &self.input_text);
                let handled = self.calls.handle(&mut self.desk, progress, self.turn, &owner_words).await?;
                self.on_tool_reply(handled)
            }
        }
    }

    /// Writes the turn's beginning, together with what the backend says or asks at once: a backend that answers without
    /// looking anywhere costs one page and not two.
    async fn write_first_batch(&mut self, first: Option<Option<Vec<Item>>>) -> Result<Step, RuntimeError> {
        match first {
            Some(Some(heard)) => self.said(heard).await,
            Some(None) => self.end(Vec::new(), ended_early().into()).await,
            None => match self.wishes.try_recv() {
                Ok(wish) => self.on_request(wish).await,
                Err(_) => self.write().await.map(Step::More),
            },
        }
    }

    async fn on_request(&mut self, wish: BackendRequest) -> Result<Step, RuntimeError> {
        match wish {
            BackendRequest::Call(asked) => self.on_tool_request(asked).await,
            BackendRequest::CarryOut(id, waiting) => {
                self.calls.carry_out(&self.desk, &id, waiting);
                Ok(Step::More(Vec::new()))
            }
            BackendRequest::Report(id, outcome, told) => {
                let handled = self.calls.reported(&mut self.desk, &id, outcome, told).await?;
                self.emit().await;
                self.on_tool_reply(handled)
            }
        }
    }

    /// Step six: the gate sees the call with its input.
    async fn on_tool_request(&mut self, asked: ToolRequest) -> Result<Step, RuntimeError> {
        if let Some(text) = self.speech.pause() {
            self.output.push_str(&text);
            self.desk.event(EventKind::TextDelta { text });
        }
        if self.speech.discloses(&asked.call.input) {
            // Nothing was decided about it, and nothing of it is kept.
            let what = "withheld: the call would give away instructions that are for the agent alone";
            asked.answer.refuse(ToolOutcome::error(what));
            return self.write().await.map(Step::More);
        }
        let owner_words = owner_words(self.speaker, &self.input_text);
        let handled = self.calls.asked(&mut self.desk, asked, self.turn, &owner_words).await?;
        self.emit().await;
        self.on_tool_reply(handled)
    }

    fn on_tool_reply(&mut self, handled: Handled) -> Result<Step, RuntimeError> {
        if handled.stop {
            self.cancel.cancel();
        }
        Ok(Step::More(handled.events))
    }

    /// Takes what the backend said; ends the turn if it says that it is done.
    async fn said(&mut self, heard: Vec<Item>) -> Result<Step, RuntimeError> {
        let mut kinds = Vec::new();
        for item in heard {
            let event = match item {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => return self.end(kinds, error.into()).await,
                Err(_) => {
                    let what = "the backend failed in a way it did not expect: see the daemon's log";
                    return self.end(kinds, RuntimeError::new("backend_panicked", what).into()).await;
                }
            };
            // Counted before anything is held back, so that a backend cannot talk for ever unheard.
            self.on_backend_events += EVENT_BYTES;
            let shown = match event.kind {
                EventKind::Done { stop_reason } => {
                    return self.end(kinds, End { stop_reason, error: None }).await;
                }
                EventKind::TextDelta { text } => {
                    self.on_backend_events += text.len();
                    let shown = self.speech.say(&text);
                    self.output.push_str(shown.as_deref().unwrap_or_default());
                    shown.map(|text| EventKind::TextDelta { text })
                }
                EventKind::ReasoningDelta { text } => {
                    self.on_backend_events += text.len();
                    self.speech.think(&text).map(|text| EventKind::ReasoningDelta { text })
                }
                EventKind::ToolCallUpdate { id, input_delta } => {
                    self.on_backend_events += input_delta.len();
                    let shown = self.speech.write_call(&id, &input_delta);
                    shown.map(|input_delta| EventKind::ToolCallUpdate { id, input_delta })
                }
                EventKind::UsageUpdate { input_tokens, output_tokens } => {
                    self.usage = Usage { input_tokens, output_tokens };
                    Some(event.kind)
                }
                EventKind::Error { ref message, .. } => {
                    self.on_backend_events += message.len();
                    Some(event.kind)
                }
                EventKind::Notice { code, message } => {
                    self.on_backend_events += message.len();
                    if code == AUTORUN_FILES {
                        kinds.push(self.noticed(&code, &message)?);
                    }
                    Some(EventKind::Notice { code, message })
                }
                EventKind::AgentUpdate { kind, line } => {
                    self.on_backend_events += line.len();
                    if !ASIDE.contains(&kind.as_str()) {
                        self.flush_held_output(&mut kinds);
                    }
                    let line = self.desk.governance.redactor.redact(&line).into_owned();
                    Some(EventKind::AgentUpdate { kind, line })
                }
                EventKind::Ungoverned { id, tool, what } => {
                    return self.ungoverned(kinds, id, tool, what).await;
                }
                // These are the record's own words; a backend that speaks them is not believed.
                EventKind::ToolCall { .. }
                | EventKind::ToolResult { .. }
                | EventKind::TurnStarted { .. }
                | EventKind::PolicyGate { .. }
                | EventKind::ApprovalRequested { .. }
                | EventKind::ApprovalDecided { .. }
                | EventKind::MailboxInjected { .. }
                | EventKind::LedgerAppend { .. } => {
                    let what = "the backend reported an effect that it did not ask for, and was stopped";
                    return self.end(kinds, RuntimeError::new("ungoverned", what).into()).await;
                }
            };
            if let Some(shown) = shown {
                coalesce(&mut kinds, shown);
            }
            if self.on_backend_events > MAX_OUTPUT_BYTES {
                let what = format!("the turn said more than {MAX_OUTPUT_BYTES} bytes, and was ended");
                return self.end(kinds, RuntimeError::new("too_long", what).into()).await;
            }
        }
        let is_heard = !kinds.is_empty();
        for kind in kinds {
            self.desk.event(kind);
        }
        // First words are waited for; those that follow come in while they are written.
        let is_first = !self.has_spoken;
        self.has_spoken |= is_heard;
        let is_waited_for = is_first || self.inner.side_effects() == SideEffects::None;
        let hand = if is_waited_for { FlushMode::Midway } else { FlushMode::Scribe };
        self.write_listening(hand).await.map(Step::More)
    }

    /// What somebody should know who did not see it is on record too.
    fn noticed(&mut self, code: &str, message: &str) -> Result<EventKind, RuntimeError> {
        let what_hash = self.desk.content(message)?;
        let record = BoardCheckinRecord { event: code.to_owned(), what_hash };
        let target = Arc::clone(&self.desk.handle.session_id);
        let entry = self.desk.line(EntryQuality::Note, &target, vec![self.turn], &record)?;
        tracing::warn!(session = %self.desk.handle.key, code, "something should be looked at");
        Ok(EventKind::LedgerAppend { entry: Box::new(entry) })
    }

    /// Shows what was held back of what was said, before something that comes after it.
    fn flush_held_output(&mut self, kinds: &mut Vec<EventKind>) {
        if let Some(text) = self.speech.pause_in_thought() {
            coalesce(kinds, EventKind::ReasoningDelta { text });
        }
        if let Some(text) = self.speech.pause() {
            self.output.push_str(&text);
            coalesce(kinds, EventKind::TextDelta { text });
        }
    }

    /// The agent did what it had no leave for: that is on record, and the turn is over.
    async fn ungoverned(
        &mut self,
        said: Vec<EventKind>,
        id: String,
        tool: String,
        what: String,
    ) -> Result<Step, RuntimeError> {
        let mut said = said;
        let what = self.desk.governance.redactor.redact(&what).into_owned();
        let what_hash = self.desk.content(&what)?;
        let record = UngovernedRecord {
            event: "ungoverned".to_owned(),
            tool: tool.clone(),
            call_id: id.clone(),
            what_hash,
        };
        let target = Arc::clone(&self.desk.handle.session_id);
        let entry = self.desk.line(EntryQuality::Note, &target, vec![self.turn], &record)?;
        tracing::error!(session = %self.desk.handle.key, tool, "an agent did what it had no leave for");
        said.push(EventKind::Ungoverned { id, tool, what });
        said.push(EventKind::LedgerAppend { entry: Box::new(entry) });
        let what =
            "the agent carried out what it had no leave for, and was stopped: its session's record says what";
        self.end(said, RuntimeError::new("ungoverned", what).into()).await
    }

    /// What is shown of an error. Some quote what was sent, and with it the agent's instructions.
    fn error_words(&mut self, error: RuntimeError) -> (String, String) {
        let code = error.code().to_owned();
        let message = self.desk.governance.redactor.redact(&error.message).into_owned();
        if self.speech.discloses(&Value::from(message.as_str())) {
            return (
                code,
                "it failed; why is withheld, since that quotes the agent's instructions".to_owned(),
            );
        }
        (code, message)
    }

    /// Step eight: the turn is complete. `said` is what came before its end and is not written yet.
    async fn end(&mut self, said: Vec<EventKind>, end: End) -> Result<Step, RuntimeError> {
        for kind in said {
            self.desk.event(kind);
        }
        if let Some(text) = self.speech.rest_of_thoughts() {
            self.desk.event(EventKind::ReasoningDelta { text });
        }
        for text in self.speech.rest() {
            self.output.push_str(&text);
            self.desk.event(EventKind::TextDelta { text });
        }
        self.wishes.close();
        // What the backend still did ends here, so that what it cost comes before the turn's end.
        self.backend.let_go();
        self.calls.abandon_all(&mut self.desk).await?;
        let outputs_hash = self.desk.content(&[ContentBlock::text(&self.output)])?;
        let End { stop_reason, error } = end;
        let error = error.map(|error| self.error_words(error));
        let record = Turn {
            phase: TurnPhase::Completed { outputs_hash, stop_reason, usage: self.usage },
            timestamp: self.desk.journal.now().to_string(),
            labels: self.desk.journal.standing.labels,
            ..self.started.clone()
        };
        if self.speech.is_withheld {
            let record =
                WithheldRecord { event: "withheld".to_owned(), rule: "prompt.disclosure".to_owned() };
            let target = Arc::clone(&self.desk.handle.session_id);
            self.desk.line(EntryQuality::Note, &target, vec![self.turn], &record)?;
        }
        let parents = [Some(self.turn), self.calls.last_result].into_iter().flatten().collect();
        let session_id = Arc::clone(&self.desk.handle.session_id);
        let entry = self.desk.line(EntryQuality::Turn, &session_id, parents, &record)?;
        if let Some((code, message)) = error {
            self.desk.event(EventKind::Error { code, message });
        }
        self.desk.event(EventKind::LedgerAppend { entry: Box::new(entry) });
        self.desk.event(EventKind::Done { stop_reason });
        self.desk.journal.drop_old_events(&mut self.desk.page, EVENTS_KEPT);
        let events = self.write().await?;
        self.is_over = true;
        Ok(Step::More(events))
    }

    /// What others read of the turn: the board and the transcript. The turn is complete whether or not they can be
    /// written, and its end was shown already.
    async fn publish_transcript(&mut self) {
        let told = super::turn_transcript::CompletedTurn {
            governance: Arc::clone(&self.desk.governance),
            key: Arc::clone(&self.desk.handle.key),
            turn: self.turn.to_string(),
            input: std::mem::take(&mut self.input_text),
            output: std::mem::take(&mut self.output),
            denied: std::mem::take(&mut self.calls.denied),
            now: self.desk.journal.now(),
        };
        // It fails only when the daemon is being torn down.
        let _ = tokio::task::spawn_blocking(move || told.tell()).await;
    }
}

/// What a turn reads from files before it begins: its letters and the board. Both are small and looked at without leaving
/// this thread: handing them to another would take longer than reading them.
fn look_around(
    governance: &Arc<Governance>,
    handle: &Handle,
) -> Result<(InjectedMail, String), RuntimeError> {
    let letters = InjectedMail::claim(governance, handle)?;
    let board = governance.board.excerpt(EXCERPT_BYTES).unwrap_or_else(|error| {
        tracing::warn!(%error, "the board could not be read");
        String::new()
    });
    Ok((letters, board))
}

/// How far a speaker is believed.
const fn trust_in(speaker: Speaker) -> Trust {
    match speaker {
        Speaker::Owner => Trust::Owner,
        Speaker::Agent => Trust::Verified,
        Speaker::Guest => Trust::Community,
        // And no further than what the words were made from.
        Speaker::Schedule => Trust::Verified,
    }
}

/// What the owner said in this turn.
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
    RuntimeError::new("ended_early", "the backend's stream ended without saying that the turn is done")
}
