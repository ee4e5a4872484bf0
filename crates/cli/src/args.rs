//! The command line: global options and the list of commands.

use std::path::{Component, Path, PathBuf};

use clap::{Parser, Subcommand};
use tribune_storage::home::Home;

use crate::acp::AcpArgs;
use crate::agents::AgentsCommand;
use crate::approvals::ApprovalsArgs;
use crate::approver_connection::ApproverConnection;
use crate::approvers::ApproversCommand;
use crate::chat::ChatArgs;
use crate::completions::Completions;
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::down::Down;
use crate::error::CliError;
use crate::hints::default_home;
use crate::import::ImportCommand;
use crate::keys::KeysCommand;
use crate::law::LawCommand;
use crate::ledger::LedgerCommand;
use crate::output::Format;
use crate::providers::ProvidersCommand;
use crate::run::RunArgs;
use crate::sessions::SessionsCommand;
use crate::spend::SpendArgs;
use crate::up::Up;
use crate::workspace::WorkspaceCommand;

/// Run AI agents under rules that you write, with a record that nobody can edit unseen.
///
/// A daemon serves one home folder. Agents work in sessions. Before a tool call runs, the law (a constitution and
/// mandates) allows it, denies it, or asks a person. The ledger records what happened; any later edit of it is
/// detectable. A new home has a scripted agent, so you can try everything without a model, an API key or a network.
#[derive(Debug, Parser)]
#[command(name = "tribune", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "First steps:\n  tribune up --detach     start the daemon\n  tribune chat            talk to its agent\n  tribune run -- make     run any command in a sandbox\n  tribune ledger tail     read what happened\n  tribune down            stop it\n\nExit codes: 0 success, 1 failure, 2 a check found damage or errors (doctor, verify, rebuild --check, law check|test|replay), 3 a check is incomplete (verify, law replay), 64 wrong usage, 69 no daemon is running, 125 the command could not be run (run; otherwise its own exit code), 130 cancelled (chat)."
)]
pub(crate) struct Cli {
    /// The home folder, which holds all state [default: ~/.tribune]
    #[arg(long, global = true, env = "TRIBUNE_HOME", hide_env_values = true, value_name = "DIR")]
    home: Option<PathBuf>,

    /// Print JSON, one value per line, for results and errors.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

impl Cli {
    pub(crate) const fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }

    pub(crate) fn home(&self) -> Result<Home, CliError> {
        self.home
            .clone()
            .filter(|home| !home.as_os_str().is_empty())
            .or_else(default_home)
            .map(|home| Home::at(without_parent_parts(&home)))
            .ok_or_else(|| {
                CliError::Input("there is no home folder: name one with --home or TRIBUNE_HOME".to_owned())
            })
    }
}

/// Removes `..` from a path, because sandbox profiles accept none. Each `..` is resolved as the file system does it,
/// through symbolic links.
fn without_parent_parts(path: &Path) -> PathBuf {
    if !path.components().any(|part| part == Component::ParentDir) {
        return path.to_owned();
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.components().fold(PathBuf::new(), |before, part| match part {
        Component::ParentDir => {
            // A path that does not exist is no link.
            let mut before = before.canonicalize().unwrap_or(before);
            before.pop();
            before
        }
        part => before.join(part),
    })
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Create the home folder with its files: settings, law, agents, a first workspace.
    ///
    /// Existing files are not changed. You can skip this command: `tribune up` creates the files that it needs. Run it
    /// first to get a config.json5 that explains every setting, or to change the law before the first start.
    #[command(after_help = "Examples:\n  tribune init\n  tribune init --home /srv/tribune")]
    Init,
    Up(Up),
    Down(Down),
    /// Show the state of the daemon.
    ///
    /// Exits with 69 if no daemon runs in this home.
    Status,
    Chat(ChatArgs),
    Acp(AcpArgs),
    Run(RunArgs),
    /// Review, apply or discard the changes that sandboxed runs made.
    Workspace {
        #[command(subcommand)]
        command: WorkspaceCommand,
    },
    /// List, show, close and forget conversations with agents.
    Sessions {
        #[command(subcommand)]
        command: SessionsCommand,
    },
    /// List, add, install and test agents.
    Agents {
        #[command(subcommand)]
        command: AgentsCommand,
    },
    /// List, test and add model providers.
    Providers {
        #[command(subcommand)]
        command: ProvidersCommand,
    },
    /// List the models: their abilities, the default, and which agents use them.
    #[command(
        after_help = "Examples:\n  tribune models\n  tribune models --json\n  tribune chat --model moonshot:kimi-k1-128k\n  tribune agents add writer --model moonshot:kimi-k1-128k"
    )]
    Models,
    /// Review and decide the calls that wait for a person; list and revoke grants.
    #[command(
        after_help = "Name a call by its id, or by at least the first two characters of it.\n\nExamples:\n  tribune approvals list\n  tribune approvals watch\n  tribune approvals allow 7k\n  tribune approvals deny 7k --reason \"not on a Friday\""
    )]
    Approvals(ApprovalsArgs),
    /// Manage the approvers: people other than the operator who may decide calls.
    Approvers {
        #[command(subcommand)]
        command: ApproversCommand,
    },
    Spend(SpendArgs),
    /// Stop all work: running turns end, and no call is allowed until `tribune resume`.
    ///
    /// The stop survives a restart of the daemon. Calls that wait for a decision keep waiting.
    StopAll(ApproverConnection),
    /// Allow work again after `tribune stop-all`.
    Resume(ApproverConnection),
    /// Show, check and test the law; try a changed law on past calls; explain decisions.
    Law {
        #[command(subcommand)]
        command: LawCommand,
    },
    /// Check this home and this machine for problems.
    ///
    /// Each line is ok, warn or FAIL, and says what to do. Nothing is changed. Works with or without a running daemon.
    ///
    /// Exit codes: 0 nothing fails, 2 something fails.
    #[command(
        after_help = "Examples:\n  tribune doctor\n  tribune doctor --json\n  tribune doctor --sandbox"
    )]
    Doctor(DoctorArgs),
    Demo(DemoArgs),
    /// Print entries that make Tribune known to other programs.
    Import {
        #[command(subcommand)]
        command: ImportCommand,
    },
    /// Read, verify, export and prove the ledger, and add notes to it.
    Ledger {
        #[command(subcommand)]
        command: LedgerCommand,
    },
    /// Show or replace the key that signs the ledger.
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print the version.
    Version,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_path_resolves_parent_parts_through_links() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join("far/away")).unwrap();
        std::os::unix::fs::symlink(top.join("far/away"), top.join("link")).unwrap();
        for (written, is) in [
            ("home", "home"),
            ("far/../home", "home"),
            ("link/../home", "far/home"),
            ("new/../home", "home"),
            ("far/away/../../home/x", "home/x"),
        ] {
            assert_eq!(without_parent_parts(&top.join(written)), top.join(is), "{written}");
        }
        assert_eq!(without_parent_parts("home".as_ref()), Path::new("home"));
    }
}
