//! Authorizes and records what happens for a session outside of its turns: connections out of its sandbox, landing its
//! changes, and starts of its MCP servers. They are decided, parked for a person, and recorded like calls.
//!
//! They happen while a turn runs as well as between turns, and a running turn is the only writer of its session. So
//! they have entities of their own in the ledger, such as `egress:<session>` and `workspace:<session>`. The labels of
//! what connections bring in apply to the session all the same.

mod parking;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Mutex as AsyncMutex;
use tribune_constitution::{Decision, DecisionStage, EGRESS, LAND, Labels, MCP_SERVER, Verdict, Veto};
use tribune_ledger::{Cid, Draft, EntryQuality};
use tribune_records::approval::action::{Action, Files};
use tribune_records::egress_labels::{EGRESS_LABELS, MCP_SERVER_LABELS};
use tribune_records::ledger_payloads::{
    EgressRecord, VerdictRecord, egress_entity, mcp_entity, payload, workspace_entity,
};
use tribune_runtime::{RuntimeError, SessionKey, SessionState, ToolCall};
use tribune_storage::store::{Appended, SessionRow, StoreError};

use super::call_decision::denial;
use crate::approval::MAX_PENDING;
use crate::gate::hooks::HookSubject;
use crate::gate::{Admission, AllowToken, AuthorizationRequest, Gate, PolicyContext};
use crate::storage_handles::StorageHandles;

/// A ledger entity beside the entity of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SideLog {
    Egress,
    Workspace,
    Mcp,
}

impl SideLog {
    fn of(call: &ToolCall) -> Self {
        match call.name.as_str() {
            LAND => Self::Workspace,
            MCP_SERVER => Self::Mcp,
            _ => Self::Egress,
        }
    }

    fn entity(self, key: &SessionKey) -> String {
        match self {
            Self::Egress => egress_entity(key.as_str()),
            Self::Workspace => workspace_entity(key.as_str()),
            Self::Mcp => mcp_entity(key.as_str()),
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Self::Egress => "broker",
            Self::Workspace => "workspace",
            Self::Mcp => "mcp",
        }
    }

    /// The labels that it brings into the session.
    const fn brings(self) -> Option<Labels> {
        match self {
            Self::Egress => Some(EGRESS_LABELS),
            Self::Workspace => None,
            Self::Mcp => Some(MCP_SERVER_LABELS),
        }
    }
}

/// Why a connection is not made, changes are not landed, or a server is not started.
#[derive(Debug)]
pub struct Denied {
    pub code: DenialCode,
    pub message: String,
    /// Whether a recorded verdict has this denial.
    pub is_recorded: bool,
}

/// The kind of a denial. Its text is part of the ledger and wire formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialCode {
    /// The law or a person denied it.
    Denied,
    /// Nobody decided in time.
    Undecided,
    /// No person can be asked yet.
    CannotAsk,
    TooManyWaiting,
    NoSession,
    Storage,
    Internal,
}

impl DenialCode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Undecided => "undecided",
            Self::CannotAsk => "cannot_ask",
            Self::TooManyWaiting => "too_many_waiting",
            Self::NoSession => "no_session",
            Self::Storage => "storage",
            Self::Internal => "internal",
        }
    }
}

impl Denied {
    fn recorded(code: DenialCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_recorded: true }
    }

    fn unrecorded(code: DenialCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_recorded: false }
    }
}

impl From<StoreError> for Denied {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a request was denied because it could not be recorded");
        Self::unrecorded(
            DenialCode::Storage,
            "nothing can be recorded, so nothing is allowed: tell the operator",
        )
    }
}

impl From<RuntimeError> for Denied {
    fn from(error: RuntimeError) -> Self {
        Self::unrecorded(DenialCode::Internal, error.message)
    }
}

/// Authorizes and records what happens outside of turns: connections out of sandboxes, landings, and starts of MCP
/// servers.
///
/// Needs no tools and no turns, so the sockets of sessions are built on this alone.
pub struct OutOfTurn {
    pub gate: Arc<Gate>,
    pub storage: StorageHandles,
    /// The labels that connections brought into sessions, until the writers of the sessions have applied them.
    egress_taint: Mutex<HashMap<SessionKey, Labels>>,
    /// Held while a question is looked up and asked, so that two equal calls do not both ask it.
    parking: AsyncMutex<()>,
}

