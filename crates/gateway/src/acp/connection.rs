//! One ACP connection. Every request is answered in its own task, so that a cancel is processed while a prompt runs. Everything
//! sent to the client goes through one ordered queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_json_rpc::RequestId;
use tribune_runtime::{AgentId, SessionKey};

use super::client_session::ClientSession;
use super::wire::{Fault, Incoming};
use super::{prompt, wire};
use crate::gateway::Gateway;
use crate::principal::Principal;
use crate::send_queue::{Frame, SendQueue, SendReceiver, send_queue};

/// The protocol version of this endpoint, whatever version a client asks for.
pub(super) const VERSION: u64 = 1;

/// Requests in flight per connection. A prompt counts until its turn ends.
const MAX_IN_FLIGHT: usize = 512;

/// Open sessions per connection.
pub(super) const MAX_SESSIONS: usize = 512;

/// Requests to a client that await its response.
const MAX_ASKED: usize = 1_024;

/// The only authentication method, for clients that need one: the token came with the HTTP request.
const AUTH_METHOD: &str = "tribune-token";

/// The query parameters of the connection.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectQuery {
    /// The agent of new sessions.
    pub(super) agent: Option<AgentId>,
    /// The session that the first `session/new` resumes.
    pub(super) session: Option<SessionKey>,
}

/// A message to the client, with the session it belongs to, if any.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) session: Option<String>,
    /// The message must come after everything that was sent for this session.
    pub(super) behind: Option<String>,
    pub(super) text: String,
}

impl Frame for Outgoing {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// A connected client.
pub(super) struct Connection {
    pub(super) gateway: Arc<Gateway>,
    pub(super) who: Principal,
    outbox: SendQueue<Outgoing>,
    tasks: TaskTracker,
    /// Fires when the client has disconnected.
    pub(super) gone: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    is_initialized: bool,
    /// The `clientCapabilities` of `initialize`.
    pub(super) capabilities: Value,
    pub(super) query: ConnectQuery,
    /// Open sessions, by the session id that the client knows.
    pub(super) sessions: HashMap<String, Arc<ClientSession>>,
    in_flight: HashMap<RequestId, CancellationToken>,
    asked: HashMap<u64, oneshot::Sender<Result<Value, Value>>>,
    next_request: u64,
}

impl Connection {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        who: Principal,
        query: ConnectQuery,
    ) -> (Arc<Self>, SendReceiver<Outgoing>) {
        let (outbox, messages) = send_queue();
        let state = Mutex::new(State { query, ..State::default() });
        let (tasks, gone) = (TaskTracker::new(), CancellationToken::new());
        (Arc::new(Self { gateway, who, outbox, tasks, gone, state }), messages)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection accepts more messages now.
    pub(super) fn has_room(&self) -> bool {
        self.tasks.len() < 4 * MAX_IN_FLIGHT
    }

    /// Whether requests are in flight.
    pub(super) fn is_answering(&self) -> bool {
        !self.state().in_flight.is_empty()
    }

    /// Ends the connection. Turns continue without it, and permission requests keep waiting in the inbox.
    pub(super) fn leave(&self) {
        self.gone.cancel();
        self.tasks.close();
    }

    /// Runs a task that is cancelled when the client disconnects.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let gone = self.gone.clone();
        self.tasks.spawn(async move {
            gone.run_until_cancelled(work).await;
        });
    }

    /// Queues a message. Waits if the queue is full because the client reads slowly.
    pub(super) async fn send(&self, session: Option<&str>, text: String) {
        let session = session.map(str::to_owned);
        let _ = self.outbox.send(Outgoing { session, behind: None, text }).await;
    }

    /// Sends a `session/update`.
    pub(super) async fn update(&self, session: &str, update: &Value) {
        self.update_beside(session, update, &Map::new()).await;
    }

    /// Like [`Self::update`], with additional members of `params`.
    pub(super) async fn update_beside(&self, session: &str, update: &Value, beside: &Map<String, Value>) {
        let mut params = json!({ "sessionId": session, "update": update });
        for (name, value) in beside.iter().filter(|(name, _)| *name != "sessionId" && *name != "update") {
            params[name] = value.clone();
        }
        self.send(Some(session), wire::notification("session/update", &params)).await;
    }

