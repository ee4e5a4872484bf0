//! `/v1/gate`: policy decisions for other agent harnesses, with the operator's token or a gate pass of the agent.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, GateCaller};
use super::{Answer, App};
use crate::api_types::ErrorBody;
use crate::calls::external_gate::{AfterToolCall, BeforeToolCall, GateVerdict, Labelled, MessageReceived};
use crate::gateway::Gateway;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new()
        .routes(routes!(message_received))
        .routes(routes!(before_tool_call))
        .routes(routes!(after_tool_call))
}

/// Adds the labels of a received message to the session. Trust can only sink. Send the operator's token, or a gate pass of the agent; only the operator's token may say `owner`.
#[utoipa::path(post, path = "/v1/gate/message_received", tag = "gate", request_body = MessageReceived, responses((status = 200, description = "the labels of everything that the session has received so far", body = Labelled), (status = "default", description = "an error", body = ErrorBody)))]
async fn message_received(
    State(app): App,
    GateCaller(who): GateCaller,
    Body(message): Body<MessageReceived>,
) -> Answer<Labelled> {
    app.api.gate_message_received(&who, message).await.map(Json)
}

/// Asks whether a call may be made. Send the operator's token, or a gate pass of the agent. Asking again with the same toolCallId returns its current state.
#[utoipa::path(post, path = "/v1/gate/before_tool_call", tag = "gate", request_body = BeforeToolCall, responses((status = 200, description = "the verdict", body = GateVerdict), (status = "default", description = "an error", body = ErrorBody)))]
async fn before_tool_call(
    State(app): App,
    GateCaller(who): GateCaller,
    Body(call): Body<BeforeToolCall>,
) -> Answer<GateVerdict> {
    app.api.gate_before_tool_call(&who, call).await.map(Json)
}

/// Reports the result of a call with the operator's token or a gate pass of the agent, and updates the labels of the session.
#[utoipa::path(post, path = "/v1/gate/after_tool_call", tag = "gate", request_body = AfterToolCall, responses((status = 200, description = "the labels of everything that the session has received so far", body = Labelled), (status = "default", description = "an error", body = ErrorBody)))]
async fn after_tool_call(
    State(app): App,
    GateCaller(who): GateCaller,
    Body(call): Body<AfterToolCall>,
) -> Answer<Labelled> {
    app.api.gate_after_tool_call(&who, call).await.map(Json)
}
