//! One WebSocket connection: reads requests, answers them, and sends events as fast as its reader takes them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tribune_runtime::SessionKey;
use tribune_sessions::session::{Subscription, TurnHandle};

use super::active_streams::{Flowing, Streaming};
use super::api_types::{AuthAgent, AuthToken, Challenge, Following, SessionEvents, TurnRun, Unfollow};
use super::connection_limit::ConnectionSlot;
use super::error::ApiError;
use super::principal::{Principal, hex};
use super::rpc::{Frame, Request};
use super::runs::Leases;
use super::send_queue::{SendQueue, SendReceiver, send_queue};
use super::workspaces::WorkspaceLand;
use super::{Gateway, Timeouts, rpc, send_queue};

/// How often the other side is asked whether it is still there.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Requests of one connection that are being answered, and sessions it follows.
const MAX_IN_FLIGHT: usize = 64;

/// Answers waiting for room in the outbox; beyond them no more requests are read.
const MAX_LATE: usize = 64;

/// Events taken from a session in one go.
const EVENTS_AT_ONCE: usize = 64;

/// Wrong attempts to authenticate on one connection.
const MAX_AUTH_FAILURES: u32 = 5;

/// How long a connection has for its last answers when the daemon stops. The daemon waits a little longer.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Close codes of ours, in the range that is left to applications.
const CLOSE_UNAUTHENTICATED: u16 = 4401;
const CLOSE_IDLE: u16 = 4408;

/// What a connection is told whose place someone else needs.
const EVICTED: &str = "gateway.maxConnections are open, and only those who are known keep theirs";

/// Serves one connection until either side ends it.
pub(super) async fn serve(
    gateway: Arc<Gateway>,
    socket: WebSocket,
    principal: Option<Principal>,
    seat: Arc<ConnectionSlot>,
) {
    gateway.metrics.connected();
    let (outbox, frames) = send_queue();
    let connection = Connection {
        gateway: Arc::clone(&gateway),
        outbox,
        tasks: JoinSet::new(),
        late: JoinSet::new(),
        followed: HashMap::new(),
        streaming: Streaming::default(),
        turns: HashMap::new(),
        leases: Leases::default(),
        next_subscription: 1,
        principal,
        nonce: None,
        auth_failures: 0,
        seat,
    };
    connection.run(socket, frames).await;
    gateway.metrics.disconnected();
}

struct Connection {
    gateway: Arc<Gateway>,
    outbox: SendQueue<String>,
    tasks: JoinSet<()>,
    /// Answers that found the outbox full.
    late: JoinSet<()>,
    /// Subscriptions, by their number; those that ended are let go.
    followed: HashMap<u64, AbortHandle>,
    /// Sessions whose events already flow through this connection.
    streaming: Streaming,
    /// The newest turn of each session that was asked for here; cancelled when everything of it was sent.
    turns: HashMap<String, CancellationToken>,
    /// What runs in boxes as long as this connection is there.
    leases: Leases,
    next_subscription: u64,
    principal: Option<Principal>,
    nonce: Option<String>,
    auth_failures: u32,
    /// Its place among all connections.
    seat: Arc<ConnectionSlot>,
}

/// Why a connection ends from our side.
fn goodbye(code: u16, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: Utf8Bytes::from_static(reason) }
}

