//! The providers and models of a home, as the daemon has them or as it would have them if started from this shell.

use serde_json::{Value, json};
use tribune_config::Config;
use tribune_governance::models::inventory::take_inventory;
use tribune_governance::models::{ModelInventory, Providers, process_env};
use tribune_providers::RequestTimeouts;
use tribune_registry::{Roster, RosterAgent};
use tribune_storage::home::Home;

use crate::daemon;
use crate::error::CliError;
use crate::output::Output;

/// The inventory. Without a daemon, prints that it is based on this shell.
pub(crate) fn inventory(home: &Home, output: &Output) -> Result<Value, CliError> {
    match daemon::ask(home, "provider.list", &json!({})) {
        Err(CliError::NoDaemon(_)) => {
            output.notice(
                "no daemon is running: this is what a daemon would find with the environment of this shell",
            );
            let (_, inventory) = from_here(home)?;
            // INVARIANT: it holds only names, numbers and texts, which serialize to JSON.
            Ok(serde_json::to_value(inventory).unwrap_or_default())
        }
        asked => asked,
    }
}

/// The inventory from the settings and the environment of this process. Prints nothing.
pub(crate) fn from_here(home: &Home) -> Result<(Providers, ModelInventory), CliError> {
    let config = Config::load(&home.root().join("config.json5"))?;
    let roster = Roster::load(&home.root().join("data").join("agent-roster.jsonl"))?;
    let agents: Vec<RosterAgent> = roster.iter().cloned().collect();
    let providers = Providers::new(&config.models, &process_env(), RequestTimeouts::default());
    let inventory = take_inventory(&providers, &agents);
    Ok((providers, inventory))
}

/// `export X for p or Y for q`: the variables to set. Empty if no key is missing.
pub(crate) fn keys_to_set(inventory: &Value) -> String {
    let providers = inventory["providers"].as_array().into_iter().flatten();
    let wanted = providers.filter(|provider| provider["enabled"] == true && provider["key_set"] == false);
    let named = wanted.filter_map(|provider| {
        let models = provider["models"].as_array().map_or(0, Vec::len);
        let (env, id) = (provider["key_env"].as_str()?, provider["provider"].as_str()?);
        (models > 0).then(|| format!("{env} for {id}"))
    });
    let named: Vec<String> = named.collect();
    match named.as_slice() {
        [] => String::new(),
        [one] => format!("export {one}"),
        [others @ .., last] => format!("export {} or {last}", others.join(", ")),
    }
}

/// Whether a provider can be used, as far as that is known without a request.
pub(crate) fn is_ready(provider: &Value) -> bool {
    provider["enabled"] == true && (provider["key_env"].is_null() || provider["key_set"] == true)
}

/// A model that can be used now, as far as that is known: the default, or the first one of a usable provider.
pub(crate) fn usable_model(inventory: &Value) -> Option<&str> {
    let ready =
        || inventory["providers"].as_array().into_iter().flatten().filter(|provider| is_ready(provider));
    let models = || ready().flat_map(|provider| provider["models"].as_array().into_iter().flatten());
    let default = models().find(|model| model["default"] == true);
    default.or_else(|| models().next()).and_then(|model| model["model"].as_str())
}
