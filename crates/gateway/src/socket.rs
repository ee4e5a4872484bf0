//! One WebSocket connection of Tribune RPC: reads requests, answers them, and sends events as fast as the reader takes them.

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

use crate::active_streams::{ActiveStream, ActiveStreams};
use crate::api_types::{
    AuthAgent, AuthDaemon, AuthToken, Challenge, Following, SessionEvents, TurnResult, TurnRun, Unfollow,
};
use crate::calls::workspaces::WorkspaceLand;
use crate::connection_limit::{ConnectionSlot, TOO_MUCH_UNPROVEN};
use crate::error::ApiError;
use crate::gateway::{Gateway, Timeouts};
use crate::principal::{Principal, hex};
use crate::rpc::{Frame, Request};
use crate::runs::Leases;
use crate::send_queue::{SendQueue, SendReceiver, send_queue};
use crate::{methods, rpc, send_queue};

/// Interval of WebSocket pings.
const PING_EVERY: Duration = Duration::from_secs(30);

/// Turns, landings and subscriptions of one connection at once.
const MAX_IN_FLIGHT: usize = 64;

/// Answers that wait for space in the send queue; beyond this many, no more requests are read.
const MAX_LATE: usize = 64;

/// Events read from a session in one batch.
const EVENTS_AT_ONCE: usize = 64;

/// Failed attempts to authenticate on one connection.
const MAX_AUTH_FAILURES: u32 = 5;

/// How long a connection has to send its last answers when the daemon stops. The daemon waits a little longer.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Close codes of Tribune, in the range that RFC 6455 leaves to applications.
const CLOSE_UNAUTHENTICATED: u16 = 4401;
const CLOSE_IDLE: u16 = 4408;

/// The close reason of a connection that is evicted. RFC 6455 limits it to 123 bytes.
const EVICTED: &str = "connection limit reached: unauthenticated connections are closed first";

/// Serves one connection until either side closes it.
pub(super) async fn serve(
    gateway: Arc<Gateway>,
    socket: WebSocket,
    principal: Option<Principal>,
    slot: Arc<ConnectionSlot>,
) {
    gateway.metrics.connected();
    let (queue, frames) = send_queue();
    let connection = Connection {
        gateway: Arc::clone(&gateway),
        queue,
        tasks: JoinSet::new(),
        late: JoinSet::new(),
        followed: HashMap::new(),
        active_streams: ActiveStreams::default(),
        turns: HashMap::new(),
        leases: Leases::default(),
        next_subscription: 1,
        principal,
        nonce: None,
        auth_failures: 0,
        slot,
    };
    connection.run(socket, frames).await;
    gateway.metrics.disconnected();
}

struct Connection {
    gateway: Arc<Gateway>,
    queue: SendQueue<String>,
    tasks: JoinSet<()>,
    /// Answers that found the send queue full.
    late: JoinSet<()>,
    /// Subscriptions, by number. Ended ones are removed.
    followed: HashMap<u64, AbortHandle>,
    /// Sessions whose events this connection already streams.
    active_streams: ActiveStreams,
    /// The newest turn of each session that this connection requested; cancelled when all of it was sent.
    turns: HashMap<String, CancellationToken>,
    /// Sandboxed runs, which are released when this connection ends.
    leases: Leases,
    next_subscription: u64,
    principal: Option<Principal>,
    nonce: Option<String>,
    auth_failures: u32,
    /// Its slot in the connection limit.
    slot: Arc<ConnectionSlot>,
}

