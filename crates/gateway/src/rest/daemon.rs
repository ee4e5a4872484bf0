//! `/v1/status`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::Operator;
use super::{Answer, App};
use crate::api_types::{DaemonStatus, ErrorBody};
use crate::gateway::Gateway;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new().routes(routes!(status))
}

/// The status of the daemon.
#[utoipa::path(get, path = "/v1/status", tag = "daemon", responses((status = 200, description = "the status", body = DaemonStatus), (status = "default", description = "an error", body = ErrorBody)))]
async fn status(State(app): App, Operator(who): Operator) -> Answer<DaemonStatus> {
    app.api.status(&who).await.map(Json)
}
