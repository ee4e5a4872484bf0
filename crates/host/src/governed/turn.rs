//! One governed turn: a machine that waits for whatever comes next, writes it down, and hands out what is durable.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt as _, StreamExt as _};
use serde::Serialize;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};
use tokio::time::{Instant, Sleep};
use tribune_agents::{
    AgentRuntime, ContentBlock, EventKind, EventStream, Handle, Role, RuntimeError, RuntimeEvent, StopReason,
    ToolCall, ToolOutcome, TurnInput, Usage,
};
use tribune_constitution::{CallFacts, Mandate, Verdict, prompt};
use tribune_ledger::commitment::Commitment;
use tribune_ledger::{Cid, EntryQuality, LedgerEntry};

use super::journal::{Journal, Line, Page};
use super::letters::Letters;
use super::toolbox::{Asked, CALLS_WAITING, TurnTools};
use super::{Governance, failed};
use crate::record::{CallOutcome, ToolCallRecord, ToolResultRecord, Turn, TurnPhase};
use crate::registry::board::EXCERPT_BYTES;
use crate::session::transcript::TranscriptLine;
use crate::tools::HostTools;
use crate::vault::EVENTS_KEPT;

/// Events of the backend that are written as one page, at most: what has queued up while the page before was written.
const CHUNK: usize = 256;

/// How long a cancelled backend may take to end its turn before it is cut off. Together with what is written down
/// afterwards it stays below the second that a cancel may take.
const CANCEL_GRACE: Duration = Duration::from_millis(800);

/// What is said in one turn, aloud or in thought: beyond it a backend is talking to itself.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// What an event counts beside its text, so that empty ones count too.
const EVENT_BYTES: usize = 32;

/// Input of one call.
const MAX_CALL_BYTES: usize = 1 << 20;

/// Calls in one turn.
const MAX_CALLS: usize = 10_000;

/// What a turn does for the record; every turn of every backend is run by this.
const SKILL: &str = "agent_runner";

