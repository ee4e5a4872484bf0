//! The operations of the daemon, which JSON-RPC, REST and ACP share. Each takes the principal first and checks what it may do.

use std::sync::Arc;

use crate::status::Status;
use serde_json::{Map, Value};
use tribune_cli_agents::CliBackend;
use tribune_constitution::ApprovalMode;
use tribune_governance::models::Providers;
use tribune_ledger::bundle::ProofBundle;
use tribune_ledger::tree::prove;
use tribune_ledger::{Checkpoint, Cid, Draft, EntryQuality};
use tribune_providers::ModelRef;
use tribune_records::agents::is_canary;
use tribune_records::ledger_payloads::SESSION_ENTITIES;
use tribune_records::workspace_roots;
use tribune_registry::roster::LineFault;
use tribune_registry::{Agents, Approvers, CLI_BACKENDS, RosterAgent, RosterError, backend_for};
use tribune_runtime::{AgentId, CloseReason, ContentBlock, Handle, SessionKey, SessionMode, SessionState};
use tribune_sessions::canary::{Canaries, CanaryStatus, ClearMark, ProbeStep, Tested, millis};
use tribune_sessions::cli_agents::CliAgents;
use tribune_sessions::run::Runs;
use tribune_sessions::session::{SessionError, SessionManager, Subscription, TurnHandle};
use tribune_storage::store::{EntryFilter, EntryLookup, Reader, Readers, SessionFilter, Store, StoreError};
use tribune_tools::mcp::McpServers;

use super::api_types::{
    AgentAdd, AgentInfo, AgentList, AgentTested, CanaryInfo, Cancelled, CheckpointInfo, DaemonStatus,
    Entries, EntryInfo, EventPage, Forgotten, History, LedgerTail, MessageInfo, NoteWrite, NotesWritten,
    SessionInfo, SessionInit, SessionList, SessionPage, TestStep, TurnInfo, TurnResult, Turns, Written,
};
use super::connection_limit::PrincipalTier;
use super::error::{ApiError, misnamed};
use super::principal::Principal;
use super::proxy::Proxy;

/// Rows on one page: the default, and the most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

/// Notes in one request.
const MAX_NOTES: usize = 100;

/// Bytes of one note: a paragraph.
pub const MAX_NOTE_BYTES: usize = 8 * 1024;

/// State that all interfaces share.
#[derive(Debug)]
pub struct Api {
    pub sessions: SessionManager,
    pub agents: Arc<Agents>,
    pub approvers: Arc<Approvers>,
    pub readers: Readers,
    pub store: Arc<Store>,
    pub providers: Arc<Providers>,
    pub status: Arc<Status>,
    pub proxy: Arc<Proxy>,
    pub runs: Arc<Runs>,
    pub canaries: Arc<Canaries>,
    pub cli_agents: Arc<CliAgents>,
    /// The MCP servers of sessions.
    pub mcp: Arc<McpServers>,
    /// The backends of CLI agents, whose sandboxes live between turns.
    pub others: [CliBackend; 2],
}

type Answer<T> = Result<T, ApiError>;

impl Api {
    pub async fn session_init(&self, who: &Principal, init: SessionInit) -> Answer<SessionInfo> {
        let key = self.key_of(who, &init)?;
        who.owns(&key)?;
        self.takes_work()?;
        let mode = match init.mode.as_deref() {
            None => None,
            Some(word) => Some(
                SessionMode::parse(word)
                    .ok_or_else(|| ApiError::params("mode must be persistent, domain or oneshot"))?,
            ),
        };
        if mode == Some(SessionMode::Persistent) && who.standing() == PrincipalTier::Guest {
            return Err(ApiError::forbidden(
                "an unregistered or anonymous caller has no persistent sessions: mode must be domain or oneshot",
            ));
        }
        let mut opener = who.opener();
        opener.requested.mode = mode;
        if let Some(model) = init.model {
            // Models cost money: only the operator chooses them.
            who.operator()?;
            let model: ModelRef =
                model.parse().map_err(|_| ApiError::params("model must be provider:model"))?;
            opener.requested.model = Some(model.to_string());
        }
        if let Some(folder) = init.workspace {
            who.operator()?;
            let home = self.status.home.clone();
            let found = tokio::task::spawn_blocking(move || {
                workspace_roots::validate_root("workspace", &folder, &home)
            })
            .await;
            let found = found.map_err(|error| ApiError::new("internal", error.to_string()))?;
            opener.requested.workspace =
                Some(found.map_err(ApiError::params)?.to_string_lossy().into_owned());
        }
        self.sessions.ensure(key.clone(), opener).await?;
        self.session_status(who, key.as_str()).await
    }

