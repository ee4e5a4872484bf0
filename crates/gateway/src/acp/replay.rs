//! Replays a session to a client: every message and event once, in the original order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tribune_sessions::session::Subscription;
use tribune_storage::vault::StoredEvent;

use super::client_session::ClientSession;
use super::connection::Connection;
use super::forwarder::{EVENTS_AT_ONCE, Matter, When};
use super::update_mapper::{Question, UpdateMapper};
use super::wire::Fault;
use crate::error::ApiError;

/// The newest messages of a session that a replay reads: more than a person rereads.
const MAX_MESSAGES: usize = 100_000;

/// The newest messages that are read to find the prompt of a turn that just started.
const NEWEST_MESSAGES: usize = 50;

/// The stored messages of a session, as ACP updates.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// In the original order: the turn, and the update.
    said: Vec<(String, Value)>,
    /// The prompts, by turn.
    begins: HashMap<String, Vec<Value>>,
}

impl Words {
    /// The prompt of a turn, as user message chunks.
    pub(super) fn of(&self, turn: &str) -> &[Value] {
        self.begins.get(turn).map_or(&[], Vec::as_slice)
    }
}

/// Reads the stored messages. Fails if the principal may not use the session.
pub(super) async fn words(
    connection: &Connection,
    seat: &ClientSession,
    reach: Reach,
) -> Result<Words, Fault> {
    let (api, key) = (&connection.gateway.api, seat.key());
    connection.who.owns(&key)?;
    let governance = api.sessions.governance();
    let (vault, redactor) = (Arc::clone(&governance.storage.vault), Arc::clone(&governance.policy.redactor));
    let words = api.readers.read(move |reader| {
        let mut words = Words::default();
        let Some(session) = reader.session(key.as_str())? else { return Ok(words) };
        let limit = if reach == Reach::JustSaid { NEWEST_MESSAGES } else { MAX_MESSAGES };
        for row in reader.messages(&session, limit)? {
            let kind = match row.role.as_str() {
                "user" => "user_message_chunk",
                "assistant" if reach == Reach::Everything => "agent_message_chunk",
                _ => continue,
            };
            let Some(turn) = row.turn else { continue };
            let Some(content) = vault.content(&session.id, &row.content)? else { continue };
            let content: Value = serde_json::from_slice(&content).unwrap_or_default();
            for update in chunks(kind, redactor.redact_json(&content)) {
                if kind == "user_message_chunk" {
                    words.begins.entry(turn.clone()).or_default().push(update.clone());
                }
                words.said.push((turn.clone(), update));
            }
        }
        Ok(words)
    });
    Ok(words.await.map_err(ApiError::from)?)
}

/// Which stored messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The newest prompts.
    JustSaid,
    /// All prompts.
    Begins,
    /// All prompts and answers.
    Everything,
}

/// Replays everything up to `head`. Turns whose events are no longer stored are replayed from their messages. Returns the open
/// permission requests.
pub(super) async fn tell(
    connection: &Arc<Connection>,
    seat: &Arc<ClientSession>,
    (subscription, teller): (&mut Subscription, &mut UpdateMapper),
    head: u64,
) -> Result<Vec<Question>, Fault> {
    let is_cut = subscription.after() > 0;
    let words = words(connection, seat, if is_cut { Reach::Everything } else { Reach::Begins }).await?;
    if is_cut {
        let kept = kept_turns(connection, seat, subscription.after()).await?;
        for (_, update) in words.said.iter().filter(|(turn, _)| !kept.contains(turn)) {
            connection.update(&seat.id, update).await;
        }
    }
    let mut open = Vec::new();
    while let Some(events) = next(subscription, head).await? {
        for event in events {
            update_open(connection.show(seat, teller, event, When::Before(&words)).await, &mut open);
        }
    }
    still_open(connection, seat, teller, (open, is_cut)).await
}

/// Like [`tell`], but sends nothing: only updates the state and returns the open permission requests.
pub(super) async fn take_in(
    connection: &Arc<Connection>,
    seat: &Arc<ClientSession>,
    (subscription, teller): (&mut Subscription, &mut UpdateMapper),
    head: u64,
) -> Result<Vec<Question>, Fault> {
    let is_cut = subscription.after() > 0;
    let mut open = Vec::new();
    while let Some(events) = next(subscription, head).await? {
        for event in &events {
            update_open(connection.take_in(seat, teller, event), &mut open);
        }
    }
    still_open(connection, seat, teller, (open, is_cut)).await
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

fn update_open(matters: Vec<Matter>, open: &mut Vec<Question>) {
    for matter in matters {
        match matter {
            Matter::Asked(question) => open.push(*question),
            Matter::Decided(id) => open.retain(|question| question.id != id),
        }
    }
}

/// The permission requests that are still in the inbox. If the oldest events are gone, these can be more than the events show.
async fn still_open(
    connection: &Connection,
    seat: &ClientSession,
    teller: &mut UpdateMapper,
    (mut open, is_cut): (Vec<Question>, bool),
) -> Result<Vec<Question>, Fault> {
    let governance = connection.gateway.api.sessions.governance();
    let waiting = governance.policy.gate.inbox.waiting_in(seat.key().as_str());
    open.retain(|question| waiting.iter().any(|requested| requested.id == question.id));
    for requested in waiting.into_iter().filter(|_| is_cut) {
        if open.iter().any(|question| question.id == requested.id) {
            continue;
        }
        let action = governance.action_of(&requested).await.map_err(ApiError::from)?;
        let input = action.map(|action| governance.policy.redactor.redact_json(&action.input));
        open.push(teller.waits(&requested, &input.unwrap_or_default()));
    }
    Ok(open)
}

/// Turns whose events are stored from their start. The others are replayed from their messages.
async fn kept_turns(
    connection: &Connection,
    seat: &ClientSession,
    mut after: u64,
) -> Result<HashSet<String>, Fault> {
    let (api, key) = (&connection.gateway.api, seat.key());
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
