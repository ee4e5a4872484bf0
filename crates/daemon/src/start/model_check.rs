//! Checks at the start that the models of the agents can be used. Only providers that are strict can stop the start.

use std::collections::BTreeSet;
use std::sync::Arc;

use tribune_config::StartupValidation;
use tribune_governance::models::Providers;
use tribune_governance::models::startup_check::validate;
use tribune_governance::turn::Governance;
use tribune_providers::ModelRef;
use tribune_registry::{Agents, asks_a_model};

use crate::start_error::StartError;

/// Runs the startup check of the models that the agents use. Strict providers are awaited; the others are checked in the
/// background, and their faults are logged.
pub(super) async fn check_models(
    providers: &Arc<Providers>,
    agents: &Agents,
    governance: &Governance,
) -> Result<(), StartError> {
    let default = providers.default_model();
    let named = agents.all().into_iter().filter(|agent| asks_a_model(&agent.backend));
    let named = named.filter_map(|agent| match agent.model {
        Some(model) => model.parse::<ModelRef>().ok(),
        None => default.clone(),
    });
    let used: BTreeSet<ModelRef> = named.chain(default.clone()).collect();
    let is_strict = |model: &ModelRef| {
        let provider = providers.get(model.provider());
        provider.is_some_and(|own| own.config.startup_validation == StartupValidation::Strict)
    };
    let (strict, others): (Vec<ModelRef>, Vec<ModelRef>) = used.into_iter().partition(is_strict);
    for checked in validate(Arc::clone(providers), strict).await {
        if let Some(fault) = checked.fault {
            return Err(StartError::Model { model: checked.model.to_string(), fault });
        }
    }
    let providers = Arc::clone(providers);
    let leaving = governance.shutdown().clone();
    governance.background().spawn(async move {
        let checked = tokio::select! {
            () = leaving.cancelled() => return,
            checked = validate(Arc::clone(&providers), others) => checked,
        };
        providers.answers().settle();
        for checked in checked {
            if let Some(fault) = checked.fault {
                tracing::warn!("{} cannot be used yet: {fault}", checked.model);
            }
        }
    });
    Ok(())
}
