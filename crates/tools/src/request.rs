//! A parsed call: one variant per tool, with checked input.

use serde_json::Value;
use tribune_constitution::{MCP, SPEND};
use tribune_records::text::shown;
use tribune_runtime::ToolCall;

use super::cron::Scheduling;
use super::edit::Edit;
use super::exec::Exec;
use super::gateway_status::Gateway;
use super::mcp_call::Mcp;
use super::memory::Memory;
use super::message::Message;
use super::read::Read;
use super::search::Search;
use super::send_message::SendMessage;
use super::spawn::Spawn;
use super::unsupported::Absent;
use super::web_fetch::WebFetch;
use super::web_search::WebSearch;
use super::write::Write;
use super::{
    NAMES, cron, edit, gateway_status, memory, message, read, search, send_message, spawn, unsupported,
    web_fetch, web_search, write,
};

/// A call with checked input.
#[derive(Debug)]
pub(super) enum Request {
    OnDisk(OnDisk),
    Exec(Exec),
    WebFetch(WebFetch),
    WebSearch(WebSearch),
    Gateway(Gateway),
    Spawn(Spawn),
    Mcp(Mcp),
    Spend(Value),
    Absent(Absent),
}

/// A call that blocks on the disk and so runs on a thread of its own.
#[derive(Debug)]
pub(super) enum OnDisk {
    Read(Read),
    Search(Search),
    SendMessage(SendMessage),
    Write(Write),
    Edit(Edit),
    Message(Message),
    Memory(Memory),
    Cron(Scheduling),
}

impl Request {
    /// Parses and checks a call.
    pub(super) fn new(call: &ToolCall) -> Result<Self, String> {
        let input = &call.input;
        let on_disk = match call.name.as_str() {
            read::NAME => Read::new(input).map(OnDisk::Read),
            search::NAME => Search::new(input).map(OnDisk::Search),
            send_message::NAME => SendMessage::new(input).map(OnDisk::SendMessage),
            write::NAME => Write::new(input).map(OnDisk::Write),
            edit::NAME => Edit::new(input).map(OnDisk::Edit),
            message::NAME => Message::new(input).map(OnDisk::Message),
            memory::NAME => Memory::new(input).map(OnDisk::Memory),
            cron::NAME => Scheduling::new(input).map(OnDisk::Cron),
            _ => return Self::elsewhere(call),
        };
        on_disk.map(Self::OnDisk)
    }

    fn elsewhere(call: &ToolCall) -> Result<Self, String> {
        let input = &call.input;
        match call.name.as_str() {
            tribune_records::exec::EXEC => Exec::new(input).map(Self::Exec),
            web_fetch::NAME => WebFetch::new(input).map(Self::WebFetch),
            web_search::NAME => WebSearch::new(input).map(Self::WebSearch),
            gateway_status::NAME => Gateway::new(input).map(Self::Gateway),
            spawn::NAME => Spawn::new(input).map(Self::Spawn),
            MCP => Mcp::new(input).map(Self::Mcp),
            // Only Tribune itself makes this call, so its input needs no check.
            SPEND => Ok(Self::Spend(input.clone())),
            unsupported::BROWSER => Ok(Self::Absent(Absent::Browser)),
            unsupported::NODES => Ok(Self::Absent(Absent::Nodes)),
            other => Err(format!("there is no tool `{}`: the tools are {}", shown(other), NAMES.join(", "))),
        }
    }
}
