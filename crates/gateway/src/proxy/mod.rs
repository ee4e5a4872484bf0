//! The model proxy, `/v1/proxy/<provider>/…`: the configured models for programs that use a provider's SDK. A program holds a
//! token of Tribune; the proxy adds the provider's key, which never reaches the program.
//!
//! The stages of a request: [`auth`] (the caller and its model), [`routes`] (the allowed endpoints), [`body`] (the model) and [`hosted_tools`]
//! (no tools that run at the provider), [`budget`] (the cost limit), [`headers`] (the forwarded headers in both directions), an
//! entry in the ledger ([`mod@record`]), and only then [`upstream_call`], which sends the request. Errors have the shape that the
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
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_constitution::suggest_name::nearest;
use tribune_egress::{SocketService, http_socket};
use tribune_governance::gate::Gate;
use tribune_governance::models::agent_model::model_of;
use tribune_governance::models::{Provider, Providers, RequestLog};
use tribune_governance::spend::Budgets;
use tribune_providers::relay::RelayRequest;
use tribune_providers::{ModelRef, ProviderClient};
use tribune_redact::Redactor;
use tribune_registry::Agents;
use tribune_runtime::{AgentId, SessionKey};
use tribune_sessions::session::SessionError;
use tribune_storage::clock::Clock;
use tribune_storage::store::LedgerWriter;

pub(crate) use self::auth::Caller;
use self::body::{ProxiedBody, UpstreamBody};
use self::budget::CostReservation;
pub(crate) use self::proxy_tokens::PassScope;
use self::proxy_tokens::ProxyTokens;
use self::record::{OpenRequest, RequestRecorder};
use self::routes::Route;
use self::upstream_call::{ResponsePipeline, UpstreamCall};
use crate::error::ApiError;
use crate::metrics::Metrics;

/// Maximum concurrent requests: this many for the operator, and this many for all agents together. Each may hold a body of
/// `gateway.maxMessageBytes` while it is sent. The two are counted separately, so that agents cannot lock the operator out.
const MAX_CONCURRENT: usize = 32;

