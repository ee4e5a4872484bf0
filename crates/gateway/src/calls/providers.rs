//! Providers and models, for the operator: lists them and tests whether they work.

use std::sync::Arc;

use serde::Deserialize;
use tribune_governance::models::inventory::take_inventory;
use tribune_governance::models::{CheckBilling, ModelInventory, try_out};
use tribune_runtime::RuntimeError;
use tribune_sessions::session::SessionError;
use utoipa::ToSchema;

use crate::api::Api;
use crate::error::ApiError;
use crate::principal::Principal;
use crate::views::{InventoryView, ProviderTestView};

/// `provider.test`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderTest {
    /// A provider, or one model as `provider:model`. Without it: every provider that is configured.
    pub(crate) target: Option<String>,
}

impl Api {
    pub(crate) fn providers(&self, who: &Principal) -> Result<ModelInventory, ApiError> {
        who.operator()?;
        Ok(take_inventory(&self.providers, &self.agents.all()))
    }

    /// Like [`Api::providers`], but waits for the provider requests of the daemon's start, so that an early caller sees
    /// their result.
    pub(crate) async fn provider_list(&self, who: &Principal) -> Result<InventoryView, ApiError> {
        who.operator()?;
        self.providers.answers().settled().await;
        self.providers(who).map(InventoryView::from)
    }

    /// Tests providers with real requests, which cost a few tokens each.
    pub(crate) async fn provider_test(
        &self,
        who: &Principal,
        test: ProviderTest,
    ) -> Result<ProviderTestView, ApiError> {
        let survey = self.providers(who)?;
        let governance = self.sessions.governance();
        let (budgets, clock) =
            (Arc::clone(&governance.model_requests.budgets), Arc::clone(&governance.storage.clock));
        let billing = CheckBilling::new(budgets, governance.model_requests.log.clone(), clock);
        let refused = |error: RuntimeError| ApiError::new("not_found", error.message);
        tokio::select! {
            () = self.status.draining.cancelled() => Err(SessionError::Draining.into()),
            tried = try_out(&self.providers, &survey, test.target.as_deref(), &billing) => tried.map(ProviderTestView::from).map_err(refused),
        }
    }
}
