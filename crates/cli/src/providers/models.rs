//! `tribune models`: the models that agents can use.

use serde_json::Value;
use tribune_storage::home::Home;

use super::inventory;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, cell, clean, table};

pub(crate) fn run(home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let inventory = inventory::inventory(home, output)?;
    output.result(|paint| text(&inventory, paint), &inventory)?;
    Ok(CommandOutcome::Done)
}

fn text(inventory: &Value, paint: Paint) -> String {
    let providers = || inventory["providers"].as_array().into_iter().flatten();
    let models = providers().flat_map(|provider| {
        let models = provider["models"].as_array().into_iter().flatten();
        models.map(move |model| row(provider, model))
    });
    let rows: Vec<Vec<String>> = models.collect();
    let mut parts = vec![table(&["MODEL", "CONTEXT", "OUTPUT", "CAN", "READY", "USED BY"], &rows, paint)];
    let bare = providers().filter(|provider| provider["models"].as_array().is_none_or(Vec::is_empty));
    let bare: Vec<String> = bare.map(|provider| cell(&provider["provider"])).collect();
    if !bare.is_empty() {
        parts.push(paint.faint(&format!(
            "no model is declared for {}: `tribune providers add {} --model NAME --context-window N --max-output N`",
            bare.join(", "),
            bare[0]
        )));
    }
    parts.push(match inventory["default_model"].as_str() {
        Some(model) => format!("agents without a model of their own use {}", cell(&model.into())),
        None => {
            "there is no default model: set models.default in config.json5, or name a model for each agent"
                .to_owned()
        }
    });
    let faults = inventory["agents"].as_array().into_iter().flatten().filter_map(|agent| {
        let fault = agent["fault"].as_str()?;
        let line = format!("agent `{}` has no usable model: {}", cell(&agent["agent_id"]), clean(fault));
        Some(paint.unsure(&line))
    });
    parts.extend(faults);
    parts.join("\n")
}

fn row(provider: &Value, model: &Value) -> Vec<String> {
    let abilities = ["tools", "streaming", "images"].into_iter().filter(|name| model[*name] == true);
    let thinks = (model["thinking"] != "off").then_some("thinking");
    let abilities: Vec<&str> = abilities.chain(thinks).collect();
    let users = model["agents"].as_array().into_iter().flatten().map(cell);
    let default = (model["default"] == true).then(|| "the default".to_owned());
    let users: Vec<String> = default.into_iter().chain(users).collect();
    vec![
        cell(&model["model"]),
        cell(&model["context_window"]),
        cell(&model["max_output_tokens"]),
        abilities.join(", "),
        if inventory::is_ready(provider) { "yes".to_owned() } else { "no".to_owned() },
        users.join(", "),
    ]
}
