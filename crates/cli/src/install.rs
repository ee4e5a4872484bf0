//! `tribune agents install`: installs the program of a profile. Needs no daemon.

use std::time::Instant;

use clap::Args;
use serde_json::json;
use tribune_registry::profiles::{Installed, Plan, Profiles};
use tribune_storage::home::Home;

use crate::error::CliError;
use crate::hints::next_command;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// The profile: claude, claude-code, codex, gemini, opencode, or a file of yours in profiles/.
    profile: String,
    /// Print what would be installed, and install nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: &InstallArgs, home: &Home, output: &mut Output) -> Result<(), CliError> {
    let profiles = Profiles::load(home)?;
    let profile = profiles.find(&args.profile).map_err(CliError::Input)?;
    let plan = Plan::new(home, profile).await?;
    let what = plan.packages.join(" and ");
    let folder = plan.folder.display().to_string();
    let is_there = plan.installed == Installed::Yes;
    let size = plan.megabytes.map_or_else(String::new, |size| format!(", about {size} MB"));
    let report = |done: bool| {
        json!({
            "profile": profile.id(), "packages": plan.packages, "folder": folder, "megabytes": plan.megabytes,
            "installed": done || is_there, "was_installed": is_there,
        })
    };
    let next = next_command(home, &format!("agents add NAME --profile {}", profile.id()));
    if is_there {
        let text = format!("{} is already installed in {folder}\nadd an agent with: {next}", profile.title());
        output.result(|_| text, &report(true))?;
        return Ok(());
    }
    if args.dry_run {
        let text = format!("would install {what} with npm into {folder}{size}; package scripts are not run");
        output.result(|_| text, &report(false))?;
        return Ok(());
    }
    output.notice(&format!("installing {what} with npm into {folder}{size}; package scripts are not run"));
    let began = Instant::now();
    home.prepare()?;
    plan.carry_out(std::env::vars_os()).await?;
    let took = began.elapsed().as_secs();
    let text = format!("installed {} in {took} s\nadd an agent with: {next}", profile.title());
    output.result(|_| text, &report(true))?;
    Ok(())
}
