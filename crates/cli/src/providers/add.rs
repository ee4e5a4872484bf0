//! `tribune providers add`: writes a provider into config.json5 and keeps the rest of the file.

use clap::{Args, ValueEnum};
use serde_json::json;
use tribune_config::Config;
use tribune_config::edit::{DeclaredModel, EditError, Existing, NewProvider, add_provider};
use tribune_providers::ApiDialect;
use tribune_storage::home::Home;

use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::output::{Output, clean};
use crate::{daemon, init};

/// Add a provider, or models of a built-in provider, to config.json5.
///
/// If the provider is already there, only the models are added. Comments and formatting are kept, and the file is
/// replaced atomically, only if the daemon would accept it. API keys are never written: --key-env names the environment
/// variable that holds the key when the daemon starts.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune providers add ollama --model qwen3:8b --context-window 40960 --max-output 8192\n  tribune providers add acme --dialect openai-compatible --base-url https://models.example.org/v1 --key-env ACME_API_KEY --model large --context-window 128000 --max-output 8192\n  tribune providers add llama --base-url http://127.0.0.1:8080/v1 --local --model llama --context-window 32768 --max-output 4096"
)]
pub(crate) struct AddProviderArgs {
    /// Its id: lowercase letters, digits, `-` and `_`. A built-in provider needs no address.
    id: String,
    /// Its API [default: openai-compatible, or that of the built-in provider].
    #[arg(long, value_enum)]
    dialect: Option<DialectWord>,
    /// The base address of its API, such as https://models.example.org/v1.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The environment variable that holds its API key; never the key itself.
    #[arg(long, value_name = "VARIABLE", conflicts_with = "local")]
    key_env: Option<String>,
    /// It runs on this machine and needs no key.
    #[arg(long)]
    local: bool,
    /// A model, by the provider's name for it; may be repeated.
    #[arg(long = "model", value_name = "NAME", requires_all = ["context_window", "max_output"])]
    models: Vec<String>,
    /// The context window of these models, in tokens.
    #[arg(long, value_name = "TOKENS", requires = "models")]
    context_window: Option<u64>,
    /// The largest answer of these models, in tokens.
    #[arg(long, value_name = "TOKENS", requires = "models")]
    max_output: Option<u64>,
    /// Replace what config.json5 says about this provider.
    #[arg(long)]
    replace: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum DialectWord {
    /// Anthropic Messages
    Anthropic,
    /// Chat Completions as OpenAI accepts it
    Openai,
    /// Chat Completions as most other providers accept it
    #[value(alias = "openai_compatible")]
    OpenaiCompatible,
    /// Gemini's own API, for programs that use it themselves
    Gemini,
}

pub(crate) fn run(
    args: AddProviderArgs,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let home = &Home::at(init::absolute(home)?);
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    let provider = provider(args);
    home.prepare()?;
    let path = home.root().join("config.json5");
    add_provider(&path, &provider, existing).map_err(refused)?;
    let config = Config::load(&path)?;
    let key_env = config.models.providers.get(&provider.id).and_then(|known| known.key_env.clone());
    let missing = key_env.filter(|name| std::env::var_os(name).is_none());
    let steps = next_steps(&provider.id, missing.as_deref(), home);
    let value = json!({ "provider": provider.id, "file": path, "next": steps });
    output.result(
        |_| format!("added {} to {}\n\nnext:\n  {}", clean(&provider.id), path.display(), steps.join("\n  ")),
        &value,
    )?;
    Ok(CommandOutcome::Done)
}

fn provider(args: AddProviderArgs) -> NewProvider {
    let AddProviderArgs {
        id,
        dialect,
        base_url,
        key_env,
        local,
        models,
        context_window,
        max_output,
        replace: _,
    } = args;
    let model = |name: String| DeclaredModel {
        name,
        // INVARIANT: clap requires both limits with a model, and the configuration reader refuses zero.
        context_window: context_window.unwrap_or(0),
        max_output_tokens: max_output.unwrap_or(0),
    };
    NewProvider {
        id,
        dialect: dialect.map(|word| match word {
            DialectWord::Anthropic => ApiDialect::Anthropic,
            DialectWord::Openai => ApiDialect::OpenAi,
            DialectWord::OpenaiCompatible => ApiDialect::OpenAiCompatible,
            DialectWord::Gemini => ApiDialect::Gemini,
        }),
        base_url,
        key_env,
        is_local: local,
        models: models.into_iter().map(model).collect(),
    }
}

fn next_steps(id: &str, missing: Option<&str>, home: &Home) -> Vec<String> {
    let mut steps: Vec<String> = missing.map(|name| format!("export {name}=…")).into_iter().collect();
    let up = next_command(home, "up --detach");
    steps.push(match daemon::is_running(home) {
        Some(_) => format!("{} && {up}", next_command(home, "down")),
        None => up,
    });
    steps.push(next_command(home, &format!("providers test {id}")));
    steps
}

fn refused(error: EditError) -> CliError {
    match error {
        EditError::Before(error) => error.into(),
        EditError::File { path, error } => CliError::File { path, error },
        EditError::After(_)
        | EditError::Secret(_)
        | EditError::NoVariable
        | EditError::Exists(_)
        | EditError::ModelExists { .. }
        | EditError::Insecure(_)
        | EditError::Unclear(_) => CliError::Input(error.to_string()),
    }
}
