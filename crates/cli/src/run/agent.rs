//! `tribune run claude`: a CLI agent on the current folder, with the conversation of `tribune chat`.
//!
//! It is a registered agent whose workspace is the folder. Each combination of folder, model and mode has its own
//! agent, which is added at the first use. Its changes go to the folder directly, because the law decides each call
//! before it happens.

use std::path::Path;

use serde_json::json;
use tribune_client::ClientError;
use tribune_constitution::ApprovalMode;
use tribune_daemon::daemon::write_if_missing;
use tribune_ledger::cid::Domain;
use tribune_registry::profiles::{Profiles, missing};
use tribune_storage::home::Home;

use super::run_spec::canonical_path;
use super::{RunArgs, WorkspaceMode, start_daemon};
use crate::chat::{self, ChatArgs};
use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::output::Output;
use crate::{daemon, init};

/// The mandate of these agents. The file is written if the home has none of this name.
const MANDATE: &str = "cli";
const MANDATE_TEXT: &str = "---\ntools: read, write, edit, exec, search, web_fetch\n---\n# For agents on a folder of this machine\n\nWork on the \
                            folder you were given. What you may do is decided call by call.\n";

/// Bytes of the hash in an agent's id: enough for the folders of one person.
const NAME_BYTES: usize = 5;

/// A run of an agent instead of a program.
pub(super) struct AgentRun {
    profile: String,
    words: Vec<String>,
}

impl AgentRun {
    /// A first word that is a profile's name means the agent, unless `--` stands before it.
    pub(super) fn from_args(args: &RunArgs, home: &Home, typed: &[String]) -> Result<Option<Self>, CliError> {
        let [name, words @ ..] = args.command.as_slice() else { return Ok(None) };
        let at = typed.iter().position(|word| word == name);
        let is_behind_dashes = typed.iter().take(at.unwrap_or(0)).any(|word| word == "--");
        if is_behind_dashes || Profiles::load(home)?.get(name).is_none() {
            return Ok(None);
        }
        let words = words.strip_prefix(&["--".to_owned()][..]).unwrap_or(words);
        if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
            return Err(CliError::Input(format!(
                "`{option}` is an option of the program, and {name} accepts none here: Tribune drives it over ACP, with the settings of \
                 its profile. Words after `--` are the message; `tribune run -- {name} …` runs the program itself in a sandbox"
            )));
        }
        let unfit = [
            (
                "--net",
                !args.net.is_empty(),
                "set the addresses that it may reach in egress.agents in config.json5",
            ),
            ("--ro", !args.ro.is_empty(), "set more readable folders with `folders` in its profile"),
            ("--env", !args.env.is_empty(), "set its variables with `environment` in its profile"),
            ("--name", args.name.is_some(), "its session is named after the agent"),
        ];
        if let Some((option, _, instead)) = unfit.into_iter().find(|(_, is_given, _)| *is_given) {
            return Err(CliError::Input(format!(
                "{option} is for programs, but {name} is an agent: {instead}"
            )));
        }
        Ok(Some(Self { profile: name.clone(), words: words.to_vec() }))
    }

    /// Starts the conversation.
    pub(super) fn talk(
        self,
        args: &RunArgs,
        home: &Home,
        output: &mut Output,
    ) -> Result<CommandOutcome, CliError> {
        let home = &Home::at(init::absolute(home)?);
        let profiles = Profiles::load(home)?;
        let profile = profiles.find(&self.profile).map_err(CliError::Input)?;
        if let Some(what) = missing(home, profile) {
            return Err(CliError::Input(what));
        }
        let here = std::env::current_dir().map_err(CliError::System)?;
        let folder = canonical_path(args.rw.as_deref().unwrap_or(&here))?;
        let mandate = home.root().join("mandates").join(format!("{MANDATE}.md"));
        home.prepare()?;
        init::create_missing_files(home)?;
        let is_new = write_if_missing(&mandate, MANDATE_TEXT.as_bytes())?;
        start_daemon(args.quiet, home, output)?;
        let agent = daemon::runtime()?.block_on(self.ensure_agent(args, &folder, home, is_new))?;
        if !args.quiet {
            output.notice(&format!(
                "{} works on {} as the agent {agent}: it changes the folder directly, and the law decides each call",
                profile.title(),
                folder.display()
            ));
        }
        chat::run_in(&ChatArgs::with(agent, self.words), Some(folder), home, output)
    }

    /// The id of the agent for this folder; adds the agent if there is none yet.
    async fn ensure_agent(
        &self,
        args: &RunArgs,
        folder: &Path,
        home: &Home,
        is_new_mandate: bool,
    ) -> Result<String, CliError> {
        let mode = match (args.mode, args.workspace) {
            (None, WorkspaceMode::ReadOnly) => Some(ApprovalMode::ApproveReads),
            (mode, _) => mode,
        };
        let mode = mode.map(ApprovalMode::as_str);
        let name = folder.to_string_lossy();
        let parts =
            [name.as_bytes(), args.model.as_deref().unwrap_or("").as_bytes(), mode.unwrap_or("").as_bytes()];
        let hash = Domain::Session.hash(&[parts[0], b"\n", parts[1], b"\n", parts[2]]);
        let hex: String = hash.iter().take(NAME_BYTES).map(|byte| format!("{byte:02x}")).collect();
        let id = format!("{}-{hex}", self.profile);
        let mut client = daemon::connect(home).await?;
        let known = client.call("agent.show", &json!({ "agent_id": id })).await;
        match known {
            Ok(agent) if agent["rostered"] == true => {}
            Ok(_) | Err(ClientError::Rpc { .. }) => {
                let status = client.call("daemon.status", &json!({})).await?;
                let has_mandate =
                    status["mandates"].as_array().is_some_and(|all| all.iter().any(|one| one == MANDATE));
                if !has_mandate {
                    let word = if is_new_mandate { "was just written to" } else { "is in" };
                    return Err(CliError::Input(format!(
                        "the daemon does not know the mandate `{MANDATE}` yet, which {word} mandates/{MANDATE}.md: run `{}`, then \
                         this command again",
                        next_command(home, "down")
                    )));
                }
                let add = json!({
                    "agent_id": id, "profile": self.profile, "model": args.model, "mandate": MANDATE, "mode": mode,
                });
                client.call("agent.add", &add).await?;
            }
            Err(error) => return Err(error.into()),
        }
        client.close().await;
        Ok(id)
    }
}
