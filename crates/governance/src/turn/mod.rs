//! Governs any runtime: [`ConstitutionalRuntime`] is an [`AgentRuntime`] that wraps another one. The session sees a
//! plain runtime. The backend inside sees a prompt and tools that ask for permission, and nothing else.
//!
//! A turn has these steps:
//!
//! 1. The terms of the session are recorded.
//! 2. Mailbox messages are put before the input.
//! 3. The prompt is assembled.
//! 4. The tool list passes the gate.
//! 5. The backend runs.
//! 6. Each call passes the gate again, with its input.
//! 7. Each result is recorded under its call.
//! 8. The turn is completed.
//!
//! Every event that leaves the stream of a turn is durable.

mod agent_executed_calls;
mod apply_decision;
pub mod approval_result;
mod backend_events;
mod backend_stream;
mod board_checkins;
mod call_decision;
mod calls;
mod crash_recovery;
mod external_call_state;
mod external_calls;
mod governance;
mod hook_points;
pub mod label_history;
mod land_audit;
mod lifecycle;
mod mailbox_injection;
mod mcp_audit;
mod native_services;
mod out_of_turn;
mod output_filter;
mod parked_calls;
mod resume_parked;
mod run_audit;
mod session_writer;
pub mod slash_tribune;
mod tool_offer;
mod toolbox;
mod turn_recorder;
mod turn_start;
mod turn_timeout;
mod turn_transcript;

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use tribune_constitution::{Labels, Mandate};
use tribune_ledger::cid::Domain;
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::agents::PrincipalTier;
use tribune_records::ledger_payloads::Lifecycle;
use tribune_records::session_opening::{InheritedLimits, SessionOpeningRecord};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::{
    AgentId, AgentRuntime, CloseReason, ErrorKind, EventStream, Handle, RuntimeError, SessionInput,
    SessionKey, SessionState, SessionStatus, SideEffects, TurnInput,
};
use tribune_storage::store::{SessionRow, StoreError};

use self::session_writer::{EntryDraft, SessionCursor, SessionWriter};
use crate::gate::PolicyContext;

pub use crash_recovery::Recovered;
pub use external_calls::{ExternalCallState, ExternalDecision, ExternalMessage};
pub use governance::{AgentFiles, ForgetHook, Governance, GovernanceParts, ModelRequests, Policy};
pub use native_services::PreparedServices;
pub use out_of_turn::{DenialCode, Denied, OutOfTurn};
pub use session_writer::Durable;

pub use crate::tool_executor::{CallDependencies, ToolExecutor};

/// A runtime whose turns and calls are authorized and recorded.
#[derive(Debug, Clone)]
pub struct ConstitutionalRuntime<R> {
    inner: R,
    governance: Arc<Governance>,
}

impl<R> ConstitutionalRuntime<R> {
    pub const fn new(inner: R, governance: Arc<Governance>) -> Self {
        Self { inner, governance }
    }
}

impl<R: AgentRuntime> ConstitutionalRuntime<R> {
    /// Opens a new session that may use no tools.
    pub async fn open_confined(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        let inherited = InheritedLimits { ancestors: Vec::new(), tools: Some(Vec::new()) };
        let no_tools = StartTerms { inherited, labels: Labels::FRESH };
        let handle = self.governance.open_with(&input, Some(no_tools)).await?;
        self.inner.ensure_session(input).await?;
        Ok(handle)
    }
}

