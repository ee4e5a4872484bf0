//! `tribune import`: prints entries that make Tribune known to other programs.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::error::{CliError, CommandOutcome};
use crate::output::Output;
use crate::version::VERSION;

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Print Tribune's entry for the ACP registry, from which editors install agents.
    #[command(
        after_help = "Examples:\n  tribune import acp-registry-entry --archive https://example.com/tribune-linux-x86_64.tar.gz"
    )]
    AcpRegistryEntry {
        /// The address of this release's archive, which holds the program `tribune`.
        #[arg(long, value_name = "URL", value_parser = archive)]
        archive: String,
    },
}

pub(crate) fn run(command: &ImportCommand, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let ImportCommand::AcpRegistryEntry { archive } = command;
    let entry = entry(archive);
    output.result(|_| format!("{entry:#}"), &entry)?;
    Ok(CommandOutcome::Done)
}

/// Checks that the registry accepts the address. Editors unpack archives; they run no installers.
fn archive(text: &str) -> Result<String, String> {
    let place = text.strip_prefix("https://").unwrap_or_default();
    let is_address =
        !place.is_empty() && !place.starts_with('/') && text.chars().all(|c| c.is_ascii_graphic());
    if !is_address {
        return Err("give the full address, which starts with https://".to_owned());
    }
    if [".dmg", ".pkg", ".deb", ".rpm", ".msi"].iter().any(|kind| text.ends_with(kind)) {
        return Err("the registry accepts archives such as .tar.gz and .zip, not installers".to_owned());
    }
    Ok(text.to_owned())
}

/// The registry's name for this platform.
fn platform(os: &str, arch: &str) -> String {
    format!("{}-{arch}", if os == "macos" { "darwin" } else { os })
}

fn entry(archive: &str) -> Value {
    let platform = platform(std::env::consts::OS, std::env::consts::ARCH);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the entry against the registry's `agent.schema.json`, member by member.
    #[test]
    fn registry_entry_matches_the_registry_schema() {
        let entry = entry("https://example.com/tribune.tar.gz");
        for required in ["id", "name", "version", "description", "distribution"] {
            assert!(!entry[required].is_null() && entry[required] != "", "{required}: {entry}");
        }
        for (name, member) in entry.as_object().unwrap() {
            let known = ["id", "name", "version", "description", "license", "distribution"];
            assert!(known.contains(&name.as_str()), "{name}");
            assert_eq!(member.is_string(), name != "distribution", "{name}");
        }
        let id = entry["id"].as_str().unwrap();
        assert!(id.starts_with(|c: char| c.is_ascii_lowercase()));
        assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        let version: Vec<&str> = entry["version"].as_str().unwrap().split('.').collect();
        let is_number = |part: &&str| part.starts_with(|c: char| c.is_ascii_digit());
        assert!(version.len() >= 3 && version[..3].iter().all(is_number), "{version:?}");
        let distribution = entry["distribution"].as_object().unwrap();
        assert_eq!(distribution.keys().collect::<Vec<_>>(), ["binary"]);
        let targets = distribution["binary"].as_object().unwrap();
        assert_eq!(targets.len(), 1);
        for (platform, target) in targets {
            let platforms = ["darwin-aarch64", "darwin-x86_64", "linux-aarch64", "linux-x86_64"];
            assert!(platforms.contains(&platform.as_str()), "{platform}");
            let expected = json!({ "archive": "https://example.com/tribune.tar.gz", "cmd": "./tribune", "args": ["acp"] });
            assert_eq!(*target, expected);
        }
        assert_eq!(platform("macos", "aarch64"), "darwin-aarch64");
    }

    #[test]
    fn archive_address_must_be_https_and_an_archive() {
        for good in ["https://example.com/tribune-linux-x86_64.tar.gz", "https://example.com/a.zip?b=c"] {
            assert_eq!(archive(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "tribune.tar.gz",
            "http://example.com/a.zip",
            "https://",
            "https:///a.zip",
            "https://a b",
            "https://a/t.deb",
        ] {
            assert!(archive(bad).is_err(), "{bad}");
        }
    }
}