impl Connection {
    async fn run(mut self, socket: WebSocket, mut frames: SendReceiver<String>) {
        let (mut sink, mut stream) = socket.split();
        let opened = Instant::now();
        let mut heard = Instant::now();
        let mut ping = tokio::time::interval_at(opened + PING_EVERY, PING_EVERY);
        let idle = self.gateway.limits.idle;
        let Timeouts { authenticate, slow_reader, .. } = self.gateway.limits.patience;
        let stopping = self.gateway.stopping.clone();
        let seat = Arc::clone(&self.seat);
        let end: Option<CloseFrame> = loop {
            let must_authenticate = self.principal.is_none();
            let patience = heard + idle;
            // Not biased: a session that streams without a pause must not keep a cancel from being heard.
            let step = tokio::select! {
                Some(frame) = frames.recv() => {
                    match send_all(&mut sink, frame, &mut frames, slow_reader).await {
                        Ok(()) => Ok(()),
                        Err(()) => break None,
                    }
                }
                message = stream.next(), if self.late.len() < MAX_LATE => {
                    heard = Instant::now();
                    match message {
                        None => break None,
                        Some(Ok(message)) => self.received(message).await,
                        Some(Err(error)) => Err(refusal(&error)),
                    }
                }
                _ = ping.tick() => match send(&mut sink, Message::Ping(Default::default()), slow_reader).await {
                    Ok(()) => Ok(()),
                    Err(()) => break None,
                },
                () = tokio::time::sleep_until(opened + authenticate), if must_authenticate => {
                    Err(goodbye(CLOSE_UNAUTHENTICATED, "authenticate first: auth.token or auth.agent"))
                }
                () = tokio::time::sleep_until(patience) => {
                    Err(goodbye(CLOSE_IDLE, "nothing was heard for longer than gateway.idleSeconds"))
                }
                () = seat.gone() => {
                    // At once: whoever comes in numbers must not hold more connections than there are places.
                    let _ = sink.send(Message::Close(Some(goodbye(close_code::AGAIN, EVICTED)))).now_or_never();
                    break None;
                }
                // Joined as they end, so that the set does not grow.
                Some(_) = self.tasks.join_next(), if !self.tasks.is_empty() => Ok(()),
                Some(_) = self.late.join_next(), if !self.late.is_empty() => Ok(()),
                () = stopping.cancelled() => Err(goodbye(close_code::AWAY, "the daemon is stopping")),
            };
            if let Err(end) = step {
                break Some(end);
            }
        };
        if stopping.is_cancelled() {
            let _ = timeout(LAST_ANSWERS, self.last_answers(&mut sink, &mut frames, slow_reader)).await;
        }
        // Turns go on without their listener; only the sending ends.
        self.tasks.abort_all();
        if let Some(end) = end {
            // What was answered already still goes out, as far as the reader takes it.
            while let Some(frame) = frames.try_recv() {
                if send(&mut sink, Message::Text(frame.into()), slow_reader).await.is_err() {
                    return;
                }
            }
            let _ = send(&mut sink, Message::Close(Some(end)), slow_reader).await;
            // The other side answers with its own close; what it still says until then is not heard.
            let _ = timeout(Duration::from_secs(1), async { while let Some(Ok(_)) = stream.next().await {} })
                .await;
        }
    }

