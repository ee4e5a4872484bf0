//! Telling a client what happens in its sessions, in order and each thing once.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_runtime::{RuntimeEvent, SessionKey};
use tribune_sessions::session::{SessionError, Subscription};
use tribune_storage::vault::StoredEvent;
use tribune_tools::mcp::Bringing;

use super::client_session::{ClientSession, Prefetched};
use super::connection::Connection;
use super::replay::{Reach, Words};
use super::update_mapper::{AcpMessage, Question, UpdateMapper, chunk};
use super::wire::Fault;
use super::{replay, slash_commands, wire};

/// Events taken from a session in one go.
pub(super) const EVENTS_AT_ONCE: usize = 64;

/// Whether something happens now, or is told again to someone who was not there.
#[derive(Debug, Clone, Copy)]
pub(super) enum When<'a> {
    Now,
    /// With what was said then.
    Before(&'a Words),
}

/// What an event says of a question.
#[derive(Debug)]
pub(super) enum Matter {
    Asked(Box<Question>),
    /// It is over.
    Decided(String),
}

impl Connection {
    /// Opens a seat's session if it is not, and follows it if nobody does.
    pub(super) async fn attach(self: &Arc<Self>, seat: &Arc<ClientSession>) -> Result<SessionKey, Fault> {
        let _attaching = seat.attaching.lock().await;
        self.follow_from_here(seat);
        let place = seat.place().clone();
        if !seat.told.borrow().is_over {
            // Whoever follows it would know if it were closed. Servers end when everything is stopped, and come back with the next
            // words after that.
            if !self.gateway.api.sessions.governance().gate.is_frozen() {
                let not_there = self.bring_servers(&place, Bringing::IfNone).await;
                self.say(seat, not_there).await;
            }
            return Ok(place.key);
        }
        let (folder, _) = self.open(&place).await?;
        let not_there = self.bring_servers(&place, Bringing::IfNone).await;
        seat.place().left_out.extend(not_there);
        let after = seat.told.borrow().seq;
        let anew = seat.follow_anew(after);
        let subscription = self.gateway.api.sessions.subscribe(&place.key, Some(after)).await?;
        anew.with(subscription, UpdateMapper::new(&folder));
        seat.place().folder = folder;
        self.follow_from_here(seat);
        Ok(place.key)
    }

    /// Begins to tell what happens in a session, if that was prepared and nobody does it.
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

    /// Says sentences as what the agent says: a word beside it is easily overlooked.
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
                    let what =
                        format!("events before {oldest} are no longer kept, so that some are missing here");
                    self.notice(seat, &what).await;
                    let key = seat.key();
                    match self.gateway.api.sessions.subscribe(&key, Some(oldest - 1)).await {
                        Ok(again) => subscription = again,
                        Err(_) => break,
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "an ACP client could not be told of its session any further");
                    break;
                }
            }
        }
    }

    /// Tells of one event. Returns what it says of questions.
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
        // A kind of event that this version does not know has no form here either.
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

    /// Learns from one event what is to be known of it later, and tells nothing.
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

    /// Shows what a turn began with to those who did not say it.
    async fn began(self: &Arc<Self>, seat: &Arc<ClientSession>, turn: &str, when: When<'_>) {
        let now;
        let words = match when {
            When::Before(words) => words,
            When::Now => {
                // A turn of the client's own may begin before its name is known here.
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

    /// A word to people that is not the agent's.
    pub(super) async fn notice(&self, seat: &ClientSession, text: &str) {
        let takes_notices = self.state().capabilities["session"]["notices"].is_object();
        let update = match (takes_notices, chunk("agent_thought_chunk", text)) {
            (false, AcpMessage::Update(update)) => update,
            _ => json!({ "sessionUpdate": "notice", "severity": "warning", "title": text }),
        };
        self.update(&seat.id, &update).await;
    }

    /// Whether the client wants to hear everything, in the house's own form too.
    fn wants_events(&self) -> bool {
        self.state().capabilities["_meta"]["tribune"]["events"] == true
    }
}
