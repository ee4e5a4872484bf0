//! Providers and models, for the operator: lists them and tests whether they work. Over JSON-RPC and plain HTTP alike.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tribune_governance::models::inventory::take_inventory;
use tribune_governance::models::{CheckBilling, ModelInventory, Trials, try_out};
use tribune_runtime::RuntimeError;
use tribune_sessions::session::SessionError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Gateway;
use super::api::Api;
use super::api_types::ErrorBody;
use super::error::ApiError;
use super::principal::Principal;
use super::rest::{Body, Operator};

/// `provider.test`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderTest {
    /// A provider, or one model as `provider:model`. Without it: every provider that is configured.
    pub target: Option<String>,
}

impl Api {
    pub fn providers(&self, who: &Principal) -> Result<ModelInventory, ApiError> {
        who.operator()?;
        Ok(take_inventory(&self.providers, &self.agents.all()))
    }

    /// Like [`Api::providers`], but waits for the provider requests of the daemon's start, so that an early caller sees
    /// their result.
    pub async fn provider_list(&self, who: &Principal) -> Result<ModelInventory, ApiError> {
        who.operator()?;
        self.providers.answers().settled().await;
        self.providers(who)
    }

    /// Tests providers with real requests, which cost a few tokens each.
    pub async fn provider_test(&self, who: &Principal, test: ProviderTest) -> Result<Trials, ApiError> {
        let survey = self.providers(who)?;
        let governance = self.sessions.governance();
        let (budgets, clock) =
            (Arc::clone(&governance.model_requests.budgets), Arc::clone(&governance.storage.clock));
        let billing = CheckBilling::new(budgets, governance.model_requests.log.clone(), clock);
        let refused = |error: RuntimeError| ApiError::new("not_found", error.message);
        tokio::select! {
            () = self.status.draining.cancelled() => Err(SessionError::Draining.into()),
            tried = try_out(&self.providers, &survey, test.target.as_deref(), &billing) => tried.map_err(refused),
        }
    }
}

type App = State<Arc<Gateway>>;
type Answer<T> = Result<Json<T>, ApiError>;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new().routes(routes!(provider_list)).routes(routes!(provider_test))
}

/// Providers and models, and which agent uses which. Of a key it shows only whether it is set.
#[utoipa::path(get, path = "/v1/providers", tag = "models", responses((status = 200, description = "the providers and models", body = ModelInventory), (status = "default", description = "an error", body = ErrorBody)))]
async fn provider_list(State(app): App, Operator(who): Operator) -> Answer<ModelInventory> {
    app.api.provider_list(&who).await.map(Json)
}

/// Tests providers: whether the key is set, the provider answers and the model answers. Makes real requests of a few tokens.
#[utoipa::path(post, path = "/v1/providers/test", tag = "models", request_body = ProviderTest, responses((status = 200, description = "the result of each test", body = Trials), (status = "default", description = "an error", body = ErrorBody)))]
async fn provider_test(
    State(app): App,
    Operator(who): Operator,
    Body(test): Body<ProviderTest>,
) -> Answer<Trials> {
    app.api.provider_test(&who, test).await.map(Json)
}