    /// The daemon stops, so turns are over; whoever waits for one still gets its last events and its answer.
    async fn last_answers(
        &mut self,
        sink: &mut Sink,
        frames: &mut SendReceiver<String>,
        slow_reader: Duration,
    ) {
        // What is merely followed has no end.
        self.followed.values().for_each(AbortHandle::abort);
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(frame) = frames.recv() => {
                    if send(sink, Message::Text(frame.into()), slow_reader).await.is_err() {
                        return;
                    }
                }
                _ = self.tasks.join_next() => {}
            }
        }
    }

    async fn received(&mut self, message: Message) -> Result<(), CloseFrame> {
        match message {
            Message::Text(text) => self.frame(text.as_str()).await,
            Message::Binary(_) => Err(goodbye(close_code::UNSUPPORTED, "text frames only")),
            Message::Ping(_) | Message::Pong(_) => Ok(()),
            Message::Close(_) => Err(goodbye(close_code::NORMAL, "")),
        }
    }

    async fn frame(&mut self, text: &str) -> Result<(), CloseFrame> {
        let request = match rpc::read(text) {
            Frame::Notification => return Ok(()),
            Frame::Refused(answer) => {
                self.gateway.metrics.request("invalid", false);
                self.say(answer);
                return Ok(());
            }
            Frame::Request(request) => request,
        };
        let id = request.id.get().to_owned();
        let answer = self.answer(&request).await;
        let known = rpc::METHODS.contains(&request.method.as_str());
        let method = if known { request.method.as_str() } else { "unknown" };
        self.gateway.metrics.request(method, !matches!(answer, Answer::Now(Err(_))));
        if let Answer::Now(result) = answer {
            self.say(match &result {
                Ok(result) => rpc::success(&id, result),
                Err(error) => rpc::failure(&id, error),
            });
            if self.auth_failures >= MAX_AUTH_FAILURES {
                return Err(goodbye(CLOSE_UNAUTHENTICATED, "too many wrong attempts"));
            }
        }
        Ok(())
    }

    /// Queues a frame. The connection's own loop empties the queue, so this must never wait for it.
    fn say(&mut self, frame: String) {
        if let Err(frame) = self.outbox.try_send(frame) {
            let outbox = self.outbox.clone();
            // The reader is behind; the answer waits in line like everything else.
            self.late.spawn(async move {
                let _ = outbox.send(frame).await;
            });
        }
    }

    async fn answer(&mut self, request: &Request<'_>) -> Answer {
        let answered = match request.method.as_str() {
            "auth.challenge" => request.no_params().and_then(|()| self.challenge()),
            "auth.token" => match request.params::<AuthToken>() {
                Ok(auth) => self.authenticated(self.gateway.doorman.check_token(&auth.token)),
                Err(error) => Err(error),
            },
            "auth.agent" => match request.params::<AuthAgent>() {
                Ok(proof) => {
                    let checked = self.check_agent(&proof);
                    self.authenticated(checked)
                }
                Err(error) => Err(error),
            },
            _ => {
                let Some(who) = self.principal.clone() else {
                    return Answer::Now(Err(ApiError::unauthorized()));
                };
                let method = request.method.as_str();
                if matches!(who, Principal::Approver(_)) && !rpc::APPROVER_METHODS.contains(&method) {
                    let what = "an approver decides about calls and grants, and can do nothing else";
                    return Answer::Now(Err(ApiError::forbidden(what)));
                }
                match method {
                    "turn.run" => return self.turn_run(who, request).await,
                    "session.events" => self.follow(&who, request).await,
                    "session.unfollow" => self.unfollow(request),
                    "workspace.land" => return self.land(who, request),
                    "run.open" | "run.started" | "run.ended" => {
                        self.leases.answer(&self.gateway.api, &who, request).await
                    }
                    _ => rpc::answer(&self.gateway.api, &who, request).await,
                }
            }
        };
        Answer::Now(answered)
    }

    fn challenge(&mut self) -> Result<Value, ApiError> {
        let mut nonce = [0_u8; 32];
        getrandom::fill(&mut nonce).map_err(|error| ApiError::new("internal", error.to_string()))?;
        let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        self.nonce = Some(nonce.clone());
        rpc::value(Challenge { nonce, audience: self.gateway.doorman.audience().to_owned() })
    }

    fn check_agent(&mut self, proof: &AuthAgent) -> Result<Principal, ApiError> {
        // A nonce is good for one attempt.
        let nonce = self.nonce.take().filter(|nonce| hex::<32>(nonce).is_some());
        let nonce = nonce.ok_or_else(|| ApiError::params("ask for a challenge first: auth.challenge"))?;
        self.gateway.doorman.check_agent(&nonce, proof, &self.gateway.api.agents)
    }

    fn authenticated(&mut self, checked: Result<Principal, ApiError>) -> Result<Value, ApiError> {
        match checked {
            Ok(principal) => {
                // Whoever this was before: what it follows was allowed to it, not to the new one.
                self.tasks.abort_all();
                self.followed.clear();
                self.leases = Leases::default();
                // A task that is told to end may do so later; what it holds counts no more.
                self.streaming = Streaming::default();
                self.seat.is_of(principal.standing());
                let described = principal.describe(&self.gateway.api.agents);
                self.principal = Some(principal);
                rpc::value(described)
            }
            Err(error) => {
                self.gateway.metrics.auth_failed();
                self.auth_failures += 1;
                Err(error)
            }
        }
    }

    fn in_flight(&self) -> Result<(), ApiError> {
        if self.tasks.len() < MAX_IN_FLIGHT {
            return Ok(());
        }
        Err(ApiError::new(
            "too_many_requests",
            format!("a connection has at most {MAX_IN_FLIGHT} turns and subscriptions at once: open another"),
        ))
    }

    /// Takes a turn's place in the queue of its session now, so that turns run in the order in which they were asked
    /// for; waits for it beside the connection: its events, then the answer.
    async fn turn_run(&mut self, who: Principal, request: &Request<'_>) -> Answer {
        let queued = async {
            self.in_flight()?;
            let TurnRun { session_key, input, wait } = request.params()?;
            let (key, ticket) = self.gateway.api.turn_run(&who, &session_key, input.content).await?;
            Ok(Queued { key, ticket, wait })
        };
        let queued = match queued.await {
            Ok(queued) => queued,
            Err(error) => return Answer::Now(Err(error)),
        };
        let (gateway, outbox) = (Arc::clone(&self.gateway), self.outbox.clone());
        let streaming = self.streaming.clone();
        let id = request.id.get().to_owned();
        let (before, sent) = self.take_turn(queued.key.as_str());
        self.tasks.spawn(async move {
            // Dropped at the end, however it comes: the next turn of the session may be sent.
            let _sent = sent.drop_guard();
            before.cancelled().await;
            let answer = match turn(&gateway, queued, &outbox, &streaming).await {
                Ok(result) => rpc::success(&id, &result),
                Err(error) => rpc::failure(&id, &error),
            };
            let _ = outbox.send(answer).await;
        });
        Answer::Later
    }

    /// Lands changes beside the connection: a person may have to decide first.
    fn land(&mut self, who: Principal, request: &Request<'_>) -> Answer {
        let asked = match self.in_flight().and_then(|()| request.params::<WorkspaceLand>()) {
            Ok(asked) => asked,
            Err(error) => return Answer::Now(Err(error)),
        };
        let (gateway, outbox) = (Arc::clone(&self.gateway), self.outbox.clone());
        let id = request.id.get().to_owned();
        self.tasks.spawn(async move {
            let answer = match gateway.api.workspace_land(&who, asked).await.and_then(rpc::value) {
                Ok(result) => rpc::success(&id, &result),
                Err(error) => rpc::failure(&id, &error),
            };
            let _ = outbox.send(answer).await;
        });
        Answer::Later
    }

    /// A session's turns are sent one behind the other. Returns what to wait for, and what the next one waits for.
    fn take_turn(&mut self, key: &str) -> (CancellationToken, CancellationToken) {
        let sent = CancellationToken::new();
        if self.turns.len() > MAX_IN_FLIGHT {
            self.turns.retain(|_, sent| !sent.is_cancelled());
        }
        let before = self.turns.insert(key.to_owned(), sent.clone()).unwrap_or_else(|| {
            let nothing = CancellationToken::new();
            nothing.cancel();
            nothing
        });
        (before, sent)
    }

    async fn follow(&mut self, who: &Principal, request: &Request<'_>) -> Result<Value, ApiError> {
        let asked: SessionEvents = request.params()?;
        let api = &self.gateway.api;
        if !asked.follow {
            return rpc::value(api.session_events(who, &asked.session_key, asked.after, asked.limit).await?);
        }
        if asked.limit.is_some() {
            return Err(ApiError::params("limit goes with `follow: false`"));
        }
        self.in_flight()?;
        let (key, subscription) = api.subscribe(who, &asked.session_key, asked.after).await?;
        let (_, last_seq) = api.sessions.live(&key).await?;
        let number = self.next_subscription;
        self.next_subscription += 1;
        let (outbox, name) = (self.outbox.clone(), key.to_string());
        let flowing = self.streaming.begin(number, &subscription);
        let task = self.tasks.spawn(follow(subscription, name, number, outbox, flowing));
        self.followed.retain(|_, task| !task.is_finished());
        self.followed.insert(number, task);
        rpc::value(Following { subscription: number, last_seq })
    }

    fn unfollow(&mut self, request: &Request<'_>) -> Result<Value, ApiError> {
        let Unfollow { subscription } = request.params()?;
        if !(1..self.next_subscription).contains(&subscription) {
            return Err(ApiError::new("not_found", "there is no such subscription on this connection"));
        }
        // One that ended by itself meanwhile is what was asked for.
        if let Some(task) = self.followed.remove(&subscription) {
            task.abort();
        }
        // Before the answer, not when the task gets round to it: the next turn is streamed.
        self.streaming.end(subscription);
        rpc::value(rpc::DONE)
    }
}