impl fmt::Debug for OutOfTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutOfTurn")
    }
}

/// A call of the daemon itself that is being decided.
struct OutOfTurnRequest<'a> {
    out_of_turn: &'a OutOfTurn,
    key: &'a Arc<SessionKey>,
    call: ToolCall,
    side_log: SideLog,
    carries: Option<Labels>,
}

impl OutOfTurn {
    pub fn new(gate: Arc<Gate>, storage: StorageHandles) -> Self {
        Self { gate, storage, egress_taint: Mutex::default(), parking: AsyncMutex::default() }
    }

    /// Authorizes one call of the daemon for a session. Returns the admission when the verdict that allows it is
    /// durable. Where a person decides, waits at most `wait`, and no longer than until `gone`. `carries` are the labels
    /// of the sandbox beyond those that the ledger has for its session.
    pub async fn authorize(
        &self,
        key: &Arc<SessionKey>,
        carries: Option<Labels>,
        call: ToolCall,
        vetoes: Vec<Veto>,
        wait: Duration,
        gone: impl Future<Output = ()>,
    ) -> Result<Admission, Denied> {
        let side_log = SideLog::of(&call);
        let request = OutOfTurnRequest { out_of_turn: self, key, call, side_log, carries };
        let (row, context) = request.context().await?;
        let vetoes = vetoes
            .into_iter()
            .chain(self.gate.hooks.objections(&HookSubject::of(&context), &request.call).await);
        let (token, verdict, entry) =
            request.judge(&context, DecisionStage::Call, None, vetoes.collect(), Vec::new()).await?;
        match (token, verdict.decision) {
            (Some(token), _) => Ok(request.admit(token, &entry)),
            (None, Decision::Ask) => request.ask(row, context, (verdict, entry.cid), wait, gone).await,
            (None, Decision::Allow | Decision::Deny) => Err(denied(&verdict)),
        }
    }

    /// Authorizes one call of the daemon for a session, if no person has to be asked.
    pub(super) async fn authorize_without_asking(
        &self,
        key: &Arc<SessionKey>,
        call: ToolCall,
    ) -> Result<Admission, Denied> {
        let side_log = SideLog::of(&call);
        let request = OutOfTurnRequest { out_of_turn: self, key, call, side_log, carries: None };
        let (_, context) = request.context().await?;
        let vetoes = self.gate.hooks.objections(&HookSubject::of(&context), &request.call).await;
        let (token, verdict, entry) =
            request.judge(&context, DecisionStage::Call, None, vetoes, Vec::new()).await?;
        token.map(|token| request.admit(token, &entry)).ok_or_else(|| denied(&verdict))
    }

    /// Records the end of a connection, under the verdict that allowed it.
    pub async fn record_connection_end(&self, key: &SessionKey, verdict: Option<Cid>, record: &EgressRecord) {
        let parents = verdict.into_iter().collect();
        let draft = self.side_log_draft(SideLog::Egress, key, EntryQuality::Delivery, parents, record);
        if let Err(error) = self.storage.ledger.append(&draft).await {
            // The next start finds the connection without an end, and records it as interrupted.
            tracing::warn!(session = %key, %error, "the end of a connection could not be recorded");
        }
    }

    /// Withdraws the requests of calls that ended with an earlier daemon.
    pub async fn withdraw_interrupted_requests(&self) -> Result<(), StoreError> {
        let waiting = self.storage.readers.read(|reader| reader.pending_approvals(MAX_PENDING));
        let rows = waiting
            .await?
            .into_iter()
            .filter(|row| [EGRESS, LAND, MCP_SERVER].contains(&row.requested.tool.as_str()));
        let ids: Vec<String> = rows.map(|row| row.requested.id).collect();
        if !ids.is_empty() {
            self.gate.inbox.withdraw(&ids).await;
        }
        Ok(())
    }

    /// The labels that connections have brought into a session.
    pub(super) fn egress_labels(&self, key: &SessionKey) -> Labels {
        self.egress_taint().get(key).copied().unwrap_or(Labels::FRESH)
    }

