//! Replays a session to a client: every message and event once, in the original order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tribune_sessions::session::Subscription;
use tribune_storage::vault::StoredEvent;

use super::client_session::ClientSession;
use super::connection::Connection;
use super::forwarder::{EVENTS_AT_ONCE, EventTime, PermissionEvent};
use super::update_mapper::{PermissionRequest, UpdateMapper};
use super::wire::Fault;
use crate::error::ApiError;

/// The newest messages of a session that a replay reads: more than a person rereads.
const MAX_MESSAGES: usize = 100_000;

/// The newest messages that are read to find the prompt of a turn that just started.
const NEWEST_MESSAGES: usize = 50;

/// The stored messages of a session, as ACP updates.
#[derive(Debug, Default)]
pub(super) struct StoredMessages {
    /// In the original order: the turn, and the update.
    updates: Vec<(String, Value)>,
    /// The prompts, by turn.
    prompts: HashMap<String, Vec<Value>>,
}

impl StoredMessages {
    /// The prompt of a turn, as user message chunks.
    pub(super) fn prompt_of(&self, turn: &str) -> &[Value] {
        self.prompts.get(turn).map_or(&[], Vec::as_slice)
    }
}

/// Reads the stored messages. Fails if the principal may not use the session.
pub(super) async fn stored_messages(
    connection: &Connection,
    session: &ClientSession,
    scope: MessageScope,
) -> Result<StoredMessages, Fault> {
    let (api, key) = (&connection.gateway.api, session.key());
    connection.who.owns(&key)?;
    let governance = api.sessions.governance();
    let (vault, redactor) = (Arc::clone(&governance.storage.vault), Arc::clone(&governance.policy.redactor));
    let messages = api.readers.read(move |reader| {
        let mut messages = StoredMessages::default();
        let Some(row) = reader.session(key.as_str())? else { return Ok(messages) };
        let limit = if scope == MessageScope::NewestPrompts { NEWEST_MESSAGES } else { MAX_MESSAGES };
        for message in reader.messages(&row, limit)? {
            let kind = match message.role.as_str() {
                "user" => "user_message_chunk",
                "assistant" if scope == MessageScope::All => "agent_message_chunk",
                _ => continue,
            };
            let Some(turn) = message.turn else { continue };
            let Some(content) = vault.content(&row.id, &message.content)? else { continue };
            let content: Value = serde_json::from_slice(&content).unwrap_or_default();
            for update in chunks(kind, redactor.redact_json(&content)) {
                if kind == "user_message_chunk" {
                    messages.prompts.entry(turn.clone()).or_default().push(update.clone());
                }
                messages.updates.push((turn.clone(), update));
            }
        }
        Ok(messages)
    });
    Ok(messages.await.map_err(ApiError::from)?)
}

/// Which stored messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageScope {
    /// The newest prompts.
    NewestPrompts,
    /// All prompts.
    Prompts,
    /// All prompts and answers.
    All,
}

/// Replays everything up to `head`. Turns whose events are no longer stored are replayed from their messages. Returns the open
/// permission requests.
pub(super) async fn send_missed(
    connection: &Arc<Connection>,
    session: &Arc<ClientSession>,
    subscription: &mut Subscription,
    mapper: &mut UpdateMapper,
    head: u64,
) -> Result<Vec<PermissionRequest>, Fault> {
    let is_cut = subscription.after() > 0;
    let messages =
        stored_messages(connection, session, if is_cut { MessageScope::All } else { MessageScope::Prompts })
            .await?;
    if is_cut {
        let kept = kept_turns(connection, session, subscription.after()).await?;
        for (_, update) in messages.updates.iter().filter(|(turn, _)| !kept.contains(turn)) {
            connection.update(&session.id, update).await;
        }
    }
    let mut open = Vec::new();
    while let Some(events) = next(subscription, head).await? {
        for event in events {
            update_open(
                connection.forward_event(session, mapper, event, EventTime::Replayed(&messages)).await,
                &mut open,
            );
        }
    }
    still_open(connection, session, mapper, open, is_cut).await
}

/// Like [`send_missed`], but sends nothing: only updates the state and returns the open permission requests.
pub(super) async fn read_missed(
    connection: &Arc<Connection>,
    session: &Arc<ClientSession>,
    subscription: &mut Subscription,
    mapper: &mut UpdateMapper,
    head: u64,
) -> Result<Vec<PermissionRequest>, Fault> {
    let is_cut = subscription.after() > 0;
    let mut open = Vec::new();
    while let Some(events) = next(subscription, head).await? {
        for event in &events {
            update_open(connection.apply_event(session, mapper, event), &mut open);
        }
    }
    still_open(connection, session, mapper, open, is_cut).await
}

/// The next batch of events up to `head`; `None` when `head` is reached.
async fn next(subscription: &mut Subscription, head: u64) -> Result<Option<Vec<StoredEvent>>, Fault> {
    if subscription.after() >= head {
        return Ok(None);
    }
    let left = usize::try_from(head - subscription.after()).unwrap_or(EVENTS_AT_ONCE);
    let events = subscription.next(left.min(EVENTS_AT_ONCE)).await?;
    Ok(Some(events).filter(|events| !events.is_empty()))
}

fn update_open(permission_events: Vec<PermissionEvent>, open: &mut Vec<PermissionRequest>) {
    for event in permission_events {
        match event {
            PermissionEvent::Requested(request) => open.push(*request),
            PermissionEvent::Closed(id) => open.retain(|request| request.id != id),
        }
    }
}

/// The permission requests that are still in the inbox. If the oldest events are gone, these can be more than the events show.
async fn still_open(
    connection: &Connection,
    session: &ClientSession,
    mapper: &mut UpdateMapper,
    mut open: Vec<PermissionRequest>,
    is_cut: bool,
) -> Result<Vec<PermissionRequest>, Fault> {
    let governance = connection.gateway.api.sessions.governance();
    let waiting = governance.policy.gate.inbox.waiting_in(session.key().as_str());
    open.retain(|request| waiting.iter().any(|requested| requested.id == request.id));
    for requested in waiting.into_iter().filter(|_| is_cut) {
        if open.iter().any(|request| request.id == requested.id) {
            continue;
        }
        let action = governance.action_of(&requested).await.map_err(ApiError::from)?;
        let input = action.map(|action| governance.policy.redactor.redact_json(&action.input));
        open.push(mapper.register_waiting(&requested, &input.unwrap_or_default()));
    }
    Ok(open)
}

/// Turns whose events are stored from their start. The others are replayed from their messages.
async fn kept_turns(
    connection: &Connection,
    session: &ClientSession,
    mut after: u64,
) -> Result<HashSet<String>, Fault> {
    let (api, key) = (&connection.gateway.api, session.key());
    let mut kept = HashSet::new();
    loop {
        let page = api.session_events(&connection.who, key.as_str(), Some(after), None).await?;
        let Some(last) = page.events.last().and_then(|event| event["seq"].as_u64()) else { return Ok(kept) };
        let begins = page.events.iter().filter(|event| event["type"] == "turn_started");
        kept.extend(begins.filter_map(|event| event["turn"].as_str().map(str::to_owned)));
        after = last;
    }
}

/// One update for each content block of a message.
fn chunks(kind: &str, content: Value) -> Vec<Value> {
    let update = |content: Value| json!({ "sessionUpdate": kind, "content": content });
    match content {
        Value::Array(blocks) => blocks.into_iter().map(update).collect(),
        Value::String(text) => vec![update(json!({ "type": "text", "text": text }))],
        _ => Vec::new(),
    }
}