enum Answer {
    Now(Result<Value, ApiError>),
    /// A task sends it.
    Later,
}

/// A turn that has its place in the queue.
struct Queued {
    key: SessionKey,
    ticket: TurnHandle,
    wait: bool,
}

/// Waits for a turn and sends its events, unless they flow through this connection already.
async fn turn(
    gateway: &Gateway,
    Queued { key, mut ticket, wait }: Queued,
    outbox: &SendQueue<String>,
    streaming: &Streaming,
) -> Result<Value, ApiError> {
    let api = &gateway.api;
    if !wait || streaming.flows(&ticket) {
        return rpc::value(api.turn_result(key, ticket, wait).await?);
    }
    let accepted = ticket.accepted().await?;
    if let Some(events) = ticket.events(&accepted) {
        pump_turn(events, key.as_str(), outbox).await?;
    }
    let end = ticket.ended().await?;
    rpc::value(super::api_types::TurnResult {
        session_key: key.to_string(),
        turn: accepted.turn,
        first_seq: accepted.first_seq,
        last_seq: Some(end.last_seq),
        stop_reason: Some(end.stop_reason.as_str().to_owned()),
        usage: Some(end.usage),
    })
}

/// Sends the events of one turn, to its `done`.
async fn pump_turn(
    mut subscription: Subscription,
    key: &str,
    outbox: &SendQueue<String>,
) -> Result<(), ApiError> {
    loop {
        let events = subscription.next(EVENTS_AT_ONCE).await?;
        if events.is_empty() {
            return Ok(());
        }
        for event in events {
            let is_last = event.is_done();
            if outbox.send(rpc::notification(key, None, &event.json)).await.is_err() || is_last {
                return Ok(());
            }
        }
    }
}