    /// Handles one message of the client. Never blocks: the work runs in its own task.
    pub(super) fn receive(self: &Arc<Self>, text: &str) {
        match wire::read(text) {
            Incoming::Refused(answer) => {
                let own = Arc::clone(self);
                self.spawn(async move { own.send(None, answer).await });
            }
            Incoming::Answer { id, answer } => {
                let asked = id.as_str().parse().ok().and_then(|number| self.state().asked.remove(&number));
                // A response to an unknown or a cancelled request is ignored.
                if let Some(asked) = asked {
                    let _ = asked.send(answer);
                }
            }
            Incoming::Notification { method, params } => self.on_notification(&method, &params),
            Incoming::Request { id, method, params } => self.on_request(id, method, params),
        }
    }

    fn on_notification(self: &Arc<Self>, method: &str, params: &Value) {
        match method {
            "session/cancel" => self.cancel(params["sessionId"].as_str().unwrap_or_default()),
            "$/cancel_request" => {
                let token = RequestId::from_value(&params["requestId"])
                    .and_then(|id| self.state().in_flight.get(&id).cloned());
                if let Some(token) = token {
                    token.cancel();
                }
            }
            // An unknown notification is ignored: a notification has no response that could carry an error.
            _ => {}
        }
    }

    fn on_request(self: &Arc<Self>, id: RequestId, method: String, params: Value) {
        let token = CancellationToken::new();
        let within_rate = self.gateway.guest_rate.take(&self.who).map_err(Fault::from);
        let registered = within_rate.and_then(|()| self.register(&id, &method, &params, &token));
        // A rejected request is not in `in_flight`, and its id may be that of another request which is.
        let is_registered = registered.is_ok();
        let own = Arc::clone(self);
        self.spawn(async move {
            let session = params["sessionId"].as_str().map(str::to_owned);
            // The client listens on the stream of a loaded session only after it has the response to `session/load`.
            let route = session.as_deref().filter(|_| method != "session/load");
            let answer = match registered {
                Ok(registered) => own.answer(registered, &method, params, &token).await,
                Err(fault) => Err(fault),
            };
            // Removed before the response is sent, because the client may then reuse the id.
            if is_registered {
                own.state().in_flight.remove(&id);
            }
            let text = match &answer {
                Ok((result, _)) => wire::success(&id, result),
                Err(fault) => wire::failure(Some(&id), fault),
            };
            match route {
                Some(route) => own.send(Some(route), text).await,
                // The replay of a session must arrive before the response to `session/load`, whichever stream carries it.
                None => drop(own.outbox.send(Outgoing { session: None, behind: session, text }).await),
            }
            // The client must know the session id before it receives updates of the session.
            if let Ok((_, Some(session))) = &answer {
                own.start_forwarder(session);
            }
        });
    }

    /// Registers a request, in the order of arrival.
    fn register(
        &self,
        id: &RequestId,
        method: &str,
        params: &Value,
        token: &CancellationToken,
    ) -> Result<Registered, Fault> {
        let refuse = |word, what: &str| Err(Fault::new(wire::INVALID_REQUEST, word, what));
        let mut state = self.state();
        if state.in_flight.contains_key(id) {
            return refuse("invalid_request", "this id is in use: give each request its own");
        }
        if state.in_flight.len() >= MAX_IN_FLIGHT {
            let what =
                format!("a connection has at most {MAX_IN_FLIGHT} requests at once: wait for one to end");
            return refuse("too_many_requests", &what);
        }
        if method == "initialize" {
            if state.is_initialized {
                return refuse("invalid_request", "`initialize` was already answered");
            }
            // Any numeric version is answered with `VERSION`.
            if !params["protocolVersion"].is_u64() {
                return Err(Fault::params("`protocolVersion` is a whole number"));
            }
            state.is_initialized = true;
            state.capabilities = params["clientCapabilities"].clone();
        } else if !state.is_initialized {
            return refuse("invalid_request", "the first request is `initialize`");
        }
        let registered = match method {
            "session/prompt" => {
                let session = open_session(&state, params)?;
                Registered::Prompt(prompt::Prompt::begin(&session, token.clone())?)
            }
            _ => Registered::Other,
        };
        state.in_flight.insert(id.clone(), token.clone());
        Ok(registered)
    }

    async fn answer(
        self: &Arc<Self>,
        registered: Registered,
        method: &str,
        params: Value,
        token: &CancellationToken,
    ) -> Result<(Value, Option<Arc<ClientSession>>), Fault> {
        let prompt = match registered {
            Registered::Prompt(prompt) => Some(prompt),
            Registered::Other => None,
        };
        if let Some(prompt) = prompt {
            return self.prompt(prompt, &params).await.map(|result| (result, None));
        }
        let cancelled = || Fault::new(wire::CANCELLED, "cancelled", "the request was cancelled");
        token.run_until_cancelled(self.other(method, &params)).await.unwrap_or_else(|| Err(cancelled()))
    }

