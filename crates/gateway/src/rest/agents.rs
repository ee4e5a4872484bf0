//! `/v1/agents`: the roster.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use tribune_sessions::canary::ClearMark;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Operator};
use super::{Answer, App};
use crate::api_types::{AgentAdd, AgentInfo, AgentList, AgentTested, ErrorBody};
use crate::gateway::Gateway;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new()
        .routes(routes!(agent_list, agent_add))
        .routes(routes!(agent_show))
        .routes(routes!(agent_test))
}

/// The roster, and unregistered agents that were seen.
#[utoipa::path(get, path = "/v1/agents", tag = "agents", responses((status = 200, description = "the agents", body = AgentList), (status = "default", description = "an error", body = ErrorBody)))]
async fn agent_list(State(app): App, Operator(who): Operator) -> Answer<AgentList> {
    app.api.agents(&who).await.map(Json)
}

/// Adds an agent to the roster.
#[utoipa::path(post, path = "/v1/agents", tag = "agents", request_body = AgentAdd, responses((status = 200, description = "the agent", body = AgentInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn agent_add(State(app): App, Operator(who): Operator, Body(add): Body<AgentAdd>) -> Answer<AgentInfo> {
    app.api.agent_add(&who, add).await.map(Json)
}

/// Tests whether the gate holds an agent: makes it attempt something harmless that must be refused. Takes seconds.
#[utoipa::path(post, path = "/v1/agents/{agent}/test", tag = "agents", params(("agent" = String, Path, description = "agent id")), responses((status = 200, description = "the result of the test", body = AgentTested), (status = "default", description = "an error", body = ErrorBody)))]
async fn agent_test(
    State(app): App,
    Operator(who): Operator,
    Path(agent): Path<String>,
) -> Answer<AgentTested> {
    app.api.agent_test(&who, &agent, ClearMark::No).await.map(Json)
}

/// One agent.
#[utoipa::path(get, path = "/v1/agents/{agent}", tag = "agents", params(("agent" = String, Path, description = "agent id")), responses((status = 200, description = "the agent", body = AgentInfo), (status = "default", description = "an error", body = ErrorBody)))]
async fn agent_show(
    State(app): App,
    Operator(who): Operator,
    Path(agent): Path<String>,
) -> Answer<AgentInfo> {
    app.api.agent(&who, &agent).await.map(Json)
}
