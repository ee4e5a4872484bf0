//! The start of a turn: steps 2 to 4, and the start of its backend. The turn itself is run by
//! [`lifecycle`](super::lifecycle).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use tokio::sync::mpsc;
use tribune_constitution::{ChannelClass, Labels, Mandate, Trust, prompt};
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::{Turn, TurnPhase};
use tribune_registry::board::EXCERPT_BYTES;
use tribune_runtime::{
    AgentRuntime, ErrorKind, EventKind, EventStream, Handle, RuntimeError, RuntimeEvent, SideEffects,
    Speaker, TurnInput,
};

use super::backend_events::TurnOutput;
use super::backend_stream::BackendStream;
use super::calls::Calls;
use super::lifecycle::{BackendConnection, Deadlines, TurnOrigin, TurnState};
use super::mailbox_injection::InjectedMail;
use super::native_services::{ConversationRead, Prepared, TurnServices};
use super::output_filter::{Instructions, OutputFilter};
use super::session_writer::{FlushMode, SessionWriter};
use super::tool_offer::offer;
use super::toolbox::{BackendRequest, CALLS_WAITING, TurnTools};
use super::turn_recorder::TurnRecorder;
use super::turn_timeout::TurnTimeout;
use super::{Governance, native_services, slash_tribune};
use crate::gate::{LabelName, OwnerWords};

/// The skill name in the ledger entry of a turn, the same for every backend. Turns that the daemon answers have their
/// own name.
const SKILL: &str = "agent_runner";

/// What a turn starts with. Nothing of it is recorded yet.
struct Preparation {
    /// The stored conversation, which is read while the rest is prepared.
    conversation_read: Option<ConversationRead>,
    mandate: Mandate,
    input_text: String,
    trust: Trust,
    /// The answer of the daemon, if the input is a command for it.
    daemon_answer: Option<EventStream>,
    mail: InjectedMail,
    /// The excerpt of the board for the prompt.
    board: String,
}

impl<R: AgentRuntime + 'static> TurnState<R> {
    /// Starts a turn. Returns its first events, if they are durable already.
    pub(super) async fn begin(
        runtime: R,
        governance: Arc<Governance>,
        handle: Handle,
        input: TurnInput,
    ) -> Result<(Self, Vec<RuntimeEvent>), RuntimeError> {
        if governance.policy.gate.is_frozen() {
            let what = "everything is stopped: an approver can resume it with `tribune resume`";
            return Err(RuntimeError::new(ErrorKind::Frozen, what));
        }
        let writer = governance.session_writer(&handle).await?.lock_owned().await;
        let mut preparation = prepare(&runtime, &governance, &handle, &writer, &input).await?;
        if preparation.trust == Trust::Owner && preparation.daemon_answer.is_none() {
            governance.policy.gate.inbox.lift_denials(handle.key.as_str()).await?;
        }
        let mut recorder = TurnRecorder::new(governance, handle, writer);
        lower_labels(&mut recorder, &preparation, &input)?;
        let (entry, record) = record_start(&mut recorder, &preparation, &input)?;
        let has_instructions = preparation.daemon_answer.is_none() && runtime.has_system_prompt();

        let (request_sender, requests) = mpsc::channel(CALLS_WAITING);
        let cancel = input.cancel.clone();
        let (stream, prepared) = match preparation.daemon_answer.take() {
            Some(answer) => (BackendStream::new(answer), None),
            None => start_backend(&runtime, &mut recorder, &mut preparation, entry, request_sender, input)?,
        };
        recorder.writer.prev_turn = Some(entry);

        // Input without owner trust does not count as words of the owner.
        let owner_words =
            (preparation.trust == Trust::Owner).then(|| OwnerWords::of(preparation.input_text.clone()));
        let deadlines =
            Deadlines { timeout: TurnTimeout::new(recorder.governance.policy.turn_limit), cut_off: None };
        let output = TurnOutput::new(output_filter(&recorder, has_instructions));
        let mut state = Self {
            recorder,
            mail: Some(preparation.mail),
            backend: BackendConnection { runtime, stream, requests, cancel, _prepared: prepared },
            calls: Calls::default(),
            origin: TurnOrigin { entry, record, owner_words, input_text: preparation.input_text },
            output,
            deadlines,
            is_over: false,
        };
        let events = match state.backend.runtime.side_effects() {
            SideEffects::None => Vec::new(),
            // What the native backend records for its first model request flushes this batch too.
            SideEffects::AfterRecord => state.write_listening(FlushMode::WithNext).await?,
            SideEffects::Unbounded => state.write().await?,
        };
        Ok((state, events))
    }
}

