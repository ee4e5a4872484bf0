//! `/v1/proxy/<provider>/…`: the house's models for programs that bring their own SDK. They hold a token of ours; the
//! provider's key is put in here and never reaches them.
//!
//! The way of a request: [`auth`] (who asks), [`routes`] (what may be asked at all), [`body`] and [`beyond`] (with which model,
//! and nothing that the provider would do beside answering), [`bill`] (what it may cost), [`headers`] (what goes up and what comes back), an entry in the
//! ledger ([`record`]), and only then [`errand`], which carries it out. Errors have the shape that the SDK expects ([`error`]).
//!
//! What it deliberately does not do: turn to another provider, ask a second time, or follow a redirect.

mod auth;
mod body;
mod budget;
mod error;
mod headers;
mod hosted_tools;
mod proxy_tokens;
mod record;
mod routes;
mod upstream_call;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_constitution::nearest::nearest;
use tribune_providers::relay::Relay;
use tribune_providers::{Client, ModelRef};
use tribune_redact::Redactor;
use tribune_runtime::{AgentId, SessionKey};

pub use self::proxy_tokens::{PassAsk, PassGiven};
pub(super) use self::upstream_call::Ended;

use tribune_egress::{SocketService, http_socket};
use tribune_governance::gate::Gate;
use tribune_governance::models::agent_model::model_of;
use tribune_governance::models::{Provider, Providers, RequestLog};
use tribune_governance::spend::Purse;
use tribune_registry::Agents;
use tribune_sessions::session::SessionError;
use tribune_storage::clock::Clock;
use tribune_storage::store::LedgerWriter;

use self::auth::Caller;
use self::body::Asking;
use self::budget::Bill;
use self::proxy_tokens::Passes;
use self::record::Journal;
use self::routes::Route;
use self::upstream_call::{Errand, Rest};
use super::Gateway;
use super::error::ApiError;
use super::metrics::Metrics;

/// Requests that are carried out at once, of the operator and of all agents. Each may hold a body of `gateway.maxMessageBytes`
/// while it is sent. Counted apart, so that no agent can keep the operator out.
const AT_ONCE: usize = 32;

/// What the proxy is made of. It needs neither sessions nor a gateway, so that the sockets of sessions can be built on it.
pub struct ProxyParts {
    pub providers: Arc<Providers>,
    pub agents: Arc<Agents>,
    pub gate: Arc<Gate>,
    pub purse: Arc<Purse>,
    pub redactor: Arc<Redactor>,
    pub requests: RequestLog,
    pub ledger: LedgerWriter,
    pub clock: Arc<dyn Clock>,
    /// Bytes of a body, and how long it may take to arrive.
    pub max_body: usize,
    pub body_timeout: Duration,
    /// Set when the daemon takes no new work.
    pub draining: CancellationToken,
    /// Fires when connections are to end.
    pub stopping: CancellationToken,
}

/// Everything the proxy holds.
pub struct Proxy {
    parts: ProxyParts,
    passes: Passes,
    operators_room: Arc<Semaphore>,
    agents_room: Arc<Semaphore>,
    /// The gateway's own, too: it counts in the same metrics, and waits for these tasks when it ends.
    pub(super) metrics: Arc<Metrics>,
    pub(super) tasks: TaskTracker,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("providers", &self.parts.providers).finish_non_exhaustive()
    }
}

/// The way from a session's sandbox to its model. The provider is that of its agent's model, the path its API's own. No token
/// is needed, and what a program sends as its key goes nowhere.
#[derive(Debug)]
pub struct SessionModel(pub Arc<Proxy>);

#[async_trait]
impl SocketService for SessionModel {
    async fn serve(&self, stream: UnixStream, session: &Arc<SessionKey>, head: Duration) {
        http_socket::serve(stream, head, |request| self.0.answer_session(session, request.map(Body::new)))
            .await;
    }
}

impl Proxy {
    pub fn new(parts: ProxyParts) -> Self {
        let room = || Arc::new(Semaphore::new(AT_ONCE));
        let (operators_room, agents_room) = (room(), room());
        let (metrics, tasks) = (Arc::new(Metrics::new()), TaskTracker::new());
        Self { parts, passes: Passes::default(), operators_room, agents_room, metrics, tasks }
    }

