//! What happens in a session, as ACP tells it. Pure: events in, updates out.
//!
//! A call is told of when it is asked for, judged, and over; the entries of the log that prove each step go along in
//! `_meta.tribune`. What an agent that speaks ACP itself said of its calls is handed on as it came, with ours beside it.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use tribune_ledger::{EntryQuality, LedgerEntry};
use tribune_records::approval::record::Requested;
use tribune_runtime::{EventKind, MESSAGE_CHUNK_META, RuntimeEvent, TERMINAL_CREATED, THOUGHT_CHUNK_META};

use super::passthrough::{Around, OURS, beside, came, opened, words};
use super::slash_commands::OfAgent;
use super::terminals::Terminals;
use super::tool_call_view;

/// Something that a client is to be told, or that is to be done about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AcpMessage {
    /// A `session/update`.
    Update(Value),
    /// The same of the agent behind us, with what else stood in its message.
    Said { update: Value, beside: Map<String, Value> },
    /// Something that it said beside the protocol.
    Aside { method: String, params: Value },
    /// Its answer to the prompt of a turn says more than ours would.
    Answered { turn: String, answer: Map<String, Value> },
    /// A turn begins: its words are shown to those who did not say them.
    Began { turn: String },
    /// A call waits for a person.
    Asked(Question),
    /// A question is over.
    Decided { id: String },
    /// Why the turn fails.
    Failed { turn: String, code: String, message: String },
    /// A word to people that is not the agent's.
    Notice(String),
    /// The commands of the agent behind us, which stand beside ours.
    Commands(OfAgent),
    /// So many tokens were in the newest request of the turn, with what came of it.
    Used { tokens: u64 },
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    /// The approval's id.
    pub(super) id: String,
    /// The call, as a tool call update.
    pub(super) call: Value,
    /// The turn in which it was asked.
    pub(super) turn: String,
    /// Why it is asked.
    pub(super) reason: String,
    /// Which rules ask.
    pub(super) rules: Vec<String>,
    /// What the agent behind us said in its question, beside the call.
    pub(super) of_agent: Map<String, Value>,
}

/// Tells one session's events.
#[derive(Debug)]
pub(super) struct UpdateMapper {
    /// Where paths of calls begin.
    folder: String,
    turn: String,
    turn_seq: u64,
    /// What the requests of this turn add up to, and what those before the newest did.
    tokens: u64,
    tokens_before: u64,
    /// Calls of this turn, by the house's ids.
    calls: HashMap<String, Call>,
    /// Ids of calls, by the entries that record them.
    entries: HashMap<String, String>,
    /// Calls that wait for a person, by the approval's id. They may outlive their turn.
    waiting: HashMap<String, Waiting>,
    /// Questions of the agent behind us that say more than the calls of this turn, by its ids.
    requests: HashMap<String, Request>,
    /// Terminals that the agent behind us was given in this turn.
    terminals: Terminals,
    /// What stands around the words of the agent behind us, and around its thoughts.
    around_message: Option<Around>,
    around_thought: Option<Around>,
}

/// A question of the agent's: the call, and what stands beside it.
#[derive(Debug, Clone)]
struct Request {
    call: Map<String, Value>,
    beside: Map<String, Value>,
}

/// A call that waits, to be known again when the calls of its turn are forgotten.
#[derive(Debug, Clone)]
struct Waiting {
    /// The house's id for it, and the entry that records it.
    call_id: String,
    entry: String,
    call: Call,
    /// What its agent says of it meanwhile. Whoever decides goes by what they were asked, so that it is told afterwards.
    held: Map<String, Value>,
}

impl Waiting {
    /// Keeps back what people know the call by.
    fn hold(&mut self, said: &mut Map<String, Value>) {
        self.held.extend(tool_call_view::WHAT_IS_SHOWN.iter().filter_map(|name| said.remove_entry(*name)));
    }
}

#[derive(Debug, Clone)]
struct Call {
    /// What clients know it by.
    id: String,
    shown: Map<String, Value>,
    /// The agent tells of it in its own words, so that ours add nothing but what the log has.
    own_words: bool,
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

