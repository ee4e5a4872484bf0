//! The calls of one turn, by the agent's own ids. Reports of a call in several messages are merged, and so are the
//! permission requests about it: whichever way the agent came to speak of it, the permitted and the reported call are
//! compared.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::executed_calls::ExecutedCalls;
use crate::mcp_tool_names::McpToolNames;
use crate::normalize::{self, NormalizedCall};
use tribune_runtime::call_id::agent_call_id;

/// Calls of one turn that are remembered.
const MAX_CALLS: usize = 10_000;

/// Bytes that are kept of their reports.
const MAX_TOLD_BYTES: usize = 32 << 20;

/// Bytes of an agent's own id for a call.
const MAX_OWN_ID: usize = 1024;

/// Fields of a call that are merged.
const FIELDS: [&str; 8] =
    ["title", "name", "kind", "status", "rawInput", "rawOutput", "locations", "content"];

#[derive(Debug, Default)]
pub(crate) struct ReportedCalls {
    calls: HashMap<String, ReportedCall>,
    bytes: usize,
    /// Tools of the session's MCP servers.
    names: McpToolNames,
}

/// One call of the agent's.
#[derive(Debug, Default)]
pub(crate) struct ReportedCall {
    report: Map<String, Value>,
    /// The MCP call that it is, if it is one.
    mcp_call: Option<NormalizedCall>,
    /// The MCP calls that it could be by its name alone.
    possible_mcp_calls: Vec<NormalizedCall>,
    /// For each field, the length of the line that it came in: no less than the field takes.
    sizes: [usize; FIELDS.len()],
    /// The newest line that reported it.
    line: String,
    /// Permission requests about it, oldest first.
    pub(crate) asks: Vec<PermissionAsk>,
    /// Parts of it that were reported as done and are on record.
    pub(crate) settled: Vec<NormalizedCall>,
    /// The host ran a command for it.
    is_run_here: bool,
    /// Its end was reported.
    pub(crate) is_over: bool,
    /// It was reported as running.
    is_begun: bool,
    /// Parts that were recorded so far, to give each an id.
    parts: usize,
}

/// A permission request about a call.
#[derive(Debug)]
pub(crate) struct PermissionAsk {
    pub(crate) number: usize,
    pub(crate) wanted: Vec<NormalizedCall>,
    /// The ways in which it was requested. One permission answers one request of each.
    pub(crate) ways: Vec<&'static str>,
    pub(crate) state: AskState,
    /// Parts that have permission and no reported outcome, by their ids in the ledger.
    pub(crate) permitted: Vec<(String, NormalizedCall)>,
    /// Bytes of the line that it came in.
    size: usize,
}

/// The state of a permission request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AskState {
    Pending,
    Allowed,
    Refused(String),
}

/// Whether a report begins a call or continues one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpdateKind {
    Begins,
    Continues,
}

/// The reason for which a report of a call cannot be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpdateError {
    /// It has no id, or no usable one.
    NoUsableId,
    TooMuch,
}

impl ReportedCalls {
    /// For a turn with these MCP tools.
    pub(crate) fn new(names: McpToolNames) -> Self {
        Self { names, ..Self::default() }
    }

    /// Merges a report of a call. Returns the agent's id of it.
    pub(crate) fn merge_update(
        &mut self,
        update: &Value,
        line: &str,
        update_kind: UpdateKind,
    ) -> Result<String, UpdateError> {
        let is_id = |id: &&str| (1..=MAX_OWN_ID).contains(&id.len());
        let id = update["toolCallId"].as_str().filter(is_id).ok_or(UpdateError::NoUsableId)?;
        if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(id) {
            return Err(UpdateError::TooMuch);
        }
        let call = self.calls.entry(id.to_owned()).or_default();
        self.bytes = self.bytes.saturating_sub(call.bytes(id));
        if update_kind == UpdateKind::Begins && call.is_over {
            // The id of a finished call is used for another one.
            *call = ReportedCall { parts: call.parts, ..ReportedCall::default() };
        }
        call.merge_fields(update, line);
        call.mcp_call = self.names.mcp_call(&call.report);
        call.possible_mcp_calls = self.names.possible(&call.report);
        self.bytes += call.bytes(id);
        if self.bytes > MAX_TOLD_BYTES {
            return Err(UpdateError::TooMuch);
        }
        Ok(id.to_owned())
    }

