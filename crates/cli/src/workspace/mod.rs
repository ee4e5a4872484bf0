//! `tribune workspace`: changes of sandboxed runs, which stay in an overlay until a person lands them. All requests go
//! to the daemon, which judges and records each land.

mod changes;
mod land;

use clap::Subcommand;
use serde_json::{Value, json};
use tribune_storage::home::Home;
pub(crate) use tribune_tools::disk_quota::bytes;

use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::output::{Output, Paint, cell, clean, count, table};
use crate::times;

#[derive(Debug, Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// List the runs with changes that are neither landed nor discarded.
    #[command(
        after_help = "Examples:\n  tribune workspace list\n  tribune workspace list --json | jq .workspaces"
    )]
    List,
    /// Show what a run changed, like `git diff`.
    ///
    /// Each change is shown with its kind, its mode and the target of links; text files with their diff. `!` marks an
    /// autorun file: a file that programs of this machine load or run by name, such as a git hook or .envrc. If you
    /// land it, it will run sooner or later.
    #[command(
        after_help = "Examples:\n  tribune workspace diff run-3fa9c1\n  tribune workspace diff run-3fa9c1 src/main.rs docs\n  tribune workspace diff run-3fa9c1 --stat"
    )]
    Diff {
        /// The run's id, from `tribune workspace list`.
        id: String,
        /// Only these paths, and everything in them.
        paths: Vec<String>,
        /// Only list the changes; show no diffs.
        #[arg(long)]
        stat: bool,
    },
    /// Apply changes to the folder that they were made for.
    ///
    /// Lands all changes, or the paths that you name. A file that also changed in the folder since then is left alone,
    /// and both versions are kept. Autorun files, which programs of this machine load or run by name, land only if you
    /// name each, or add --traps. Links that point out of the folder and set-id bits never land. The law judges each
    /// land and the ledger records it; if the law asks a person, the command waits for the decision.
    ///
    /// Exit codes: 0 all requested changes landed, 1 some were left.
    #[command(
        after_help = "Examples:\n  tribune workspace land run-3fa9c1 --all\n  tribune workspace land run-3fa9c1 src docs/guide.md\n  tribune workspace land run-3fa9c1 .envrc"
    )]
    Land {
        /// The run's id, from `tribune workspace list`.
        id: String,
        /// These paths, and everything in them.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        paths: Vec<String>,
        /// All changes.
        #[arg(long)]
        all: bool,
        /// Also autorun files that you do not name.
        #[arg(long)]
        traps: bool,
    },
    /// Delete changes permanently.
    #[command(
        after_help = "Examples:\n  tribune workspace discard run-3fa9c1\n  tribune workspace discard run-3fa9c1 target"
    )]
    Discard {
        /// The run's id, from `tribune workspace list`.
        id: String,
        /// Only these paths, and everything in them [default: everything].
        paths: Vec<String>,
    },
}

pub(crate) fn run(
    command: &WorkspaceCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    match command {
        WorkspaceCommand::List => {
            let list = daemon::ask(home, "workspace.list", &json!({}))?;
            output.result(|paint| list_text(&list, home, paint), &list)?;
        }
        WorkspaceCommand::Diff { id, paths, stat } => {
            let params = json!({ "id": id, "paths": paths, "texts": !stat });
            let diff = daemon::ask(home, "workspace.diff", &params)?;
            output.result(|paint| changes::text(&diff, paint), &diff)?;
        }
        WorkspaceCommand::Land { id, paths, all, traps } => {
            let params = json!({ "id": id, "paths": paths, "all": all, "traps": traps });
            return land::run(home, &params, output);
        }
        WorkspaceCommand::Discard { id, paths } => {
            let params = json!({ "id": id, "paths": paths });
            let done = daemon::ask(home, "workspace.discard", &params)?;
            let gone = done["discarded"].as_u64().unwrap_or(0);
            output.result(
                |_| format!("discarded {} of {}", count(gone, "change", "changes"), clean(id)),
                &done,
            )?;
        }
    }
    Ok(CommandOutcome::Done)
}

fn list_text(list: &Value, home: &Home, paint: Paint) -> String {
    let row = |one: &Value| {
        let changes = match (one["fault"].as_str(), one["running"] == true) {
            (Some(_), _) => "?".to_owned(),
            (None, true) => format!("{} (running)", one["changes"]),
            (None, false) => one["changes"].to_string(),
        };
        let traps = one["traps"].as_u64().unwrap_or(0);
        vec![
            cell(&one["id"]),
            if traps > 0 { format!("{changes} !{traps}") } else { changes },
            bytes(one["bytes"].as_u64().unwrap_or(0)),
            times::age(one["began_at"].as_str().unwrap_or_default()),
            cell(&one["program"]),
            cell(&one["folder"]),
        ]
    };
    let all = list["workspaces"].as_array();
    let rows: Vec<Vec<String>> = all.into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return "no changes wait to be landed: `tribune run` creates them".to_owned();
    }
    let heading = ["ID", "CHANGES", "SIZE", "AGE", "PROGRAM", "FOLDER"];
    let see = next_command(home, "workspace diff ID");
    format!("{}\n{}", table(&heading, &rows, paint), paint.faint(&format!("show changes with: {see}")))
}