    /// What an event is to those who follow the session.
    pub(super) fn tell(&mut self, event: RuntimeEvent) -> Vec<AcpMessage> {
        let RuntimeEvent { seq, kind } = event;
        match kind {
            EventKind::TextDelta { text } => {
                vec![words(&mut self.around_message, "agent_message_chunk", &text)]
            }
            EventKind::ReasoningDelta { text } => {
                vec![words(&mut self.around_thought, "agent_thought_chunk", &text)]
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
                vec![AcpMessage::Began { turn }]
            }
            EventKind::ToolCall { id, name, input } => self.called(&id, &name, &input),
            EventKind::ToolCallUpdate { id, input_delta } => self.written(&id, &input_delta),
            EventKind::PolicyGate { entry } => self.judged(&entry).into_iter().collect(),
            EventKind::ToolResult { id, content, is_error } => {
                // What comes of a call goes into another request.
                self.tokens_before = self.tokens;
                self.over(&id, &content, is_error)
            }
            EventKind::LedgerAppend { entry } => self.recorded(&entry),
            EventKind::ApprovalRequested { id, entry } => self.asked(id, &entry),
            EventKind::ApprovalDecided { id, state } => self.decided(id, &state),
            EventKind::UsageUpdate { input_tokens, output_tokens } => {
                self.tokens = u64::from(input_tokens) + u64::from(output_tokens);
                vec![AcpMessage::Used { tokens: self.tokens.saturating_sub(self.tokens_before) }]
            }
            EventKind::Error { code, message } => {
                vec![AcpMessage::Failed { turn: self.turn.clone(), code, message }]
            }
            EventKind::Notice { message, .. } => vec![AcpMessage::Notice(message)],
            EventKind::Ungoverned { tool, what, .. } => {
                vec![AcpMessage::Notice(format!("the agent did what it had no leave for ({tool}): {what}"))]
            }
            EventKind::MailboxInjected { entry } => {
                let from = entry.payload.get("from").and_then(Value::as_str).unwrap_or("another agent");
                vec![AcpMessage::Notice(format!(
                    "a letter from {from} was put before the words of this turn"
                ))]
            }
            EventKind::AgentUpdate { kind, line } => self.agent_said(&kind, &line),
            EventKind::Done { .. } => {
                let around = [self.around_thought.take(), self.around_message.take()];
                around.into_iter().flatten().filter_map(Around::untold).collect()
            }
        }
    }

    fn called(&mut self, id: &str, name: &str, input: &Value) -> Vec<AcpMessage> {
        // The second and later parts of one call of an agent's are called `ID.2`, `ID.3`.
        let whole = id.rsplit_once('.').map_or(id, |(whole, _)| whole);
        let of_agent =
            [id, whole].into_iter().find(|id| self.calls.get(*id).is_some_and(|call| call.own_words));
        if let Some(mut call) = of_agent.and_then(|known| self.calls.get(known)).cloned() {
            // Whoever is asked about it sees what it would change, also where the agent did not say so.
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
            // What is only the agent's to say.
            for (field, value) in &request.call {
                shown.entry(field.clone()).or_insert_with(|| value.clone());
            }
        }
        let call = Call { id: acp_id, shown: shown.clone(), own_words: false };
        self.calls.insert(id.to_owned(), call);
        vec![update(if is_known { "tool_call_update" } else { "tool_call" }, shown)]
    }

    /// More of a call's input while a model writes it.
    fn written(&mut self, id: &str, delta: &str) -> Vec<AcpMessage> {
        let mut told = Vec::new();
        if !self.calls.contains_key(id) {
            let acp_id = self.acp_id(id);
            let shown = fields(json!({ "toolCallId": acp_id, "title": "…", "status": "pending" }));
            self.calls.insert(id.to_owned(), Call { id: acp_id, shown: shown.clone(), own_words: false });
            told.push(update("tool_call", shown));
        }
        if let Some(call) = self.calls.get(id) {
            told.push(about(&call.id, json!({ "input_delta": delta })));
        }
        told
    }

    /// Ids of calls are unique within a turn only.
    fn acp_id(&self, id: &str) -> String {
        format!("t{}-{id}", self.turn_seq)
    }

    fn judged(&mut self, entry: &LedgerEntry) -> Option<AcpMessage> {
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
        if is_allowed && !call.own_words {
            shown.insert("status".to_owned(), "in_progress".into());
        }
        Some(update("tool_call_update", shown))
    }

    fn over(&mut self, id: &str, content: &str, is_error: bool) -> Vec<AcpMessage> {
        let Some(call) = self.calls.get_mut(id) else { return Vec::new() };
        let mut told = Vec::new();
        if let Some((shown_in, content)) = self.terminals.over(id, content) {
            if shown_in == call.id {
                call.shown.insert("content".to_owned(), content.clone().into());
            }
            told.push(update(
                "tool_call_update",
                fields(json!({ "toolCallId": shown_in, "content": content })),
            ));
        }
        if call.own_words && !is_error {
            return told;
        }
        let status = if is_error { "failed" } else { "completed" };
        let mut said = vec![json!({ "type": "content", "content": { "type": "text", "text": content } })];
        // What a client shows of a change stays beside what came of it.
        let changes = call.shown.get("content").and_then(Value::as_array);
        said.splice(0..0, changes.into_iter().flatten().cloned());
        let shown = json!({ "toolCallId": call.id, "status": status, "content": said, "rawOutput": content });
        told.push(update("tool_call_update", fields(shown)));
        told
    }

