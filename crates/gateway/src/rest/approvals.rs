//! `/v1/approvals`, `/v1/grants`, `/v1/approvers`, `/v1/stop-all` and `/v1/resume`, over plain HTTP.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Decider, Operator, UrlQuery};
use super::{Answer, App};
use crate::api_types::{
    ApprovalInfo, ApprovalList, ApprovalPage, DecisionBody, DecisionResult, ErrorBody, Frozen, Grants,
};
use crate::calls::approvers::{ApproverAdd, ApproverInfo, ApproverList};
use crate::gateway::Gateway;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new()
        .routes(routes!(approval_list))
        .routes(routes!(approval_show))
        .routes(routes!(approval_decide))
        .routes(routes!(grant_list))
        .routes(routes!(grant_revoke))
        .routes(routes!(stop_all))
        .routes(routes!(resume))
        .routes(routes!(approver_list, approver_add))
        .routes(routes!(approver_remove))
}

/// Pending approvals, oldest first; approvals in any other state, newest first.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", params(ApprovalList), responses((status = 200, description = "a page of approvals", body = ApprovalPage), (status = "default", description = "an error", body = ErrorBody)))]
async fn approval_list(
    State(app): App,
    Decider(who): Decider,
    UrlQuery(list): UrlQuery<ApprovalList>,
) -> Answer<ApprovalPage> {
    app.api.approvals(&who, list).await.map(Json)
}

/// One approval, with the exact action that would run.
#[utoipa::path(get, path = "/v1/approvals/{id}", tag = "approvals", params(("id" = String, Path, description = "the approval")), responses((status = 200, description = "the approval", body = ApprovalInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn approval_show(
    State(app): App,
    Decider(who): Decider,
    Path(id): Path<String>,
) -> Answer<ApprovalInfo> {
    app.api.approval(&who, &id).await.map(Json)
}

/// Decides an approval. The first valid decision wins; a second one is a conflict.
#[utoipa::path(post, path = "/v1/approvals/{id}/decision", tag = "approvals", params(("id" = String, Path, description = "the approval")), request_body = DecisionBody, responses((status = 200, description = "the result", body = DecisionResult), (status = "default", description = "an error", body = ErrorBody)))]
async fn approval_decide(
    State(app): App,
    Decider(who): Decider,
    Path(id): Path<String>,
    Body(body): Body<DecisionBody>,
) -> Answer<DecisionResult> {
    app.api.approval_decide(&who, &id, body).await.map(Json)
}

/// The grants in force, newest first.
#[utoipa::path(get, path = "/v1/grants", tag = "approvals", responses((status = 200, description = "the grants", body = Grants), (status = "default", description = "an error", body = ErrorBody)))]
async fn grant_list(State(app): App, Decider(who): Decider) -> Answer<Grants> {
    app.api.grants(&who).await.map(Json)
}

/// Revokes a grant.
#[utoipa::path(delete, path = "/v1/grants/{id}", tag = "approvals", params(("id" = String, Path, description = "the grant")), responses((status = 200, description = "the grants that are left", body = Grants), (status = "default", description = "an error", body = ErrorBody)))]
async fn grant_revoke(State(app): App, Decider(who): Decider, Path(id): Path<String>) -> Answer<Grants> {
    app.api.grant_revoke(&who, &id).await.map(Json)
}

/// Stops everything: turns end, no call is allowed, no turn begins.
#[utoipa::path(post, path = "/v1/stop-all", tag = "approvals", responses((status = 200, description = "everything is stopped", body = Frozen), (status = "default", description = "an error", body = ErrorBody)))]
async fn stop_all(State(app): App, Decider(who): Decider) -> Answer<Frozen> {
    app.api.stop_all(&who).await.map(Json)
}

/// Ends the stop of everything.
#[utoipa::path(post, path = "/v1/resume", tag = "approvals", responses((status = 200, description = "the stop has ended", body = Frozen), (status = "default", description = "an error", body = ErrorBody)))]
async fn resume(State(app): App, Decider(who): Decider) -> Answer<Frozen> {
    app.api.resume_all(&who).await.map(Json)
}

/// The approvers, who may decide beside the operator.
#[utoipa::path(get, path = "/v1/approvers", tag = "approvals", responses((status = 200, description = "the approvers", body = ApproverList), (status = "default", description = "an error", body = ErrorBody)))]
async fn approver_list(State(app): App, Operator(who): Operator) -> Answer<ApproverList> {
    app.api.approvers(&who).await.map(Json)
}

/// Adds an approver. Its token is in the answer, and nowhere else.
#[utoipa::path(post, path = "/v1/approvers", tag = "approvals", request_body = ApproverAdd, responses((status = 200, description = "the approver and its token", body = ApproverInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn approver_add(
    State(app): App,
    Operator(who): Operator,
    Body(add): Body<ApproverAdd>,
) -> Answer<ApproverInfo> {
    app.api.approver_add(&who, add).await.map(Json)
}

/// Removes an approver; its token is no longer valid.
#[utoipa::path(delete, path = "/v1/approvers/{id}", tag = "approvals", params(("id" = String, Path, description = "the approver")), responses((status = 200, description = "the approvers that are left", body = ApproverList), (status = "default", description = "an error", body = ErrorBody)))]
async fn approver_remove(
    State(app): App,
    Operator(who): Operator,
    Path(id): Path<String>,
) -> Answer<ApproverList> {
    app.api.approver_remove(&who, id).await.map(Json)
}
