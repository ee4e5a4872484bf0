//! What no text of a house can change: the built-in manifests, and the version that names them in the hash.

use crate::manifest::Capability::{
    AgentSpawn, DeviceControl, FsRead, FsWrite, MemoryRead, MemoryWrite, MessageMail, MessageSend, NetHttp,
    NetHttps, ProcExec, SystemAdmin, SystemSchedule,
};
use crate::manifest::Effect::{DraftOnly, ReadOnly, SideEffect};
use crate::manifest::Risk::{Critical, High, Low, Medium};
use crate::manifest::{Capability, Effect, Manifest, Risk};
use crate::trust::Trust::{self, Community, Owner, Untrusted, Verified};

/// Counts up whenever a built-in manifest, the order of decisions or a kernel rule changes, so that no verdict of
/// another kernel passes for one of this.
pub const KERNEL_VERSION: u32 = 5;

/// What the house itself asks for an agent whose budget is used up: to spend more. It is in every mandate and is offered to
/// nobody, and a person decides.
pub const SPEND: &str = "spend";

/// What the house asks for a program in a box that wants to connect somewhere. No agent can call it by itself.
pub const EGRESS: &str = "egress";

/// The action of a call of [`EGRESS`] to a place that the operator listed for the agent: the list stands in for a person.
pub const LISTED: &str = "listed";

/// What the house asks before changes of a box are taken over into the folder they were made for. It is in every mandate, and no
/// agent can call it by itself.
pub const LAND: &str = "landing";

/// A call of a tool of an MCP server. Its name is the server's, its action the tool's.
pub const MCP: &str = "mcp";

/// What the house asks before it starts an MCP server for a session. It is in every mandate that has [`MCP`], and no agent can
/// call it by itself.
pub const MCP_SERVER: &str = "mcp_server";

/// The action of a call of [`LAND`] or [`MCP_SERVER`] that the operator asked for: whoever runs the house is the person that the
/// effect needs.
pub const BY_OPERATOR: &str = "operator";

/// One built-in manifest.
struct Row(
    &'static str,
    &'static str,
    &'static [Capability],
    Risk,
    // The least input trust, then the output's.
    Trust,
    Trust,
    Effect,
);

const BUILT_IN: [Row; 20] = [
    Row("browser", "Browser Control", &[NetHttps, FsRead], High, Verified, Untrusted, SideEffect),
    Row("cron", "Cron Scheduler", &[SystemSchedule], High, Owner, Verified, SideEffect),
    Row("edit", "File Edit", &[FsWrite], Medium, Verified, Verified, DraftOnly),
    Row(EGRESS, "Connection out of a Box", &[NetHttp, NetHttps], High, Untrusted, Untrusted, SideEffect),
    Row(
        "exec",
        "Shell Execution",
        &[ProcExec, FsRead, FsWrite, NetHttp],
        Critical,
        Owner,
        Verified,
        SideEffect,
    ),
    Row("gateway", "Gateway Control", &[SystemAdmin], Critical, Owner, Verified, SideEffect),
    Row(LAND, "Changes of a Box", &[FsWrite], High, Untrusted, Untrusted, SideEffect),
    // What a server does with a call is not known: everything that a program in a box can.
    Row(
        MCP,
        "Tool of an MCP Server",
        &[ProcExec, FsRead, FsWrite, NetHttps],
        Critical,
        Verified,
        Untrusted,
        SideEffect,
    ),
    // Starting one takes nothing out of the session; each call does.
    Row(MCP_SERVER, "MCP Server", &[FsRead, FsWrite], High, Untrusted, Untrusted, SideEffect),
    Row("memory", "Memory", &[MemoryRead, MemoryWrite], Low, Community, Verified, DraftOnly),
    Row("message", "Send Message", &[MessageSend], High, Owner, Verified, SideEffect),
    Row("nodes", "Node Control", &[DeviceControl], High, Owner, Verified, SideEffect),
    Row("read", "File Read", &[FsRead], Low, Community, Verified, ReadOnly),
    Row("search", "File Search", &[FsRead], Low, Community, Verified, ReadOnly),
    Row("send_message", "Mail", &[MessageMail], Low, Community, Verified, DraftOnly),
    Row("spawn", "Sub-agent", &[AgentSpawn], Medium, Verified, Verified, DraftOnly),
    Row(SPEND, "Spend Beyond the Budget", &[], High, Untrusted, Owner, SideEffect),
    Row("web_fetch", "Web Fetch", &[NetHttps], Medium, Community, Untrusted, ReadOnly),
    Row("web_search", "Web Search", &[NetHttps], Medium, Community, Untrusted, ReadOnly),
    Row("write", "File Write", &[FsWrite], Medium, Verified, Verified, DraftOnly),
];

impl Manifest {
    /// The kernel's manifest of a tool.
    pub fn built_in(id: &str) -> Option<Self> {
        BUILT_IN.iter().find(|row| row.0 == id).map(Self::from_row)
    }

    /// All the kernel's manifests, by id.
    pub fn all_built_in() -> impl Iterator<Item = Self> {
        BUILT_IN.iter().map(Self::from_row)
    }

    fn from_row(row: &Row) -> Self {
        let Row(id, name, capabilities, risk_level, min_input_trust, output_trust, effect) = *row;
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            capabilities: capabilities.to_vec(),
            risk_level,
            min_input_trust,
            output_trust,
            effect,
        }
    }
}
