//! The built-in manifests. An operator can make one stricter, and can neither remove nor loosen it.

use super::Capability::{
    AgentSpawn, DeviceControl, FsRead, FsWrite, MemoryRead, MemoryWrite, MessageMail, MessageSend, NetHttp,
    NetHttps, ProcExec, SystemAdmin, SystemSchedule,
};
use super::Risk::{Critical, High, Low, Medium};
use super::ToolEffect::{DraftOnly, ReadOnly, SideEffect};
use super::{Capability, Risk, ToolEffect, ToolManifest};
use crate::tool_names::{EGRESS, LAND, MCP, MCP_SERVER, SPEND};
use crate::trust::Trust::{self, Community, Owner, Untrusted, Verified};

/// One built-in manifest.
struct Row {
    id: &'static str,
    name: &'static str,
    capabilities: &'static [Capability],
    risk_level: Risk,
    min_input_trust: Trust,
    output_trust: Trust,
    effect: ToolEffect,
}

const fn row(
    id: &'static str,
    name: &'static str,
    capabilities: &'static [Capability],
    risk_level: Risk,
    min_input_trust: Trust,
    output_trust: Trust,
    effect: ToolEffect,
) -> Row {
    Row { id, name, capabilities, risk_level, min_input_trust, output_trust, effect }
}

/// Sorted by id.
const BUILT_IN: [Row; 20] = [
    row("browser", "Browser Control", &[NetHttps, FsRead], High, Verified, Untrusted, SideEffect),
    row("cron", "Cron Scheduler", &[SystemSchedule], High, Owner, Verified, SideEffect),
    row("edit", "File Edit", &[FsWrite], Medium, Verified, Verified, DraftOnly),
    row(EGRESS, "Connection out of a Sandbox", &[NetHttp, NetHttps], High, Untrusted, Untrusted, SideEffect),
    row(
        "exec",
        "Shell Execution",
        &[ProcExec, FsRead, FsWrite, NetHttp],
        Critical,
        Owner,
        Verified,
        SideEffect,
    ),
    row("gateway", "Gateway Control", &[SystemAdmin], Critical, Owner, Verified, SideEffect),
    row(LAND, "Changes of a Sandbox", &[FsWrite], High, Untrusted, Untrusted, SideEffect),
    // The effects of such a call are unknown, so it has every capability of a program in a sandbox.
    row(
        MCP,
        "Tool of an MCP Server",
        &[ProcExec, FsRead, FsWrite, NetHttps],
        Critical,
        Verified,
        Untrusted,
        SideEffect,
    ),
    // To start a server takes nothing out of the session; each call does.
    row(MCP_SERVER, "MCP Server", &[FsRead, FsWrite], High, Untrusted, Untrusted, SideEffect),
    row("memory", "Memory", &[MemoryRead, MemoryWrite], Low, Community, Verified, DraftOnly),
    row("message", "Send Message", &[MessageSend], High, Owner, Verified, SideEffect),
    row("nodes", "Node Control", &[DeviceControl], High, Owner, Verified, SideEffect),
    row("read", "File Read", &[FsRead], Low, Community, Verified, ReadOnly),
    row("search", "File Search", &[FsRead], Low, Community, Verified, ReadOnly),
    row("send_message", "Mail", &[MessageMail], Low, Community, Verified, DraftOnly),
    row("spawn", "Sub-agent", &[AgentSpawn], Medium, Verified, Verified, DraftOnly),
    row(SPEND, "Spend Beyond the Budget", &[], High, Untrusted, Owner, SideEffect),
    row("web_fetch", "Web Fetch", &[NetHttps], Medium, Community, Untrusted, ReadOnly),
    row("web_search", "Web Search", &[NetHttps], Medium, Community, Untrusted, ReadOnly),
    row("write", "File Write", &[FsWrite], Medium, Verified, Verified, DraftOnly),
];

impl ToolManifest {
    /// The built-in manifest of a tool.
    pub fn built_in(id: &str) -> Option<Self> {
        BUILT_IN.iter().find(|row| row.id == id).map(Self::from_row)
    }

    /// All built-in manifests, by id.
    pub fn all_built_in() -> impl Iterator<Item = Self> {
        BUILT_IN.iter().map(Self::from_row)
    }

    fn from_row(row: &Row) -> Self {
        Self {
            id: row.id.to_owned(),
            name: row.name.to_owned(),
            capabilities: row.capabilities.to_vec(),
            risk_level: row.risk_level,
            min_input_trust: row.min_input_trust,
            output_trust: row.output_trust,
            effect: row.effect,
        }
    }
}