    /// Drops the labels of an unloaded session: the ledger has them.
    pub(super) fn unload(&self, key: &SessionKey) {
        self.egress_taint().remove(key);
    }

    fn egress_taint(&self) -> MutexGuard<'_, HashMap<SessionKey, Labels>> {
        self.egress_taint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn side_log_draft(
        &self,
        side_log: SideLog,
        key: &SessionKey,
        quality: EntryQuality,
        parents: Vec<Cid>,
        record: &impl Serialize,
    ) -> Draft {
        let entity = side_log.entity(key);
        Draft {
            entity_id: entity.clone(),
            target: entity,
            quality,
            timestamp: self.storage.clock.now(),
            source: side_log.source().to_owned(),
            actor: key.agent().to_string(),
            parents,
            tags: Vec::new(),
            payload: payload(record),
            attested_by: None,
            envelope: None,
        }
    }
}

impl OutOfTurnRequest<'_> {
    /// The policy context of the session as the ledger has it: what the session has read is durable before the session
    /// can act on it.
    async fn context(&self) -> Result<(SessionRow, PolicyContext), Denied> {
        let name = self.key.to_string();
        let row = self.out_of_turn.storage.readers.read(move |reader| reader.session(&name)).await?;
        // Changes can be landed after their session is closed.
        let outlives = self.side_log == SideLog::Workspace;
        let row = row.filter(|row| outlives || row.state != SessionState::Closed);
        let found = row.and_then(|row| PolicyContext::of(&row).map(|context| (row, context)));
        let (row, mut context) = found.ok_or_else(|| {
            Denied::unrecorded(DenialCode::NoSession, "the session is closed: open it again first")
        })?;
        context.labels = self.carries.map_or(context.labels, |carried| context.labels.meet(carried));
        Ok((row, context))
    }

    /// Decides about the call and records the verdict.
    async fn judge(
        &self,
        context: &PolicyContext,
        stage: DecisionStage,
        approval: Option<&str>,
        vetoes: Vec<Veto>,
        parents: Vec<Cid>,
    ) -> Result<(Option<AllowToken>, Verdict, Appended), Denied> {
        let request = AuthorizationRequest {
            context,
            tool: &self.call.name,
            stage,
            call_id: &self.call.id,
            input: Some(&self.call.input),
            original_input: None,
            runs: &|| Some(Files::default()),
            owner_words: None,
            vetoes,
            approval,
        };
        let authorization = self.out_of_turn.gate.judge(request)?;
        let token = authorization.allow_token();
        let (facts, verdict) = authorization.into_parts();
        let record = VerdictRecord {
            tool: self.call.name.clone(),
            constitution_hash: self.out_of_turn.gate.law.hash().to_string(),
            input_hash: None,
            facts,
            verdict,
        };
        let draft = self.draft(EntryQuality::PolicyVerdict, parents, &record);
        let entry = self.out_of_turn.storage.ledger.append(&draft).await?;
        Ok((token, record.verdict, entry))
    }

    fn draft(&self, quality: EntryQuality, parents: Vec<Cid>, record: &impl Serialize) -> Draft {
        self.out_of_turn.side_log_draft(self.side_log, self.key, quality, parents, record)
    }

    /// Turns the token into an admission, and applies the labels that the call brings in.
    fn admit(&self, token: AllowToken, verdict: &Appended) -> Admission {
        if let Some(brought) = self.side_log.brings() {
            let mut taint = self.out_of_turn.egress_taint();
            let labels = taint.entry((**self.key).clone()).or_insert(Labels::FRESH);
            *labels = labels.meet(brought);
        }
        Admission::appended(token, self.call.clone(), Arc::clone(self.key), verdict)
    }

    /// The action that a person decides about: the call, in a session that already has the labels that the call brings
    /// in.
    fn action(&self, context: &PolicyContext) -> Action {
        let labels = self.side_log.brings().map_or(context.labels, |brought| context.labels.meet(brought));
        let context = PolicyContext { labels, ..context.clone() };
        self.out_of_turn.gate.action_elsewhere(&context, &self.call)
    }
}

fn denied(verdict: &Verdict) -> Denied {
    Denied::recorded(DenialCode::Denied, denial(verdict).content)
}