    /// The model that an agent was given.
    fn model_of(&self, agent: &AgentId) -> Option<ModelRef> {
        model_of(&self.parts.agents, &self.parts.providers, agent)
    }

    /// Room for one more request.
    fn room(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, ApiError> {
        let room = match caller {
            Caller::Operator => &self.operators_room,
            Caller::Agent(_) | Caller::Session(_) => &self.agents_room,
        };
        let full = || format!("{AT_ONCE} requests are on their way to models: try again in a moment");
        Arc::clone(room).try_acquire_owned().map_err(|_| ApiError::new("busy", full()))
    }

    /// The provider of this name, if it can be asked.
    fn provider(&self, id: &str) -> Result<(&Provider, &Client), ApiError> {
        let Some(provider) = self.parts.providers.get(id) else {
            let names: Vec<&str> = self.parts.providers.all().map(|provider| provider.id.as_str()).collect();
            let meant =
                nearest(id, &names).map_or_else(String::new, |name| format!("did you mean `{name}`? "));
            let what = format!("there is no such provider: {meant}the providers are {}", names.join(", "));
            return Err(ApiError::new("not_found", what));
        };
        if !provider.config.enabled {
            let what =
                format!("the provider `{id}` is switched off: set models.providers.{id}.enabled to true");
            return Err(ApiError::forbidden(what));
        }
        let client = provider.client().map_err(error::of_provider)?;
        Ok((provider, client))
    }
}

/// Forwards a request to a model provider with the house's key.
///
/// `provider` is the name of a provider in the configuration, `path` what its API has: `v1/messages`, `v1/messages/count_tokens`
/// and `v1/models` in Anthropic's dialect, `chat/completions`, `responses`, `embeddings` and `models` in OpenAI's, with or without
/// `v1/` in front, and `v1beta/models/MODEL:generateContent` and its like in Gemini's. The operator's token or an agent's pass
/// comes as `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`. Answers are the provider's own, streams among them; errors
/// have its shape. See docs/guide/proxy.md.
#[utoipa::path(post, path = "/v1/proxy/{provider}/{path}", tag = "proxy", params(("provider" = String, Path, description = "name of a provider"), ("path" = String, Path, description = "path of its API, slashes and all")), request_body(content = Object, description = "as the provider takes it; `model` decides whether it may be asked", example = json!({ "model": "small", "messages": [{ "role": "user", "content": "Hello." }] })), responses((status = 200, description = "the provider's answer", body = Object, example = json!({ "choices": [{ "message": { "role": "assistant", "content": "Hello." } }] })), (status = "default", description = "an error in the provider's shape", body = Object)))]
pub(super) async fn proxied(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix("/v1/proxy/").unwrap_or_default().to_owned();
    // Never decoded: what is not plainly on the list is not on the list.
    let (id, rest) = path.split_once('/').unwrap_or((&path, ""));
    let proxy = &gateway.api.proxy;
    let asked = async { proxy.admit(auth::caller(&gateway, &request)?, id, rest, request).await };
    proxy.answered(id, asked.await)
}

impl Proxy {
    /// Answers a program in a session's sandbox.
    async fn answer_session(self: &Arc<Self>, session: &SessionKey, request: Request) -> Response {
        let Some(given) = self.model_of(session.agent()) else {
            let what = format!("the agent `{}` has no model: give it one in the roster", session.agent());
            return self.answered("", Err(ApiError::forbidden(what)));
        };
        let rest = request.uri().path().strip_prefix('/').unwrap_or_default().to_owned();
        let caller = Caller::Session(session.clone());
        let asked = self.admit(caller, given.provider(), &rest, request).await;
        self.answered(given.provider(), asked)
    }

    fn answered(&self, id: &str, asked: Result<Response, ApiError>) -> Response {
        asked.unwrap_or_else(|refused| {
            let dialect = self.parts.providers.get(id).map(|provider| provider.config.dialect);
            self.metrics.proxy_refused(refused.code);
            error::response(dialect, &refused)
        })
    }