    pub(crate) fn get(&mut self, id: &str) -> Option<&mut ReportedCall> {
        self.calls.get_mut(id)
    }

    /// Adds a permission request about a call.
    pub(crate) fn add_ask(&mut self, id: &str, ask: PermissionAsk) -> Result<(), UpdateError> {
        self.bytes += ask.size;
        if self.bytes > MAX_TOLD_BYTES {
            return Err(UpdateError::TooMuch);
        }
        if let Some(call) = self.get(id) {
            call.asks.push(ask);
        }
        Ok(())
    }

    /// Calls that were reported as running, without a permission request before or since.
    pub(crate) fn begun_unasked(&self) -> Vec<String> {
        let begun = |call: &ReportedCall| {
            call.asks.is_empty() && !call.is_over && call.status() == Some("in_progress")
        };
        self.calls.iter().filter(|(_, call)| begun(call)).map(|(id, _)| id.clone()).collect()
    }

    /// Takes out everything that has permission and no reported end, by its ids in the ledger.
    pub(crate) fn take_unreported(&mut self) -> Vec<(String, NormalizedCall)> {
        self.calls.values_mut().flat_map(ReportedCall::take_all_permissions).collect()
    }

    /// Takes out the permitted part of a call that writes exactly this.
    pub(crate) fn take_write_permission(&mut self, written: &NormalizedCall) -> Option<String> {
        let (path, content) = (&written.input["path"], &written.input["content"]);
        let is_it = |wanted: &NormalizedCall| match wanted.tool.as_str() {
            "write" => wanted.input["path"] == *path && wanted.input["content"] == *content,
            "edit" => wanted.input["path"] == *path && wanted.input["new"] == *content,
            _ => false,
        };
        self.calls.values_mut().find_map(|call| call.take(is_it))
    }

    /// Takes out the permission for a call that the host executes: its id in the ledger, and the call that it is part of.
    pub(crate) fn take_permission(
        &mut self,
        rule: JoinRule,
        wanted: &NormalizedCall,
    ) -> Option<(String, String)> {
        self.calls.iter_mut().find_map(|(id, call)| {
            let own = call.take(|permitted| rule.is_asked(permitted, wanted))?;
            call.is_run_here |= rule == JoinRule::Command;
            Some((own, id.clone()))
        })
    }

    /// The call that reports what the host is to execute, without a permission request.
    pub(crate) fn reported(
        &self,
        rule: JoinRule,
        wanted: &NormalizedCall,
        workspace: &str,
    ) -> Option<String> {
        let is_it = |call: &ReportedCall| {
            call.asks.is_empty()
                && !call.is_over
                && !call.is_run_here
                && matches!(call.planned_calls(workspace).as_slice(), [only] if rule.is_reported(only, wanted))
        };
        self.calls.iter().find(|(_, call)| is_it(call)).map(|(id, _)| id.clone())
    }

    /// The state of the newest permission request about what the host is to execute.
    pub(crate) fn ask_state(&self, rule: JoinRule, wanted: &NormalizedCall) -> Option<&AskState> {
        let is_it = |ask: &&PermissionAsk| ask.wanted.iter().any(|asked| rule.is_asked(asked, wanted));
        let asks = self.calls.values().filter(|call| !call.is_over).flat_map(|call| &call.asks);
        asks.filter(is_it).max_by_key(|ask| ask.number).map(|ask| &ask.state)
    }
}

/// How a call that the host is to execute is found among the agent's reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinRule {
    /// A command, as far as an agent reports it twice in the same way.
    Command,
    /// An MCP call: a permission is for exactly its arguments, and a report may leave them out.
    McpCall,
}