/// Sends a session's events at the reader's pace, until it is closed.
async fn follow(
    mut subscription: Subscription,
    key: String,
    number: u64,
    outbox: SendQueue<String>,
    flowing: Flowing,
) {
    let end = loop {
        let events = match subscription.next(EVENTS_AT_ONCE).await {
            Ok(events) if events.is_empty() => break None,
            Ok(events) => events,
            Err(error) => break Some(ApiError::from(error)),
        };
        for event in events {
            if outbox.send(rpc::notification(&key, Some(number), &event.json)).await.is_err() {
                return;
            }
        }
    };
    drop(flowing);
    let _ = outbox.send(rpc::ended(&key, number, end.as_ref())).await;
}

type Sink = futures_util::stream::SplitSink<WebSocket, Message>;

/// Sends a frame to a reader that takes it in time.
async fn send(sink: &mut Sink, message: Message, within: Duration) -> Result<(), ()> {
    match timeout(within, sink.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(()),
    }
}

/// Sends a frame and those that wait behind it, in one go.
async fn send_all(
    sink: &mut Sink,
    first: String,
    waiting: &mut SendReceiver<String>,
    within: Duration,
) -> Result<(), ()> {
    let sending = async {
        sink.feed(Message::Text(first.into())).await?;
        for _ in 0..send_queue::FRAMES {
            let Some(frame) = waiting.try_recv() else { break };
            sink.feed(Message::Text(frame.into())).await?;
        }
        sink.flush().await
    };
    match timeout(within, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(()),
    }
}

/// What to say about a frame that could not even be read.
fn refusal(error: &axum::Error) -> CloseFrame {
    let text = error.to_string();
    if text.contains("too long") || text.contains("too big") || text.contains("too large") {
        return goodbye(close_code::SIZE, "the frame is larger than gateway.maxMessageBytes");
    }
    if text.to_lowercase().contains("utf-8") || text.to_lowercase().contains("utf8") {
        return goodbye(close_code::INVALID, "a text frame must be UTF-8");
    }
    goodbye(close_code::PROTOCOL, "the frame is not WebSocket")
}
