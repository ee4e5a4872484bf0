//! What can be typed.

use std::path::{Component, Path, PathBuf};

use clap::{Parser, Subcommand};
use tribune_host::Home;
use tribune_ledger::EntryQuality;

use crate::acp::AcpArgs;
use crate::agents::AgentsCommand;
use crate::approvals::Approvals;
use crate::approver_connection::Door;
use crate::approvers::ApproversCommand;
use crate::chat::ChatArgs;
use crate::completions::Completions;
use crate::demo::DemoArgs;
use crate::doctor::DoctorArgs;
use crate::down::Down;
use crate::error::CliError;
use crate::import::ImportCommand;
use crate::law::LawCommand;
use crate::output::Format;
use crate::providers::ProvidersCommand;
use crate::run::RunArgs;
use crate::sessions::SessionsCommand;
use crate::spend::SpendArgs;
use crate::up::Up;
use crate::workspace::WorkspaceCommand;

/// Runs AI agents under law.
///
/// One daemon per home: agents have sessions, every turn passes the law (constitution and mandates), and what happened
/// is in a ledger that nobody can edit unseen. A fresh home has a rehearsal agent, which needs no model, key or network.
#[derive(Debug, Parser)]
#[command(name = "tribune", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "First steps:\n  tribune up --detach     start the daemon\n  tribune chat            talk to its agent\n  tribune run -- make     run anything in a box\n  tribune ledger tail     read what happened\n  tribune down            stop it\n\nExit codes: 0 good, 1 failed, 2 broken (doctor, verify, rebuild --check, law check|test|replay), 3 incomplete (verify, law replay), 64 wrong usage, 69 no daemon, 130 cancelled (chat), 125 not run (run; otherwise as the command ends)."
)]
pub(crate) struct Args {
    /// The state folder [default: ~/.tribune]
    #[arg(long, global = true, env = "TRIBUNE_HOME", hide_env_values = true, value_name = "DIR")]
    home: Option<PathBuf>,

    /// Print JSON, one value per line; errors too.
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    pub(crate) const fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::Text }
    }

    pub(crate) fn home(&self) -> Result<Home, CliError> {
        self.home
            .clone()
            .filter(|home| !home.as_os_str().is_empty())
            .or_else(default_home)
            .map(|home| Home::at(straight(&home)))
            .ok_or_else(|| {
                CliError::Input("there is no home folder: name one with --home or TRIBUNE_HOME".to_owned())
            })
    }
}