    fn recorded(&mut self, entry: &LedgerEntry) -> Vec<AcpMessage> {
        let call_id = entry.payload.get("call_id").and_then(Value::as_str).unwrap_or_default();
        let word = match entry.quality {
            EntryQuality::ToolCall => "call",
            EntryQuality::ToolResult => "result",
            _ => return Vec::new(),
        };
        let Some(call) = self.calls.get(call_id) else { return Vec::new() };
        let told = about(&call.id, json!({ word: entry.cid.to_string() }));
        if entry.quality == EntryQuality::ToolCall {
            self.entries.insert(entry.cid.to_string(), call_id.to_owned());
        }
        vec![told]
    }

    fn asked(&mut self, id: String, entry: &LedgerEntry) -> Vec<AcpMessage> {
        let word = |name: &str| entry.payload.get(name).and_then(Value::as_str).unwrap_or_default();
        let Some(call) = self.calls.get(word("call_id")) else { return Vec::new() };
        let mut shown = call.shown.clone();
        shown.insert("status".to_owned(), "pending".into());
        let meta = json!({ "approval": id, "request": entry.cid.to_string() });
        beside(shown.entry("_meta").or_insert(Value::Null), json!({ "tribune": meta }));
        let of_agent = self.request(word("call_id")).map(|request| request.beside.clone());
        let told = about(&call.id, meta);
        let waiting = Waiting {
            call_id: word("call_id").to_owned(),
            entry: word("call").to_owned(),
            call: call.clone(),
            held: Map::new(),
        };
        self.waiting.insert(id.clone(), waiting);
        let reason = word("reason").to_owned();
        let rules = entry.payload.get("rules").and_then(|rules| serde_json::from_value(rules.clone()).ok());
        let rules = rules.unwrap_or_default();
        let turn = self.turn.clone();
        let of_agent = of_agent.unwrap_or_default();
        vec![
            told,
            AcpMessage::Asked(Question { id, call: Value::Object(shown), turn, reason, rules, of_agent }),
        ]
    }

    fn decided(&mut self, id: String, state: &str) -> Vec<AcpMessage> {
        let mut told = Vec::new();
        if let Some(Waiting { call_id, entry, call, mut held }) = self.waiting.remove(&id) {
            told.push(about(&call.id, json!({ "approval": id, "state": state })));
            if !held.is_empty() {
                held.insert("toolCallId".to_owned(), call.id.clone().into());
                told.push(update("tool_call_update", held));
            }
            // What comes of it is told by the ids that it had in its turn, which may be over.
            if self.calls.get(&call_id).is_none_or(|known| known.id != call.id) {
                self.calls.insert(call_id.clone(), call);
            }
            self.entries.insert(entry, call_id);
        }
        told.push(AcpMessage::Decided { id });
        told
    }

    /// A call that waits, and was asked for before everything that is told here.
    pub(super) fn waits(&mut self, requested: &Requested, input: &Value) -> Question {
        let id = requested.id.clone();
        let mut shown = tool_call_view::shown(&requested.tool, input, &self.folder);
        shown.insert("toolCallId".to_owned(), id.clone().into());
        let (call_id, entry) = (requested.call_id.clone(), requested.call.clone());
        let call = Call { id: id.clone(), shown: shown.clone(), own_words: false };
        self.waiting.insert(id.clone(), Waiting { call_id, entry, call, held: Map::new() });
        shown.insert("status".to_owned(), "pending".into());
        shown.insert("_meta".to_owned(), json!({ "tribune": { "approval": id } }));
        let (reason, rules) = (requested.reason.clone(), requested.rules.clone());
        let (turn, of_agent) = (String::new(), Map::new());
        Question { id, call: Value::Object(shown), turn, reason, rules, of_agent }
    }

