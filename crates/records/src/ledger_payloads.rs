//! What the daemon writes down of sessions, turns and calls: the payloads of its entries. The views read the same types
//! back, so the two cannot drift apart. No message text is here, only commitments to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tribune_constitution::{Facts, Labels, Verdict};
use tribune_ledger::commitment::Commitment;
use tribune_providers::TokenUsage;
use tribune_runtime::{CloseReason, SessionMode, StopReason, Usage};

use crate::approval::record::CallRunner;

/// Histories that begin like this belong to sessions; only their session writes them.
pub const SESSION_ENTITIES: &str = "agent:";

/// A session's life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Lifecycle {
    Opened(SessionTermsRecord),
    /// A closed session is open again, with the terms it has now.
    Reopened(SessionTermsRecord),
    Closed {
        reason: CloseReason,
    },
    /// Its content is about to be shredded.
    Forgetting {
        by: String,
    },
    /// Its content is gone for good.
    Forgotten {
        by: String,
    },
}

/// The terms on which a session is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTermsRecord {
    pub agent_id: String,
    pub session_id: String,
    pub backend: String,
    pub model: Option<String>,
    pub mode: SessionMode,
    /// The key that the agent proved, if it did.
    pub pubkey: Option<String>,
    pub mandate: String,
    pub opened_by: String,
    /// For a sub-agent: the mandates of whoever started it, nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<String>,
    /// For a sub-agent: the only tools it may use, if it was told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// What the session has taken in before anyone spoke.
    #[serde(default)]
    pub labels: Labels,
    /// The folder of the operator's that it works in, if it is not in its agent's own workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Further folders of the operator's that it has beside that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<String>,
}

/// A turn, in the skill trace format, at one of its two ends.
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
    /// What the session has taken in by now.
    #[serde(default)]
    pub labels: Labels,
}

/// Where a turn stands.
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

/// A call that an agent asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallRecord {
    pub tool: String,
    pub call_id: String,
    pub input_hash: Commitment,
    /// Who carries it out.
    #[serde(default, skip_serializing_if = "CallRunner::is_host")]
    pub runner: CallRunner,
    /// The vault has what the agent itself said, byte by byte, under this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said_hash: Option<Commitment>,
    /// The vault has the input before a hook narrowed it under this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_hash: Option<Commitment>,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResultRecord {
    pub tool: String,
    pub call_id: String,
    pub outcome: CallOutcome,
    pub is_error: bool,
    /// None when there is nothing that came of it.
    pub output_hash: Option<Commitment>,
    /// What the session has taken in by now.
    #[serde(default)]
    pub labels: Labels,
    /// What the call wrote, with the labels that it has from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrote: Vec<LabelRecord>,
    /// What a command ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRecord>,
}

/// What held a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// As `sandbox` in the configuration says it: `full`, `landlock` or `off`.
    pub mode: String,
    /// What bounded memory, processes and processor time; nothing did where there was no sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// Bounds, by their names in a launch profile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// Names of the workspace that it could not change.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub masked: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Stored data and where it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRecord {
    /// Such as `file:<agent>/<path>`.
    pub resource: String,
    pub labels: Labels,
}

/// A decision, with everything that it was made from: whoever has the law of this hash can decide again.
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
    /// To its own end, good or bad.
    Ran,
    Denied,
    /// Its turn ended first.
    Cancelled,
    /// It was ended before it was done: by the agent that wanted it, or by the house because it went beyond a bound.
    Killed,
    /// Its time was over first.
    TimedOut,
    /// The daemon ended while it ran: whether it took effect is not known.
    Interrupted,
}

/// A letter put before a turn's input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MailboxRecord {
    pub letter: String,
    pub from: String,
    pub content_hash: Commitment,
    /// Where its words come from.
    #[serde(default)]
    pub labels: Labels,
}

/// The beginning of a conversation was shortened; the entry's parents are the turns that it stood for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionRecord {
    pub session: String,
    pub messages: u64,
    /// CIDs of those turns, all of them; an entry has only so many parents.
    pub evidence: Vec<String>,
}

/// A part of an answer was not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithheldRecord {
    pub event: String,
    pub rule: String,
}

/// An agent carried out what it had no leave for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UngovernedRecord {
    pub event: String,
    pub tool: String,
    pub call_id: String,
    /// The vault has what it was under this.
    pub what_hash: Commitment,
}

/// Something that whoever answers for the session should look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoardCheckinRecord {
    /// The code of the notice.
    pub event: String,
    /// The vault has what it was under this.
    pub what_hash: Commitment,
}

