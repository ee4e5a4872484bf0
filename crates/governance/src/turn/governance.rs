//! What all governed turns of a daemon share, in groups that change together. The steps of a turn are in
//! [`lifecycle`](super::lifecycle); this file has none.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_redact::Redactor;
use tribune_registry::board::Board;
use tribune_registry::mailbox::Mailbox;
use tribune_runtime::{Handle, SessionKey};
use tribune_storage::home::Home;
use tribune_storage::store::StoreError;

use super::board_checkins::CheckIns;
use super::native_services::PreparedServices;
use super::out_of_turn::OutOfTurn;
use super::session_writer::SessionWriter;
use super::{ToolExecutor, external_calls};
use crate::event_buffer::EventHub;
use crate::gate::Gate;
use crate::models::{AgentPrompts, ModelHealth, RequestLog};
use crate::spend::Budgets;
use crate::storage_handles::StorageHandles;
use crate::transcripts::Transcripts;

/// Called with each session that is forgotten, after its content is deleted.
pub type ForgetHook = Box<dyn Fn(&Handle) -> Result<(), StoreError> + Send + Sync>;

/// What a governed turn needs, shared by all sessions.
pub struct Governance {
    pub home: Home,
    pub storage: StorageHandles,
    pub policy: Policy,
    pub agent_files: AgentFiles,
    pub model_requests: ModelRequests,
    pub tools: Arc<dyn ToolExecutor>,
    /// Removes what other modules store about a session that is forgotten.
    pub(super) on_forget: ForgetHook,
    pub(super) live: LiveState,
    /// Cancelled when the daemon stops. Calls that wait for a person stay pending.
    pub(super) shutdown: CancellationToken,
    /// Background tasks that run to their end even if their caller stops waiting.
    pub(super) background: TaskTracker,
}

/// What decides about turns and calls.
#[derive(Debug)]
pub struct Policy {
    pub gate: Arc<Gate>,
    /// Decides about what happens outside of turns. Uses the same gate and storage.
    pub out_of_turn: Arc<OutOfTurn>,
    /// Removes secrets from text that is shown, stored unencrypted or sent.
    pub redactor: Arc<Redactor>,
    /// The time limit of a turn.
    pub turn_limit: Duration,
}

/// The files that agents and people read and write between turns.
#[derive(Debug)]
pub struct AgentFiles {
    pub mailbox: Arc<Mailbox>,
    pub board: Arc<Board>,
    pub prompts: AgentPrompts,
    pub transcripts: Transcripts,
}

/// What is known and recorded about requests to models.
#[derive(Debug)]
pub struct ModelRequests {
    pub budgets: Arc<Budgets>,
    pub log: RequestLog,
    /// The result of the last request to each model.
    pub health: ModelHealth,
}

/// The parts that [`Governance`] is made of.
pub struct GovernanceParts {
    pub home: Home,
    pub storage: StorageHandles,
    pub policy: Policy,
    pub agent_files: AgentFiles,
    pub model_requests: ModelRequests,
    pub tools: Arc<dyn ToolExecutor>,
    pub on_forget: ForgetHook,
    /// Runs the background tasks. The inbox uses the same tracker.
    pub background: TaskTracker,
}

/// The state of loaded sessions and running turns. The ledger and the vault have all that must outlive the daemon.
#[derive(Default)]
pub(super) struct LiveState {
    /// The writer of each loaded session: a session has one.
    pub(super) writers: Mutex<HashMap<SessionKey, Arc<AsyncMutex<SessionWriter>>>>,
    /// Event buffers by session, for events that are written outside of turns.
    pub(super) event_hub: EventHub,
    /// Calls that external harnesses execute, by session.
    pub(super) external_calls: external_calls::Calls,
    /// Mailbox messages that a running turn is about to record, so that no two sessions take the same one.
    pub(super) claimed_mail: Mutex<HashSet<String>>,
    /// When each agent was last mentioned on the board.
    pub(super) board_checkins: CheckIns,
    /// The services of running turns, from which the native backend takes those of its turn.
    pub(super) prepared_services: Arc<PreparedServices>,
}

impl fmt::Debug for GovernanceParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GovernanceParts")
    }
}

impl fmt::Debug for Governance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Governance")
    }
}

impl Governance {
    pub fn new(parts: GovernanceParts) -> Self {
        let GovernanceParts {
            home,
            storage,
            policy,
            agent_files,
            model_requests,
            tools,
            on_forget,
            background,
        } = parts;
        Self {
            home,
            storage,
            policy,
            agent_files,
            model_requests,
            tools,
            on_forget,
            live: LiveState::default(),
            shutdown: CancellationToken::new(),
            background,
        }
    }

    /// The event buffers of loaded sessions.
    pub const fn event_hub(&self) -> &EventHub {
        &self.live.event_hub
    }

    /// The services of running turns, for the native backend.
    pub const fn prepared_services(&self) -> &Arc<PreparedServices> {
        &self.live.prepared_services
    }

    /// Runs tasks that go on to their end even if their caller stops waiting.
    pub const fn background(&self) -> &TaskTracker {
        &self.background
    }

    /// Cancelled when the daemon stops.
    pub const fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Starts the shutdown: from now on turns end because the daemon stops.
    pub fn begin_shutdown(&self) {
        self.shutdown.cancel();
        self.background.close();
    }

    /// Whether turns are ended because the daemon stops or everything is stopped.
    pub(super) fn is_stopping(&self) -> bool {
        self.shutdown.is_cancelled() || self.policy.gate.is_frozen()
    }
}
