//! Forwards the events of a session to its client, in order and exactly once.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_runtime::{RuntimeEvent, SessionKey};
use tribune_sessions::session::{SessionError, Subscription};
use tribune_storage::vault::StoredEvent;
use tribune_tools::mcp::IfRunning;

use super::client_session::{AgentResponse, ClientSession, Prefetched, TurnFailure};
use super::connection::Connection;
use super::replay::{MessageScope, StoredMessages};
use super::update_mapper::{AcpMessage, PermissionRequest, UpdateMapper, chunk};
use super::wire::Fault;
use super::{replay, slash_commands, wire};

/// Events read from a subscription in one batch.
pub(super) const EVENTS_AT_ONCE: usize = 64;

/// Whether an event is live, or replayed to a client that missed it.
#[derive(Debug, Clone, Copy)]
pub(super) enum EventTime<'a> {
    Live,
    /// Replayed, with the prompts of that time.
    Replayed(&'a StoredMessages),
}

/// What an event means for a permission request.
#[derive(Debug)]
pub(super) enum PermissionEvent {
    Requested(Box<PermissionRequest>),
    /// The request is closed.
    Closed(String),
}

impl Connection {
    /// Opens the session if it is closed, and starts a forwarder if none runs.
    pub(super) async fn attach(self: &Arc<Self>, session: &Arc<ClientSession>) -> Result<SessionKey, Fault> {
        let _attaching = session.attaching.lock().await;
        self.start_forwarder(session);
        let binding = session.binding().clone();
        if !session.progress.borrow().is_over {
            // A running forwarder means that the session is open. A global stop ends the MCP servers; the next prompt after it
            // starts them again.
            if !self.gateway.api.sessions.governance().policy.gate.is_frozen() {
                let unavailable = self.bring_servers(&binding, IfRunning::Keep).await;
                self.send_sentences(session, unavailable).await;
            }
            return Ok(binding.key);
        }
        let (folder, _) = self.open(&binding).await?;
        let unavailable = self.bring_servers(&binding, IfRunning::Keep).await;
        session.binding().left_out.extend(unavailable);
        let after = session.progress.borrow().seq;
        let guard = session.restart_following(after);
        let subscription = self.gateway.api.sessions.subscribe(&binding.key, Some(after)).await?;
        guard.with(subscription, UpdateMapper::new(&folder));
        session.binding().folder = folder;
        self.start_forwarder(session);
        Ok(binding.key)
    }

    /// Starts a forwarder for the prepared subscription, if there is one.
    pub(super) fn start_forwarder(self: &Arc<Self>, session: &Arc<ClientSession>) {
        let Some(Prefetched { subscription, mapper, over }) = session.take_prefetched() else { return };
        let (own, session) = (Arc::clone(self), Arc::clone(session));
        self.spawn(async move {
            let followed = over.run_until_cancelled(own.follow(&session, subscription, mapper)).await;
            if followed.is_some() {
                session.progress.send_modify(|progress| progress.is_over = true);
            }
        });
    }

    /// Sends sentences as agent messages, because clients make notices easy to overlook.
    async fn send_sentences(&self, session: &ClientSession, sentences: Vec<String>) {
        for sentence in sentences {
            if let AcpMessage::Update(update) = chunk("agent_message_chunk", &format!("{sentence}\n\n")) {
                self.update(&session.id, &update).await;
            }
        }
    }

    async fn follow(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        mut subscription: Subscription,
        mut mapper: UpdateMapper,
    ) {
        let of_agent = session.binding().commands.clone();
        self.update_beside(&session.id, &slash_commands::update(&self.who, &of_agent), &of_agent.beside)
            .await;
        let left_out = std::mem::take(&mut session.binding().left_out);
        self.send_sentences(session, left_out).await;
        loop {
            match subscription.next(EVENTS_AT_ONCE).await {
                Ok(events) if events.is_empty() => break,
                Ok(events) => {
                    for event in events {
                        for permission in
                            self.forward_event(session, &mut mapper, event, EventTime::Live).await
                        {
                            match permission {
                                PermissionEvent::Requested(request) => {
                                    self.request_permission(session, *request)
                                }
                                PermissionEvent::Closed(id) => session.close_request(&id),
                            }
                        }
                    }
                }
                Err(SessionError::Expired { oldest }) => {
                    let what = format!("events before {oldest} are no longer kept: some are missing here");
                    self.notice(session, &what).await;
                    let key = session.key();
                    match self.gateway.api.sessions.subscribe(&key, Some(oldest - 1)).await {
                        Ok(again) => subscription = again,
                        Err(_) => break,
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "forwarding the events of a session to its ACP client failed");
                    break;
                }
            }
        }
    }

