//! Maps runtime events to ACP updates. Pure: events in, messages out.
//!
//! A tool call is reported when it is requested, judged, and finished; `_meta.tribune` names the ledger entries that prove each
//! step. What an ACP agent itself reports about its calls is forwarded unchanged, with Tribune's fields added.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use tribune_ledger::{EntryQuality, LedgerEntry};
use tribune_records::approval::record::Requested;
use tribune_runtime::call_id::{agent_call_id, client_call_id, host_call_id, is_reserved};
use tribune_runtime::{EventKind, MESSAGE_CHUNK_META, RuntimeEvent, TERMINAL_CREATED, THOUGHT_CHUNK_META};

use super::passthrough::{
    ChunkEnvelope, OUR_PREFIX, agent_session_opened, agent_update, merge_members, text_chunk,
};
use super::slash_commands::OfAgent;
use super::terminals::Terminals;
use super::tool_call_view;

/// The result of mapping an event: a message to the client, or an action of the connection.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AcpMessage {
    /// A `session/update`.
    Update(Value),
    /// A `session/update` of the agent, with the other members of its message.
    AgentUpdate { update: Value, beside: Map<String, Value> },
    /// An extension notification of the agent.
    AgentExtension { method: String, params: Value },
    /// The agent's response to the prompt of a turn, whose fields go into the response to the client.
    AgentResponse { turn: String, answer: Map<String, Value> },
    /// A turn starts. Its prompt is sent to clients that did not write it.
    TurnStarted { turn: String },
    /// A call waits for approval.
    PermissionRequested(PermissionRequest),
    /// A permission request is closed.
    PermissionClosed { id: String },
    /// The turn failed.
    TurnFailed { turn: String, code: String, message: String },
    /// A notice to people that is not the agent's text.
    Notice(String),
    /// The agent's slash commands, which are listed with Tribune's.
    Commands(OfAgent),
    /// The tokens of the turn's newest model request, input and output.
    ContextUsed { tokens: u64 },
}

/// A call that waits for approval.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PermissionRequest {
    /// The approval id.
    pub(super) id: String,
    /// The call, as a tool call update.
    pub(super) call: Value,
    /// The turn of the call.
    pub(super) turn: String,
    /// Why approval is needed.
    pub(super) reason: String,
    /// The rules that ask for approval.
    pub(super) rules: Vec<String>,
    /// What the approval cannot be bound to. Without it the call is allowed once or not at all.
    pub(super) not_bound: Vec<String>,
    /// The other members of the agent's own permission request.
    pub(super) of_agent: Map<String, Value>,
}

/// Maps the events of one session.
#[derive(Debug)]
pub(super) struct UpdateMapper {
    /// The workspace, to which relative paths of calls are resolved.
    folder: String,
    turn: String,
    turn_seq: u64,
    /// The tokens of all model requests of this turn, and of those before the newest.
    tokens: u64,
    tokens_before: u64,
    /// Calls of this turn, by Tribune's call id.
    calls: HashMap<String, Call>,
    /// Call ids, by the ledger entry of the call.
    entries: HashMap<String, String>,
    /// Calls that wait for approval, by approval id. They may outlive their turn.
    waiting: HashMap<String, WaitingCall>,
    /// Permission requests of the agent in this turn, by the agent's call id.
    requests: HashMap<String, AgentRequest>,
    /// Terminals that were given to the agent in this turn.
    terminals: Terminals,
    /// The agent's own messages around its text chunks, and around its thought chunks.
    around_message: Option<ChunkEnvelope>,
    around_thought: Option<ChunkEnvelope>,
}

/// A permission request of the agent: the call, and the other members.
#[derive(Debug, Clone)]
struct AgentRequest {
    call: Map<String, Value>,
    beside: Map<String, Value>,
}

/// A call that waits for approval. It is kept when the other calls of its turn are dropped.
#[derive(Debug, Clone)]
struct WaitingCall {
    /// Tribune's call id, and the ledger entry of the call.
    call_id: String,
    entry: String,
    call: Call,
    /// Changes to the description that the agent sends meanwhile. They are sent after the decision, so that an approver decides on
    /// the description in the request.
    held: Map<String, Value>,
}

impl WaitingCall {
    /// Holds back the fields that describe the call to people.
    fn hold(&mut self, said: &mut Map<String, Value>) {
        self.held.extend(tool_call_view::WHAT_IS_SHOWN.iter().filter_map(|name| said.remove_entry(*name)));
    }
}