#[async_trait]
impl<R: AgentRuntime + Clone + 'static> AgentRuntime for ConstitutionalRuntime<R> {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        let handle = self.governance.open_session(&input).await?;
        self.inner.ensure_session(input).await?;
        Ok(handle)
    }

    fn run_turn(&self, handle: &Handle, input: TurnInput) -> EventStream {
        lifecycle::run(self.inner.clone(), Arc::clone(&self.governance), handle.clone(), input)
    }

    fn side_effects(&self) -> SideEffects {
        self.inner.side_effects()
    }

    fn has_system_prompt(&self) -> bool {
        self.inner.has_system_prompt()
    }

    fn gate_status(&self, handle: &Handle) -> Option<String> {
        self.inner.gate_status(handle)
    }

    async fn cancel(&self, handle: &Handle) -> Result<(), RuntimeError> {
        self.inner.cancel(handle).await
    }

    async fn close(&self, handle: &Handle, reason: CloseReason) -> Result<(), RuntimeError> {
        // The ledger first: a backend that cannot release a session must not keep it open.
        self.governance.close_session(handle, reason).await?;
        if let Err(error) = self.inner.close(handle, reason).await {
            tracing::warn!(session = %handle.key, code = error.code(), "the backend could not close the session");
        }
        Ok(())
    }

    async fn status(&self, handle: &Handle) -> Result<SessionStatus, RuntimeError> {
        let mut status = self.inner.status(handle).await?;
        let key = handle.key.as_str().to_owned();
        let row = self.governance.storage.readers.read(move |reader| reader.session(&key)).await?;
        if let Some(row) = row {
            status = SessionStatus { state: row.state, backend: row.terms.backend, model: row.terms.model };
        }
        Ok(status)
    }
}

impl Governance {
    /// The mandate of this name. A missing mandate is an error; no other mandate replaces it.
    pub fn mandate(&self, name: &str) -> Result<&Mandate, RuntimeError> {
        self.policy.gate.law.mandate(name).ok_or_else(|| {
            RuntimeError::new(
                ErrorKind::NoMandate,
                format!(
                    "there is no mandate `{name}`: add mandates/{name}.md, or name another in the roster"
                ),
            )
        })
    }

    /// The writer of an open session.
    pub async fn session_writer(
        &self,
        handle: &Handle,
    ) -> Result<Arc<tokio::sync::Mutex<SessionWriter>>, StoreError> {
        if let Some(writer) = self.loaded(&handle.key) {
            return Ok(writer);
        }
        let key = handle.key.as_str().to_owned();
        let (next_entry, row) = self
            .storage
            .readers
            .read(move |reader| Ok((reader.next_seq(&key)?, reader.session(&key)?)))
            .await?;
        let prev_turn = row.as_ref().and_then(|row| row.last_turn.as_deref()?.parse().ok());
        let context = PolicyContext {
            key: Arc::clone(&handle.key),
            tier: row.as_ref().map_or(PrincipalTier::Member, SessionRow::tier),
            mandates: row.iter().flat_map(SessionRow::mandates).collect(),
            tools: row.as_ref().and_then(|row| row.inherited.tools.clone()),
            labels: row.as_ref().map_or(Labels::FRESH, |row| row.labels),
            ground: row.as_ref().map_or_else(
                || WorkspaceRoots::own(handle.key.agent().clone()),
                |row| row.ground(handle.key.agent()),
            ),
        };
        let cursor = SessionCursor { handle: handle.clone(), next_entry, prev_turn, context };
        let mut writer = SessionWriter::open(self.storage.clone(), cursor).await?;
        if let Some(row) = &row {
            crash_recovery::complete_stream(self, &mut writer, row).await?;
        }
        let writer = Arc::new(tokio::sync::Mutex::new(writer));
        let mut writers = self.live.writers.lock().unwrap_or_else(PoisonError::into_inner);
        // The first one inserted wins: a session has one writer.
        Ok(Arc::clone(writers.entry((*handle.key).clone()).or_insert(writer)))
    }

    fn loaded(&self, key: &SessionKey) -> Option<Arc<tokio::sync::Mutex<SessionWriter>>> {
        let mut writers = self.live.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let found = Arc::clone(writers.get(key)?);
        // A broken writer is dropped, so that the next one reads the state from disk.
        if found.try_lock().is_ok_and(|writer| writer.is_broken()) {
            writers.remove(key);
            return None;
        }
        Some(found)
    }