impl JoinRule {
    /// The word for such a call, for sentences.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::McpCall => "call",
        }
    }

    /// Whether a permission request was about this call.
    fn is_asked(self, asked: &NormalizedCall, wanted: &NormalizedCall) -> bool {
        match self {
            Self::Command => asked.covers(wanted),
            Self::McpCall => asked == wanted,
        }
    }

    /// Whether a report is of this call.
    fn is_reported(self, reported: &NormalizedCall, wanted: &NormalizedCall) -> bool {
        match self {
            Self::Command => reported.covers(wanted),
            Self::McpCall => wanted.covers(reported),
        }
    }
}

impl PermissionAsk {
    pub(crate) fn new(number: usize, wanted: Vec<NormalizedCall>, way: &'static str, line: &str) -> Self {
        let (ways, permitted) = (vec![way], Vec::new());
        Self { number, wanted, ways, state: AskState::Pending, permitted, size: line.len() }
    }
}

impl ReportedCall {
    fn merge_fields(&mut self, update: &Value, line: &str) {
        for (field, size) in FIELDS.into_iter().zip(&mut self.sizes) {
            match update.get(field) {
                None | Some(Value::Null) => {}
                // An empty input does not replace one that was reported before.
                Some(Value::Object(input)) if input.is_empty() && self.report.contains_key(field) => {}
                // Agents rename their calls as they go. A call with a permission request keeps the name that was asked
                // about.
                Some(_) if field == "title" && !self.asks.is_empty() => {}
                Some(value) => {
                    *size = line.len();
                    self.report.insert(field.to_owned(), value.clone());
                }
            }
        }
        self.is_begun |= self.status() == Some("in_progress");
        line.clone_into(&mut self.line);
    }

    /// Whether it was reported as running.
    pub(crate) const fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Bytes that it takes, about.
    fn bytes(&self, id: &str) -> usize {
        let asks: usize = self.asks.iter().map(|ask| ask.size).sum();
        id.len() + self.line.len() + self.sizes.iter().sum::<usize>() + asks
    }

    pub(crate) fn status(&self) -> Option<&str> {
        self.report.get("status").and_then(Value::as_str)
    }

    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    /// The calls that it would make, in the policy's terms.
    pub(crate) fn planned_calls(&self, workspace: &str) -> Vec<NormalizedCall> {
        self.mcp_call
            .clone()
            .map_or_else(|| normalize::planned_calls(&self.report, workspace), |mcp_call| vec![mcp_call])
    }

    /// The same for a permission request.
    pub(crate) fn requested_calls(&self, workspace: &str) -> Vec<NormalizedCall> {
        // A person cannot decide about arguments that are not told.
        let mcp_call = self.mcp_call.clone().filter(|_| self.report.contains_key("rawInput"));
        mcp_call
            .map_or_else(|| normalize::requested_calls(&self.report, workspace), |mcp_call| vec![mcp_call])
    }

    /// Whether it is a call of an MCP tool that the host has answered, by what it could be. Then it is on record
    /// already.
    pub(crate) fn was_executed_here(&mut self, executed: &mut ExecutedCalls, workspace: &str) -> bool {
        let matched = self.possible_mcp_calls.iter().find(|like| executed.take(like)).cloned();
        let is_it = matched.is_some();
        if is_it {
            let parts = self.planned_calls(workspace);
            self.settled.extend(matched.into_iter().chain(parts));
        }
        is_it
    }

    /// The same, if it is no MCP call, whatever its name.
    pub(crate) fn as_agent_tool(&self, workspace: &str) -> Vec<NormalizedCall> {
        normalize::requested_calls(&self.report, workspace)
    }

    /// Permission is requested: an end that was reported before belongs to an earlier use of the id.
    pub(crate) fn reopen(&mut self) {
        if std::mem::take(&mut self.is_over) {
            self.report.remove("status");
            self.settled.clear();
        }
    }

    /// What it reports as done, to be compared with the permission.
    pub(crate) fn claimed_calls(&self, workspace: &str) -> Vec<NormalizedCall> {
        self.mcp_call
            .clone()
            .map_or_else(|| normalize::claimed_calls(&self.report, workspace), |mcp_call| vec![mcp_call])
    }

