//! `tribune providers`: lists, tests and adds model providers. `tribune models` is in [`models`].

mod add;
mod check;
pub(crate) mod inventory;
pub(crate) mod models;

use clap::Subcommand;
use serde_json::Value;
use tribune_storage::home::Home;

use self::add::AddProviderArgs;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, cell, table};

#[derive(Debug, Subcommand)]
pub(crate) enum ProvidersCommand {
    /// List the providers, and whether their API keys are set.
    ///
    /// The environment of the running daemon counts; without a daemon, that of this shell. Keys are never shown.
    List,
    /// Test providers: is the key set, does the provider answer, does the model answer?
    ///
    /// Sends a real request to each tested model: a few tokens, which the provider may charge for. The running daemon
    /// sends it, with the keys that it was started with; without a daemon, this process does, with the keys of this
    /// shell.
    ///
    /// Exit codes: 0 all tests passed, 1 a test failed.
    #[command(
        after_help = "Examples:\n  tribune providers test                            every provider that is set up\n  tribune providers test anthropic                  one of its models\n  tribune providers test moonshot:kimi-k1-128k      this model"
    )]
    Test {
        /// A provider or one of its models [default: every provider with a key, and those in config.json5].
        #[arg(value_name = "PROVIDER|PROVIDER:MODEL")]
        target: Option<String>,
    },
    Add(AddProviderArgs),
}

pub(crate) fn run(
    command: ProvidersCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    match command {
        ProvidersCommand::List => {
            let inventory = inventory::inventory(home, output)?;
            output.result(|paint| text(&inventory, paint), &inventory["providers"])?;
            Ok(CommandOutcome::Done)
        }
        ProvidersCommand::Test { target } => check::run(target.as_deref(), home, output),
        ProvidersCommand::Add(args) => add::run(args, home, output),
    }
}

fn text(inventory: &Value, paint: Paint) -> String {
    let row = |provider: &Value| {
        let key = match (provider["key_env"].as_str(), provider["key_set"] == true) {
            (None, _) => "none needed".to_owned(),
            (Some(env), true) => format!("{env} is set"),
            (Some(env), false) => format!("{env} is not set"),
        };
        let known = provider["models"].as_array().map_or(0, Vec::len);
        let at_start = if provider["enabled"] == true {
            cell(&provider["startup_validation"])
        } else {
            "switched off".to_owned()
        };
        vec![
            cell(&provider["provider"]),
            cell(&provider["dialect"]),
            cell(&key.into()),
            known.to_string(),
            at_start,
            cell(&provider["base_url"]),
        ]
    };
    let rows: Vec<Vec<String>> = inventory["providers"].as_array().into_iter().flatten().map(row).collect();
    let heading = ["PROVIDER", "DIALECT", "KEY", "MODELS", "AT START", "BASE URL"];
    format!(
        "{}\n\n{}",
        table(&heading, &rows, paint),
        paint.faint("`tribune models` lists the models, `tribune providers test` tests them, `tribune providers add` adds more")
    )
}
