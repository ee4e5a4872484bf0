//! What there is to talk to, as the daemon has it, or as it would have it if it were started from here.

use serde_json::{Value, json};
use tribune_agents::provider::Patience;
use tribune_host::Home;
use tribune_host::config::Config;
use tribune_host::models::{Providers, Survey, process_env, survey as look};
use tribune_host::registry::{Roster, RosterAgent};

use crate::daemon;
use crate::error::CliError;
use crate::output::Output;

/// Providers, models and which agent uses what. Without a daemon, says whose keys were looked for.
pub(crate) fn survey(home: &Home, output: &Output) -> Result<Value, CliError> {
    match daemon::ask(home, "provider.list", &json!({})) {
        Err(CliError::NoDaemon(_)) => {
            output.aside(
                "no daemon is running: this is what one would find with the environment of this shell",
            );
            let (_, survey) = from_here(home)?;
            // INVARIANT: names, numbers and texts are JSON.
            Ok(serde_json::to_value(survey).unwrap_or_default())
        }
        asked => asked,
    }
}

/// The same without a word, and with the settings and the environment of this process.
pub(crate) fn from_here(home: &Home) -> Result<(Providers, Survey), CliError> {
    let config = Config::load(&home.root().join("config.json5"))?;
    let roster = Roster::load(&home.root().join("data").join("agent-roster.jsonl"))?;
    let agents: Vec<RosterAgent> = roster.iter().cloned().collect();
    let providers = Providers::new(&config.models, &process_env(), Patience::default());
    let survey = look(&providers, &agents);
    Ok((providers, survey))
}

/// `export X for p or Y for q`: what to set where no key is. Empty if there is nothing to set.
pub(crate) fn keys_to_set(survey: &Value) -> String {
    let providers = survey["providers"].as_array().into_iter().flatten();
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

/// Whether a provider lacks nothing, as far as that is known without asking it.
pub(crate) fn is_ready(provider: &Value) -> bool {
    provider["enabled"] == true && (provider["key_env"].is_null() || provider["key_set"] == true)
}

/// A model that can be asked now, as far as that is known: the house's default, or the first whose provider lacks nothing.
pub(crate) fn usable_model(survey: &Value) -> Option<&str> {
    let ready = || survey["providers"].as_array().into_iter().flatten().filter(|provider| is_ready(provider));
    let models = || ready().flat_map(|provider| provider["models"].as_array().into_iter().flatten());
    let default = models().find(|model| model["default"] == true);
    default.or_else(|| models().next()).and_then(|model| model["model"].as_str())
}