    /// Refuses new work while the daemon drains. Other requests are still answered.
    pub(super) fn takes_work(&self) -> Answer<()> {
        match self.status.draining.is_cancelled() {
            true => Err(SessionError::Draining.into()),
            false => Ok(()),
        }
    }

    /// The key that was given, or the key of the caller's own session with the agent.
    fn key_of(&self, who: &Principal, init: &SessionInit) -> Answer<SessionKey> {
        if let Some(key) = &init.session_key {
            let key = parse_key(key)?;
            if init.agent_id.as_ref().is_some_and(|agent| agent != key.agent().as_str()) {
                return Err(ApiError::params("agent_id is not the agent in session_key: give one of them"));
            }
            return Ok(key);
        }
        let agent: AgentId = match (&init.agent_id, who.agent()) {
            (Some(agent), _) => agent.parse().map_err(|error| misnamed(&error))?,
            (None, Some(own)) => own.clone(),
            (None, None) => {
                tribune_registry::MAIN_AGENT.parse().map_err(|error| ApiError::params(format!("{error}")))?
            }
        };
        let peer = who.agent().map_or("operator", AgentId::as_str);
        SessionKey::direct(&agent, "rpc", "local", peer).map_err(|error| ApiError::params(error.to_string()))
    }

    /// A session that the caller may use.
    fn own_key(&self, who: &Principal, key: &str) -> Answer<SessionKey> {
        let key = parse_key(key)?;
        who.owns(&key)?;
        Ok(key)
    }

    pub async fn session_status(&self, who: &Principal, key: &str) -> Answer<SessionInfo> {
        let key = self.own_key(who, key)?;
        let (running, last_seq) = self.sessions.live(&key).await?;
        let row = self.sessions.row(&key).await?;
        let row = row.ok_or_else(no_session)?;
        let mut info = SessionInfo::from(row);
        if CLI_BACKENDS.contains(&info.backend.as_str()) {
            let session_id = info.session_id.as_str().into();
            let handle = Handle { key: Arc::new(key.clone()), session_id };
            info.agent_stderr = self.cli_agents.stderr(&handle);
        }
        if running {
            info.state = SessionState::Running.as_str().to_owned();
        }
        info.last_seq = Some(last_seq);
        Ok(info)
    }

