//! One client: what it sends is answered in tasks of its own, so that a cancel is heard while a prompt runs; what it is sent
//! goes through one queue, in order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_runtime::{AgentId, SessionKey};

use super::client_session::ClientSession;
use super::wire::{Fault, Id, Incoming};
use super::{prompt, wire};
use crate::Gateway;
use crate::principal::Principal;
use crate::send_queue::{Frame, SendQueue, SendReceiver, send_queue};

/// The version of the protocol that is spoken here, whatever a client asks for.
pub(super) const VERSION: u64 = 1;

/// Requests of one client that are being answered. A prompt is one until its turn is over.
const MAX_IN_FLIGHT: usize = 512;

/// Sessions that one client has open.
pub(super) const MAX_SEATS: usize = 512;

/// Questions to a client that wait for its answer.
const MAX_ASKED: usize = 1_024;

/// The one way to say who one is, for clients that ask: the token was shown at the door.
const AUTH_METHOD: &str = "tribune-token";

/// What whoever started the client's end wants.
#[derive(Debug, Clone, Default)]
pub(super) struct Wishes {
    /// Whom new sessions are with.
    pub(super) agent: Option<AgentId>,
    /// The session that the first `session/new` takes up.
    pub(super) session: Option<SessionKey>,
}

/// A message to the client, and the session it belongs to, if it does.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) session: Option<String>,
    /// It is told behind everything of this session.
    pub(super) behind: Option<String>,
    pub(super) text: String,
}

impl Frame for Outgoing {
    fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// A client that is connected.
pub(super) struct Connection {
    pub(super) gateway: Arc<Gateway>,
    pub(super) who: Principal,
    outbox: SendQueue<Outgoing>,
    tasks: TaskTracker,
    /// Fires when the client is gone.
    pub(super) gone: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    is_initialized: bool,
    /// What the client said it can do.
    pub(super) capabilities: Value,
    pub(super) wishes: Wishes,
    /// Sessions that it has open, by the names that it knows.
    pub(super) seats: HashMap<String, Arc<ClientSession>>,
    in_flight: HashMap<Id, CancellationToken>,
    asked: HashMap<u64, oneshot::Sender<Result<Value, Value>>>,
    next_question: u64,
}

impl Connection {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        who: Principal,
        wishes: Wishes,
    ) -> (Arc<Self>, SendReceiver<Outgoing>) {
        let (outbox, messages) = send_queue();
        let state = Mutex::new(State { wishes, ..State::default() });
        let (tasks, gone) = (TaskTracker::new(), CancellationToken::new());
        (Arc::new(Self { gateway, who, outbox, tasks, gone, state }), messages)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether more can be taken in now.
    pub(super) fn has_room(&self) -> bool {
        self.tasks.len() < 4 * MAX_IN_FLIGHT
    }

    /// Whether requests wait for their answers.
    pub(super) fn is_answering(&self) -> bool {
        !self.state().in_flight.is_empty()
    }

    /// The client is gone. Turns go on without it, and questions wait for whoever comes.
    pub(super) fn leave(&self) {
        self.gone.cancel();
        self.tasks.close();
    }

    /// Does something beside everything else, as long as the client is there.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let gone = self.gone.clone();
        self.tasks.spawn(async move {
            gone.run_until_cancelled(work).await;
        });
    }

    /// Sends a message. It waits in line if the client is slow.
    pub(super) async fn send(&self, session: Option<&str>, text: String) {
        let session = session.map(str::to_owned);
        let _ = self.outbox.send(Outgoing { session, behind: None, text }).await;
    }

    /// Sends something about a session.
    pub(super) async fn update(&self, session: &str, update: &Value) {
        self.update_beside(session, update, &Map::new()).await;
    }

    /// The same, with what else stands in the message.
    pub(super) async fn update_beside(&self, session: &str, update: &Value, beside: &Map<String, Value>) {
        let mut params = json!({ "sessionId": session, "update": update });
        for (name, value) in beside.iter().filter(|(name, _)| *name != "sessionId" && *name != "update") {
            params[name] = value.clone();
        }
        self.send(Some(session), wire::notification("session/update", &params)).await;
    }

    /// Takes one message of the client's. Never waits.
    pub(super) fn receive(self: &Arc<Self>, text: &str) {
        match wire::read(text) {
            Incoming::Refused(answer) => {
                let own = Arc::clone(self);
                self.spawn(async move { own.send(None, answer).await });
            }
            Incoming::Answer { id, answer } => {
                let asked = id.as_str().parse().ok().and_then(|number| self.state().asked.remove(&number));
                // An answer to nothing, or one that came too late, changes nothing.
                if let Some(asked) = asked {
                    let _ = asked.send(answer);
                }
            }
            Incoming::Notification { method, params } => self.notified(&method, &params),
            Incoming::Request { id, method, params } => self.requested(id, method, params),
        }
    }

    fn notified(self: &Arc<Self>, method: &str, params: &Value) {
        match method {
            "session/cancel" => self.cancel(params["sessionId"].as_str().unwrap_or_default()),
            "$/cancel_request" => {
                let token =
                    Id::read(&params["requestId"]).and_then(|id| self.state().in_flight.get(&id).cloned());
                if let Some(token) = token {
                    token.cancel();
                }
            }
            // Nobody waits for an answer, so nobody is told.
            _ => {}
        }
    }