    /// From the door to the answer's head.
    async fn admit(
        self: &Arc<Self>,
        caller: Caller,
        id: &str,
        rest: &str,
        request: Request,
    ) -> Result<Response, ApiError> {
        let parts = &self.parts;
        let (provider, client) = self.provider(id)?;
        if parts.draining.is_cancelled() {
            return Err(SessionError::Draining.into());
        }
        let room = self.room(&caller)?;
        let journal = Journal::new(Arc::clone(self), provider.id.clone(), &caller);
        let (head, content) = request.into_parts();
        let dialect = provider.config.dialect;
        let checked = async {
            let route = routes::find(dialect, &head.method, rest, head.uri.query())?;
            let asking = match route.method {
                Method::POST => Some(body::read(parts.max_body, parts.body_timeout, &route, content).await?),
                _ => None,
            };
            let asking = self.check(&caller, provider, &route, asking)?;
            let (purse, asked) = (&parts.purse, (route.kind, asking.as_ref()));
            let bill = Bill::reserve(purse, &caller, provider, asked).await?;
            Ok::<_, ApiError>((route, asking, bill))
        };
        let (route, asking, mut bill) = match checked.await {
            Ok(checked) => checked,
            Err(refused) => {
                journal.refused(&refused).await?;
                return Err(refused);
            }
        };

        let model = asking.as_ref().map(|asking| asking.model.clone()).or_else(|| route.model.clone());
        let is_stream = asking.as_ref().is_some_and(|asking| asking.is_stream);
        let (content, hides_usage) = match asking {
            Some(asking) => asking.for_upstream(route.wire, route.kind)?,
            None => (Vec::new(), false),
        };
        let headers = headers::up(&head.headers, &route.method);
        let relay = Relay {
            method: route.method.clone(),
            path: route.path.clone(),
            query: route.query.clone(),
            headers,
            body: content,
        };
        let outbound = client.relay(relay).map_err(|fault| error::of_provider(&fault))?;

        // Taken before the switch is looked at: a stop in between ends this one too.
        let stopped = parts.gate.stop_signal.token();
        if parts.gate.is_frozen() {
            return Err(frozen());
        }
        let tokens = bill.as_ref().map(Bill::tokens).unwrap_or_default();
        // Both at once: they share a commit.
        let paid = async {
            match &mut bill {
                Some(bill) => bill.put_on_record().await,
                None => Ok(()),
            }
        };
        let (asked, paid) = tokio::join!(journal.asked(&route, model.as_deref(), tokens), paid);
        let asked = asked?;
        paid?;
        let rest = Rest {
            wire: route.wire,
            veil: client.veil(),
            deltas: client.deltas(),
            redactor: Arc::clone(&parts.redactor),
            endpoint: client.endpoint().clone(),
            is_stream,
            hides_usage,
            entry: asked.cid(),
            stopped,
            leaving: parts.stopping.clone(),
        };
        let errand = Errand { outbound, rest };
        let (answer, head) = oneshot::channel();
        let metrics = Arc::clone(&self.metrics);
        // Not part of the connection: what became of it is written down whoever hangs up.
        self.tasks.spawn(async move {
            let ended = errand.run(answer).await;
            metrics.proxied(&asked.provider, &ended);
            if let Some(bill) = bill {
                bill.settle(&ended).await;
            }
            asked.ended(ended).await;
            drop(room);
        });
        head.await.unwrap_or_else(|_| Err(ApiError::new("internal", "the request was dropped: try again")))
    }

    /// Whether this caller may ask this with this model.
    fn check(
        &self,
        caller: &Caller,
        provider: &Provider,
        route: &Route,
        asking: Option<Asking>,
    ) -> Result<Option<Asking>, ApiError> {
        let Some(agent) = caller.agent() else { return Ok(asking) };
        let model = asking.as_ref().map(|asking| asking.model.as_str()).or(route.model.as_deref());
        let given = self.model_of(agent);
        auth::check_model(agent, given.as_ref(), &provider.id, model)?;
        asking.map(|asking| hosted_tools::check(asking, route.wire)).transpose()
    }
}

fn frozen() -> ApiError {
    ApiError::new("frozen", "everything is stopped: an approver resumes it with `tribune resume`")
}