    /// The host ran a command, and this call is the agent's report of it.
    pub(crate) fn mark_executed_here(&mut self, command: NormalizedCall) {
        self.is_run_here = true;
        self.settled.push(command);
    }

    /// The command was not run after all.
    pub(crate) fn unmark_executed_here(&mut self, command: &NormalizedCall) {
        self.is_run_here = false;
        self.settled.retain(|settled| !settled.covers(command));
    }

    /// Whether the part is on record, or reports no more than what is.
    pub(crate) fn has_settled(&self, part: &NormalizedCall) -> bool {
        self.settled.iter().any(|settled| settled.covers(part)) || self.repeats_executed(part)
    }

    /// Whether a part reports no more than the command that the host ran for the call: the name of a command, or an
    /// unknown tool's words around one. Another command is another command.
    pub(crate) fn repeats_executed(&self, part: &NormalizedCall) -> bool {
        let is_empty = |raw: &Value| raw.is_null() || raw.as_object().is_some_and(Map::is_empty);
        let is_titled = self.report.get("rawInput").is_none_or(is_empty);
        self.is_run_here
            && self.report.get("kind").is_some_and(|kind| kind == "execute")
            && (is_titled || part.is_agent_tool())
    }

    /// Takes out the permission for a part that is reported as done. Returns its id in the ledger.
    pub(crate) fn take(&mut self, is_it: impl Fn(&NormalizedCall) -> bool) -> Option<String> {
        let ask = self.asks.iter_mut().find(|ask| ask.permitted.iter().any(|(_, wanted)| is_it(wanted)))?;
        let at = ask.permitted.iter().position(|(_, wanted)| is_it(wanted))?;
        let (id, wanted) = ask.permitted.remove(at);
        self.settled.push(wanted);
        Some(id)
    }

    /// Takes out all permissions, with their ids in the ledger.
    pub(crate) fn take_all_permissions(&mut self) -> Vec<(String, NormalizedCall)> {
        let permitted: Vec<(String, NormalizedCall)> =
            self.asks.iter_mut().flat_map(|ask| std::mem::take(&mut ask.permitted)).collect();
        // A call that the host is to execute was not executed by the agent.
        let by_agent = permitted.iter().map(|(_, wanted)| wanted).filter(|wanted| !wanted.is_mcp());
        self.settled.extend(by_agent.cloned());
        permitted
    }

    /// Ids for the ledger, one for each part of a request about it.
    pub(crate) fn ids(&mut self, id: &str, parts: usize) -> Vec<String> {
        let id = agent_call_id(id);
        let first = self.parts;
        self.parts += parts;
        let name = |n: usize| if n == 0 { id.clone().into_owned() } else { format!("{id}.{}", n + 1) };
        (first..first + parts).map(name).collect()
    }

    /// The outcome, as the agent reports it.
    pub(crate) fn outcome(&self) -> String {
        let items = self.report.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut joined = String::new();
        for item in items {
            let text = match item["type"].as_str() {
                Some("content") => item["content"]["text"].as_str().unwrap_or_default().to_owned(),
                Some("diff") => format!("changed {}", item["path"].as_str().unwrap_or("a file")),
                _ => continue,
            };
            if !joined.is_empty() {
                joined.push('\n');
            }
            joined.push_str(&text);
        }
        match (joined.is_empty(), self.report.get("rawOutput")) {
            (false, _) => joined,
            (true, Some(Value::String(raw))) => raw.clone(),
            (true, Some(raw)) => raw.to_string(),
            (true, None) => "the agent did not say what came of it".to_owned(),
        }
    }

    /// Its title, for sentences.
    pub(crate) fn title(&self) -> String {
        let title = self.report.get("title").and_then(Value::as_str).unwrap_or("a call");
        title.chars().filter(|c| !c.is_control()).take(80).collect()
    }
}

#[cfg(test)]
#[path = "tool_calls_tests.rs"]
mod tests;
