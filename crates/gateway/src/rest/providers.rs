//! `/v1/providers`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Body, Operator};
use super::{Answer, App};
use crate::api_types::ErrorBody;
use crate::calls::providers::ProviderTest;
use crate::gateway::Gateway;
use crate::views::{InventoryView, ProviderTestView};

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new().routes(routes!(provider_list)).routes(routes!(provider_test))
}

/// Providers and models, and which agent uses which. Of a key it shows only whether it is set.
#[utoipa::path(get, path = "/v1/providers", tag = "models", responses((status = 200, description = "the providers and models", body = InventoryView), (status = "default", description = "an error", body = ErrorBody)))]
async fn provider_list(State(app): App, Operator(who): Operator) -> Answer<InventoryView> {
    app.api.provider_list(&who).await.map(Json)
}

/// Tests providers: whether the key is set, the provider answers and the model answers. Makes real requests of a few tokens.
#[utoipa::path(post, path = "/v1/providers/test", tag = "models", request_body = ProviderTest, responses((status = 200, description = "the result of each test", body = ProviderTestView), (status = "default", description = "an error", body = ErrorBody)))]
async fn provider_test(
    State(app): App,
    Operator(who): Operator,
    Body(test): Body<ProviderTest>,
) -> Answer<ProviderTestView> {
    app.api.provider_test(&who, test).await.map(Json)
}
