//! The binary `tribune`: parses the arguments, runs the command, reports how it ended.

mod acp;
mod agent_test;
mod agents;
mod approvals;
mod approver_connection;
mod approvers;
mod args;
mod chat;
mod completions;
mod daemon;
mod demo;
mod detach;
mod doctor;
mod down;
mod error;
mod hints;
mod import;
mod init;
mod install;
mod keys;
mod law;
mod ledger;
mod output;
mod pending_approvals;
mod progress;
mod providers;
mod run;
mod sandbox_enter;
mod sandbox_report;
mod sessions;
mod spend;
mod startup_summary;
mod status;
mod stop_all;
mod times;
mod up;
mod version;
mod workspace;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use tribune_sandbox::WipingAllocator;

use crate::args::{Cli, CliCommand};
use crate::output::Output;

/// What the daemon forgets must leave its memory, keys and words alike.
#[global_allocator]
static ALLOCATOR: WipingAllocator<mimalloc::MiMalloc> = WipingAllocator(mimalloc::MiMalloc);

fn main() -> ExitCode {
    if let Some(code) = sandbox_enter::if_asked() {
        return code;
    }
    tribune_daemon::memory::disable_huge_pages();
    let args = match Cli::try_parse() {
        Ok(args) => args,
        Err(error) => return error::usage(&error),
    };
    let mut output = Output::new(args.format());
    let home = args.home();
    let place = home.as_ref().ok().cloned();
    let done = home.and_then(|home| match args.command {
        CliCommand::Init => init::run(&home, &mut output),
        CliCommand::Up(up) => up::run(&up, &home, &mut output),
        CliCommand::Down(down) => down::run(&down, &home, &mut output),
        CliCommand::Status => status::run(&home, &mut output),
        CliCommand::Doctor(doctor) => doctor::run(&doctor, &home, &mut output),
        CliCommand::Keys { command } => keys::run(command, &home, &mut output),
        CliCommand::Chat(args) => chat::run(&args, &home, &mut output),
        CliCommand::Acp(args) => acp::run(&args, &home, &mut output),
        CliCommand::Run(args) => run::run(&args, &home, &mut output),
        CliCommand::Workspace { command } => workspace::run(&command, &home, &mut output),
        CliCommand::Sessions { command } => sessions::run(command, &home, &mut output),
        CliCommand::Providers { command } => providers::run(command, &home, &mut output),
        CliCommand::Models => providers::models::run(&home, &mut output),
        CliCommand::Agents { command } => agents::run(command, &home, &mut output),
        CliCommand::Approvals(args) => approvals::run(args, &home, &mut output),
        CliCommand::Approvers { command } => approvers::run(&command, &home, &mut output),
        CliCommand::Spend(args) => spend::run(&args, &home, &mut output),
        CliCommand::StopAll(connection) => stop_all::stop_all(&connection, &home, &mut output),
        CliCommand::Resume(connection) => stop_all::resume(&connection, &home, &mut output),
        CliCommand::Law { command } => law::run(&command, &home, &mut output),
        CliCommand::Import { command } => import::run(&command, &mut output),
        CliCommand::Demo(args) => demo::run(&args, &mut output),
        CliCommand::Ledger { command } => ledger::run(command, &home, &mut output),
        CliCommand::Completions(completions) => completions::run(&completions, Cli::command(), &mut output),
        CliCommand::Version => version::run(&mut output),
    });
    match done {
        Ok(outcome) => outcome.into(),
        Err(error) => error.report(output.format(), place.as_ref()),
    }
}