    pub async fn session_list(&self, who: &Principal, list: SessionList) -> Answer<SessionPage> {
        let state = match list.state.as_deref() {
            None => None,
            Some(word) => Some(
                SessionState::parse(word)
                    .ok_or_else(|| ApiError::params("state must be idle, running, cancelled or closed"))?,
            ),
        };
        let agent_id = match (who.agent(), list.agent_id) {
            (None, asked) => asked,
            (Some(own), None) => Some(own.to_string()),
            (Some(own), Some(asked)) if asked == own.as_str() => Some(asked),
            (Some(_), Some(_)) => return Err(ApiError::forbidden("an agent may list its own sessions only")),
        };
        let limit = page_limit(list.limit)?;
        let filter = SessionFilter { agent_id, state, after: list.after };
        let mut rows = self.sessions.list(filter, limit + 1).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|row| row.key.clone());
        Ok(SessionPage { sessions: rows.into_iter().map(SessionInfo::from).collect(), next })
    }

    pub async fn session_cancel(&self, who: &Principal, key: &str) -> Answer<Cancelled> {
        let key = self.own_key(who, key)?;
        Ok(Cancelled { cancelled: self.sessions.cancel(&key).await? })
    }

    pub async fn session_close(&self, who: &Principal, key: &str) -> Answer<SessionInfo> {
        let key = self.own_key(who, key)?;
        self.sessions.close(&key, CloseReason::Requested).await?;
        self.session_status(who, key.as_str()).await
    }

    pub async fn session_forget(&self, who: &Principal, key: &str) -> Answer<Forgotten> {
        who.operator()?;
        let key = parse_key(key)?;
        Ok(Forgotten { cid: self.sessions.forget(&key, "operator").await?.to_string() })
    }

    pub async fn session_turns(&self, who: &Principal, key: &str, limit: Option<usize>) -> Answer<Turns> {
        let key = self.own_key(who, key)?;
        let limit = page_limit(limit)?;
        let turns = self
            .readers
            .read(move |reader| match reader.session(key.as_str())? {
                Some(session) => reader.turns(&session, limit).map(Ok),
                None => Ok(Err(no_session())),
            })
            .await??;
        Ok(Turns { turns: turns.into_iter().map(TurnInfo::from).collect() })
    }

    pub async fn session_history(&self, who: &Principal, key: &str, limit: Option<usize>) -> Answer<History> {
        let key = self.own_key(who, key)?;
        let limit = page_limit(limit)?;
        let vault = Arc::clone(self.sessions.vault());
        let redactor = Arc::clone(&self.sessions.governance().redactor);
        let messages = self
            .readers
            .read(move |reader| {
                let Some(session) = reader.session(key.as_str())? else { return Ok(Err(no_session())) };
                let mut messages = Vec::new();
                for row in reader.messages(&session, limit)? {
                    let words = vault.content(&session.id, &row.content)?;
                    messages.push(MessageInfo::new(row, words, &redactor));
                }
                Ok(Ok(messages))
            })
            .await??;
        Ok(History { messages })
    }

    pub async fn subscribe(
        &self,
        who: &Principal,
        key: &str,
        after: Option<u64>,
    ) -> Answer<(SessionKey, Subscription)> {
        let key = self.own_key(who, key)?;
        let subscription = self.sessions.subscribe(&key, after).await?;
        Ok((key, subscription))
    }

    /// One page of events, without waiting for more.
    pub async fn session_events(
        &self,
        who: &Principal,
        key: &str,
        after: Option<u64>,
        limit: Option<usize>,
    ) -> Answer<EventPage> {
        let limit = page_limit(limit.or(Some(MAX_PAGE)))?;
        let (key, mut subscription) = self.subscribe(who, key, after).await?;
        let (_, last_seq) = self.sessions.live(&key).await?;
        let events =
            if subscription.after() < last_seq { subscription.next(limit).await? } else { Vec::new() };
        let events = events.iter().filter_map(|event| serde_json::from_str(&event.json).ok()).collect();
        Ok(EventPage { events, last_seq })
    }

    /// Queues a turn.
    pub async fn turn_run(
        &self,
        who: &Principal,
        key: &str,
        content: Vec<ContentBlock>,
    ) -> Answer<(SessionKey, TurnHandle)> {
        let key = self.own_key(who, key)?;
        super::validate_content::check(&content)?;
        self.takes_work()?;
        let ticket = self.sessions.run_turn(&key, content, who.speaker()).await?;
        Ok((key, ticket))
    }

    /// Waits until the turn is accepted and, with `wait`, until it has ended.
    pub async fn turn_result(
        &self,
        key: SessionKey,
        mut ticket: TurnHandle,
        wait: bool,
    ) -> Answer<TurnResult> {
        let accepted = ticket.accepted().await?;
        let mut result = TurnResult {
            session_key: key.to_string(),
            turn: accepted.turn,
            first_seq: accepted.first_seq,
            last_seq: None,
            stop_reason: None,
            usage: None,
        };
        if wait {
            let end = ticket.ended().await?;
            result.last_seq = Some(end.last_seq);
            result.stop_reason = Some(end.stop_reason.as_str().to_owned());
            result.usage = Some(end.usage);
        }
        Ok(result)
    }

    pub async fn ledger_tail(&self, who: &Principal, tail: LedgerTail) -> Answer<Entries> {
        who.operator()?;
        let limit = page_limit(tail.limit)?;
        let quality = match tail.quality {
            None => None,
            Some(word) => Some(
                word.parse::<EntryQuality>().map_err(|_| ApiError::params("no entry has this quality"))?,
            ),
        };
        let filter = EntryFilter { entity_id: tail.entity_id, quality };
        let entries = self.readers.read(move |reader| reader.tail(&filter, limit)).await?;
        Ok(Entries { entries: entries.iter().map(EntryInfo::new).collect() })
    }

    pub async fn ledger_entry(&self, who: &Principal, name: String) -> Answer<EntryInfo> {
        who.operator()?;
        self.readers
            .read(move |reader| Ok(find(reader, &name)?.map(|stored| EntryInfo::new(&stored))))
            .await?
    }

    pub async fn ledger_checkpoint(&self, who: &Principal) -> Answer<CheckpointInfo> {
        who.operator()?;
        let note = self.readers.read(|reader| reader.checkpoint()).await?;
        let parsed = Checkpoint::parse(&note).map_err(|error| ApiError::new("storage", error.to_string()))?;
        Ok(CheckpointInfo { origin: parsed.origin, size: parsed.size, root: parsed.root.to_string(), note })
    }

    /// A C2SP tlog-proof that an entry is in the log.
    pub async fn ledger_prove(&self, who: &Principal, name: String) -> Answer<String> {
        who.operator()?;
        self.readers
            .read(move |reader| {
                let stored = match find(reader, &name)? {
                    Ok(stored) => stored,
                    Err(error) => return Ok(Err(error)),
                };
                let checkpoint = reader.checkpoint()?;
                let mut entry = Vec::new();
                stored.entry.write_line(&mut entry);
                let path = match prove::inclusion(reader, stored.index, reader.size()?) {
                    Ok(path) => path,
                    Err(error) => return Ok(Err(ApiError::new("storage", error.to_string()))),
                };
                let bundle = ProofBundle { entry, index: stored.index, path, checkpoint };
                Ok(Ok(bundle.to_string()))
            })
            .await?
    }

    pub async fn ledger_note(&self, who: &Principal, note: NoteWrite) -> Answer<NotesWritten> {
        who.operator()?;
        self.takes_work()?;
        if note.texts.is_empty() || note.texts.len() > MAX_NOTES {
            return Err(ApiError::params(format!("a request holds 1 to {MAX_NOTES} notes")));
        }
        if note.entity.starts_with(SESSION_ENTITIES) {
            return Err(ApiError::params(format!(
                "entities that begin with `{SESSION_ENTITIES}` are written by their sessions only: name another entity"
            )));
        }
        if let Some(bad) = note.texts.iter().find(|text| text.is_empty() || text.len() > MAX_NOTE_BYTES) {
            return Err(ApiError::params(format!(
                "a note has 1 to {MAX_NOTE_BYTES} bytes; this one has {}",
                bad.len()
            )));
        }
        let mut parents: Vec<Cid> = Vec::with_capacity(note.parents.len());
        for parent in &note.parents {
            let cid = parent
                .parse()
                .map_err(|_| ApiError::params("a parent is not a CID: `b3:` and 64 hex digits"))?;
            parents.push(cid);
        }
        if parents.is_empty() && note.after_head {
            let entity = note.entity.clone();
            let head = self.readers.read(move |reader| reader.head(&entity)).await?;
            parents.extend(head.map(|head| head.entry.cid));
        }
        let clock = &self.sessions.governance().clock;
        let draft = |text: &String| Draft {
            entity_id: note.entity.clone(),
            target: note.entity.clone(),
            quality: EntryQuality::Note,
            timestamp: clock.now(),
            source: note.entity.clone(),
            actor: "operator".to_owned(),
            parents: parents.clone(),
            tags: note.tags.clone(),
            payload: Map::from_iter([("text".to_owned(), Value::from(text.clone()))]),
            attested_by: None,
            envelope: None,
        };
        let drafts: Vec<Draft> = note.texts.iter().map(draft).collect();
        let appended = self.sessions.governance().ledger.append_all(&drafts).await?;
        let written = appended
            .iter()
            .map(|entry| Written { index: entry.index, cid: entry.cid.to_string(), seq: entry.seq })
            .collect();
        Ok(NotesWritten { written })
    }

    /// Rotates the signing key of the log. Returns the new public key and the entry that records the rotation.
    pub async fn rotate_key(&self, who: &Principal) -> Answer<(String, Written)> {
        who.operator()?;
        self.takes_work()?;
        let store = Arc::clone(&self.store);
        let clock = Arc::clone(&self.sessions.governance().clock);
        let rotated = tokio::task::spawn_blocking(move || store.rotate_key(&*clock)).await;
        let (key, entry) = rotated.map_err(|error| ApiError::new("internal", error.to_string()))??;
        Ok((key.to_string(), Written { index: entry.index, cid: entry.cid.to_string(), seq: entry.seq }))
    }

    pub async fn agents(&self, who: &Principal) -> Answer<AgentList> {
        who.operator()?;
        let heartbeats = self.readers.read(|reader| reader.heartbeats()).await?;
        let constitution = &self.sessions.governance().gate.law;
        let tools = |mandate: &str| {
            constitution.mandate(mandate).map(|mandate| mandate.tools().to_vec()).unwrap_or_default()
        };
        let mut agents: Vec<AgentInfo> = self
            .agents
            .all()
            .into_iter()
            .map(|agent| {
                let info = AgentInfo {
                    tools: tools(&agent.mandate),
                    agent_id: agent.id.to_string(),
                    name: agent.name,
                    backend: Some(agent.backend),
                    profile: agent.profile,
                    model: agent.model,
                    mandate: agent.mandate,
                    mode: agent.mode.map(|mode| mode.as_str().to_owned()),
                    standing: agent.standing,
                    pubkey: agent.pubkey,
                    rostered: true,
                    last_seen: None,
                    sessions: 0,
                    turns: 0,
                };
                match heartbeats.iter().find(|seen| seen.agent_id == info.agent_id) {
                    Some(seen) => info.seen(seen),
                    None => info,
                }
            })
            .collect();
        for seen in &heartbeats {
            // The agent of a canary is not listed.
            let is_canary = seen.agent_id.parse().is_ok_and(|agent| is_canary(&agent));
            if !is_canary && !agents.iter().any(|agent| agent.agent_id == seen.agent_id) {
                let mandate = tribune_constitution::DEFAULT_MANDATE.to_owned();
                let unregistered = AgentInfo {
                    agent_id: seen.agent_id.clone(),
                    name: None,
                    backend: None,
                    profile: None,
                    model: None,
                    tools: tools(&mandate),
                    mandate,
                    mode: None,
                    standing: false,
                    pubkey: None,
                    rostered: false,
                    last_seen: None,
                    sessions: 0,
                    turns: 0,
                };
                agents.push(unregistered.seen(seen));
            }
        }
        Ok(AgentList { agents })
    }

    pub async fn agent(&self, who: &Principal, id: &str) -> Answer<AgentInfo> {
        let all = self.agents(who).await?;
        all.agents.into_iter().find(|agent| agent.agent_id == id).ok_or_else(unknown_agent)
    }

    pub async fn agent_add(&self, who: &Principal, add: AgentAdd) -> Answer<AgentInfo> {
        who.operator()?;
        self.takes_work()?;
        let id: AgentId = add.agent_id.parse().map_err(|error| misnamed(&error))?;
        if self.approvers.knows(id.as_str()) {
            let what = format!(
                "`{id}` is the name of an approver, who could then decide about itself: choose another name"
            );
            return Err(ApiError::params(what));
        }
        let (home, backend, profile, model) =
            (self.sessions.governance().home.clone(), add.backend, add.profile, add.model.clone());
        let found =
            tokio::task::spawn_blocking(move || backend_for(&home, backend, profile, model.as_deref())).await;
        let (backend, profile) =
            found.map_err(|error| ApiError::new("internal", error.to_string()))?.map_err(ApiError::params)?;
        let agent = RosterAgent {
            id: id.clone(),
            name: add.name,
            backend,
            profile,
            model: add.model,
            mandate: add.mandate.unwrap_or_else(|| tribune_constitution::DEFAULT_MANDATE.to_owned()),
            mode: add.mode.as_deref().map(approval_mode).transpose()?,
            standing: add.standing,
            pubkey: add.pubkey,
        };
        self.sessions
            .governance()
            .mandate(&agent.mandate)
            .map_err(|error| ApiError::params(error.message))?;
        if !self.status.backends.contains(&agent.backend) {
            let known = self.status.backends.join(", ");
            return Err(ApiError::params(format!(
                "there is no backend `{}`: this build has {known}",
                short(&agent.backend)
            )));
        }
        let agents = Arc::clone(&self.agents);
        let added = tokio::task::spawn_blocking(move || agents.add(agent)).await;
        added.map_err(|error| ApiError::new("internal", error.to_string()))?.map_err(roster_error)?;
        self.agent(who, id.as_str()).await
    }

    pub async fn status(&self, who: &Principal) -> Answer<DaemonStatus> {
        who.operator()?;
        let entries = self.readers.read(|reader| reader.size()).await?;
        let (sessions_open, sessions_loaded) = self.sessions.counts();
        let waiting = self.waiting();
        let status = &self.status;
        let constitution = &self.sessions.governance().gate.law;
        Ok(DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            address: status.address.to_string(),
            home: status.home.display().to_string(),
            started_at: status.started_at.to_string(),
            ready: waiting.is_empty(),
            waiting,
            constitution_hash: constitution.hash().to_string(),
            mandates: constitution.mandates().keys().cloned().collect(),
            backends: status.backends.clone(),
            log: status.log.clone(),
            entries,
            sessions_open,
            sessions_loaded,
            connections: status.connections(),
            recovered_turns: status.recovered.turns,
            recovered_calls: status.recovered.calls,
            recovered_forgets: status.recovered.forgets,
            canaries: self.canaries.standpoints().into_iter().map(canary_info).collect(),
        })
    }

    /// Runs the canary of an agent: tests whether the gate holds it.
    pub(crate) async fn agent_test(
        &self,
        who: &Principal,
        id: &str,
        absolve: ClearMark,
    ) -> Answer<AgentTested> {
        who.operator()?;
        self.takes_work()?;
        let agent: AgentId = id.parse().map_err(|error| misnamed(&error))?;
        if !self.agents.knows(&agent) {
            return Err(unknown_agent());
        }
        let by = who.opener().name;
        let tested = self.canaries.test(&agent, (&by, absolve)).await.map_err(SessionError::from)?;
        let Tested { trial, mark, cleared, is_excepted } = tested;
        let step = |step: ProbeStep| TestStep {
            step: step.name.to_owned(),
            ok: step.is_good,
            took_ms: millis(step.took),
            detail: step.detail,
        };
        Ok(AgentTested {
            agent_id: agent.to_string(),
            outcome: trial.outcome.as_str().to_owned(),
            detail: trial.outcome.detail().map(str::to_owned),
            mark,
            cleared: cleared.map(|grounds| grounds.as_str().to_owned()),
            excepted: is_excepted,
            steps: trial.steps.into_iter().map(step).collect(),
            took_ms: millis(trial.took),
            session_key: trial.session,
        })
    }

    /// What is not ready, by name. None of it is secret.
    pub fn waiting(&self) -> Vec<String> {
        let mut waiting = Vec::new();
        if self.status.draining.is_cancelled() {
            waiting.push("gateway: draining".to_owned());
        }
        if self.sessions.governance().ledger.failure().is_some() {
            waiting.push("ledger: read-only since a disk error".to_owned());
        }
        if self.sessions.vault().failed() {
            waiting.push("vault: read-only since a disk error".to_owned());
        }
        waiting
    }
}

