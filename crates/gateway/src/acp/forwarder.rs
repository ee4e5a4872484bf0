//! Forwards the events of a session to its client, in order and exactly once.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_runtime::{RuntimeEvent, SessionKey};
use tribune_sessions::session::{SessionError, Subscription};
use tribune_storage::vault::StoredEvent;
use tribune_tools::mcp::IfRunning;

use super::client_session::{ClientSession, Prefetched};
use super::connection::Connection;
use super::replay::{Reach, Words};
use super::update_mapper::{AcpMessage, Question, UpdateMapper, chunk};
use super::wire::Fault;
use super::{replay, slash_commands, wire};

/// Events read from a subscription in one batch.
pub(super) const EVENTS_AT_ONCE: usize = 64;

/// Whether an event is live, or replayed to a client that missed it.
#[derive(Debug, Clone, Copy)]
pub(super) enum When<'a> {
    Now,
    /// Replayed, with the prompts of that time.
    Before(&'a Words),
}

/// What an event means for a permission request.
#[derive(Debug)]
pub(super) enum Matter {
    Asked(Box<Question>),
    /// The request is closed.
    Decided(String),
}

impl Connection {
    /// Opens the session if it is closed, and starts a forwarder if none runs.
    pub(super) async fn attach(self: &Arc<Self>, seat: &Arc<ClientSession>) -> Result<SessionKey, Fault> {
        let _attaching = seat.attaching.lock().await;
        self.follow_from_here(seat);
        let place = seat.place().clone();
        if !seat.told.borrow().is_over {
            // A running forwarder means that the session is open. A global stop ends the MCP servers; the next prompt after it
            // starts them again.
            if !self.gateway.api.sessions.governance().policy.gate.is_frozen() {
                let not_there = self.bring_servers(&place, IfRunning::Keep).await;
                self.say(seat, not_there).await;
            }
            return Ok(place.key);
        }
        let (folder, _) = self.open(&place).await?;
        let not_there = self.bring_servers(&place, IfRunning::Keep).await;
        seat.place().left_out.extend(not_there);
        let after = seat.told.borrow().seq;
        let anew = seat.follow_anew(after);
        let subscription = self.gateway.api.sessions.subscribe(&place.key, Some(after)).await?;
        anew.with(subscription, UpdateMapper::new(&folder));
        seat.place().folder = folder;
        self.follow_from_here(seat);
        Ok(place.key)
    }

    /// Starts a forwarder for the prepared subscription, if there is one.
    pub(super) fn follow_from_here(self: &Arc<Self>, seat: &Arc<ClientSession>) {
        let Some(Prefetched { subscription, teller, over }) = seat.take_waiting() else { return };
        let (own, seat) = (Arc::clone(self), Arc::clone(seat));
        self.spawn(async move {
            let followed = over.run_until_cancelled(own.follow(&seat, subscription, teller)).await;
            if followed.is_some() {
                seat.told.send_modify(|told| told.is_over = true);
            }
        });
    }

    /// Sends sentences as agent messages, because clients make notices easy to overlook.
    async fn say(&self, seat: &ClientSession, sentences: Vec<String>) {
        for sentence in sentences {
            if let AcpMessage::Update(update) = chunk("agent_message_chunk", &format!("{sentence}\n\n")) {
                self.update(&seat.id, &update).await;
            }
        }
    }