#[derive(Debug, Clone)]
struct Call {
    /// The client's id of the call.
    id: String,
    shown: Map<String, Value>,
    /// The agent reports the call itself, so Tribune's updates add only what the ledger has.
    is_agent_reported: bool,
}

impl UpdateMapper {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_string_lossy().into_owned(),
            turn: String::new(),
            turn_seq: 0,
            tokens: 0,
            tokens_before: 0,
            calls: HashMap::new(),
            entries: HashMap::new(),
            waiting: HashMap::new(),
            requests: HashMap::new(),
            terminals: Terminals::default(),
            around_message: None,
            around_thought: None,
        }
    }

    /// Maps an event to messages and actions.
    pub(super) fn messages(&mut self, event: RuntimeEvent) -> Vec<AcpMessage> {
        let RuntimeEvent { seq, kind } = event;
        match kind {
            EventKind::TextDelta { text } => {
                vec![text_chunk(&mut self.around_message, "agent_message_chunk", &text)]
            }
            EventKind::ReasoningDelta { text } => {
                vec![text_chunk(&mut self.around_thought, "agent_thought_chunk", &text)]
            }
            EventKind::TurnStarted { turn } => {
                self.turn.clone_from(&turn);
                self.turn_seq = seq;
                (self.tokens, self.tokens_before) = (0, 0);
                self.calls.clear();
                self.entries.clear();
                self.requests.clear();
                self.terminals = Terminals::default();
                (self.around_message, self.around_thought) = (None, None);
                vec![AcpMessage::TurnStarted { turn }]
            }
            EventKind::ToolCall { id, name, input } => self.on_tool_call(&id, &name, &input),
            EventKind::ToolCallUpdate { id, input_delta } => self.on_input_delta(&id, &input_delta),
            EventKind::PolicyGate { entry } => self.on_verdict(&entry).into_iter().collect(),
            EventKind::ToolResult { id, content, is_error } => {
                // The result of a call goes into the next model request.
                self.tokens_before = self.tokens;
                self.on_result(&id, &content, is_error)
            }
            EventKind::LedgerAppend { entry } => self.on_ledger_entry(&entry),
            EventKind::ApprovalRequested { id, entry } => self.on_approval_requested(id, &entry),
            EventKind::ApprovalDecided { id, state } => self.on_approval_decided(id, &state),
            EventKind::UsageUpdate { input_tokens, output_tokens } => {
                self.tokens = u64::from(input_tokens) + u64::from(output_tokens);
                vec![AcpMessage::ContextUsed { tokens: self.tokens.saturating_sub(self.tokens_before) }]
            }
            EventKind::Error { code, message } => {
                vec![AcpMessage::TurnFailed { turn: self.turn.clone(), code, message }]
            }
            EventKind::Notice { message, .. } => vec![AcpMessage::Notice(message)],
            EventKind::Ungoverned { tool, what, .. } => {
                vec![AcpMessage::Notice(format!("the agent acted without permission ({tool}): {what}"))]
            }
            EventKind::MailboxInjected { entry } => {
                let from = entry.payload.get("from").and_then(Value::as_str).unwrap_or("another agent");
                vec![AcpMessage::Notice(format!(
                    "a mailbox message from {from} was added to this turn's prompt"
                ))]
            }
            EventKind::AgentUpdate { kind, line } => self.on_agent_message(&kind, &line),
            EventKind::Done { .. } => {
                let around = [self.around_thought.take(), self.around_message.take()];
                around.into_iter().flatten().filter_map(ChunkEnvelope::unsent).collect()
            }
        }
    }

    fn on_tool_call(&mut self, id: &str, name: &str, input: &Value) -> Vec<AcpMessage> {
        // The second and later parts of one agent call have the ids `ID.2`, `ID.3`.
        let whole = id.rsplit_once('.').map_or(id, |(whole, _)| whole);
        let of_agent =
            [id, whole].into_iter().find(|id| self.calls.get(*id).is_some_and(|call| call.is_agent_reported));
        if let Some(mut call) = of_agent.and_then(|known| self.calls.get(known)).cloned() {
            // Approvers see what the call would change, even if the agent did not report it.
            for (field, value) in tool_call_view::shown(name, input, &self.folder) {
                let said = call.shown.entry(field).or_insert(Value::Null);
                if said.is_null() || said.as_array().is_some_and(Vec::is_empty) {
                    *said = value;
                }
            }
            self.calls.insert(id.to_owned(), call);
            return Vec::new();
        }
        let is_known = self.calls.contains_key(id);
        let acp_id = self.acp_id(id);
        let mut shown = tool_call_view::shown(name, input, &self.folder);
        shown.insert("toolCallId".to_owned(), acp_id.clone().into());
        shown.insert("status".to_owned(), "pending".into());
        if let Some(request) = self.request(id) {
            // Fields that only the agent reports.
            for (field, value) in &request.call {
                shown.entry(field.clone()).or_insert_with(|| value.clone());
            }
        }
        let call = Call { id: acp_id, shown: shown.clone(), is_agent_reported: false };
        self.calls.insert(id.to_owned(), call);
        vec![update(if is_known { "tool_call_update" } else { "tool_call" }, shown)]
    }

    /// A part of a call's input, while the model generates it.
    fn on_input_delta(&mut self, id: &str, delta: &str) -> Vec<AcpMessage> {
        let mut messages = Vec::new();
        if !self.calls.contains_key(id) {
            let acp_id = self.acp_id(id);
            let shown = fields(json!({ "toolCallId": acp_id, "title": "…", "status": "pending" }));
            self.calls
                .insert(id.to_owned(), Call { id: acp_id, shown: shown.clone(), is_agent_reported: false });
            messages.push(update("tool_call", shown));
        }
        if let Some(call) = self.calls.get(id) {
            messages.push(about(&call.id, json!({ "input_delta": delta })));
        }
        messages
    }

    /// The client's id of a call of Tribune's record.
    fn acp_id(&self, id: &str) -> String {
        client_call_id(self.turn_seq, id)
    }

    fn on_verdict(&mut self, entry: &LedgerEntry) -> Option<AcpMessage> {
        let call = entry.parents.iter().find_map(|parent| self.entries.get(&parent.to_string()))?;
        let call = self.calls.get(call)?;
        let verdict = &entry.payload;
        let is_allowed = verdict.get("decision").and_then(Value::as_str) == Some("allow");
        let mut shown = fields(json!({
            "toolCallId": call.id,
            "_meta": { "tribune": {
                "verdict": entry.cid.to_string(),
                "decision": verdict.get("decision"),
                "rules": verdict.get("rules"),
                "reason": verdict.get("reason"),
            } },
        }));
        if is_allowed && !call.is_agent_reported {
            shown.insert("status".to_owned(), "in_progress".into());
        }
        Some(update("tool_call_update", shown))
    }

    fn on_result(&mut self, id: &str, content: &str, is_error: bool) -> Vec<AcpMessage> {
        let Some(call) = self.calls.get_mut(id) else { return Vec::new() };
        let mut messages = Vec::new();
        if let Some((shown_in, content)) = self.terminals.over(id, content) {
            if shown_in == call.id {
                call.shown.insert("content".to_owned(), content.clone().into());
            }
            messages.push(update(
                "tool_call_update",
                fields(json!({ "toolCallId": shown_in, "content": content })),
            ));
        }
        if call.is_agent_reported && !is_error {
            return messages;
        }
        let status = if is_error { "failed" } else { "completed" };
        let mut said = vec![json!({ "type": "content", "content": { "type": "text", "text": content } })];
        // The diff stays next to the result.
        let changes = call.shown.get("content").and_then(Value::as_array);
        said.splice(0..0, changes.into_iter().flatten().cloned());
        let shown = json!({ "toolCallId": call.id, "status": status, "content": said, "rawOutput": content });
        messages.push(update("tool_call_update", fields(shown)));
        messages
    }

    fn on_ledger_entry(&mut self, entry: &LedgerEntry) -> Vec<AcpMessage> {
        let call_id = entry.payload.get("call_id").and_then(Value::as_str).unwrap_or_default();
        let word = match entry.quality {
            EntryQuality::ToolCall => "call",
            EntryQuality::ToolResult => "result",
            _ => return Vec::new(),
        };
        let Some(call) = self.calls.get(call_id) else { return Vec::new() };
        let messages = about(&call.id, json!({ word: entry.cid.to_string() }));
        if entry.quality == EntryQuality::ToolCall {
            self.entries.insert(entry.cid.to_string(), call_id.to_owned());
        }
        vec![messages]
    }

    fn on_approval_requested(&mut self, id: String, entry: &LedgerEntry) -> Vec<AcpMessage> {
        let word = |name: &str| entry.payload.get(name).and_then(Value::as_str).unwrap_or_default();
        let Some(call) = self.calls.get(word("call_id")) else { return Vec::new() };
        let mut shown = call.shown.clone();
        shown.insert("status".to_owned(), "pending".into());
        let meta = json!({ "approval": id, "request": entry.cid.to_string() });
        merge_members(shown.entry("_meta").or_insert(Value::Null), json!({ "tribune": meta }));
        let of_agent = self.request(word("call_id")).map(|request| request.beside.clone());
        let messages = about(&call.id, meta);
        let waiting = WaitingCall {
            call_id: word("call_id").to_owned(),
            entry: word("call").to_owned(),
            call: call.clone(),
            held: Map::new(),
        };
        self.waiting.insert(id.clone(), waiting);
        let reason = word("reason").to_owned();
        let words = |name: &str| -> Vec<String> {
            let words = entry.payload.get(name).and_then(|words| serde_json::from_value(words.clone()).ok());
            words.unwrap_or_default()
        };
        let (rules, not_bound) = (words("rules"), words("not_bound"));
        let turn = self.turn.clone();
        let of_agent = of_agent.unwrap_or_default();
        vec![
            messages,
            AcpMessage::PermissionRequested(PermissionRequest {
                id,
                call: Value::Object(shown),
                turn,
                reason,
                rules,
                not_bound,
                of_agent,
            }),
        ]
    }

    fn on_approval_decided(&mut self, id: String, state: &str) -> Vec<AcpMessage> {
        let mut messages = Vec::new();
        if let Some(WaitingCall { call_id, entry, call, mut held }) = self.waiting.remove(&id) {
            messages.push(about(&call.id, json!({ "approval": id, "state": state })));
            if !held.is_empty() {
                held.insert("toolCallId".to_owned(), call.id.clone().into());
                messages.push(update("tool_call_update", held));
            }
            // The result is reported under the id of the call's turn, which may have ended.
            if self.calls.get(&call_id).is_none_or(|known| known.id != call.id) {
                self.calls.insert(call_id.clone(), call);
            }
            self.entries.insert(entry, call_id);
        }
        messages.push(AcpMessage::PermissionClosed { id });
        messages
    }

    /// Registers a call that waits for approval and whose events are no longer stored.
    pub(super) fn register_waiting(&mut self, requested: &Requested, input: &Value) -> PermissionRequest {
        let id = requested.id.clone();
        let mut shown = tool_call_view::shown(&requested.tool, input, &self.folder);
        let acp_id = host_call_id(&id);
        shown.insert("toolCallId".to_owned(), acp_id.clone().into());
        let (call_id, entry) = (requested.call_id.clone(), requested.call.clone());
        let call = Call { id: acp_id, shown: shown.clone(), is_agent_reported: false };
        self.waiting.insert(id.clone(), WaitingCall { call_id, entry, call, held: Map::new() });
        shown.insert("status".to_owned(), "pending".into());
        shown.insert("_meta".to_owned(), json!({ "tribune": { "approval": id } }));
        let (reason, rules) = (requested.reason.clone(), requested.rules.clone());
        let (turn, of_agent, not_bound) = (String::new(), Map::new(), requested.not_bound.clone());
        PermissionRequest { id, call: Value::Object(shown), turn, reason, rules, not_bound, of_agent }
    }

    /// Maps a raw message of an ACP agent.
    fn on_agent_message(&mut self, kind: &str, line: &str) -> Vec<AcpMessage> {
        let Ok(mut line) = serde_json::from_str::<Value>(line) else { return Vec::new() };
        let mut beside = fields(line["params"].take());
        match kind {
            "session/prompt" => {
                let answer = fields(line["result"].take());
                return vec![AcpMessage::AgentResponse { turn: self.turn.clone(), answer }];
            }
            // The client got its response before the agent was started, so the agent's response follows as an update.
            "session/new" | "session/load" | "session/resume" => {
                return vec![agent_session_opened(fields(line["result"].take()))];
            }
            "session/request_permission" => return self.on_agent_request(beside),
            TERMINAL_CREATED => {
                self.terminals.opened(&beside);
                return Vec::new();
            }
            method if method.starts_with('_') && !method.starts_with(OUR_PREFIX) => {
                return vec![AcpMessage::AgentExtension {
                    method: method.to_owned(),
                    params: Value::Object(beside),
                }];
            }
            _ => {}
        }
        let Some(Value::Object(mut said)) = beside.remove("update") else { return Vec::new() };
        beside.remove("sessionId");
        match kind {
            MESSAGE_CHUNK_META => {
                let around = ChunkEnvelope::new(said, beside);
                self.around_message.replace(around).and_then(ChunkEnvelope::unsent).into_iter().collect()
            }
            THOUGHT_CHUNK_META => {
                let around = ChunkEnvelope::new(said, beside);
                self.around_thought.replace(around).and_then(ChunkEnvelope::unsent).into_iter().collect()
            }
            "tool_call" | "tool_call_update" => {
                tool_call_view::as_clients_know_it(&mut said, &self.folder);
                let Some(AgentIds { id, at_client }) = AgentIds::take(&mut said) else { return Vec::new() };
                let known = self.calls.get(&id).map_or(&at_client, |call| &call.id);
                self.terminals.put_into_words(known, &mut said);
                if let Some(waiting) = self.waiting.values_mut().find(|waiting| waiting.call.id == *known) {
                    waiting.hold(&mut said);
                }
                if let Some(call) = self.calls.get_mut(&id) {
                    // The call was reported before, perhaps under Tribune's id.
                    said.insert("toolCallId".to_owned(), call.id.clone().into());
                    said.insert("sessionUpdate".to_owned(), "tool_call_update".into());
                    call.is_agent_reported = true;
                    call.shown.extend(
                        said.iter()
                            .filter(|(name, _)| *name != "sessionUpdate")
                            .map(|(name, value)| (name.clone(), value.clone())),
                    );
                } else {
                    let mut shown = said.clone();
                    shown.remove("sessionUpdate");
                    self.calls.insert(id, Call { id: at_client, shown, is_agent_reported: true });
                }
                vec![agent_update(said, beside)]
            }
            "available_commands_update" => {
                vec![AcpMessage::Commands(OfAgent { said, beside })]
            }
            // The modes and options of this session are Tribune's, not the agent's.
            "current_mode_update" | "config_option_update" => {
                let said = json!({ "sessionUpdate": "session_info_update", "_meta": { "tribune": { "agent_update": said } } });
                vec![AcpMessage::Update(said)]
            }
            _ => vec![agent_update(said, beside)],
        }
    }

    /// Merges the agent's permission request into its call.
    fn on_agent_request(&mut self, mut params: Map<String, Value>) -> Vec<AcpMessage> {
        let mut call = fields(params.remove("toolCall").unwrap_or_default());
        params.remove("sessionId");
        tool_call_view::as_clients_know_it(&mut call, &self.folder);
        let Some(AgentIds { id, .. }) = AgentIds::take(&mut call) else { return Vec::new() };
        let mut messages = Vec::new();
        if let Some(known) = self.calls.get_mut(&id) {
            known.shown.extend(call.iter().map(|(name, value)| (name.clone(), value.clone())));
            known.shown.insert("toolCallId".to_owned(), known.id.clone().into());
            let mut said = call.clone();
            if let Some(waiting) = self.waiting.values_mut().find(|waiting| waiting.call.id == known.id) {
                waiting.hold(&mut said);
            }
            said.insert("toolCallId".to_owned(), known.id.clone().into());
            messages.push(update("tool_call_update", said));
        } else {
            // People see Tribune's description of the call; the agent's own goes with the request.
            params.insert("toolCall".to_owned(), Value::Object(call.clone()));
        }
        self.requests.insert(id, AgentRequest { call, beside: params });
        messages
    }

    /// The agent's permission request for a call, by Tribune's call id. The later parts of one agent call have the ids `ID.2`,
    /// `ID.3`.
    fn request(&self, id: &str) -> Option<&AgentRequest> {
        let whole = id.rsplit_once('.').map_or(id, |(whole, _)| whole);
        self.requests.get(id).or_else(|| self.requests.get(whole))
    }
}