/// Parses an approval mode.
fn approval_mode(word: &str) -> Answer<ApprovalMode> {
    ApprovalMode::parse(word).ok_or_else(|| {
        let known = ApprovalMode::ALL.map(ApprovalMode::as_str).join(", ");
        ApiError::params(format!("mode must be one of {known}"))
    })
}

fn canary_info(standpoint: CanaryStatus) -> CanaryInfo {
    let CanaryStatus { subject, agents, state, detail, at, took } = standpoint;
    CanaryInfo {
        backend: subject.backend,
        subject: subject.name,
        agents,
        state: state.to_owned(),
        detail,
        at: at.map(|at| at.to_string()),
        took_ms: took.map(millis),
    }
}

fn roster_error(error: RosterError) -> ApiError {
    let code = match &error {
        RosterError::Entry(LineFault::SameId { .. } | LineFault::SameKey { .. }) => "conflict",
        RosterError::Entry(_) => "invalid_params",
        RosterError::Line { .. } | RosterError::TooManyLines(_) | RosterError::Io { .. } => "storage",
    };
    ApiError::new(code, error.to_string())
}

fn parse_key(key: &str) -> Answer<SessionKey> {
    key.parse().map_err(|error| misnamed(&error))
}

fn no_session() -> ApiError {
    SessionError::NotFound(String::new()).into()
}

fn unknown_agent() -> ApiError {
    SessionError::UnknownAgent(String::new()).into()
}

fn page_limit(limit: Option<usize>) -> Answer<usize> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        limit => Err(ApiError::params(format!("limit is 1 to {MAX_PAGE}, not {limit}"))),
    }
}

fn find(reader: &Reader, name: &str) -> Result<Answer<tribune_storage::store::StoredEntry>, StoreError> {
    Ok(match reader.lookup(name)? {
        EntryLookup::Found(stored) => Ok(*stored),
        EntryLookup::Nothing(_) => Err(ApiError::new(
            "not_found",
            "there is no such entry: name it by its index, its CID or the CID's first digits",
        )),
        EntryLookup::Several(_) => Err(ApiError::params("several entries match: give more digits")),
    })
}

/// Text that the caller sent, for an error sentence: at most 80 characters, without control characters.
pub(super) fn short(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect()
}
