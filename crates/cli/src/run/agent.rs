//! `tribune run claude`: an agent of another make on the current folder, talked to as with `tribune chat`.
//!
//! It is an agent of the house like any other, whose workspace is the folder: each folder, model and mode has one, which is added
//! when it is first asked for. Its changes go to the folder at once, because the law decided each before it happened.

use std::path::Path;

use serde_json::json;
use tribune_client::ClientError;
use tribune_constitution::Asking;
use tribune_host::Home;
use tribune_host::daemon::write_if_missing;
use tribune_host::profiles::{Profiles, missing};
use tribune_ledger::cid::Domain;

use super::run_spec::one_name;
use super::{RunArgs, WorkspaceMode, start_daemon};
use crate::chat::{self, ChatArgs};
use crate::error::{CliError, Outcome};
use crate::output::Output;
use crate::up::next_command;
use crate::{daemon, init};

/// The mandate of these agents, in a home that has none of this name yet.
const MANDATE: &str = "cli";
const MANDATE_TEXT: &str = "---\ntools: read, write, edit, exec, search, web_fetch\n---\n# For agents on a folder of this machine\n\nWork on the \
                            folder you were given. What you may do is decided call by call.\n";

/// Bytes of the hash in an agent's name: enough for the folders of one person.
const NAME_BYTES: usize = 5;

/// What was asked for, if it is an agent and not a program.
pub(super) struct AgentOrder {
    profile: String,
    words: Vec<String>,
}

impl AgentOrder {
    /// A profile's name as the first word is an agent, unless `--` stands before it.
    pub(super) fn of(args: &RunArgs, home: &Home, said: &[String]) -> Result<Option<Self>, CliError> {
        let [name, words @ ..] = args.command.as_slice() else { return Ok(None) };
        let at = said.iter().position(|word| word == name);
        let is_behind_dashes = said.iter().take(at.unwrap_or(0)).any(|word| word == "--");
        if is_behind_dashes || Profiles::load(home)?.get(name).is_none() {
            return Ok(None);
        }
        let words = words.strip_prefix(&["--".to_owned()][..]).unwrap_or(words);
        if let Some(option) = words.iter().find(|word| word.starts_with('-')) {
            return Err(CliError::Input(format!(
                "`{option}` is an option of the program, and {name} takes none here: it is driven over ACP, with the settings of \
                 its profile. Words behind `--` are said to it; `tribune run -- {name} …` runs the program itself in a box"
            )));
        }
        let unfit = [
            ("--net", !args.net.is_empty(), "what it may reach is egress.agents in config.json5"),
            ("--ro", !args.ro.is_empty(), "what it may read beside its folder is `folders` in its profile"),
            ("--env", !args.env.is_empty(), "its variables are `environment` in its profile"),
            ("--name", args.name.is_some(), "its session is called after the agent"),
        ];
        if let Some((option, _, instead)) = unfit.into_iter().find(|(_, is_given, _)| *is_given) {
            return Err(CliError::Input(format!(
                "{option} is for programs, and {name} is an agent: {instead}"
            )));
        }
        Ok(Some(Self { profile: name.clone(), words: words.to_vec() }))
    }

    /// Talks to the agent.
    pub(super) fn carry_out(
        self,
        args: &RunArgs,
        home: &Home,
        output: &mut Output,
    ) -> Result<Outcome, CliError> {
        let home = &Home::at(init::absolute(home)?);
        let profiles = Profiles::load(home)?;
        let profile = profiles.find(&self.profile).map_err(CliError::Input)?;
        if let Some(what) = missing(home, profile) {
            return Err(CliError::Input(what));
        }
        let here = std::env::current_dir().map_err(CliError::System)?;
        let folder = one_name(args.rw.as_deref().unwrap_or(&here))?;
        let mandate = home.root().join("mandates").join(format!("{MANDATE}.md"));
        home.prepare()?;
        init::furnish(home)?;
        let is_new = write_if_missing(&mandate, MANDATE_TEXT.as_bytes())?;
        start_daemon(args.quiet, home, output)?;
        let agent = daemon::runtime()?.block_on(self.seat(args, &folder, (home, is_new)))?;
        if !args.quiet {
            output.aside(&format!(
                "{} works on {} as the agent {agent}: what it changes, it changes there; the law decides each call",
                profile.title(),
                folder.display()
            ));
        }
        chat::run_in(&ChatArgs::with(agent, self.words), Some(folder), home, output)
    }

    /// The agent for this folder, added if there is none yet.
    async fn seat(
        &self,
        args: &RunArgs,
        folder: &Path,
        (home, is_new): (&Home, bool),
    ) -> Result<String, CliError> {
        let mode = match (args.mode, args.workspace) {
            (None, WorkspaceMode::ReadOnly) => Some(Asking::ApproveReads),
            (mode, _) => mode,
        };
        let mode = mode.map(Asking::as_str);
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
                    let word = if is_new { "was just written to" } else { "is in" };
                    return Err(CliError::Input(format!(
                        "the daemon does not know the mandate `{MANDATE}` yet, which {word} mandates/{MANDATE}.md: run `{}`, and \
                         this again",
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