/// The ids of a call that an agent named itself.
struct AgentIds {
    /// In Tribune's record.
    id: String,
    /// At the client: the agent's own, unless that is in Tribune's namespace.
    at_client: String,
}

impl AgentIds {
    /// The ids of the call in an agent's message, in which the client's is put. `None` if it names no call.
    fn take(said: &mut Map<String, Value>) -> Option<Self> {
        let own = said.get("toolCallId")?.as_str()?;
        let id = agent_call_id(own).into_owned();
        let at_client = if is_reserved(own) { id.clone() } else { own.to_owned() };
        said.insert("toolCallId".to_owned(), at_client.clone().into());
        Some(Self { id, at_client })
    }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn update(kind: &str, mut shown: Map<String, Value>) -> AcpMessage {
    shown.insert("sessionUpdate".to_owned(), kind.into());
    AcpMessage::Update(Value::Object(shown))
}

/// A tool call update that carries only ledger data.
fn about(id: &str, meta: Value) -> AcpMessage {
    update("tool_call_update", fields(json!({ "toolCallId": id, "_meta": { "tribune": meta } })))
}

/// A text chunk.
pub(super) fn chunk(kind: &str, text: &str) -> AcpMessage {
    AcpMessage::Update(json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } }))
}

#[cfg(test)]
#[path = "update_mapper_tests.rs"]
mod tests;
