//! The payloads of the ledger entries for sessions, turns and calls. The views read the same types back, so the two cannot
//! drift apart. Payloads contain no message text, only commitments to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tribune_constitution::{Facts, Labels, Verdict};
use tribune_ledger::commitment::Commitment;
use tribune_providers::TokenUsage;
use tribune_runtime::{CloseReason, StopReason, Usage};

use crate::approval::record::CallRunner;
use crate::session_opening::SessionOpeningRecord;

/// The prefix of the entity ids of sessions. Only the session writes its history.
pub const SESSION_ENTITIES: &str = "agent:";

/// The life cycle of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Lifecycle {
    Opened(SessionOpeningRecord),
    /// A closed session is open again, with its current terms.
    Reopened(SessionOpeningRecord),
    Closed {
        reason: CloseReason,
    },
    /// Its content is about to be shredded.
    Forgetting {
        by: String,
    },
    /// Its content is shredded.
    Forgotten {
        by: String,
    },
}

/// The start or the end of a turn, in the skill trace format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    #[serde(flatten)]
    pub phase: TurnPhase,
    pub skill_name: String,
    pub inputs_hash: Commitment,
    pub timestamp: String,
    pub actor: String,
    /// The turn before this one.
    pub prev_cid: Option<String>,
    pub constitution_hash: String,
    /// The labels of the session at this point.
    #[serde(default)]
    pub labels: Labels,
}

/// The phase of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum TurnPhase {
    Started,
    Completed {
        outputs_hash: Commitment,
        stop_reason: StopReason,
        usage: Usage,
    },
    /// The daemon ended before the turn did.
    Interrupted,
}

/// A call that an agent requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallRecord {
    pub tool: String,
    pub call_id: String,
    pub input_hash: Commitment,
    /// Who executes it.
    #[serde(default, skip_serializing_if = "CallRunner::is_host")]
    pub runner: CallRunner,
    /// The commitment under which the vault has the agent's own message, byte by byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_hash: Option<Commitment>,
    /// The commitment under which the vault has the input before a hook narrowed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_hash: Option<Commitment>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResultRecord {
    pub tool: String,
    pub call_id: String,
    pub outcome: CallOutcome,
    pub is_error: bool,
    /// None if the call has no output.
    pub output_hash: Option<Commitment>,
    /// The labels of the session at this point.
    #[serde(default)]
    pub labels: Labels,
    /// The resources that the call wrote, with their labels from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrote: Vec<LabelRecord>,
    /// The sandbox in which a command ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRecord>,
}

/// The sandbox of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// `full`, `landlock` or `off`, as `sandbox` in the configuration.
    pub mode: String,
    /// The mechanism that limited memory, processes and CPU time; none without a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// The limits, by their names in a launch profile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// How many names in the workspace the command could not change.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub masked: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The labels of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRecord {
    /// Such as `file:<agent>/<path>`.
    pub resource: String,
    pub labels: Labels,
}

/// A verdict with all facts that it was made from. With the constitution of this hash, the decision can be reproduced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictRecord {
    pub tool: String,
    pub constitution_hash: String,
    /// The call's input, if there was a call.
    pub input_hash: Option<Commitment>,
    pub facts: Facts,
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It ended by itself, with success or with an error.
    Ran,
    Denied,
    /// Its turn ended before it, or it was withdrawn: requested or permitted, and then not executed.
    Cancelled,
    /// It was killed before its end: by the agent that requested it, or by the daemon because it exceeded a limit.
    Killed,
    /// It exceeded its time limit.
    TimedOut,
    /// The daemon ended while it ran: whether it took effect is not known.
    Interrupted,
}

/// A mailbox message that was put before a turn's input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MailboxRecord {
    pub letter: String,
    pub from: String,
    pub content_hash: Commitment,
    /// The labels of its content.
    #[serde(default)]
    pub labels: Labels,
}

/// A compaction: the beginning of a conversation was summarised. The entry's parents are the turns that were replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionRecord {
    pub session: String,
    pub messages: u64,
    /// CIDs of all those turns, because the number of an entry's parents is limited.
    pub evidence: Vec<String>,
}

/// A part of an answer was withheld.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithheldRecord {
    pub event: String,
    pub rule: String,
}

/// An agent executed a call without permission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UngovernedRecord {
    pub event: String,
    pub tool: String,
    pub call_id: String,
    /// The commitment under which the vault has the call.
    pub what_hash: Commitment,
}

/// A notice for the person responsible for the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoardCheckinRecord {
    /// The code of the notice.
    pub event: String,
    /// The commitment under which the vault has the content of the notice.
    pub what_hash: Commitment,
}

/// The entity id for requests that the proxy forwards to a provider.
pub fn proxy_entity(provider: &str) -> String {
    format!("proxy:{provider}")
}

/// A request to the proxy. The entry for its end has the request's entry as its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProxyRecord {
    /// It is about to be forwarded.
    Asked {
        by: String,
        /// The session whose sandbox sent it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        provider: String,
        model: Option<String>,
        method: String,
        path: String,
    },
    Ended {
        /// The status of the provider's answer, if there was one.
        status: Option<u16>,
        outcome: ProxyOutcome,
        /// None if the provider reported none.
        usage: Option<TokenUsage>,
    },
    /// Tribune did not forward it.
    Refused { by: String, provider: String },
}

/// How a forwarded request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyOutcome {
    Answered,
    /// The provider answered with an error.
    Refused,
    /// The provider could not be reached, or ended its answer with an error.
    Failed,
    /// The answer was cut off.
    Cut,
    /// The client disconnected.
    Left,
    /// The daemon was frozen or stopped.
    Stopped,
    /// The daemon ended before the request did: its outcome is not known.
    Interrupted,
}

