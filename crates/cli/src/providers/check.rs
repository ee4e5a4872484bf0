//! `tribune providers test`: one line for each test.

use serde_json::{Value, json};
use tribune_config::Config;
use tribune_governance::models::{CheckBilling, tries_any, try_out};
use tribune_runtime::RuntimeError;
use tribune_storage::home::Home;

use super::inventory;
use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::output::{Output, Paint, cell, clean};

pub(crate) fn run(
    target: Option<&str>,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let trials = match daemon::ask(home, "provider.test", &json!({ "target": target })) {
        Ok(trials) => {
            hint_at_own_keys(&trials, home, output);
            trials
        }
        Err(CliError::NoDaemon(_)) => {
            output.notice(
                "no daemon is running: testing from this process, with the environment of this shell",
            );
            let (providers, inventory) = inventory::from_here(home)?;
            let input_error = |error: RuntimeError| CliError::Input(error.message);
            if tries_any(&providers, &inventory, target).map_err(input_error)? {
                // The cost is recorded where a daemon records it.
                let config = Config::load(&home.root().join("config.json5"))?;
                let (billing, _lock) = CheckBilling::open(home, &config)?;
                let tried = daemon::runtime()?.block_on(try_out(&providers, &inventory, target, &billing));
                // INVARIANT: it holds only names, numbers and texts, which serialize to JSON.
                serde_json::to_value(tried.map_err(input_error)?).unwrap_or_default()
            } else {
                json!({ "ok": false, "providers": [] })
            }
        }
        Err(CliError::Daemon(error)) if error.code() == Some("not_found") && is_known_here(target, home) => {
            return Err(CliError::Input(format!(
                "config.json5 has it, but the daemon started before it was added: run `{}` and `{}`",
                next_command(home, "down"),
                next_command(home, "up")
            )));
        }
        Err(error) => return Err(error),
    };
    output.verdict(|paint| text(&trials, paint), &trials)?;
    Ok(if trials["ok"] == true { CommandOutcome::Done } else { CommandOutcome::Failed })
}

fn text(trials: &Value, paint: Paint) -> String {
    let trials = trials["providers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if trials.is_empty() {
        return "no provider is set up: set the key of a provider (`tribune providers list` names the variables), or \
                add one with `tribune providers add`"
            .to_owned();
    }
    let lines = trials.iter().flat_map(|trial| {
        let checks = trial["checks"].as_array().into_iter().flatten();
        checks.map(move |check| line(trial, check, paint))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn line(trial: &Value, check: &Value, paint: Paint) -> String {
    let word = if check["ok"] == true { paint.good("ok  ") } else { paint.bad("FAIL") };
    let took = check["took_ms"].as_u64().map(|ms| paint.faint(&format!(" ({ms} ms)"))).unwrap_or_default();
    // It may quote the provider.
    let message = clean(check["message"].as_str().unwrap_or_default());
    format!("{word} {} {}: {message}{took}", cell(&trial["provider"]), cell(&check["check"]))
}

/// Points out keys that this shell has and the daemon lacks, which is the most likely mistake.
fn hint_at_own_keys(trials: &Value, home: &Home, output: &Output) {
    let lacks_key = |trial: &&Value| {
        let mut checks = trial["checks"].as_array().into_iter().flatten();
        checks.any(|check| check["code"] == "missing_key")
    };
    let lacking = trials["providers"].as_array().into_iter().flatten().filter(lacks_key);
    let lacking: Vec<&str> = lacking.filter_map(|trial| trial["provider"].as_str()).collect();
    let Ok((providers, _)) = inventory::from_here(home) else { return };
    for provider in lacking.iter().filter_map(|id| providers.get(id)).filter(|own| own.has_key) {
        output.notice(&format!(
            "{} is set in this shell, but the daemon started without it: run `{}` and `{}` here",
            provider.config.key_env.as_deref().unwrap_or_default(),
            next_command(home, "down"),
            next_command(home, "up")
        ));
    }
}

fn is_known_here(target: Option<&str>, home: &Home) -> bool {
    let target = target.unwrap_or_default();
    inventory::from_here(home).is_ok_and(|(providers, _)| match target.parse() {
        Ok(model) => providers.resolve(&model).is_ok(),
        Err(_) => providers.enabled(target).is_ok(),
    })
}