    fn unload(&self, key: &SessionKey) {
        self.live.writers.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        // The ledger has these labels, and the next writer reads them from there.
        self.policy.out_of_turn.unload(key);
        self.agent_files.transcripts.unload(key);
    }

    async fn open_session(&self, input: &SessionInput) -> Result<Handle, RuntimeError> {
        self.open_with(input, None).await
    }

    /// Opens a session. A new one starts with `start_terms` if it is given.
    async fn open_with(
        &self,
        input: &SessionInput,
        start_terms: Option<StartTerms>,
    ) -> Result<Handle, RuntimeError> {
        self.mandate(&input.terms.mandate)?;
        let key = input.key.as_str().to_owned();
        let row = self.storage.readers.read(move |reader| reader.session(&key)).await?;
        let session_id: Arc<str> = match &row {
            Some(row) => row.id.as_str().into(),
            None => session_id(input.agent(), &input.key, &self.storage.clock.now().to_string()).into(),
        };
        let handle = Handle { key: Arc::new(input.key.clone()), session_id };
        let writer = self.session_writer(&handle).await?;
        let StartTerms { inherited, labels } = match (start_terms, &row) {
            (Some(start_terms), None) => start_terms,
            _ => self.start_terms(row.as_ref(), input).await?,
        };
        let opening = SessionOpeningRecord {
            agent_id: input.agent().as_str().to_owned(),
            session_id: handle.session_id.to_string(),
            terms: input.terms.clone(),
            opened_by: input.opened_by.clone(),
            inherited: inherited.clone(),
            labels,
        };
        let record = match &row {
            None => Lifecycle::Opened(opening),
            Some(row) if row.state == SessionState::Closed || row.terms != input.terms => {
                Lifecycle::Reopened(opening)
            }
            Some(_) => return Ok(handle),
        };
        write_lifecycle(&writer, &record, Vec::new()).await?;
        let mut own = writer.lock().await;
        own.context.tier = PrincipalTier::of_session(input.agent().as_str(), input.terms.pubkey.as_deref());
        own.context.mandates = inherited.mandates(&input.terms.mandate).collect();
        own.context.tools = inherited.tools;
        own.context.ground = WorkspaceRoots::of_terms(input.agent().clone(), &input.terms);
        if row.is_none() {
            own.context.labels = labels;
        }
        drop(own);
        // The board is information for people and other agents: a write error does not fail the session.
        let now = self.storage.clock.now();
        if self.live.board_checkins.are_news(input.agent(), now)
            && let Err(error) = self.agent_files.board.append("checked in", now, input.agent().as_str())
        {
            tracing::warn!(%error, "the board could not be written");
        }
        Ok(handle)
    }

    /// The terms that a session starts with: its own, if it was open before; those of its parent, if it is a new
    /// sub-agent.
    async fn start_terms(
        &self,
        row: Option<&SessionRow>,
        input: &SessionInput,
    ) -> Result<StartTerms, RuntimeError> {
        if let Some(row) = row {
            return Ok(StartTerms { inherited: row.inherited.clone(), labels: row.labels });
        }
        let Some(lineage) = &input.lineage else {
            return Ok(StartTerms { inherited: InheritedLimits::default(), labels: Labels::FRESH });
        };
        let parent = lineage.parent.to_string();
        let parent = self.storage.readers.read(move |reader| reader.session(&parent)).await?;
        let parent = parent.ok_or_else(|| {
            RuntimeError::new(ErrorKind::NotFound, "the parent session of the sub-agent is not in the ledger")
        })?;
        Ok(StartTerms {
            inherited: InheritedLimits {
                ancestors: parent.mandates().collect(),
                tools: lineage.tools.clone(),
            },
            labels: parent.labels.for_sub_agent(),
        })
    }