pub(super) fn run<R: AgentRuntime + 'static>(
    inner: R,
    governance: Arc<Governance>,
    handle: Handle,
    input: TurnInput,
) -> EventStream {
    let begin = async move {
        match Running::begin(inner, governance, handle, input).await {
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

type Panicked = Box<dyn std::any::Any + Send>;
type Chunk = Vec<Result<Result<RuntimeEvent, RuntimeError>, Panicked>>;
type Chunks = BoxStream<'static, Chunk>;
type Finished = (Allowed, ToolOutcome);

/// A call that passed the gate.
struct Allowed {
    entry: Cid,
    call: ToolCall,
    answer: oneshot::Sender<ToolOutcome>,
}

/// A turn under way.
struct Running<R> {
    inner: R,
    governance: Arc<Governance>,
    handle: Handle,
    mandate: Mandate,
    journal: OwnedMutexGuard<Journal>,
    /// What comes next on disk. It begins with the turn's beginning.
    page: Page,
    /// Letters on the first page; they are marked as read when it is written.
    letters: Option<Letters>,
    cancel: tokio_util::sync::CancellationToken,
    chunks: Chunks,
    asked: mpsc::Receiver<Asked>,
    running: FuturesUnordered<Pin<Box<dyn Future<Output = Finished> + Send>>>,
    /// What is running, by the id of its call, for when it has to be written off.
    open_calls: Vec<(String, String, Cid)>,
    call_ids: HashSet<String>,
    turn: Cid,
    started: Turn,
    /// The newest entries that the turn's end follows from.
    last_result: Option<Cid>,
    input_text: String,
    output: String,
    /// Bytes that the backend said, see [`MAX_OUTPUT_BYTES`].
    said: usize,
    usage: Usage,
    denied: Vec<String>,
    cut_off: Option<Pin<Box<Sleep>>>,
    limit: Pin<Box<Sleep>>,
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

impl<R: AgentRuntime + 'static> Running<R> {
    /// Steps two to four, and the start of five.
    async fn begin(
        inner: R,
        governance: Arc<Governance>,
        handle: Handle,
        input: TurnInput,
    ) -> Result<(Self, Vec<RuntimeEvent>), RuntimeError> {
        let journal = governance.journal(&handle).await.map_err(failed)?;
        let mut journal = journal.lock_owned().await;
        let mandate = governance.mandate(&journal.mandate)?.clone();
        let (letters, board) = look_around(&governance, &handle)?;
        let mut page = journal.page();

        let words = json_of(&input.content)?;
        let inputs_hash = journal.content(&mut page, &words).map_err(failed)?;
        let started = Turn {
            phase: TurnPhase::Started,
            skill_name: SKILL.to_owned(),
            inputs_hash,
            timestamp: journal.now().to_string(),
            actor: handle.key.agent().as_str().to_owned(),
            prev_cid: journal.prev_turn.map(|cid| cid.to_string()),
            constitution_hash: governance.constitution.hash().to_string(),
        };
        let parents = journal.prev_turn.into_iter().collect();
        let line =
            Line { quality: EntryQuality::Turn, target: &handle.session_id, parents, record: &started };
        let entry = journal.entry(&mut page, line).map_err(failed)?;
        let turn = entry.cid;
        journal.event(&mut page, EventKind::TurnStarted { turn: turn.to_string() });
        journal.event(&mut page, EventKind::LedgerAppend { entry: Box::new(entry) });

        let preceding = letters.inject(&mut journal, &mut page, turn)?;
        let agent = handle.key.agent().as_str();
        let system = prompt::assemble(&governance.constitution, &mandate, &board, agent);

        let mut specs = HostTools::specs();
        let mut verdicts = Vec::new();
        specs.retain(|spec| {
            let verdict = decide(&governance, &handle, &mandate, &spec.name, None);
            let allowed = verdict.is_allowed();
            verdicts.push((spec.name.clone(), verdict));
            allowed
        });
        for (tool, verdict) in &verdicts {
            let record = VerdictRecord::new(&governance, &mandate, tool, verdict, None);
            let line = Line {
                quality: EntryQuality::PolicyVerdict,
                target: tool,
                parents: vec![turn],
                record: &record,
            };
            let entry = journal.entry(&mut page, line).map_err(failed)?;
            journal.event(&mut page, EventKind::PolicyGate { entry: Box::new(entry) });
        }
        journal.prev_turn = Some(turn);

        let (ask, asked) = mpsc::channel(CALLS_WAITING);
        let input_text = tribune_agents::content::text_of(&input.content);
        let cancel = input.cancel.clone();
        let tools = Arc::new(TurnTools { specs, asked: ask });
        let input = TurnInput { system, preceding, tools, cancel: cancel.child_token(), ..input };
        let chunks: Chunks =
            match std::panic::catch_unwind(AssertUnwindSafe(|| inner.run_turn(&handle, input))) {
                Ok(events) => AssertUnwindSafe(events).catch_unwind().ready_chunks(CHUNK).boxed(),
                Err(panicked) => futures_util::stream::once(async { vec![Err(panicked)] }).boxed(),
            };
        let limit = Box::pin(tokio::time::sleep(governance.turn_limit));
        let mut running = Self {
            inner,
            governance,
            handle,
            mandate,
            journal,
            page,
            letters: Some(letters),
            cancel,
            chunks,
            asked,
            running: FuturesUnordered::new(),
            open_calls: Vec::new(),
            call_ids: HashSet::new(),
            turn,
            started,
            last_result: None,
            input_text,
            output: String::new(),
            said: 0,
            usage: Usage::default(),
            denied: Vec::new(),
            cut_off: None,
            limit,
            is_over: false,
        };
        let events = if running.inner.reaches_outside() { running.write().await? } else { Vec::new() };
        Ok((running, events))
    }

    /// Writes the page and begins another. Its events come back when everything on it is durable.
    async fn write(&mut self) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        let page = std::mem::replace(&mut self.page, self.journal.page());
        let events = self.journal.write(page).await.map_err(failed)?;
        if let Some(letters) = self.letters.take() {
            letters.acknowledge().await;
        }
        Ok(events)
    }

    /// Waits for one thing and writes it down.
    async fn step(&mut self) -> Result<Step, RuntimeError> {
        if self.is_over {
            self.tell_others().await;
            return Ok(Step::Over);
        }
        if !self.page.is_empty() {
            let first = futures_util::poll!(self.chunks.next());
            return self.open_with(first).await;
        }
        tokio::select! {
            biased;
            // Ends come first, so that a backend that never stops talking can be stopped.
            () = self.cancel.cancelled(), if self.cut_off.is_none() => {
                self.cut_off = Some(Box::pin(tokio::time::sleep_until(Instant::now() + CANCEL_GRACE)));
                // A backend that cannot be told is cut off a moment later.
                let told = AssertUnwindSafe(self.inner.cancel(&self.handle)).catch_unwind();
                let _ = tokio::time::timeout(CANCEL_GRACE, told).await;
                Ok(Step::More(Vec::new()))
            }
            () = wait(&mut self.cut_off) => {
                let end = End { stop_reason: StopReason::Cancelled, error: None };
                self.end(Vec::new(), end).await
            }
            () = &mut self.limit => {
                let what = "the turn took longer than sessions.turnMinutes allows, and was ended";
                self.end(Vec::new(), RuntimeError::new("turn_limit", what).into()).await
            }
            // What the backend said before it asked comes before what it asked.
            chunk = self.chunks.next() => match chunk {
                Some(chunk) => self.said(chunk).await,
                None => self.end(Vec::new(), ended_early().into()).await,
            },
            Some(asked) = self.asked.recv() => self.asked(asked).await.map(Step::More),
            Some((allowed, outcome)) = self.running.next(), if !self.running.is_empty() => {
                self.ran(allowed, outcome).await.map(Step::More)
            }
        }
    }

    /// Writes the turn's beginning, together with what the backend says or asks at once: a backend that answers without
    /// looking anywhere costs one page and not two.
    async fn open_with(&mut self, first: Poll<Option<Chunk>>) -> Result<Step, RuntimeError> {
        match first {
            Poll::Ready(Some(chunk)) => self.said(chunk).await,
            Poll::Ready(None) => self.end(Vec::new(), ended_early().into()).await,
            Poll::Pending => match self.asked.try_recv() {
                Ok(asked) => self.asked(asked).await.map(Step::More),
                Err(_) => self.write().await.map(Step::More),
            },
        }
    }

    /// Takes what the backend said; ends the turn if it says that it is done.
    async fn said(&mut self, chunk: Chunk) -> Result<Step, RuntimeError> {
        let mut kinds = Vec::with_capacity(chunk.len());
        for item in chunk {
            let event = match item {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => return self.end(kinds, error.into()).await,
                Err(_) => {
                    let what = "the backend failed in a way it did not expect: see the daemon's log";
                    return self.end(kinds, RuntimeError::new("backend_panicked", what).into()).await;
                }
            };
            match event.kind {
                EventKind::Done { stop_reason } => {
                    return self.end(kinds, End { stop_reason, error: None }).await;
                }
                EventKind::TextDelta { ref text } => {
                    self.said += text.len();
                    self.output.push_str(text);
                }
                EventKind::UsageUpdate { input_tokens, output_tokens } => {
                    self.usage = Usage { input_tokens, output_tokens };
                }
                EventKind::ReasoningDelta { ref text }
                | EventKind::ToolCallUpdate { input_delta: ref text, .. }
                | EventKind::Error { message: ref text, .. } => self.said += text.len(),
                // These are the record's own words; a backend that speaks them is not believed.
                EventKind::ToolCall { .. }
                | EventKind::ToolResult { .. }
                | EventKind::TurnStarted { .. }
                | EventKind::PolicyGate { .. }
                | EventKind::MailboxInjected { .. }
                | EventKind::LedgerAppend { .. } => {
                    let what = "the backend reported an effect that it did not ask for, and was stopped";
                    return self.end(kinds, RuntimeError::new("ungoverned", what).into()).await;
                }
            }
            kinds.push(event.kind);
            self.said += EVENT_BYTES;
            if self.said > MAX_OUTPUT_BYTES {
                let what = format!("the turn said more than {MAX_OUTPUT_BYTES} bytes, and was ended");
                return self.end(kinds, RuntimeError::new("too_long", what).into()).await;
            }
        }
        for kind in kinds {
            self.journal.event(&mut self.page, kind);
        }
        self.write().await.map(Step::More)
    }

    /// Step six: the gate sees the call with its input.
    async fn asked(&mut self, Asked { call, answer }: Asked) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        if let Err(refused) = self.check_call(&call) {
            // The backend broke a rule of the toolbox; nothing was decided, so nothing is on record.
            let _ = answer.send(ToolOutcome::error(refused));
            return self.write().await;
        }
        let verdict = decide(&self.governance, &self.handle, &self.mandate, &call.name, Some(&call.input));
        let input_hash = self.journal.content(&mut self.page, &json_of(&call.input)?).map_err(failed)?;
        let record = ToolCallRecord { tool: call.name.clone(), call_id: call.id.clone(), input_hash };
        let called = self.line(EntryQuality::ToolCall, &call.name, vec![self.turn], &record)?;
        self.journal.event(
            &mut self.page,
            EventKind::ToolCall { id: call.id.clone(), name: call.name.clone(), input: call.input.clone() },
        );
        let cid = called.cid;
        self.journal.event(&mut self.page, EventKind::LedgerAppend { entry: Box::new(called) });
        let record =
            VerdictRecord::new(&self.governance, &self.mandate, &call.name, &verdict, Some(input_hash));
        let line = Line {
            quality: EntryQuality::PolicyVerdict,
            target: &call.name,
            parents: vec![cid],
            record: &record,
        };
        let judged = self.journal.entry(&mut self.page, line).map_err(failed)?;
        let judged_cid = judged.cid;
        self.journal.event(&mut self.page, EventKind::PolicyGate { entry: Box::new(judged) });

        if verdict.is_allowed() {
            let events = self.write().await?;
            // Durable before effect: the call starts here and not a line earlier.
            self.start(Allowed { entry: cid, call, answer });
            return Ok(events);
        }
        let denied = denial(&verdict);
        self.denied.push(call.name.clone());
        self.result((&call, cid), &denied, CallOutcome::Denied, vec![cid, judged_cid])?;
        let events = self.write().await?;
        let _ = answer.send(denied);
        Ok(events)
    }

    fn check_call(&mut self, call: &ToolCall) -> Result<(), String> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let named = |text: &str, limit| (1..=limit).contains(&text.len()) && text.bytes().all(word);
        if !named(&call.name, 64) {
            return Err("a tool's name has 1 to 64 letters, digits, `_`, `-` and `.`".to_owned());
        }
        if !named(&call.id, 128) {
            return Err("a call's id has 1 to 128 letters, digits, `_`, `-` and `.`".to_owned());
        }
        if call.input.to_string().len() > MAX_CALL_BYTES {
            return Err(format!("a call's input has at most {MAX_CALL_BYTES} bytes"));
        }
        if self.call_ids.len() >= MAX_CALLS {
            return Err(format!("a turn has at most {MAX_CALLS} calls"));
        }
        if !self.call_ids.insert(call.id.clone()) {
            return Err(format!("the call id `{}` was used before in this turn", call.id));
        }
        Ok(())
    }

    fn start(&mut self, allowed: Allowed) {
        self.open_calls.push((allowed.call.id.clone(), allowed.call.name.clone(), allowed.entry));
        let tools = Arc::clone(&self.governance.tools);
        let agent = self.handle.key.agent().clone();
        self.running.push(Box::pin(async move {
            let run = AssertUnwindSafe(tools.run(&agent, &allowed.call)).catch_unwind().await;
            let outcome =
                run.unwrap_or_else(|_| ToolOutcome::error("the tool failed in a way it did not expect"));
            (allowed, outcome)
        }));
    }

    /// Step seven: the result under its call.
    async fn ran(
        &mut self,
        Allowed { entry, call, answer }: Allowed,
        outcome: ToolOutcome,
    ) -> Result<Vec<RuntimeEvent>, RuntimeError> {
        self.open_calls.retain(|(id, _, _)| *id != call.id);
        self.result((&call, entry), &outcome, CallOutcome::Ran, vec![entry])?;
        let events = self.write().await?;
        let _ = answer.send(outcome);
        Ok(events)
    }

    fn result(
        &mut self,
        (call, _): (&ToolCall, Cid),
        outcome: &ToolOutcome,
        how: CallOutcome,
        parents: Vec<Cid>,
    ) -> Result<(), RuntimeError> {
        let words = json_of(&[ContentBlock::text(&outcome.content)])?;
        let output_hash = self.journal.content(&mut self.page, &words).map_err(failed)?;
        let record = ToolResultRecord {
            tool: call.name.clone(),
            call_id: call.id.clone(),
            outcome: how,
            is_error: outcome.is_error,
            output_hash: Some(output_hash),
        };
        let entry = self.line(EntryQuality::ToolResult, &call.name, parents, &record)?;
        self.last_result = Some(entry.cid);
        let (id, content, is_error) = (call.id.clone(), outcome.content.clone(), outcome.is_error);
        self.journal.event(&mut self.page, EventKind::ToolResult { id, content, is_error });
        self.journal.event(&mut self.page, EventKind::LedgerAppend { entry: Box::new(entry) });
        Ok(())
    }

    /// Step eight: the turn is complete. `said` is what came before its end and is not written yet.
    async fn end(&mut self, said: Vec<EventKind>, end: End) -> Result<Step, RuntimeError> {
        for kind in said {
            self.journal.event(&mut self.page, kind);
        }
        // Calls that are still running are given up. Whether they took effect is not known.
        self.running.clear();
        self.asked.close();
        for (id, tool, cid) in std::mem::take(&mut self.open_calls) {
            let record = ToolResultRecord {
                tool: tool.clone(),
                call_id: id.clone(),
                outcome: CallOutcome::Cancelled,
                is_error: true,
                output_hash: None,
            };
            let entry = self.line(EntryQuality::ToolResult, &tool, vec![cid], &record)?;
            self.last_result = Some(entry.cid);
            let content = "the turn ended before this call did".to_owned();
            self.journal.event(&mut self.page, EventKind::ToolResult { id, content, is_error: true });
            self.journal.event(&mut self.page, EventKind::LedgerAppend { entry: Box::new(entry) });
        }
        let words = json_of(&[ContentBlock::text(&self.output)])?;
        let outputs_hash = self.journal.content(&mut self.page, &words).map_err(failed)?;
        let End { stop_reason, error } = end;
        let record = Turn {
            phase: TurnPhase::Completed { outputs_hash, stop_reason, usage: self.usage },
            timestamp: self.journal.now().to_string(),
            ..self.started.clone()
        };
        let parents = [Some(self.turn), self.last_result].into_iter().flatten().collect();
        let session_id = Arc::clone(&self.handle.session_id);
        let entry = self.line(EntryQuality::Turn, &session_id, parents, &record)?;
        if let Some(error) = error {
            self.journal.event(&mut self.page, EventKind::Error { code: error.code, message: error.message });
        }
        self.journal.event(&mut self.page, EventKind::LedgerAppend { entry: Box::new(entry) });
        self.journal.event(&mut self.page, EventKind::Done { stop_reason });
        self.journal.drop_old_events(&mut self.page, EVENTS_KEPT);
        let events = self.write().await?;
        self.is_over = true;
        Ok(Step::More(events))
    }

    /// What others read of the turn: the board and the transcript. The turn is complete whether or not they can be
    /// written, and its end was shown already.
    async fn tell_others(&mut self) {
        let now = self.journal.now();
        let turn = self.turn.to_string();
        let line = |role: Role, text: String| TranscriptLine { turn: turn.clone(), role, text, at: now };
        let mut lines = vec![line(Role::User, std::mem::take(&mut self.input_text))];
        if !self.output.is_empty() {
            lines.push(line(Role::Assistant, std::mem::take(&mut self.output)));
        }
        let denied = std::mem::take(&mut self.denied);
        let post = (!denied.is_empty())
            .then(|| format!("{} denied: {}", count(denied.len(), "call"), denied.join(", ")));
        let (governance, key) = (Arc::clone(&self.governance), Arc::clone(&self.handle.key));
        let told = tokio::task::spawn_blocking(move || {
            if let Some(post) = post
                && let Err(error) = governance.board.append(&post, now, key.agent().as_str())
            {
                tracing::warn!(%error, "the board could not be written");
            }
            if let Err(error) = governance.transcripts.append_turn(&key, &lines) {
                tracing::warn!(%error, "the transcript could not be written");
            }
        });
        // It fails only when the daemon is being torn down.
        let _ = told.await;
    }

    fn line<P: Serialize>(
        &mut self,
        quality: EntryQuality,
        target: &str,
        parents: Vec<Cid>,
        record: &P,
    ) -> Result<LedgerEntry, RuntimeError> {
        self.journal.entry(&mut self.page, Line { quality, target, parents, record }).map_err(failed)
    }
}