/// Where it is written what was forwarded to a provider for others.
pub fn proxy_entity(provider: &str) -> String {
    format!("proxy:{provider}")
}

/// A request that the proxy forwards for someone, or does not. An end has the request's entry as its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProxyRecord {
    /// It is about to go up.
    Asked {
        by: String,
        /// Whose box asked, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        provider: String,
        model: Option<String>,
        method: String,
        path: String,
    },
    Ended {
        /// The provider's, if it answered.
        status: Option<u16>,
        outcome: ProxyOutcome,
        /// None if the provider did not say.
        usage: Option<TokenUsage>,
    },
    /// The house did not let it go up.
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
    /// The answer broke off.
    Cut,
    /// Whoever asked went away.
    Left,
    /// Everything was stopped, or the daemon was.
    Stopped,
    /// The daemon ended before it did: what came of it is not known.
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

/// Where it is written what went out of a session's box. See [`SESSION_ENTITIES`] for why it is not the session's own history.
pub fn egress_entity(session: &str) -> String {
    format!("{EGRESS_ENTITIES}{session}")
}

/// Histories that begin like this tell of connections out of boxes.
pub const EGRESS_ENTITIES: &str = "egress:";

/// What became of a connection out of a box. An end has the verdict that allowed the connection as its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EgressRecord {
    /// It could not be judged: nobody can say where it should have led.
    Refused { code: String },
    Ended {
        outcome: EgressOutcome,
        /// What went wrong, if something did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Bytes that left.
        sent: u64,
        received: u64,
    },
}

/// How an allowed connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressOutcome {
    /// Both sides had said everything.
    Done,
    /// It led, or was used, where it must not: not a byte went there.
    Refused,
    /// It could not be made, or broke off.
    Failed,
    /// It was too quiet, too long or too much.
    Limit,
    /// The box, everything, or the daemon was stopped.
    Stopped,
    /// The daemon ended before it did: what went through it is not known.
    Interrupted,
}

/// Where it is written which MCP servers were started for a session.
pub fn mcp_entity(session: &str) -> String {
    format!("{MCP_ENTITIES}{session}")
}

/// Histories that begin like this tell of MCP servers.
pub const MCP_ENTITIES: &str = "mcp:";

/// What became of an MCP server that was to be started, under the verdict that allowed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum McpRecord {
    ServerStarted {
        server: String,
        /// The name of the program, without its folder.
        program: String,
        /// Hash of its command, its arguments and the names of its variables.
        definition: String,
        /// How many tools of it are offered.
        tools: u64,
    },
    ServerNotStarted {
        server: String,
        program: String,
        definition: String,
    },
}

/// What an operator runs in a box, in the history of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunRecord {
    /// It is about to be started.
    RunBegan {
        /// The name of the program, without its folder.
        program: String,
        /// The whole command line, which is in the vault.
        command: Commitment,
        /// `overlay`, `direct` or `read-only`.
        workspace: String,
        /// Places that the operator listed for it.
        places: u64,
    },
    /// It runs, and this holds it.
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

/// How something that ran in a box ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// By itself, with a code or by a signal.
    Exited,
    /// It was ended from outside.
    Killed,
    /// Its changes took more room than they may.
    OverQuota,
    /// It could not be started.
    NotStarted,
    /// Whoever ran it, or the daemon, went away: how it ended is not known.
    Lost,
}

/// Where it is written what became of the changes of a session's box.
pub fn workspace_entity(session: &str) -> String {
    format!("workspace:{session}")
}

/// What became of changes of a box. One that landed has the verdict that allowed it as its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WorkspaceRecord {
    /// They were taken over into the folder.
    Landed {
        landed: u64,
        /// Those that were asked for and left where they are.
        unlanded: u64,
        /// Names that programs of this machine obey, among the landed.
        traps: u64,
        /// The paths, which are in the vault.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paths: Option<Commitment>,
    },
    /// Something went wrong on the way: whole files are landed, or not.
    LandingFailed {
        #[serde(default)]
        landed: u64,
        /// The paths, which are in the vault.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paths: Option<Commitment>,
    },
    /// The daemon ended on the way: whole files are landed, or not.
    LandingInterrupted {
        #[serde(default)]
        landed: u64,
        /// The paths, which are in the vault.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paths: Option<Commitment>,
    },
    /// They were thrown away.
    Discarded { changes: u64 },
}

/// A payload as an entry takes it.
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