    /// Forwards one event. Returns what it means for permission requests.
    pub(super) async fn forward_event(
        self: &Arc<Self>,
        session: &Arc<ClientSession>,
        mapper: &mut UpdateMapper,
        event: StoredEvent,
        time: EventTime<'_>,
    ) -> Vec<PermissionEvent> {
        let seq = event.seq;
        let mut permission_events = Vec::new();
        if self.wants_events() {
            let raw: Value = serde_json::from_str(&event.json).unwrap_or_default();
            let params = json!({ "sessionId": session.id, "event": raw });
            self.send(Some(&session.id), wire::notification("_tribune/event", &params)).await;
        }
        // An event of a kind that this version does not know is skipped.
        let messages = serde_json::from_str::<RuntimeEvent>(&event.json).map(|event| mapper.messages(event));
        for message in messages.unwrap_or_default() {
            match message {
                AcpMessage::Update(update) => self.update(&session.id, &update).await,
                AcpMessage::AgentUpdate { update, beside } => {
                    self.update_beside(&session.id, &update, &beside).await
                }
                AcpMessage::AgentExtension { method, mut params } => {
                    if params.get("sessionId").is_some() {
                        params["sessionId"] = session.id.clone().into();
                    }
                    self.send(Some(&session.id), wire::notification(&method, &params)).await;
                }
                AcpMessage::AgentResponse { turn, answer } => {
                    session.progress.send_modify(|progress| {
                        progress.response = Some(AgentResponse { turn, fields: answer })
                    });
                }
                AcpMessage::TurnStarted { turn } => self.forward_prompt(session, &turn, time).await,
                AcpMessage::PermissionRequested(request) => {
                    permission_events.push(PermissionEvent::Requested(Box::new(request)))
                }
                AcpMessage::PermissionClosed { id } => permission_events.push(PermissionEvent::Closed(id)),
                AcpMessage::TurnFailed { turn, code, message } => {
                    session
                        .progress
                        .send_modify(|progress| progress.failure = Some(TurnFailure { turn, code, message }));
                }
                AcpMessage::Notice(text) => self.notice(session, &text).await,
                AcpMessage::Commands(of_agent) => {
                    session.binding().commands = of_agent.clone();
                    let update = slash_commands::update(&self.who, &of_agent);
                    self.update_beside(&session.id, &update, &of_agent.beside).await;
                }
                AcpMessage::ContextUsed { tokens } => {
                    if let Some(size) = self.window(session) {
                        let used = json!({ "sessionUpdate": "usage_update", "used": tokens, "size": size });
                        self.update(&session.id, &used).await;
                    }
                }
            }
        }
        session.progress.send_modify(|progress| progress.seq = progress.seq.max(seq));
        permission_events
    }

    /// Updates the state from one event without sending anything.
    pub(super) fn apply_event(
        &self,
        session: &ClientSession,
        mapper: &mut UpdateMapper,
        event: &StoredEvent,
    ) -> Vec<PermissionEvent> {
        let messages = serde_json::from_str::<RuntimeEvent>(&event.json).map(|event| mapper.messages(event));
        let mut permission_events = Vec::new();
        for message in messages.unwrap_or_default() {
            match message {
                AcpMessage::PermissionRequested(request) => {
                    permission_events.push(PermissionEvent::Requested(Box::new(request)))
                }
                AcpMessage::PermissionClosed { id } => permission_events.push(PermissionEvent::Closed(id)),
                AcpMessage::Commands(of_agent) => session.binding().commands = of_agent,
                AcpMessage::TurnFailed { turn, code, message } => {
                    session
                        .progress
                        .send_modify(|progress| progress.failure = Some(TurnFailure { turn, code, message }));
                }
                AcpMessage::Update(_)
                | AcpMessage::AgentUpdate { .. }
                | AcpMessage::AgentExtension { .. }
                | AcpMessage::AgentResponse { .. }
                | AcpMessage::TurnStarted { .. }
                | AcpMessage::Notice(_)
                | AcpMessage::ContextUsed { .. } => {}
            }
        }
        session.progress.send_modify(|progress| progress.seq = progress.seq.max(event.seq));
        permission_events
    }

    /// Sends the prompt of a turn, unless this client wrote it.
    async fn forward_prompt(self: &Arc<Self>, session: &Arc<ClientSession>, turn: &str, time: EventTime<'_>) {
        let now;
        let messages = match time {
            EventTime::Replayed(messages) => messages,
            EventTime::Live => {
                // A turn of this client may start before its id is known here.
                let mut own = session.own.subscribe();
                let known = own.wait_for(|own| own.pending == 0 || own.has(turn)).await;
                if known.is_ok_and(|own| own.has(turn)) {
                    return;
                }
                now = replay::stored_messages(self, session, MessageScope::NewestPrompts)
                    .await
                    .unwrap_or_default();
                &now
            }
        };
        for update in messages.prompt_of(turn) {
            self.update(&session.id, update).await;
        }
    }

    /// Sends a notice to people. It is not the agent's text.
    pub(super) async fn notice(&self, session: &ClientSession, text: &str) {
        let takes_notices = self.state().capabilities["session"]["notices"].is_object();
        let update = match (takes_notices, chunk("agent_thought_chunk", text)) {
            (false, AcpMessage::Update(update)) => update,
            _ => json!({ "sessionUpdate": "notice", "severity": "warning", "title": text }),
        };
        self.update(&session.id, &update).await;
    }

    /// Whether the client also wants every event in Tribune's own format (`_tribune/event`).
    fn wants_events(&self) -> bool {
        self.state().capabilities["_meta"]["tribune"]["events"] == true
    }
}