/// What a turn reads from files before it begins: its letters and the board. Both are small and looked at without leaving
/// this thread: handing them to another would take longer than reading them.
fn look_around(governance: &Arc<Governance>, handle: &Handle) -> Result<(Letters, String), RuntimeError> {
    let letters = Letters::claim(governance, handle)?;
    let board = governance.board.excerpt(EXCERPT_BYTES).unwrap_or_else(|error| {
        tracing::warn!(%error, "the board could not be read");
        String::new()
    });
    Ok((letters, board))
}

/// A verdict as it is recorded: the decision, and what it was made from.
#[derive(Serialize)]
struct VerdictRecord<'a> {
    tool: &'a str,
    mandate: &'a str,
    constitution_hash: String,
    /// The call's input, if there was a call.
    input_hash: Option<Commitment>,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

impl<'a> VerdictRecord<'a> {
    fn new(
        governance: &Governance,
        mandate: &'a Mandate,
        tool: &'a str,
        verdict: &'a Verdict,
        input_hash: Option<Commitment>,
    ) -> Self {
        let constitution_hash = governance.constitution.hash().to_string();
        Self { tool, mandate: &mandate.name, constitution_hash, input_hash, verdict }
    }
}

fn decide(
    governance: &Governance,
    handle: &Handle,
    mandate: &Mandate,
    tool: &str,
    input: Option<&serde_json::Value>,
) -> Verdict {
    governance.gate.decide(&CallFacts {
        agent_id: handle.key.agent().as_str(),
        session_key: handle.key.as_str(),
        mandate,
        tool,
        input,
        constitution: governance.constitution.hash(),
    })
}

/// A denial in words that a model can pass on.
fn denial(verdict: &Verdict) -> ToolOutcome {
    let mut text = format!("denied ({}): {}", verdict.rule, verdict.reason);
    if let Some(would_allow) = &verdict.would_allow {
        text.push_str("; ");
        text.push_str(would_allow);
    }
    ToolOutcome::error(text)
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

pub(super) fn json_of(value: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, RuntimeError> {
    serde_json::to_vec(value).map_err(|error| RuntimeError::new("internal", error.to_string()))
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