/// Asks the hooks, and reads what the turn needs from the law, the vault and files.
async fn prepare<R: AgentRuntime>(
    runtime: &R,
    governance: &Arc<Governance>,
    handle: &Handle,
    writer: &SessionWriter,
    input: &TurnInput,
) -> Result<Preparation, RuntimeError> {
    let conversation_read = (runtime.side_effects() == SideEffects::AfterRecord)
        .then(|| native_services::recall(governance, &writer.conversation()));
    let mandate = governance.mandate(writer.context.mandate())?.clone();
    let input_text = tribune_runtime::content::text_of(&input.content);
    let trust = trust_in(input.speaker);
    let trust = governance.ask_hooks(&writer.context, &input_text, trust, &input.cancel).await?;
    let gate = || runtime.gate_status(handle);
    let daemon_answer = slash_tribune::answer(governance, handle, input, trust, gate).await?;
    let (mail, board) = match &daemon_answer {
        None => load_turn_context(governance, handle)?,
        // Mailbox messages wait for a turn that the agent itself answers.
        Some(_) => (InjectedMail::none(governance, handle), String::new()),
    };
    Ok(Preparation { conversation_read, mandate, input_text, trust, daemon_answer, mail, board })
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

/// Lowers the labels of the session to those of the input and of the mailbox messages.
fn lower_labels(
    recorder: &mut TurnRecorder,
    preparation: &Preparation,
    input: &TurnInput,
) -> Result<(), RuntimeError> {
    let input_labels = Labels::new(preparation.trust, false);
    let input_labels = match &input.schedule_id {
        Some(schedule) => {
            let name = LabelName::from_text(&**schedule);
            input_labels.meet(recorder.governance.policy.gate.stored_labels(&name)?)
        }
        None => input_labels,
    };
    let new_labels = input_labels.meet(preparation.mail.labels());
    recorder.writer.context.labels = recorder.writer.context.labels.meet(new_labels);
    Ok(())
}

/// Records that the turn started. Returns the entry and its record.
fn record_start(
    recorder: &mut TurnRecorder,
    preparation: &Preparation,
    input: &TurnInput,
) -> Result<(Cid, Turn), RuntimeError> {
    let inputs_hash = recorder.content(&input.content)?;
    let skill_name = if preparation.daemon_answer.is_none() { SKILL } else { slash_tribune::SKILL };
    let record = Turn {
        phase: TurnPhase::Started,
        skill_name: skill_name.to_owned(),
        inputs_hash,
        timestamp: recorder.writer.now().to_string(),
        actor: recorder.handle.key.agent().as_str().to_owned(),
        prev_cid: recorder.writer.prev_turn.map(|cid| cid.to_string()),
        constitution_hash: recorder.governance.policy.gate.law.hash().to_string(),
        labels: recorder.writer.context.labels,
    };
    let parents = recorder.writer.prev_turn.into_iter().collect();
    let session_id = Arc::clone(&recorder.handle.session_id);
    let entry = recorder.line(EntryQuality::Turn, &session_id, parents, &record)?;
    let cid = entry.cid;
    recorder.event(EventKind::TurnStarted { turn: cid.to_string() });
    recorder.event(EventKind::LedgerAppend { entry: Box::new(entry) });
    Ok((cid, record))
}

/// Steps 2 to 4, and the start of step 5: records the mailbox messages, assembles the prompt, offers the tools that may
/// be called, and starts the backend.
fn start_backend<R: AgentRuntime>(
    runtime: &R,
    recorder: &mut TurnRecorder,
    preparation: &mut Preparation,
    turn: Cid,
    requests: mpsc::Sender<BackendRequest>,
    input: TurnInput,
) -> Result<(BackendStream, Option<Prepared>), RuntimeError> {
    let conversation_read = preparation.conversation_read.take();
    let Preparation { mandate, input_text, mail, board, .. } = preparation;
    let injected_messages = mail.inject(recorder, turn)?;
    let services = TurnServices::new(recorder, mandate, turn, board, input_text, conversation_read)?;
    let prepared = recorder.governance.live.prepared_services.put(&recorder.handle, services);
    let agent = recorder.handle.key.agent().as_str();
    let system = prompt::assemble(&recorder.governance.policy.gate.law, mandate, board, agent);
    let specs = offer(recorder, mandate, turn)?;
    let tools = Arc::new(TurnTools { specs, requests });
    let cancel = input.cancel.child_token();
    let input = TurnInput { system, injected_messages, tools, cancel, ..input };
    let started = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.run_turn(&recorder.handle, input)));
    let stream = match started {
        Ok(events) => BackendStream::new(events),
        Err(panicked) => BackendStream::panicked(panicked),
    };
    Ok((stream, Some(prepared)))
}

fn output_filter(recorder: &TurnRecorder, has_instructions: bool) -> OutputFilter {
    let policy = &recorder.governance.policy;
    let class = ChannelClass::from_settings(recorder.handle.key.channel(), policy.gate.law.settings());
    let instructions = if has_instructions { Instructions::Secret } else { Instructions::None };
    OutputFilter::new(&policy.redactor, class, instructions)
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
