//! `tribune completions`.

use clap::Command;
use clap_complete::Shell;
use serde_json::json;

use crate::error::{CliError, CommandOutcome};
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tribune completions bash > ~/.local/share/bash-completion/completions/tribune\n  tribune completions zsh > ~/.zfunc/_tribune\n  tribune completions fish > ~/.config/fish/completions/tribune.fish"
)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(
    completions: &Completions,
    mut command: Command,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(completions.shell, &mut command, "tribune", &mut script);
    let script = String::from_utf8_lossy(&script);
    output.verbatim(&script, &json!({ "shell": completions.shell.to_string(), "script": script }))?;
    Ok(CommandOutcome::Done)
}
