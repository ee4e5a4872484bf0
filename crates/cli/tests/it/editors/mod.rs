//! Third-party clients, in the versions that `e2e/acp` pins, against the real binary: acpx, which starts `tribune acp`
//! as an editor does, and the official SDK over a WebSocket and over HTTP. Every message that they get is validated
//! against the protocol's schema.
//!
//! `scripts/test` installs the programs; `TRIBUNE_E2E_ACP` names their folder.

mod acpx;
mod additional_directories;
pub(crate) mod mcp_servers;
mod sdk;
mod stdio;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::fixture::{CliOutput, Place, binary, cli_output};

const MANDATE: &str = "---\ntools: read, search, write, edit\n---\n# For work\n";
const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"work\"}\n";
const ASK: &str = r#"@id("ask-write") forbid(principal, action == Tribune::Action::"write", resource) unless { context.approved };"#;

/// A home whose agent needs an approval to write, with a project beside it. Dropping it stops its daemon.
pub(crate) struct EditorHome {
    pub(crate) place: Place,
}

impl EditorHome {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        for (name, text) in [
            ("config.json5", "{ gateway: { address: '127.0.0.1:0' } }"),
            ("mandates/work.md", MANDATE),
            ("data/agent-roster.jsonl", ROSTER),
            ("policy/ask.cedar", ASK),
        ] {
            let path = place.home().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir(place.path("project")).unwrap();
        Self { place }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.place.path("project").canonicalize().unwrap()
    }

    /// Calls acpx with `tribune acp` as its agent, in the project.
    pub(crate) fn acpx(&self, args: &[&str]) -> CliOutput {
        acpx(&self.place, &self.project(), "", args)
    }
}

impl Drop for EditorHome {
    fn drop(&mut self) {
        let _ = self.place.command(&["down", "--now"]).output();
    }
}

/// Calls acpx in a folder, with `tribune acp` and more arguments as its agent.
pub(crate) fn acpx(place: &Place, folder: &Path, more: &str, args: &[&str]) -> CliOutput {
    let agent = format!("{} --home {} acp {more}", binary().display(), place.home().display());
    let mut command = Command::new(node());
    command.arg(programs().join("node_modules/acpx/dist/cli.js")).args(["--agent", &agent]).args(args);
    command.env("HOME", place.path("acpx")).env("PATH", path_with_node()).current_dir(folder);
    std::fs::create_dir_all(place.path("acpx")).unwrap();
    cli_output(command.output().unwrap())
}

/// Validates Tribune's messages to acpx against the schema. Returns their number.
pub(crate) fn assert_valid(place: &Place, messages: &str) -> u64 {
    let file = place.path("messages.jsonl");
    std::fs::write(&file, messages).unwrap();
    let output = Command::new(node()).arg(programs().join("valid.mjs")).arg(file).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(found["faults"], serde_json::json!([]));
    found["checked"].as_u64().unwrap()
}

pub(crate) fn node() -> PathBuf {
    programs().join("node_modules/node/bin/node")
}

fn path_with_node() -> String {
    let own = programs().join("node_modules/node/bin");
    format!("{}:{}", own.display(), std::env::var("PATH").unwrap_or_default())
}

pub(crate) fn programs() -> PathBuf {
    let place = std::env::var_os("TRIBUNE_E2E_ACP").expect(
        "these tests need acpx and the ACP SDK: run scripts/test, or copy e2e/acp somewhere, call `npm install` there and set \
         TRIBUNE_E2E_ACP to it",
    );
    PathBuf::from(place)
}
