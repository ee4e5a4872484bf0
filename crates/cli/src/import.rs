//! `tribune import`: what other programs import to know Tribune.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::error::{CliError, Outcome};
use crate::output::Output;
use crate::version::VERSION;

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Print the entry of Tribune for the ACP registry, from which editors install agents.
    #[command(
        after_help = "Examples:\n  tribune import acp-registry-entry --archive https://example.com/tribune-linux-x86_64.tar.gz"
    )]
    AcpRegistryEntry {
        /// Where the archive of this release is, with the program `tribune` in it.
        #[arg(long, value_name = "URL")]
        archive: String,
    },
}

pub(crate) fn run(command: &ImportCommand, output: &mut Output) -> Result<Outcome, CliError> {
    let ImportCommand::AcpRegistryEntry { archive } = command;
    let entry = entry(archive);
    output.result(|_| format!("{entry:#}"), &entry)?;
    Ok(Outcome::Done)
}

fn entry(archive: &str) -> Value {
    let platform = format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH);
    json!({
        "id": "tribune",
        "name": "Tribune",
        "version": VERSION,
        "description": "Runs AI agents under law: every call is judged, asked about where the law says so, and written into a ledger.",
        "license": env!("CARGO_PKG_LICENSE"),
        "distribution": {
            "binary": { platform: { "archive": archive, "cmd": "./tribune", "args": ["acp"] } },
        },
    })
}