impl ProxyOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Cut => "cut",
            Self::Left => "left",
            Self::Stopped => "stopped",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The entity id for connections out of a session's sandbox. See [`SESSION_ENTITIES`] for why it is not the session's own
/// history.
pub fn egress_entity(session: &str) -> String {
    format!("{EGRESS_ENTITIES}{session}")
}

/// The prefix of the entity ids for connections out of sandboxes.
pub const EGRESS_ENTITIES: &str = "egress:";

/// A connection out of a sandbox. The entry for its end has the verdict that allowed the connection as its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EgressRecord {
    /// It could not be judged, because its destination is not known.
    Refused { code: String },
    Ended {
        outcome: EgressOutcome,
        /// The error code, if it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Bytes sent out of the sandbox.
        sent: u64,
        received: u64,
    },
}

/// How an allowed connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressOutcome {
    /// Both sides closed it.
    Done,
    /// Its destination or its use is not allowed: no byte was sent there.
    Refused,
    /// It could not be established, or broke off.
    Failed,
    /// It exceeded a limit: idle time, duration or bytes.
    Limit,
    /// The sandbox or the daemon was stopped, or the daemon was frozen.
    Stopped,
    /// The daemon ended before the connection did: what was transferred is not known.
    Interrupted,
}

/// The entity id for the MCP servers of a session.
pub fn mcp_entity(session: &str) -> String {
    format!("{MCP_ENTITIES}{session}")
}

/// The prefix of the entity ids for MCP servers.
pub const MCP_ENTITIES: &str = "mcp:";

/// The start of an MCP server, or its failure. The verdict that allowed it is the parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum McpRecord {
    ServerStarted {
        server: String,
        /// The name of the program, without its folder.
        program: String,
        /// Hash of its command, its arguments and the names of its variables.
        definition: String,
        /// How many of its tools are offered to the agent.
        tools: u64,
    },
    ServerNotStarted {
        server: String,
        program: String,
        definition: String,
    },
}

/// A program that an operator runs in a sandbox, in the history of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunRecord {
    /// It is about to be started.
    RunBegan {
        /// The name of the program, without its folder.
        program: String,
        /// The commitment to the whole command line, which is in the vault.
        command: Commitment,
        /// `overlay`, `direct` or `read-only`.
        workspace: String,
        /// How many paths the operator listed for it.
        places: u64,
    },
    /// It runs in this sandbox.
    RunStarted {
        sandbox: String,
        limited_by: String,
        landlock_abi: u32,
        memory_bytes: u64,
        processes: u32,
        cpu_percent: u32,
        file_bytes: u64,
        layer_bytes: u64,
    },
    RunEnded {
        outcome: RunOutcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
}

/// How a program that ran in a sandbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// It ended by itself, with an exit code or by a signal.
    Exited,
    /// It was killed from outside.
    Killed,
    /// Its changes exceeded the disk quota.
    OverQuota,
    /// It could not be started.
    NotStarted,
    /// Its client or the daemon went away: how it ended is not known.
    Lost,
}

/// The entity id for the changes in a session's sandbox.
pub fn workspace_entity(session: &str) -> String {
    format!("{WORKSPACE_ENTITIES}{session}")
}

/// The prefix of the entity ids for the changes in sandboxes.
pub const WORKSPACE_ENTITIES: &str = "workspace:";

/// The landing or discarding of changes in a sandbox. The entry for a landing has the verdict that allowed it as its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WorkspaceRecord {
    /// Files of the folder have the labels of the sandbox from now on, because its changes are about to land there, or
    /// because it wrote there itself. Their names are hashed.
    Labelled { wrote: Vec<LabelRecord> },
    /// Changes were landed in the folder.
    Landed {
        landed: u64,
        /// Changes that were requested and not landed.
        unlanded: u64,
        /// Landed names that programs of this machine execute or read as configuration.
        traps: u64,
        /// The commitment to the paths, which are in the vault.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paths: Option<Commitment>,
    },
    /// Landing failed: each file is landed completely or not at all.
    LandingFailed {
        #[serde(default)]
        landed: u64,
        /// The commitment to the paths, which are in the vault.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paths: Option<Commitment>,
    },
    /// The daemon ended while landing: each file is landed completely or not at all.
    LandingInterrupted {
        #[serde(default)]
        landed: u64,
        /// The commitment to the paths, which are in the vault.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paths: Option<Commitment>,
    },
    /// Changes were discarded.
    Discarded { changes: u64 },
}

/// Converts a record to the payload of an entry.
pub fn payload(record: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(record) {
        Ok(Value::Object(members)) => members,
        // INVARIANT: every record above is a struct or a tagged enum, which serialise as objects.
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_the_skill_trace_members() {
        let commitment =
            "b3c:0000000000000000000000000000000000000000000000000000000000000000".parse().unwrap();
        let turn = Turn {
            phase: TurnPhase::Completed {
                outputs_hash: commitment,
                stop_reason: StopReason::EndTurn,
                usage: Usage::default(),
            },
            skill_name: "agent_runner".into(),
            inputs_hash: commitment,
            timestamp: "2026-11-15T12:00:00.000000Z".into(),
            actor: "main".into(),
            prev_cid: None,
            constitution_hash: "b3:00".into(),
            labels: Labels::FRESH,
        };
        let members = payload(&turn);
        for name in ["skill_name", "inputs_hash", "outputs_hash", "timestamp", "actor", "phase", "prev_cid"] {
            assert!(members.contains_key(name), "{name}");
        }
        assert_eq!(serde_json::from_value::<Turn>(Value::Object(members)).unwrap(), turn);
    }
}