/// The dependencies of the proxy. It needs neither sessions nor a gateway, so that the sockets of sessions can be built on it.
pub struct ProxyParts {
    pub providers: Arc<Providers>,
    pub agents: Arc<Agents>,
    pub gate: Arc<Gate>,
    pub budgets: Arc<Budgets>,
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
    tokens: ProxyTokens,
    operator_permits: Arc<Semaphore>,
    agent_permits: Arc<Semaphore>,
    /// Shared with the gateway: it counts in the same metrics, and waits for these tasks when it stops.
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tasks: TaskTracker,
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
        let permits = || Arc::new(Semaphore::new(MAX_CONCURRENT));
        let (operator_permits, agent_permits) = (permits(), permits());
        let (metrics, tasks) = (Arc::new(Metrics::new()), TaskTracker::new());
        Self { parts, tokens: ProxyTokens::default(), operator_permits, agent_permits, metrics, tasks }
    }

    /// The model that is configured for an agent.
    pub(crate) fn model_of(&self, agent: &AgentId) -> Option<ModelRef> {
        model_of(&self.parts.agents, &self.parts.providers, agent)
    }

    /// Issues a pass that is valid for `time`.
    pub(crate) fn issue_token(
        &self,
        agent: AgentId,
        scope: PassScope,
        time: Duration,
    ) -> Result<String, ApiError> {
        self.tokens.issue(agent, scope, time, Instant::now())
    }

    /// The agent that holds this token, if it is a valid pass for `scope`.
    pub(crate) fn token_holder(&self, token: &str, scope: PassScope) -> Option<AgentId> {
        self.tokens.holder(token, scope)
    }

    /// Takes a permit for one request, or fails with `busy`.
    fn take_permit(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, ApiError> {
        let permits = match caller {
            Caller::Operator => &self.operator_permits,
            Caller::Agent(_) | Caller::Session(_) => &self.agent_permits,
        };
        let full =
            || format!("{MAX_CONCURRENT} model requests are already running: try again in a few seconds");
        Arc::clone(permits).try_acquire_owned().map_err(|_| ApiError::new("busy", full()))
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

/// A request that passed every check. The maximum cost is reserved.
struct CheckedRequest {
    route: Route,
    /// `None` for requests without a body.
    body: Option<ProxiedBody>,
    /// `None` if the request is free.
    reservation: Option<CostReservation>,
}

impl CheckedRequest {
    fn model(&self) -> Option<String> {
        self.body.as_ref().map(|body| body.model.clone()).or_else(|| self.route.model.clone())
    }

    fn is_stream(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.is_stream)
    }
}

impl Proxy {
    /// Answers a request of an authenticated caller. `rest` is the path behind the provider's name.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        caller: Result<Caller, ApiError>,
        id: &str,
        rest: &str,
        request: Request,
    ) -> Response {
        let answer = match caller {
            Ok(caller) => self.forward(caller, id, rest, request).await,
            Err(error) => Err(error),
        };
        self.response(id, answer)
    }

    /// Answers a program in a session's sandbox.
    async fn answer_session(self: &Arc<Self>, session: &SessionKey, request: Request) -> Response {
        let Some(given) = self.model_of(session.agent()) else {
            let what = format!("the agent `{}` has no model: give it one in the roster", session.agent());
            return self.response("", Err(ApiError::forbidden(what)));
        };
        let rest = request.uri().path().strip_prefix('/').unwrap_or_default().to_owned();
        self.answer(Ok(Caller::Session(session.clone())), given.provider(), &rest, request).await
    }

    /// The response to the client; an error has the shape that the provider's SDK expects.
    fn response(&self, id: &str, answer: Result<Response, ApiError>) -> Response {
        answer.unwrap_or_else(|refused| {
            let dialect = self.parts.providers.get(id).map(|provider| provider.config.dialect);
            self.metrics.proxy_refused(refused.code);
            error::response(dialect, &refused)
        })
    }

    /// Runs all stages of a request, up to the head of the response.
    async fn forward(
        self: &Arc<Self>,
        caller: Caller,
        id: &str,
        rest: &str,
        request: Request,
    ) -> Result<Response, ApiError> {
        let (provider, client) = self.provider(id)?;
        if self.parts.draining.is_cancelled() {
            return Err(SessionError::Draining.into());
        }
        let permit = self.take_permit(&caller)?;
        let recorder = RequestRecorder::new(Arc::clone(self), provider.id.clone(), &caller);
        let (head, content) = request.into_parts();
        let checked = match self.check_request(&caller, provider, rest, &head, content).await {
            Ok(checked) => checked,
            Err(refused) => {
                recorder.record_denial(&refused).await?;
                return Err(refused);
            }
        };
        let (model, is_stream) = (checked.model(), checked.is_stream());
        let CheckedRequest { route, body, mut reservation } = checked;
        let body = match body {
            Some(body) => body.for_upstream(route.wire, route.kind)?,
            None => UpstreamBody::default(),
        };
        let relay = RelayRequest {
            method: route.method.clone(),
            path: route.path.clone(),
            query: route.query.clone(),
            headers: headers::up(&head.headers, &route.method, &caller),
            body: body.bytes,
        };
        let outbound = client.relay(relay).map_err(|fault| error::of_provider(&fault))?;

        // Taken before the global stop is checked, so that a stop in between ends this request too.
        let stopped = self.parts.gate.stop_signal.token();
        if self.parts.gate.is_frozen() {
            return Err(frozen());
        }
        let open = record(recorder, &route, model.as_deref(), reservation.as_mut()).await?;
        let rest = ResponsePipeline {
            wire: route.wire,
            key_mask: client.veil(),
            delta_mask: client.deltas(),
            redactor: Arc::clone(&self.parts.redactor),
            endpoint: client.endpoint().clone(),
            is_stream,
            hides_usage: body.hides_usage,
            entry: open.cid(),
            stopped,
            leaving: self.parts.stopping.clone(),
        };
        self.send(UpstreamCall { outbound, rest }, open, reservation, permit).await
    }

    /// Checks the endpoint, the body and the model, and reserves the maximum cost.
    async fn check_request(
        &self,
        caller: &Caller,
        provider: &Provider,
        rest: &str,
        head: &Parts,
        content: Body,
    ) -> Result<CheckedRequest, ApiError> {
        let parts = &self.parts;
        let route = routes::find(provider.config.dialect, &head.method, rest, head.uri.query())?;
        let body = match route.method {
            Method::POST => Some(body::read(parts.max_body, parts.body_timeout, &route, content).await?),
            _ => None,
        };
        let body = self.check_model(caller, provider, &route, body)?;
        let reservation =
            CostReservation::reserve(&parts.budgets, caller, provider, route.kind, body.as_ref()).await?;
        Ok(CheckedRequest { route, body, reservation })
    }

    /// Checks that the caller may use this model, and that an agent's request uses no tools of the provider.
    fn check_model(
        &self,
        caller: &Caller,
        provider: &Provider,
        route: &Route,
        body: Option<ProxiedBody>,
    ) -> Result<Option<ProxiedBody>, ApiError> {
        let Some(agent) = caller.agent() else { return Ok(body) };
        let model = body.as_ref().map(|body| body.model.as_str()).or(route.model.as_deref());
        let given = self.model_of(agent);
        auth::check_model(agent, given.as_ref(), &provider.id, model)?;
        body.map(|body| hosted_tools::check(body, route.wire)).transpose()
    }

    /// Sends the request in a task of its own, so that its end is recorded even if the client disconnects. Returns when the head of
    /// the response is there.
    async fn send(
        &self,
        call: UpstreamCall,
        open: OpenRequest,
        reservation: Option<CostReservation>,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response, ApiError> {
        let (answer, head) = oneshot::channel();
        let metrics = Arc::clone(&self.metrics);
        self.tasks.spawn(async move {
            let end = call.run(answer).await;
            metrics.proxied(&open.provider, end.outcome, end.usage);
            if let Some(reservation) = reservation {
                reservation.settle(&end).await;
            }
            open.record_end(end).await;
            drop(permit);
        });
        head.await
            .unwrap_or_else(|_| Err(ApiError::new("internal", "the request was interrupted: try again")))
    }
}

/// Records the request and the reservation of its cost. It must not be sent before this returns.
async fn record(
    recorder: RequestRecorder,
    route: &Route,
    model: Option<&str>,
    reservation: Option<&mut CostReservation>,
) -> Result<OpenRequest, ApiError> {
    let tokens = reservation.as_ref().map(|reservation| reservation.tokens()).unwrap_or_default();
    let paid = async {
        match reservation {
            Some(reservation) => reservation.put_on_record().await,
            None => Ok(()),
        }
    };
    // Both concurrently, so that they share a commit.
    let (open, paid) = tokio::join!(recorder.record_request(route, model, tokens), paid);
    let open = open?;
    paid?;
    Ok(open)
}

fn frozen() -> ApiError {
    ApiError::new("frozen", "everything is stopped: an approver resumes it with `tribune resume`")
}