    async fn follow(
        self: &Arc<Self>,
        seat: &Arc<ClientSession>,
        mut subscription: Subscription,
        mut teller: UpdateMapper,
    ) {
        let of_agent = seat.place().commands.clone();
        self.update_beside(&seat.id, &slash_commands::update(&self.who, &of_agent), &of_agent.beside).await;
        let left_out = std::mem::take(&mut seat.place().left_out);
        self.say(seat, left_out).await;
        loop {
            match subscription.next(EVENTS_AT_ONCE).await {
                Ok(events) if events.is_empty() => break,
                Ok(events) => {
                    for event in events {
                        for matter in self.show(seat, &mut teller, event, When::Now).await {
                            match matter {
                                Matter::Asked(question) => self.ask_leave(seat, *question),
                                Matter::Decided(id) => seat.decided(&id),
                            }
                        }
                    }
                }
                Err(SessionError::Expired { oldest }) => {
                    let what = format!("events before {oldest} are no longer kept: some are missing here");
                    self.notice(seat, &what).await;
                    let key = seat.key();
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
    pub(super) async fn show(
        self: &Arc<Self>,
        seat: &Arc<ClientSession>,
        teller: &mut UpdateMapper,
        event: StoredEvent,
        when: When<'_>,
    ) -> Vec<Matter> {
        let seq = event.seq;
        let mut matters = Vec::new();
        if self.wants_events() {
            let raw: Value = serde_json::from_str(&event.json).unwrap_or_default();
            let params = json!({ "sessionId": seat.id, "event": raw });
            self.send(Some(&seat.id), wire::notification("_tribune/event", &params)).await;
        }
        // An event of a kind that this version does not know is skipped.
        let told = serde_json::from_str::<RuntimeEvent>(&event.json).map(|event| teller.tell(event));
        for told in told.unwrap_or_default() {
            match told {
                AcpMessage::Update(update) => self.update(&seat.id, &update).await,
                AcpMessage::Said { update, beside } => self.update_beside(&seat.id, &update, &beside).await,
                AcpMessage::Aside { method, mut params } => {
                    if params.get("sessionId").is_some() {
                        params["sessionId"] = seat.id.clone().into();
                    }
                    self.send(Some(&seat.id), wire::notification(&method, &params)).await;
                }
                AcpMessage::Answered { turn, answer } => {
                    seat.told.send_modify(|told| told.answer = Some((turn, answer)));
                }
                AcpMessage::Began { turn } => self.began(seat, &turn, when).await,
                AcpMessage::Asked(question) => matters.push(Matter::Asked(Box::new(question))),
                AcpMessage::Decided { id } => matters.push(Matter::Decided(id)),
                AcpMessage::Failed { turn, code, message } => {
                    seat.told.send_modify(|told| told.failure = Some((turn, code, message)));
                }
                AcpMessage::Notice(text) => self.notice(seat, &text).await,
                AcpMessage::Commands(of_agent) => {
                    seat.place().commands = of_agent.clone();
                    let update = slash_commands::update(&self.who, &of_agent);
                    self.update_beside(&seat.id, &update, &of_agent.beside).await;
                }
                AcpMessage::Used { tokens } => {
                    if let Some(size) = self.window(seat) {
                        let used = json!({ "sessionUpdate": "usage_update", "used": tokens, "size": size });
                        self.update(&seat.id, &used).await;
                    }
                }
            }
        }
        seat.told.send_modify(|told| told.seq = told.seq.max(seq));
        matters
    }

    /// Updates the state from one event without sending anything.
    pub(super) fn take_in(
        &self,
        seat: &ClientSession,
        teller: &mut UpdateMapper,
        event: &StoredEvent,
    ) -> Vec<Matter> {
        let told = serde_json::from_str::<RuntimeEvent>(&event.json).map(|event| teller.tell(event));
        let mut matters = Vec::new();
        for told in told.unwrap_or_default() {
            match told {
                AcpMessage::Asked(question) => matters.push(Matter::Asked(Box::new(question))),
                AcpMessage::Decided { id } => matters.push(Matter::Decided(id)),
                AcpMessage::Commands(of_agent) => seat.place().commands = of_agent,
                AcpMessage::Failed { turn, code, message } => {
                    seat.told.send_modify(|told| told.failure = Some((turn, code, message)));
                }
                AcpMessage::Update(_)
                | AcpMessage::Said { .. }
                | AcpMessage::Aside { .. }
                | AcpMessage::Answered { .. }
                | AcpMessage::Began { .. }
                | AcpMessage::Notice(_)
                | AcpMessage::Used { .. } => {}
            }
        }
        seat.told.send_modify(|told| told.seq = told.seq.max(event.seq));
        matters
    }

    /// Sends the prompt of a turn, unless this client wrote it.
    async fn began(self: &Arc<Self>, seat: &Arc<ClientSession>, turn: &str, when: When<'_>) {
        let now;
        let words = match when {
            When::Before(words) => words,
            When::Now => {
                // A turn of this client may start before its id is known here.
                let mut own = seat.own.subscribe();
                let known = own.wait_for(|own| own.pending == 0 || own.has(turn)).await;
                if known.is_ok_and(|own| own.has(turn)) {
                    return;
                }
                now = replay::words(self, seat, Reach::JustSaid).await.unwrap_or_default();
                &now
            }
        };
        for update in words.of(turn) {
            self.update(&seat.id, update).await;
        }
    }

    /// Sends a notice to people. It is not the agent's text.
    pub(super) async fn notice(&self, seat: &ClientSession, text: &str) {
        let takes_notices = self.state().capabilities["session"]["notices"].is_object();
        let update = match (takes_notices, chunk("agent_thought_chunk", text)) {
            (false, AcpMessage::Update(update)) => update,
            _ => json!({ "sessionUpdate": "notice", "severity": "warning", "title": text }),
        };
        self.update(&seat.id, &update).await;
    }

    /// Whether the client also wants every event in Tribune's own format (`_tribune/event`).
    fn wants_events(&self) -> bool {
        self.state().capabilities["_meta"]["tribune"]["events"] == true
    }
}
