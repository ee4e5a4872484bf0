//! Crash recovery: records what was started and not finished as interrupted, so that the session can be used again.

use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tribune_ledger::{Cid, Draft, EntryQuality};
use tribune_records::approval::record::CallRunner;
use tribune_records::ledger_payloads::{
    CallOutcome, EgressOutcome, EgressRecord, ProxyOutcome, ProxyRecord, ToolCallRecord, ToolResultRecord,
    Turn, TurnPhase, payload,
};
use tribune_runtime::content::text_of;
use tribune_runtime::{ContentBlock, EventKind, Handle, RuntimeEvent, SessionKey, SessionState, StopReason};
use tribune_storage::store::{OpenWork, SessionRow, StoreError};
use tribune_storage::vault::{EVENTS_KEPT, ReadLimit, StoredEvent};

use super::Governance;
use super::out_of_turn::SideLog;
use super::session_writer::{EntryDraft, SessionWriter};
use super::turn_transcript::{Exchange, append_interrupted};

/// What a start found unfinished.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    pub turns: u64,
    pub calls: u64,
    pub forgets: u64,
}

/// The message to clients about a turn that a crash interrupted.
const INTERRUPTED: &str =
    "the daemon ended while this turn was running: its input is kept, and the session can be used again";

impl Governance {
    /// Ends everything that an earlier daemon left unfinished.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
        let work = self.storage.readers.read(|reader| reader.open_work()).await?;
        let (spending, work): (Vec<OpenWork>, Vec<OpenWork>) =
            work.into_iter().partition(|work| work.kind == "spend");
        let (forwarded, work): (Vec<OpenWork>, Vec<OpenWork>) =
            work.into_iter().partition(|work| work.kind == "proxy");
        let (connections, work): (Vec<OpenWork>, Vec<OpenWork>) =
            work.into_iter().partition(|work| work.kind == "egress");
        for request in spending {
            let Ok(begun) = request.cid.parse() else { continue };
            if let Some(reserved) = self.record_of(begun).await? {
                self.model_requests.budgets.bill_unfinished(begun, reserved).await?;
            }
        }
        for one_session in work.chunk_by(|a, b| a.session_key == b.session_key) {
            self.recover_session(one_session, &mut recovered).await?;
        }
        for request in forwarded {
            self.interrupt_forwarded(&request).await?;
            recovered.calls += 1;
        }
        for connection in connections {
            self.interrupt_connection(&connection).await?;
            recovered.calls += 1;
        }
        Ok(recovered)
    }

    /// Ends a request that was forwarded to a provider. How far it got is unknown.
    async fn interrupt_forwarded(&self, request: &OpenWork) -> Result<(), StoreError> {
        let Ok(asked) = request.cid.parse() else { return Ok(()) };
        let record = ProxyRecord::Ended { status: None, outcome: ProxyOutcome::Interrupted, usage: None };
        let draft = Draft {
            entity_id: request.session_key.clone(),
            target: request.session_key.clone(),
            quality: EntryQuality::Delivery,
            timestamp: self.storage.clock.now(),
            source: "proxy".to_owned(),
            actor: "recovery".to_owned(),
            parents: vec![asked],
            tags: Vec::new(),
            payload: payload(&record),
            attested_by: None,
            envelope: None,
        };
        self.storage.ledger.append(&draft).await.map(drop)
    }

    /// Ends a connection out of a sandbox. How much was transferred is unknown.
    async fn interrupt_connection(&self, connection: &OpenWork) -> Result<(), StoreError> {
        let (Ok(verdict), Ok(key)) = (connection.cid.parse(), connection.session_key.parse()) else {
            return Ok(());
        };
        let (outcome, code) = (EgressOutcome::Interrupted, None);
        let record = EgressRecord::Ended { outcome, code, sent: 0, received: 0 };
        let (log, quality) = (SideLog::Egress, EntryQuality::Delivery);
        let draft = self.policy.out_of_turn.side_log_draft(log, &key, quality, vec![verdict], &record);
        self.storage.ledger.append(&draft).await.map(drop)
    }

    async fn recover_session(&self, work: &[OpenWork], recovered: &mut Recovered) -> Result<(), StoreError> {
        let Some(first) = work.first() else { return Ok(()) };
        let name = first.session_key.clone();
        let row = self.storage.readers.read(move |reader| reader.session(&name)).await?;
        let (Some(row), Ok(key)) = (row, first.session_key.parse::<SessionKey>()) else { return Ok(()) };
        let handle = Handle { key: key.into(), session_id: row.id.as_str().into() };
        let writer = self.session_writer(&handle).await?;
        // Calls before their turn: the order in which they would have ended.
        for kind in ["tool_call", "turn", "forget"] {
            for unfinished in work.iter().filter(|work| work.kind == kind) {
                let Ok(cid) = unfinished.cid.parse() else { continue };
                match kind {
                    "tool_call" => {
                        self.interrupt_call(&writer, cid, &unfinished.name).await?;
                        recovered.calls += 1;
                    }
                    "turn" => {
                        interrupt_turn(self, &mut *writer.lock().await, cid).await?;
                        recovered.turns += 1;
                    }
                    _ => {
                        self.shred(&handle, &writer, cid, "recovery").await?;
                        recovered.forgets += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a call that was started. Whether it took effect is unknown.
    async fn interrupt_call(
        &self,
        writer: &Mutex<SessionWriter>,
        call: Cid,
        tool: &str,
    ) -> Result<(), StoreError> {
        let record: Option<ToolCallRecord> = self.record_of(call).await?;
        let mut writer = writer.lock().await;
        let mut context = writer.context.clone();
        if record.as_ref().is_some_and(|record| record.runner == CallRunner::Agent) {
            // The agent may have seen the result.
            context.labels = context.labels.meet(self.brings(tool));
        }
        let result = ToolResultRecord {
            tool: tool.to_owned(),
            call_id: record.map(|record| record.call_id).unwrap_or_default(),
            outcome: CallOutcome::Interrupted,
            is_error: true,
            output_hash: None,
            labels: context.labels,
            wrote: self.policy.gate.possible_writes(&context, tool)?,
            sandbox: None,
        };
        let quality = EntryQuality::ToolResult;
        let draft = EntryDraft { quality, target: tool, parents: vec![call], record: &result };
        let mut batch = writer.new_batch();
        writer.entry(&mut batch, draft)?;
        writer.write(batch).await.map(drop)
    }

    /// Reads the payload of an entry.
    pub(super) async fn record_of<T: DeserializeOwned + Send + 'static>(
        &self,
        cid: Cid,
    ) -> Result<Option<T>, StoreError> {
        let stored = self.storage.readers.read(move |reader| match reader.find(&cid)? {
            Some(index) => reader.entry(index),
            None => Ok(None),
        });
        Ok(stored.await?.and_then(|stored| serde_json::from_str(&stored.entry.payload).ok()))
    }
}

async fn interrupt_turn(
    governance: &Governance,
    writer: &mut SessionWriter,
    begun: Cid,
) -> Result<(), StoreError> {
    let started: Option<Turn> = governance.record_of(begun).await?;
    let Some(started) = started else { return Ok(()) };
    // Written before the end of the turn is in the ledger. A start that is killed in between comes here again, and
    // finds the transcript written.
    let exchange = Exchange {
        input: input_of(governance, writer, &started)?,
        output: output_of(governance, writer, &begun.to_string())?,
    };
    append_interrupted(governance, &writer.handle.key, &begun.to_string(), exchange, writer.now());
    let record = Turn {
        phase: TurnPhase::Interrupted,
        timestamp: writer.now().to_string(),
        constitution_hash: governance.policy.gate.law.hash().to_string(),
        labels: writer.context.labels,
        ..started
    };
    let mut batch = writer.new_batch();
    let target = writer.handle.session_id.to_string();
    let line =
        EntryDraft { quality: EntryQuality::Turn, target: &target, parents: vec![begun], record: &record };
    let entry = writer.entry(&mut batch, line)?;
    // A turn whose first event never reached the disk was never acknowledged; its event stream starts here.
    if !stream_mentions(governance, writer, &begun.to_string())? {
        writer.event(&mut batch, EventKind::TurnStarted { turn: begun.to_string() });
    }
    writer.event(
        &mut batch,
        EventKind::Error { code: "interrupted".to_owned(), message: INTERRUPTED.to_owned() },
    );
    writer.event(&mut batch, EventKind::LedgerAppend { entry: Box::new(entry) });
    writer.event(&mut batch, EventKind::Done { stop_reason: StopReason::Interrupted });
    writer.write(batch).await.map(drop)
}

/// The input of a turn; empty if its content was deleted.
fn input_of(governance: &Governance, writer: &SessionWriter, started: &Turn) -> Result<String, StoreError> {
    let stored =
        governance.storage.vault.content(&writer.handle.session_id, &started.inputs_hash.to_string())?;
    let content = stored.and_then(|stored| serde_json::from_slice::<Vec<ContentBlock>>(&stored).ok());
    Ok(text_of(&content.unwrap_or_default()))
}

/// The output of a turn without an end, as far as it was shown.
fn output_of(governance: &Governance, writer: &SessionWriter, turn: &str) -> Result<String, StoreError> {
    /// Events that are read at once.
    const READ_AT_ONCE: usize = 1_000;
    let mut after = writer.next_event().saturating_sub(EVENTS_KEPT);
    let (mut output, mut is_own) = (String::new(), false);
    loop {
        let range = governance.storage.vault.events(
            &writer.handle.session_id,
            after,
            ReadLimit::events(READ_AT_ONCE),
        )?;
        let Some(last) = range.events.last() else { return Ok(output) };
        after = last.seq;
        for event in &range.events {
            match serde_json::from_str::<RuntimeEvent>(&event.json).map(|event| event.kind) {
                Ok(EventKind::TurnStarted { turn: begun }) => is_own = begun == turn,
                Ok(EventKind::TextDelta { text }) if is_own => output.push_str(&text),
                _ => {}
            }
        }
    }
}

/// Whether the events after the last end of a turn mention this turn.
fn stream_mentions(governance: &Governance, writer: &SessionWriter, turn: &str) -> Result<bool, StoreError> {
    const LOOK_BACK: u64 = 1_000;
    let after = writer.next_event().saturating_sub(LOOK_BACK);
    let range = governance.storage.vault.events(
        &writer.handle.session_id,
        after,
        ReadLimit::events(LOOK_BACK as usize),
    )?;
    let last_end = range.events.iter().rposition(StoredEvent::is_done);
    let open = &range.events[last_end.map_or(0, |at| at + 1)..];
    // A turn with more events than were read started further back.
    Ok(open.len() as u64 >= LOOK_BACK - 1 || open.iter().any(|event| event.json.contains(turn)))
}

/// The ledger can be one batch ahead of the vault. A turn that is complete in the ledger gets the end of its event
/// stream here.
pub(super) async fn complete_stream(
    governance: &Governance,
    writer: &mut SessionWriter,
    row: &SessionRow,
) -> Result<(), StoreError> {
    let quiet = matches!(row.state, SessionState::Idle | SessionState::Cancelled);
    let ended = match writer.last_event() {
        Some(event) => event.is_done(),
        // Without events: none was written yet, or all were deleted and the sequence numbers continue.
        None => row.turns == 0 || writer.next_event() > 1,
    };
    if !quiet || ended {
        return Ok(());
    }
    let session = row.clone();
    let turns = governance.storage.readers.read(move |reader| reader.turns(&session, 1)).await?;
    let Some(turn) = turns.first() else { return Ok(()) };
    let stop_reason =
        turn.stop_reason.as_deref().and_then(StopReason::parse).unwrap_or(StopReason::Interrupted);
    let mut batch = writer.new_batch();
    writer.event(&mut batch, EventKind::Done { stop_reason });
    writer.write(batch).await.map(drop)
}
