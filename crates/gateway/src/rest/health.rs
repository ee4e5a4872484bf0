//! The pages for monitoring, which need no authentication: `/healthz`, `/readyz` and `/metrics`. Nothing on them is secret.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::gateway::Gateway;
use crate::metrics::DaemonGauges;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// The process answers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    ok: bool,
}

/// Whether the daemon accepts work.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Readiness {
    ready: bool,
    /// What is not ready, by name.
    waiting: Vec<String>,
}

/// Whether the process is alive. Restart it if this does not answer.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, description = "the process is alive", body = Health)))]
async fn healthz() -> Json<Health> {
    Json(Health { ok: true })
}

/// Whether the daemon accepts work, and if not, what is not ready, by name.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses((status = 200, description = "the daemon accepts work", body = Readiness), (status = 503, description = "the daemon does not accept work", body = Readiness, example = json!({ "ready": false, "waiting": ["gateway: draining"] }))))]
async fn readyz(State(gateway): State<Arc<Gateway>>) -> Response {
    let waiting = gateway.api.waiting();
    let status = if waiting.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { ready: waiting.is_empty(), waiting })).into_response()
}

/// Counters, as OpenMetrics text.
#[utoipa::path(get, path = "/metrics", tag = "health", security(()), responses((status = 200, description = "OpenMetrics 1.0", body = String, content_type = "application/openmetrics-text")))]
async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let api = &gateway.api;
    let (sessions_open, sessions_loaded) = api.sessions.counts();
    let text = gateway.metrics.render(DaemonGauges {
        sessions_open,
        sessions_loaded,
        ledger_entries: api.readers.read(|reader| reader.size()).await.ok(),
        is_ready: api.waiting().is_empty(),
        canaries: api.canaries.standpoints(),
    });
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}