    /// Answers every method except `session/prompt`.
    async fn other(
        self: &Arc<Self>,
        method: &str,
        params: &Value,
    ) -> Result<(Value, Option<Arc<ClientSession>>), Fault> {
        let plain = |result: Value| Ok((result, None));
        match method {
            "initialize" => plain(self.initialize_result()),
            "authenticate" => self.authenticate(params).and_then(plain),
            "session/new" => self.new_session(params).await,
            "session/load" => self.load(params).await,
            "session/resume" => self.resume(params).await,
            "session/list" => self.list(params).await.and_then(plain),
            "session/close" => self.close(params).await.and_then(plain),
            "session/delete" => self.delete(params).await.and_then(plain),
            "session/set_mode" => self.set_mode(params).await.and_then(plain),
            "session/set_config_option" => self.set_option(params).await,
            "_tribune/status" => {
                let status = self.gateway.api.status(&self.who).await?;
                plain(serde_json::to_value(status).unwrap_or_default())
            }
            _ => {
                let what = "there is no such method";
                Err(Fault::new(wire::METHOD_NOT_FOUND, "method_not_found", what))
            }
        }
    }

    /// The result of `initialize`. The version is [`VERSION`], whatever the client asked for.
    fn initialize_result(&self) -> Value {
        json!({
            "protocolVersion": VERSION,
            "agentInfo": { "name": "tribune", "title": "Tribune", "version": env!("CARGO_PKG_VERSION") },
            "agentCapabilities": {
                "loadSession": true,
                "promptCapabilities": { "image": true, "audio": true, "embeddedContext": true },
                "mcpCapabilities": { "http": false, "sse": false },
                "sessionCapabilities": {
                    "list": {}, "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {},
                },
                "auth": {},
            },
            "authMethods": [{
                "id": AUTH_METHOD,
                "name": "Operator token",
                "description": "The token in run/token of the daemon's home, as `Authorization: Bearer TOKEN`. `tribune acp` shows it by itself.",
            }],
            "_meta": { "tribune": { "principal": self.who.describe(&self.gateway.api.agents).principal } },
        })
    }

    /// Confirms that the connection has the operator's token. This request never changes the principal.
    fn authenticate(&self, params: &Value) -> Result<Value, Fault> {
        if params["methodId"].as_str() != Some(AUTH_METHOD) {
            return Err(Fault::params(format!("`methodId` must be `{AUTH_METHOD}`")));
        }
        self.who.operator().map_err(Fault::from)?;
        Ok(json!({}))
    }

    /// The open session that a request names.
    pub(super) fn session(&self, params: &Value) -> Result<Arc<ClientSession>, Fault> {
        open_session(&self.state(), params)
    }

    /// Sends a request to the client. `None` if too many requests already await a response.
    pub(super) fn ask(
        self: &Arc<Self>,
        session: &str,
        method: &str,
        params: &Value,
    ) -> Option<ClientRequest> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.asked.len() >= MAX_ASKED {
                return None;
            }
            state.next_request += 1;
            let number = state.next_request;
            state.asked.insert(number, answer);
            number
        };
        let (own, text, session) =
            (Arc::clone(self), wire::request(number, method, params), session.to_owned());
        self.spawn(async move { own.send(Some(&session), text).await });
        Some(ClientRequest { connection: Arc::clone(self), number, answered })
    }
}

/// A registered request.
enum Registered {
    Prompt(prompt::Prompt),
    Other,
}

/// A request to the client that awaits its response. Dropping this discards a later response.
pub(super) struct ClientRequest {
    connection: Arc<Connection>,
    pub(super) number: u64,
    answered: oneshot::Receiver<Result<Value, Value>>,
}

impl ClientRequest {
    /// The client's response; `None` if the client has disconnected.
    pub(super) async fn answer(&mut self) -> Option<Result<Value, Value>> {
        (&mut self.answered).await.ok()
    }
}

impl Drop for ClientRequest {
    fn drop(&mut self) {
        self.connection.state().asked.remove(&self.number);
    }
}

fn open_session(state: &State, params: &Value) -> Result<Arc<ClientSession>, Fault> {
    let Some(id) = params["sessionId"].as_str() else {
        return Err(Fault::params("`sessionId` is missing"));
    };
    state.sessions.get(id).cloned().ok_or_else(|| {
        let what = "`sessionId` is not open on this connection: open it with `session/new` or `session/load`";
        Fault::new(wire::NOT_FOUND, "not_found", what)
    })
}
