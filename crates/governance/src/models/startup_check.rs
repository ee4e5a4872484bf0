//! The startup check: asks once, when the daemon starts, whether the models of the agents can be reached. Each fault is one
//! line that says what is wrong and what to do; it never contains a key.

use std::collections::BTreeMap;
use std::sync::Arc;

use tribune_config::StartupValidation;
use tribune_providers::ModelRef;

use super::providers::Providers;

/// The result for one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    pub model: ModelRef,
    /// `None` if it can be used.
    pub fault: Option<String>,
    pub is_strict: bool,
}

/// Checks each of these models, as far as the configuration of its provider requires it.
pub async fn validate(providers: Arc<Providers>, models: Vec<ModelRef>) -> Vec<Validation> {
    let mut lists: BTreeMap<String, Result<Vec<String>, String>> = BTreeMap::new();
    let mut found = Vec::new();
    for model in models {
        let (fault, validation) = match providers.resolve(&model) {
            Err(error) => {
                let own = providers.get(model.provider());
                (Some(error.message), own.map_or_else(Default::default, |own| own.config.startup_validation))
            }
            Ok((provider, _)) => {
                let validation = provider.config.startup_validation;
                if validation == StartupValidation::Off {
                    continue;
                }
                let listed = match lists.get(&provider.id) {
                    Some(listed) => listed.clone(),
                    None => {
                        let listed = match provider.client() {
                            Ok(client) => client.models().await.map_err(|error| error.to_string()),
                            Err(error) => Err(error.to_string()),
                        };
                        lists.insert(provider.id.clone(), listed.clone());
                        listed
                    }
                };
                let fault = match listed {
                    Err(fault) => Some(fault),
                    Ok(names) if names.iter().any(|name| name == model.model()) => None,
                    Ok(_) => Some(format!(
                        "{} does not list the model `{}`: check its name in config.json5, and what the key may use",
                        provider.id,
                        model.model()
                    )),
                };
                (fault, validation)
            }
        };
        if validation != StartupValidation::Off {
            providers.answers().note(&model, fault.clone());
            found.push(Validation { model, fault, is_strict: validation == StartupValidation::Strict });
        }
    }
    found
}
