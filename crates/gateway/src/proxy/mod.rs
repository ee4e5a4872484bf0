//! The model proxy, `/v1/proxy/<provider>/…`: the configured models for programs that use a provider's SDK. A program holds a
//! token of Tribune; the proxy adds the provider's key, which never reaches the program.
//!
//! The stages of a request: [`auth`] (the caller), [`routes`] (the allowed endpoints), [`body`] (the model) and [`hosted_tools`]
//! (no tools that run at the provider), [`budget`] (the cost limit), [`headers`] (the forwarded headers in both directions), an
//! entry in the ledger ([`record`]), and only then [`upstream_call`], which sends the request. Errors have the shape that the
//! provider's SDK expects ([`error`]).
//!
//! What it deliberately does not do: fall back to another provider, retry, or follow a redirect.

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
use tribune_constitution::suggest_name::nearest;
use tribune_providers::relay::RelayRequest;
use tribune_providers::{ModelRef, ProviderClient};
use tribune_redact::Redactor;
use tribune_runtime::{AgentId, SessionKey};

pub use self::proxy_tokens::{PassAsk, PassGiven};
pub(super) use self::upstream_call::Ended;

use tribune_egress::{SocketService, http_socket};
use tribune_governance::gate::Gate;
use tribune_governance::models::agent_model::model_of;
use tribune_governance::models::{Provider, Providers, RequestLog};
use tribune_governance::spend::Budgets;
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
use self::upstream_call::{ResponsePipeline, UpstreamCall};
use super::Gateway;
use super::error::ApiError;
use super::metrics::Metrics;

/// Maximum concurrent requests: this many for the operator, and this many for all agents together. Each may hold a body of
/// `gateway.maxMessageBytes` while it is sent. The two are counted separately, so that agents cannot lock the operator out.
const MAX_CONCURRENT: usize = 32;

/// The dependencies of the proxy. It needs neither sessions nor a gateway, so that the sockets of sessions can be built on it.
pub struct ProxyParts {
    pub providers: Arc<Providers>,
    pub agents: Arc<Agents>,
    pub gate: Arc<Gate>,
    pub purse: Arc<Budgets>,
    pub redactor: Arc<Redactor>,
    pub requests: RequestLog,
    pub ledger: LedgerWriter,
    pub clock: Arc<dyn Clock>,
    /// Maximum bytes of a body, and the timeout for receiving it.
    pub max_body: usize,
    pub body_timeout: Duration,
    /// Fires when the daemon accepts no new work.
    pub draining: CancellationToken,
    /// Fires when connections must end.
    pub stopping: CancellationToken,
}

impl std::fmt::Debug for ProxyParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProxyParts")
    }
}

/// The model proxy.
pub struct Proxy {
    parts: ProxyParts,
    passes: Passes,
    operator_permits: Arc<Semaphore>,
    agent_permits: Arc<Semaphore>,
    /// Shared with the gateway: it counts in the same metrics, and waits for these tasks when it stops.
    pub(super) metrics: Arc<Metrics>,
    pub(super) tasks: TaskTracker,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("providers", &self.parts.providers).finish_non_exhaustive()
    }
}

/// Serves the model socket of a session's sandbox. The provider is that of the agent's model; the paths are those of its API. No
/// token is needed, and the key that a program sends is discarded.
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
        let room = || Arc::new(Semaphore::new(MAX_CONCURRENT));
        let (operator_permits, agent_permits) = (room(), room());
        let (metrics, tasks) = (Arc::new(Metrics::new()), TaskTracker::new());
        Self { parts, passes: Passes::default(), operator_permits, agent_permits, metrics, tasks }
    }

    /// The model that is configured for an agent.
    fn model_of(&self, agent: &AgentId) -> Option<ModelRef> {
        model_of(&self.parts.agents, &self.parts.providers, agent)
    }

    /// Takes a permit for one request, or fails with `busy`.
    fn room(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, ApiError> {
        let room = match caller {
            Caller::Operator => &self.operator_permits,
            Caller::Agent(_) | Caller::Session(_) => &self.agent_permits,
        };
        let full =
            || format!("{MAX_CONCURRENT} model requests are already running: try again in a few seconds");
        Arc::clone(room).try_acquire_owned().map_err(|_| ApiError::new("busy", full()))
    }

    /// The provider of this name, if it is enabled and has a client.
    fn provider(&self, id: &str) -> Result<(&Provider, &ProviderClient), ApiError> {
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

/// Forwards a request to a model provider with the configured key.
///
/// `provider` is the name of a provider in the configuration, `path` a path of its API: `v1/messages`, `v1/messages/count_tokens`
/// and `v1/models` in Anthropic's dialect, `chat/completions`, `responses`, `embeddings` and `models` in OpenAI's, with or without
/// a leading `v1/`, and `v1beta/models/MODEL:generateContent` and similar in Gemini's. Send the operator's token or an agent's pass
/// as `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`. Responses, including streams, are the provider's own; errors have
/// its shape. See docs/guide/proxy.md.
#[utoipa::path(post, path = "/v1/proxy/{provider}/{path}", tag = "proxy", params(("provider" = String, Path, description = "name of a provider"), ("path" = String, Path, description = "path of its API, with its slashes")), request_body(content = Object, description = "as in the provider's API; `model` decides whether the request is allowed", example = json!({ "model": "small", "messages": [{ "role": "user", "content": "Hello." }] })), responses((status = 200, description = "the provider's answer", body = Object, example = json!({ "choices": [{ "message": { "role": "assistant", "content": "Hello." } }] })), (status = "default", description = "an error in the provider's shape", body = Object)))]
pub(super) async fn proxied(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix("/v1/proxy/").unwrap_or_default().to_owned();
    // The path is never decoded: only a literal match with the allowed endpoints counts.
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

    /// Runs all stages of a request, up to the head of the response.
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
        let relay = RelayRequest {
            method: route.method.clone(),
            path: route.path.clone(),
            query: route.query.clone(),
            headers,
            body: content,
        };
        let outbound = client.relay(relay).map_err(|fault| error::of_provider(&fault))?;

        // Taken before the global stop is checked, so that a stop in between ends this request too.
        let stopped = parts.gate.stop_signal.token();
        if parts.gate.is_frozen() {
            return Err(frozen());
        }
        let tokens = bill.as_ref().map(Bill::tokens).unwrap_or_default();
        // Both concurrently, so that they share a commit.
        let paid = async {
            match &mut bill {
                Some(bill) => bill.put_on_record().await,
                None => Ok(()),
            }
        };
        let (asked, paid) = tokio::join!(journal.asked(&route, model.as_deref(), tokens), paid);
        let asked = asked?;
        paid?;
        let rest = ResponsePipeline {
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
        let errand = UpstreamCall { outbound, rest };
        let (answer, head) = oneshot::channel();
        let metrics = Arc::clone(&self.metrics);
        // A separate task, so that the outcome is recorded even if the client disconnects.
        self.tasks.spawn(async move {
            let ended = errand.run(answer).await;
            metrics.proxied(&asked.provider, &ended);
            if let Some(bill) = bill {
                bill.settle(&ended).await;
            }
            asked.ended(ended).await;
            drop(room);
        });
        head.await
            .unwrap_or_else(|_| Err(ApiError::new("internal", "the request was interrupted: try again")))
    }

    /// Checks that the caller may use this model, and that an agent's request uses no tools of the provider.
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