    fn requested(self: &Arc<Self>, id: Id, method: String, params: Value) {
        let token = CancellationToken::new();
        let begun = self.begin(&id, &method, &params, &token);
        // One that was not begun has no place, and may have the id of one that has.
        let is_begun = begun.is_ok();
        let own = Arc::clone(self);
        self.spawn(async move {
            let session = params["sessionId"].as_str().map(str::to_owned);
            // Whoever takes up a session listens to it when it has the answer, and not before.
            let route = session.as_deref().filter(|_| method != "session/load");
            let answer = match begun {
                Ok(begun) => own.answer(begun, &method, params, &token).await,
                Err(fault) => Err(fault),
            };
            // Before the answer is sent: the client may use the id again when it has it.
            if is_begun {
                own.state().in_flight.remove(&id);
            }
            let text = match &answer {
                Ok((result, _)) => wire::success(&id, result),
                Err(fault) => wire::failure(Some(&id), fault),
            };
            match route {
                Some(route) => own.send(Some(route), text).await,
                // What is told again of a session comes before the word that it is loaded, on whichever way.
                None => drop(own.outbox.send(Outgoing { session: None, behind: session, text }).await),
            }
            // Whoever opened a session knows its name before it hears of it.
            if let Ok((_, Some(seat))) = &answer {
                own.follow_from_here(seat);
            }
        });
    }

    /// Takes a request's place in the order of requests.
    fn begin(
        &self,
        id: &Id,
        method: &str,
        params: &Value,
        token: &CancellationToken,
    ) -> Result<Begun, Fault> {
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
                return refuse("invalid_request", "`initialize` was answered before");
            }
            // A version that is no number is no version; any other gets ours.
            if !params["protocolVersion"].is_u64() {
                return Err(Fault::params("`protocolVersion` is a whole number"));
            }
            state.is_initialized = true;
            state.capabilities = params["clientCapabilities"].clone();
        } else if !state.is_initialized {
            return refuse("invalid_request", "the first request is `initialize`");
        }
        let begun = match method {
            "session/prompt" => {
                let seat = seat_of(&state, params)?;
                Begun::Prompt(prompt::Prompt::begin(&seat, token.clone())?)
            }
            _ => Begun::Other,
        };
        state.in_flight.insert(id.clone(), token.clone());
        Ok(begun)
    }

    async fn answer(
        self: &Arc<Self>,
        begun: Begun,
        method: &str,
        params: Value,
        token: &CancellationToken,
    ) -> Result<(Value, Option<Arc<ClientSession>>), Fault> {
        let prompt = match begun {
            Begun::Prompt(prompt) => Some(prompt),
            Begun::Other => None,
        };
        if let Some(prompt) = prompt {
            return self.prompt(prompt, &params).await.map(|result| (result, None));
        }
        let cancelled = || Fault::new(wire::CANCELLED, "cancelled", "the request was cancelled");
        token.run_until_cancelled(self.other(method, &params)).await.unwrap_or_else(|| Err(cancelled()))
    }

    /// Answers everything but prompts.
    async fn other(
        self: &Arc<Self>,
        method: &str,
        params: &Value,
    ) -> Result<(Value, Option<Arc<ClientSession>>), Fault> {
        let plain = |result: Value| Ok((result, None));
        match method {
            "initialize" => plain(self.greeting()),
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
                let what = "there is no such method here";
                Err(Fault::new(wire::METHOD_NOT_FOUND, "method_not_found", what))
            }
        }
    }

    /// What this agent is and can do. The version is our own, whatever was asked for.
    fn greeting(&self) -> Value {
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

    /// The token was shown at the door or it was not; nothing said here changes who a client is.
    fn authenticate(&self, params: &Value) -> Result<Value, Fault> {
        if params["methodId"].as_str() != Some(AUTH_METHOD) {
            return Err(Fault::params(format!("the method is `{AUTH_METHOD}`, and there is no other")));
        }
        self.who.operator().map_err(Fault::from)?;
        Ok(json!({}))
    }

    /// The session that a request is about, if this client has it open.
    pub(super) fn seat(&self, params: &Value) -> Result<Arc<ClientSession>, Fault> {
        seat_of(&self.state(), params)
    }

    /// Asks the client something. None if it is gone, or is asked too much already.
    pub(super) fn ask(self: &Arc<Self>, session: &str, method: &str, params: &Value) -> Option<Question> {
        let (answer, answered) = oneshot::channel();
        let number = {
            let mut state = self.state();
            if state.asked.len() >= MAX_ASKED {
                return None;
            }
            state.next_question += 1;
            let number = state.next_question;
            state.asked.insert(number, answer);
            number
        };
        let (own, text, session) =
            (Arc::clone(self), wire::request(number, method, params), session.to_owned());
        self.spawn(async move { own.send(Some(&session), text).await });
        Some(Question { connection: Arc::clone(self), number, answered })
    }
}

/// How a request begins.
enum Begun {
    Prompt(prompt::Prompt),
    Other,
}

/// Something that a client was asked. Dropped, it is asked no more.
pub(super) struct Question {
    connection: Arc<Connection>,
    pub(super) number: u64,
    answered: oneshot::Receiver<Result<Value, Value>>,
}

impl Question {
    /// The client's answer; none if it is gone.
    pub(super) async fn answer(&mut self) -> Option<Result<Value, Value>> {
        (&mut self.answered).await.ok()
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.connection.state().asked.remove(&self.number);
    }
}

fn seat_of(state: &State, params: &Value) -> Result<Arc<ClientSession>, Fault> {
    let Some(id) = params["sessionId"].as_str() else {
        return Err(Fault::params("`sessionId` is missing"));
    };
    state.seats.get(id).cloned().ok_or_else(|| {
        let what = "`sessionId` is open nowhere here: `session/new` or `session/load` opens a session";
        Fault::new(wire::NOT_FOUND, "not_found", what)
    })
}