    /// What an agent that speaks ACP said, as it came.
    fn agent_said(&mut self, kind: &str, line: &str) -> Vec<AcpMessage> {
        let Ok(mut line) = serde_json::from_str::<Value>(line) else { return Vec::new() };
        let mut beside = fields(line["params"].take());
        match kind {
            "session/prompt" => {
                let answer = fields(line["result"].take());
                return vec![AcpMessage::Answered { turn: self.turn.clone(), answer }];
            }
            // The client was answered before the agent was started: what it said of its session comes behind that.
            "session/new" | "session/load" | "session/resume" => {
                return vec![opened(fields(line["result"].take()))];
            }
            "session/request_permission" => return self.agent_asked(beside),
            TERMINAL_CREATED => {
                self.terminals.opened(&beside);
                return Vec::new();
            }
            method if method.starts_with('_') && !method.starts_with(OURS) => {
                return vec![AcpMessage::Aside { method: method.to_owned(), params: Value::Object(beside) }];
            }
            _ => {}
        }
        let Some(Value::Object(mut said)) = beside.remove("update") else { return Vec::new() };
        beside.remove("sessionId");
        match kind {
            MESSAGE_CHUNK_META => {
                let around = Around::new(said, beside);
                self.around_message.replace(around).and_then(Around::untold).into_iter().collect()
            }
            THOUGHT_CHUNK_META => {
                let around = Around::new(said, beside);
                self.around_thought.replace(around).and_then(Around::untold).into_iter().collect()
            }
            "tool_call" | "tool_call_update" => {
                tool_call_view::as_clients_know_it(&mut said, &self.folder);
                let Some(id) = said.get("toolCallId").and_then(Value::as_str).map(str::to_owned) else {
                    return Vec::new();
                };
                let known = self.calls.get(&id).map_or(&id, |call| &call.id);
                self.terminals.put_into_words(known, &mut said);
                if let Some(waiting) = self.waiting.values_mut().find(|waiting| waiting.call.id == *known) {
                    waiting.hold(&mut said);
                }
                if let Some(call) = self.calls.get_mut(&id) {
                    // It was told of before, perhaps under our name for it.
                    said.insert("toolCallId".to_owned(), call.id.clone().into());
                    said.insert("sessionUpdate".to_owned(), "tool_call_update".into());
                    call.own_words = true;
                    call.shown.extend(
                        said.iter()
                            .filter(|(name, _)| *name != "sessionUpdate")
                            .map(|(name, value)| (name.clone(), value.clone())),
                    );
                } else {
                    let mut shown = said.clone();
                    shown.remove("sessionUpdate");
                    self.calls.insert(id.clone(), Call { id, shown, own_words: true });
                }
                vec![came(said, beside)]
            }
            "available_commands_update" => {
                vec![AcpMessage::Commands(OfAgent { said, beside })]
            }
            // Modes and options of this session are the house's own, and not those of the agent behind it.
            "current_mode_update" | "config_option_update" => {
                let said = json!({ "sessionUpdate": "session_info_update", "_meta": { "tribune": { "agent_update": said } } });
                vec![AcpMessage::Update(said)]
            }
            _ => vec![came(said, beside)],
        }
    }

    /// What it said of a call in its question for leave, if that is more than we know.
    fn agent_asked(&mut self, mut params: Map<String, Value>) -> Vec<AcpMessage> {
        let mut call = fields(params.remove("toolCall").unwrap_or_default());
        params.remove("sessionId");
        tool_call_view::as_clients_know_it(&mut call, &self.folder);
        let Some(id) = call.get("toolCallId").and_then(Value::as_str).map(str::to_owned) else {
            return Vec::new();
        };
        let mut told = Vec::new();
        if let Some(known) = self.calls.get_mut(&id) {
            known.shown.extend(call.iter().map(|(name, value)| (name.clone(), value.clone())));
            known.shown.insert("toolCallId".to_owned(), known.id.clone().into());
            let mut said = call.clone();
            if let Some(waiting) = self.waiting.values_mut().find(|waiting| waiting.call.id == known.id) {
                waiting.hold(&mut said);
            }
            said.insert("toolCallId".to_owned(), known.id.clone().into());
            told.push(update("tool_call_update", said));
        } else {
            // People are shown the call in our words; its own stand beside them.
            params.insert("toolCall".to_owned(), Value::Object(call.clone()));
        }
        self.requests.insert(id, Request { call, beside: params });
        told
    }

    /// The agent's own question for a call, by the house's id: the second and later parts of one are called `ID.2`, `ID.3`.
    fn request(&self, id: &str) -> Option<&Request> {
        let whole = id.rsplit_once('.').map_or(id, |(whole, _)| whole);
        self.requests.get(id).or_else(|| self.requests.get(whole))
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

/// What the log has of a call.
fn about(id: &str, meta: Value) -> AcpMessage {
    update("tool_call_update", fields(json!({ "toolCallId": id, "_meta": { "tribune": meta } })))
}

/// A piece of a text.
pub(super) fn chunk(kind: &str, text: &str) -> AcpMessage {
    AcpMessage::Update(json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } }))
}

#[cfg(test)]
#[path = "update_mapper_tests.rs"]
mod tests;