/// A path without `..`, which boxes take none with: each leads where it leads on this machine, through links too.
fn straight(path: &Path) -> PathBuf {
    if !path.components().any(|part| part == Component::ParentDir) {
        return path.to_owned();
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.components().fold(PathBuf::new(), |before, part| match part {
        Component::ParentDir => {
            // What is not there is no link.
            let mut before = before.canonicalize().unwrap_or(before);
            before.pop();
            before
        }
        part => before.join(part),
    })
}

/// The home of whoever names none.
pub(crate) fn default_home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty()).map(|home| home.join(".tribune"))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a home and its files: settings, law, roster, a first workspace.
    ///
    /// Files that are there stay as they are. It need not be called: `tribune up` makes what it needs. Call it to have
    /// config.json5 with every setting explained, and to change the law before the first start.
    #[command(after_help = "Examples:\n  tribune init\n  tribune init --home /srv/tribune")]
    Init,
    Up(Up),
    Down(Down),
    /// Show how the daemon is.
    ///
    /// Ends with 69 if none runs in this home.
    Status,
    Chat(ChatArgs),
    Acp(AcpArgs),
    Run(RunArgs),
    /// Changes that something in a box made: see them, land them, throw them away.
    Workspace {
        #[command(subcommand)]
        command: WorkspaceCommand,
    },
    /// Conversations: look at them, end them, forget them.
    Sessions {
        #[command(subcommand)]
        command: SessionsCommand,
    },
    /// The agents of this home.
    Agents {
        #[command(subcommand)]
        command: AgentsCommand,
    },
    /// Providers of models: look at them, try them, add one.
    Providers {
        #[command(subcommand)]
        command: ProvidersCommand,
    },
    /// List the models: what each can do, which is the default, and which agents use it.
    #[command(
        after_help = "Examples:\n  tribune models\n  tribune models --json\n  tribune chat --model moonshot:kimi-k1-128k\n  tribune agents add scribe --model moonshot:kimi-k1-128k"
    )]
    Models,
    /// Calls that wait for a person: look at them, decide them, take grants back.
    #[command(
        after_help = "A call is named by its id, or by the first two or more letters of it.\n\nExamples:\n  tribune approvals list\n  tribune approvals watch\n  tribune approvals allow 7k\n  tribune approvals deny 7k --reason \"not on a Friday\""
    )]
    Approvals(Approvals),
    /// Who may decide beside the operator.
    Approvers {
        #[command(subcommand)]
        command: ApproversCommand,
    },
    Spend(SpendArgs),
    /// Stop everything: running turns end, and no call is allowed until `tribune resume`.
    ///
    /// It holds across restarts of the daemon. What waits for a decision keeps waiting.
    StopAll(Door),
    /// Let everything go on after `tribune stop-all`.
    Resume(Door),
    /// The law: check it, test it, try another one on the past, and see why calls were decided as they were.
    Law {
        #[command(subcommand)]
        command: LawCommand,
    },
    /// Look for what is wrong with this home and this machine.
    ///
    /// Each line is ok, warn or FAIL, and says what to do. Changes nothing, and works with or without a running daemon.
    ///
    /// Exit codes: 0 nothing fails, 2 something does.
    #[command(
        after_help = "Examples:\n  tribune doctor\n  tribune doctor --json\n  tribune doctor --sandbox"
    )]
    Doctor(DoctorArgs),
    Demo(DemoArgs),
    /// What other programs import to know Tribune.
    Import {
        #[command(subcommand)]
        command: ImportCommand,
    },
    /// The log: read it, add to it, prove it.
    Ledger {
        #[command(subcommand)]
        command: LedgerCommand,
    },
    /// The key that signs the log.
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print the version.
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make the log's first key and begin the log.
    ///
    /// The secret goes to keys/ledger.key (mode 0600), the public key to keys/ledger.vkey. Appending to a home without a
    /// log does this by itself; call it to choose the log's name.
    Init {
        /// The log's name for life, such as example.com/agents. Made from the key if not given.
        #[arg(long)]
        name: Option<String>,
    },
    /// Print the public key: give it to whoever is to verify the log.
    Show,
    /// Replace the key. The log records the change, attested by the old key, so old and new holders can follow it.
    Rotate,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Show the newest entries.
    Tail {
        /// How many.
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        lines: u32,
        /// Only entries of this entity.
        #[arg(long, value_name = "ID")]
        entity: Option<String>,
        /// Only entries of this kind.
        #[arg(long, value_name = "KIND")]
        quality: Option<EntryQuality>,
        /// Go on as entries come, until interrupted.
        #[arg(short, long)]
        follow: bool,
    },
    /// Show one entry in full.
    Show {
        /// Its place in the log, its CID, or the CID's first digits.
        entry: String,
    },
    /// Check a log: this home's, an exported folder, or a proof file.
    ///
    /// Two verdicts. Integrity: every entry is what was logged. Completeness: nothing was cut or rewritten since a
    /// checkpoint you kept (--checkpoint); without one that cannot be known, and it says so.
    ///
    /// Exit codes: 0 good, 2 integrity broken, 3 incomplete.
    #[command(
        after_help = "Examples:\n  tribune ledger verify\n  tribune ledger verify export/ --key ledger.vkey --checkpoint kept-since-may\n  tribune ledger verify entry-17.tlog-proof --key ledger.vkey"
    )]
    Verify {
        /// A home, an exported folder or a proof file [default: the home].
        path: Option<PathBuf>,
        /// The public key you trust: its text or a file with it. Without it the key that lies beside the log is used,
        /// which proves nothing about whose log it is.
        #[arg(long, value_name = "KEY|FILE")]
        key: Option<String>,
        /// A checkpoint kept elsewhere; may be given several times.
        #[arg(long, value_name = "FILE")]
        checkpoint: Vec<PathBuf>,
    },
    /// Write everything a stranger needs to verify the log to a new folder.
    Export {
        /// A folder that does not exist yet.
        folder: PathBuf,
    },
    /// Prove that an entry is in the log (C2SP tlog-proof), or that the log grew out of an older state.
    Prove {
        /// Its place in the log, its CID, or the CID's first digits.
        #[arg(required_unless_present = "since")]
        entry: Option<String>,
        /// Instead: prove that the log of this many entries is a prefix of the log now.
        #[arg(long, value_name = "SIZE", conflicts_with = "entry")]
        since: Option<u64>,
        /// Write to a file instead of standard output.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print the newest signed checkpoint. Keep it where the operator of this log cannot change it.
    Checkpoint {
        /// Write to a file instead of standard output.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write a note into the log. Its words are public: whoever gets an export reads them.
    #[command(
        after_help = "Examples:\n  tribune ledger note \"rotated the deploy key\"\n  journalctl -f | tribune ledger note --lines --entity host:journal"
    )]
    Note {
        /// What to write.
        #[arg(required_unless_present = "lines")]
        text: Option<String>,
        /// Write each line of standard input as a note; each is answered when it is durable.
        #[arg(long, conflicts_with = "text")]
        lines: bool,
        /// Whose history it belongs to.
        #[arg(long, value_name = "ID", default_value = "tribune:notes")]
        entity: String,
        /// A tag; may be given several times.
        #[arg(long)]
        tag: Vec<String>,
        /// An entry this follows from; may be given several times [default: the entity's newest entry; none with
        /// --lines].
        #[arg(long, value_name = "ENTRY")]
        parent: Vec<String>,
    },
    /// Make the views (entities, tree, index) anew from the entries.
    Rebuild {
        /// Change nothing; compare what is stored with what the entries give. Exit code 2 if they differ.
        #[arg(long)]
        check: bool,
        /// Put a daybook aside that is damaged or does not fit. What was promised and stands in it alone is not in the log then.
        #[arg(long, conflicts_with = "check")]
        without_daybook: bool,
    },
    /// Print entries and what they follow from as a graph (DOT).
    Graph {
        /// Print Mermaid instead of DOT.
        #[arg(long)]
        mermaid: bool,
        /// How many of the newest entries.
        #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        lines: u32,
        /// Only entries of this entity.
        #[arg(long, value_name = "ID")]
        entity: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_where_its_path_leads() {
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
            assert_eq!(straight(&top.join(written)), top.join(is), "{written}");
        }
        assert_eq!(straight("home".as_ref()), Path::new("home"));
    }
}