    /// Closes a session and records it. Needs neither the backend nor the mandate of the session.
    pub async fn close_session(
        self: &Arc<Self>,
        handle: &Handle,
        reason: CloseReason,
    ) -> Result<(), RuntimeError> {
        // No turn waits for these approvals after the close.
        for requested in self.policy.gate.inbox.withdraw_session(handle.key.as_str()).await {
            self.resume_decided(&requested.id).await?;
        }
        // Grants for this session end with it. After a reopen, a person is asked again.
        self.policy.gate.inbox.end_grants_of(handle.key.as_str()).await?;
        let writer = self.session_writer(handle).await?;
        write_lifecycle(&writer, &Lifecycle::Closed { reason }, Vec::new()).await?;
        self.unload(&handle.key);
        Ok(())
    }

    /// Deletes the content of a closed session.
    pub async fn forget(&self, handle: &Handle, by: &str) -> Result<Cid, StoreError> {
        if let Some(done) = self.finish_forgetting(handle).await? {
            return Ok(done);
        }
        let writer = self.session_writer(handle).await?;
        let intent =
            write_lifecycle(&writer, &Lifecycle::Forgetting { by: by.to_owned() }, Vec::new()).await?;
        self.shred(handle, &writer, intent, by).await
    }

    /// Completes a deletion that was started and not finished.
    pub async fn finish_forgetting(&self, handle: &Handle) -> Result<Option<Cid>, StoreError> {
        let key = handle.key.as_str().to_owned();
        let begun = self.storage.readers.read(move |reader| reader.unfinished_forgets(&key)).await?;
        let mut done = None;
        for intent in begun.iter().filter_map(|cid| cid.parse().ok()) {
            let writer = self.session_writer(handle).await?;
            done = Some(self.shred(handle, &writer, intent, "recovery").await?);
        }
        Ok(done)
    }

    async fn shred(
        &self,
        handle: &Handle,
        writer: &tokio::sync::Mutex<SessionWriter>,
        intent: Cid,
        by: &str,
    ) -> Result<Cid, StoreError> {
        // Unloaded first: even if a later step fails, nothing more is encrypted under the key that is deleted. The next
        // turn gets a new key.
        self.unload(&handle.key);
        self.storage.vault.forget(&handle.session_id).await?;
        if let Err(error) = self.agent_files.transcripts.forget(&handle.key) {
            return Err(StoreError::Io {
                path: self.agent_files.transcripts.path(&handle.key),
                what: error.to_string(),
            });
        }
        (self.on_forget)(handle)?;
        let done = Lifecycle::Forgotten { by: by.to_owned() };
        write_lifecycle(writer, &done, vec![intent]).await
    }
}

/// The terms that a session starts with.
struct StartTerms {
    inherited: InheritedLimits,
    labels: Labels,
}

async fn write_lifecycle(
    writer: &tokio::sync::Mutex<SessionWriter>,
    record: &Lifecycle,
    parents: Vec<Cid>,
) -> Result<Cid, StoreError> {
    let mut writer = writer.lock().await;
    let mut batch = writer.new_batch();
    let target = writer.handle.session_id.to_string();
    let line = EntryDraft { quality: EntryQuality::SessionLifecycle, target: &target, parents, record };
    let entry = writer.entry(&mut batch, line)?;
    writer.write(batch).await?;
    Ok(entry.cid)
}

/// BLAKE3 of agent id, session key and creation time. Each field follows its length, so that fields cannot run
/// together.
pub fn session_id(agent: &AgentId, key: &SessionKey, created_at: &str) -> String {
    let fields = [agent.as_str(), key.as_str(), created_at];
    let lengths = fields.map(|field| (field.len() as u64).to_be_bytes());
    let mut parts: Vec<&[u8]> = Vec::new();
    for (length, field) in lengths.iter().zip(fields) {
        parts.push(length);
        parts.push(field.as_bytes());
    }
    Domain::Session.hash(&parts).iter().map(|byte| format!("{byte:02x}")).collect()
}