/// Why the daemon closes a connection.
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
        let Timeouts { authenticate, slow_reader, .. } = self.gateway.limits.timeouts;
        let stopping = self.gateway.stopping.clone();
        let slot = Arc::clone(&self.slot);
        slot.is_websocket();
        let end: Option<CloseFrame> = loop {
            let must_authenticate = self.principal.is_none();
            let idle_deadline = heard + idle;
            // Not biased: a session that streams without a pause must not keep a cancel request from being read.
            let step = tokio::select! {
                Some(frame) = frames.recv() => {
                    match send_all(&mut sink, frame, &mut frames, slow_reader).await {
                        Ok(()) => Ok(()),
                        Err(()) => break None,
                    }
                }
                message = stream.next(), if self.late.len() < MAX_LATE => {
                    heard = Instant::now();
                    slot.handled();
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
                () = tokio::time::sleep_until(idle_deadline) => {
                    Err(goodbye(CLOSE_IDLE, "nothing was heard for longer than gateway.idleSeconds"))
                }
                () = slot.gone() => {
                    // Without waiting: evicted connections must not stay open beyond the limit.
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
        // Turns continue without this connection; only the sending ends.
        self.tasks.abort_all();
        if let Some(end) = end {
            // Answers that are already queued are still sent, as far as the reader takes them.
            while let Some(frame) = frames.try_recv() {
                if send(&mut sink, Message::Text(frame.into()), slow_reader).await.is_err() {
                    return;
                }
            }
            let _ = send(&mut sink, Message::Close(Some(end)), slow_reader).await;
            // The peer answers with its own close frame; frames before that are discarded.
            let _ = timeout(Duration::from_secs(1), async { while let Some(Ok(_)) = stream.next().await {} })
                .await;
        }
    }

    /// The daemon stops and turns have ended: sends the last events and the answers of requests that wait for a turn.
    async fn last_answers(
        &mut self,
        sink: &mut Sink,
        frames: &mut SendReceiver<String>,
        slow_reader: Duration,
    ) {
        // Subscriptions have no end of their own.
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
                self.enqueue(answer);
                return Ok(());
            }
            Frame::Request(request) => request,
        };
        let answer = self.answer(&request).await;
        let known = methods::METHODS.contains(&request.method.as_str());
        let method = if known { request.method.as_str() } else { "unknown" };
        self.gateway.metrics.request(method, !matches!(answer, Answer::Now(Err(_))));
        if let Answer::Now(result) = answer {
            self.enqueue(rpc::response(&request.id, &result));
            if self.auth_failures >= MAX_AUTH_FAILURES {
                return Err(goodbye(CLOSE_UNAUTHENTICATED, "too many wrong attempts"));
            }
        }
        Ok(())
    }

    /// Queues a frame. The connection's own loop drains the queue, so this must never wait for space in it.
    fn enqueue(&mut self, frame: String) {
        if let Err(frame) = self.queue.try_send(frame) {
            let queue = self.queue.clone();
            // The reader is slow: a task waits for space.
            self.late.spawn(async move {
                let _ = queue.send(frame).await;
            });
        }
    }

    async fn answer(&mut self, request: &Request<'_>) -> Answer {
        let answered = match request.method.as_str() {
            "auth.challenge" => request.no_params().and_then(|()| self.challenge()),
            "auth.token" => match request.params::<AuthToken>() {
                Ok(auth) => self.authenticated(self.gateway.authenticator.check_token(&auth.token)),
                Err(error) => Err(error),
            },
            "auth.daemon" => match request.params::<AuthDaemon>() {
                Ok(asked) => {
                    let address = self.gateway.api.status.address;
                    let proven = self.gateway.authenticator.prove_daemon(&asked, address);
                    self.count_failure(proven).and_then(rpc::value)
                }
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
                if let Err(error) = self.gateway.guest_rate.take(&who) {
                    return Answer::Now(Err(error));
                }
                if matches!(who, Principal::Approver(_)) && !methods::APPROVER_METHODS.contains(&method) {
                    let what = "an approver decides about calls and grants, and may do nothing else";
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
                    _ => methods::answer(&self.gateway.api, &who, request).await,
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
        rpc::value(Challenge { nonce, audience: self.gateway.authenticator.audience().to_owned() })
    }

    fn check_agent(&mut self, proof: &AuthAgent) -> Result<Principal, ApiError> {
        // A nonce is good for one attempt.
        let nonce = self.nonce.take().filter(|nonce| hex::<32>(nonce).is_some());
        let nonce = nonce.ok_or_else(|| ApiError::params("ask for a challenge first: auth.challenge"))?;
        let is_admitted = self.principal.is_some();
        self.gateway.authenticator.check_agent(&nonce, proof, &self.gateway.api.agents, is_admitted)
    }

    fn authenticated(&mut self, checked: Result<Principal, ApiError>) -> Result<Value, ApiError> {
        match checked {
            Ok(principal) => {
                // Subscriptions and runs were authorized for the previous principal, not for the new one.
                self.tasks.abort_all();
                self.followed.clear();
                self.leases = Leases::default();
                // An aborted task may end later; the stream it marked as active no longer counts.
                self.active_streams = ActiveStreams::default();
                self.slot.is_of(principal.tier());
                let described = principal.describe(&self.gateway.api.agents);
                self.principal = Some(principal);
                rpc::value(described)
            }
            Err(error) => self.count_failure(Err(error)),
        }
    }

    /// Counts a failed attempt to authenticate.
    fn count_failure<T>(&mut self, checked: Result<T, ApiError>) -> Result<T, ApiError> {
        if checked.is_err() {
            self.gateway.metrics.auth_failed();
            self.auth_failures += 1;
        }
        checked
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

    /// Queues the turn in its session now, so that turns run in the order of their requests. A task then sends its events
    /// and its answer, so that the connection reads on.
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
        let (gateway, queue) = (Arc::clone(&self.gateway), self.queue.clone());
        let active_streams = self.active_streams.clone();
        let id = request.id.clone();
        let (before, sent) = self.take_turn(queued.key.as_str());
        self.tasks.spawn(async move {
            // Dropped at the end, also when the task is aborted: the next turn of the session may then be sent.
            let _sent = sent.drop_guard();
            before.cancelled().await;
            let answer = turn(&gateway, queued, &queue, &active_streams).await;
            let _ = queue.send(rpc::response(&id, &answer)).await;
        });
        Answer::Later
    }

    /// Lands changes in a task, so that the connection reads on: a person may have to decide first.
    fn land(&mut self, who: Principal, request: &Request<'_>) -> Answer {
        let asked = match self.in_flight().and_then(|()| request.params::<WorkspaceLand>()) {
            Ok(asked) => asked,
            Err(error) => return Answer::Now(Err(error)),
        };
        let (gateway, queue) = (Arc::clone(&self.gateway), self.queue.clone());
        let id = request.id.clone();
        self.tasks.spawn(async move {
            let answer = gateway.api.workspace_land(&who, asked).await.and_then(rpc::value);
            let _ = queue.send(rpc::response(&id, &answer)).await;
        });
        Answer::Later
    }

    /// A session's turns are sent one after the other. Returns the token of the previous turn, to wait for, and the token of
    /// this one, which the next turn waits for.
    fn take_turn(&mut self, key: &str) -> (CancellationToken, CancellationToken) {
        let sent = CancellationToken::new();
        if self.turns.len() > MAX_IN_FLIGHT {
            self.turns.retain(|_, sent| !sent.is_cancelled());
        }
        let before = self.turns.insert(key.to_owned(), sent.clone()).unwrap_or_else(|| {
            let no_turn = CancellationToken::new();
            no_turn.cancel();
            no_turn
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
        let (queue, name) = (self.queue.clone(), key.to_string());
        let active = self.active_streams.begin(number, &subscription);
        let task = self.tasks.spawn(follow(subscription, name, number, queue, active));
        self.followed.retain(|_, task| !task.is_finished());
        self.followed.insert(number, task);
        rpc::value(Following { subscription: number, last_seq })
    }

    fn unfollow(&mut self, request: &Request<'_>) -> Result<Value, ApiError> {
        let Unfollow { subscription } = request.params()?;
        if !(1..self.next_subscription).contains(&subscription) {
            return Err(ApiError::new("not_found", "there is no such subscription on this connection"));
        }
        // A subscription that has ended by itself is a success too.
        if let Some(task) = self.followed.remove(&subscription) {
            task.abort();
        }
        // Before the answer and not when the task ends: the next turn must send its own events.
        self.active_streams.end(subscription);
        rpc::value(rpc::DONE)
    }
}

enum Answer {
    Now(Result<Value, ApiError>),
    /// A task sends the answer.
    Later,
}

/// A turn that is queued in its session.
struct Queued {
    key: SessionKey,
    ticket: TurnHandle,
    wait: bool,
}

/// Waits for a turn and sends its events, unless a subscription of this connection already sends them.
async fn turn(
    gateway: &Gateway,
    Queued { key, mut ticket, wait }: Queued,
    queue: &SendQueue<String>,
    active_streams: &ActiveStreams,
) -> Result<Value, ApiError> {
    let api = &gateway.api;
    if !wait || active_streams.delivers(&ticket) {
        return rpc::value(api.turn_result(key, ticket, wait).await?);
    }
    let accepted = ticket.accepted().await?;
    if let Some(events) = ticket.events(&accepted) {
        send_turn(events, key.as_str(), queue).await?;
    }
    let end = ticket.ended().await?;
    rpc::value(TurnResult {
        session_key: key.to_string(),
        turn: accepted.turn,
        first_seq: accepted.first_seq,
        last_seq: Some(end.last_seq),
        stop_reason: Some(end.stop_reason.as_str().to_owned()),
        usage: Some(end.usage),
    })
}

/// Sends the events of one turn, up to its `done`.
async fn send_turn(
    mut subscription: Subscription,
    key: &str,
    queue: &SendQueue<String>,
) -> Result<(), ApiError> {
    loop {
        let events = subscription.next(EVENTS_AT_ONCE).await?;
        if events.is_empty() {
            return Ok(());
        }
        for event in events {
            let is_last = event.is_done();
            if queue.send(rpc::notification(key, None, &event.json)).await.is_err() || is_last {
                return Ok(());
            }
        }
    }
}

/// Sends a session's events at the reader's pace, until the session is closed.
async fn follow(
    mut subscription: Subscription,
    key: String,
    number: u64,
    queue: SendQueue<String>,
    active: ActiveStream,
) {
    let end = loop {
        let events = match subscription.next(EVENTS_AT_ONCE).await {
            Ok(events) if events.is_empty() => break None,
            Ok(events) => events,
            Err(error) => break Some(ApiError::from(error)),
        };
        for event in events {
            if queue.send(rpc::notification(&key, Some(number), &event.json)).await.is_err() {
                return;
            }
        }
    };
    drop(active);
    let _ = queue.send(rpc::ended(&key, number, end.as_ref())).await;
}

type Sink = futures_util::stream::SplitSink<WebSocket, Message>;

/// Sends a frame; fails if the reader does not take it in time.
async fn send(sink: &mut Sink, message: Message, within: Duration) -> Result<(), ()> {
    match timeout(within, sink.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(()),
    }
}

/// Sends a frame and those queued behind it, with one flush.
async fn send_all(
    sink: &mut Sink,
    first: String,
    queued: &mut SendReceiver<String>,
    within: Duration,
) -> Result<(), ()> {
    let sending = async {
        sink.feed(Message::Text(first.into())).await?;
        for _ in 0..send_queue::FRAMES {
            let Some(frame) = queued.try_recv() else { break };
            sink.feed(Message::Text(frame.into())).await?;
        }
        sink.flush().await
    };
    match timeout(within, sending).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(()),
    }
}

/// The close frame for a WebSocket frame that could not be read.
fn refusal(error: &axum::Error) -> CloseFrame {
    let text = error.to_string();
    if text.contains(TOO_MUCH_UNPROVEN) {
        return goodbye(
            close_code::SIZE,
            "a frame has at most 64 KiB before authentication, and from guests",
        );
    }
    if text.contains("too long") || text.contains("too big") || text.contains("too large") {
        return goodbye(close_code::SIZE, "the frame is larger than gateway.maxMessageBytes");
    }
    if text.to_lowercase().contains("utf-8") || text.to_lowercase().contains("utf8") {
        return goodbye(close_code::INVALID, "a text frame must be UTF-8");
    }
    goodbye(close_code::PROTOCOL, "the frame is not WebSocket")
}
