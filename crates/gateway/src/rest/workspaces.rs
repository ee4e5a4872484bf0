//! `/v1/workspaces`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Operator, UrlQuery};
use super::{Answer, App};
use crate::api_types::ErrorBody;
use crate::calls::workspaces::{
    DiscardBody, Discarded, LandBody, WorkspaceDiff, WorkspaceDiscard, WorkspaceLand, WorkspaceList,
};
use crate::gateway::Gateway;
use crate::views::{DiffView, LandingView};

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new()
        .routes(routes!(workspace_list))
        .routes(routes!(workspace_diff))
        .routes(routes!(workspace_land))
        .routes(routes!(workspace_discard))
}

/// Runs whose changes wait to be landed, oldest first.
#[utoipa::path(get, path = "/v1/workspaces", tag = "workspaces", responses((status = 200, description = "the workspaces", body = WorkspaceList), (status = "default", description = "an error", body = ErrorBody)))]
async fn workspace_list(State(app): App, Operator(who): Operator) -> Answer<WorkspaceList> {
    app.api.workspaces(&who).await.map(Json)
}

/// What the answer includes.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WithTexts {
    /// Include the diffs of text files; true if not given.
    texts: Option<bool>,
}

/// The changes of a run.
#[utoipa::path(get, path = "/v1/workspaces/{id}", tag = "workspaces", params(("id" = String, Path, description = "the run"), WithTexts), responses((status = 200, description = "the changes", body = DiffView), (status = "default", description = "an error", body = ErrorBody)))]
async fn workspace_diff(
    State(app): App,
    Operator(who): Operator,
    Path(id): Path<String>,
    UrlQuery(asked): UrlQuery<WithTexts>,
) -> Answer<DiffView> {
    let asked = WorkspaceDiff { id, paths: Vec::new(), texts: asked.texts.unwrap_or(true) };
    app.api.workspace_diff(&who, asked).await.map(Json)
}

/// Lands changes in the folder that they were made for. Waits if the policy requires a person's approval.
#[utoipa::path(post, path = "/v1/workspaces/{id}/land", tag = "workspaces", params(("id" = String, Path, description = "the run")), request_body = LandBody, responses((status = 200, description = "the result", body = LandingView), (status = "default", description = "an error", body = ErrorBody)))]
async fn workspace_land(
    State(app): App,
    Operator(who): Operator,
    Path(id): Path<String>,
    Body(body): Body<LandBody>,
) -> Answer<LandingView> {
    let LandBody { paths, all, traps } = body;
    app.api.workspace_land(&who, WorkspaceLand { id, paths, all, traps }).await.map(Json)
}

/// Discards changes.
#[utoipa::path(post, path = "/v1/workspaces/{id}/discard", tag = "workspaces", params(("id" = String, Path, description = "the run")), request_body = DiscardBody, responses((status = 200, description = "how many changes were discarded", body = Discarded), (status = "default", description = "an error", body = ErrorBody)))]
async fn workspace_discard(
    State(app): App,
    Operator(who): Operator,
    Path(id): Path<String>,
    Body(body): Body<DiscardBody>,
) -> Answer<Discarded> {
    app.api.workspace_discard(&who, WorkspaceDiscard { id, paths: body.paths }).await.map(Json)
}
