//! The status of the daemon.

use serde::Serialize;
use utoipa::ToSchema;

/// `daemon.status`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct DaemonStatus {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) address: String,
    pub(crate) home: String,
    pub(crate) started_at: String,
    pub(crate) ready: bool,
    /// What is not ready, by name.
    pub(crate) waiting: Vec<String>,
    pub(crate) constitution_hash: String,
    pub(crate) mandates: Vec<String>,
    pub(crate) backends: Vec<String>,
    /// The log's name.
    pub(crate) log: String,
    /// Entries in the log.
    pub(crate) entries: u64,
    pub(crate) sessions_open: usize,
    pub(crate) sessions_loaded: usize,
    pub(crate) connections: usize,
    /// Turns that the last start found unfinished; `recovered_calls` counts unfinished calls.
    pub(crate) recovered_turns: u64,
    pub(crate) recovered_calls: u64,
    /// Sessions whose interrupted `session.forget` the last start completed.
    pub(crate) recovered_forgets: u64,
    /// The state of the canaries: whether the gate holds the backends of the roster.
    pub(crate) canaries: Vec<CanaryInfo>,
}

/// The state of the canary of a backend or of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct CanaryInfo {
    pub(crate) backend: String,
    /// The profile, or the backend again if there is none.
    pub(crate) subject: String,
    /// The agents of the roster that it covers.
    pub(crate) agents: Vec<String>,
    /// `live`; `ungoverned` or `not_tried`, whose agents do not run; `untried`, whose agents run because `canary.untried` names
    /// it; `waiting` or `running`, while the test is due or under way; or `off`.
    pub(crate) state: String,
    /// The action that was not stopped, or why it was not tried.
    pub(crate) detail: Option<String>,
    /// When it was last tried.
    pub(crate) at: Option<String>,
    pub(crate) took_ms: Option<u64>,
}
