//! `tribune workspace`: changes that something in a box made on a layer of its own, until a person lands them. Everything goes
//! through the daemon, which judges a landing and writes it down.

mod changes;
mod land;

use clap::Subcommand;
use serde_json::{Value, json};
use tribune_storage::home::Home;
pub(crate) use tribune_tools::disk_quota::bytes;

use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::{Output, Paint, clean, table};
use crate::sessions::cell;
use crate::times;
use crate::up::{count, next_command};

#[derive(Debug, Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// List the runs whose changes nobody landed or discarded yet.
    #[command(
        after_help = "Examples:\n  tribune workspace list\n  tribune workspace list --json | jq .workspaces"
    )]
    List,
    /// Show what a run changed, like `git diff`.
    ///
    /// Each change with its kind, its rights and where links lead; of texts what is different. A line with `!` is a name that
    /// programs of this machine obey, such as a git hook or .envrc: whoever lands it runs it, sooner or later.
    #[command(
        after_help = "Examples:\n  tribune workspace diff run-3fa9c1\n  tribune workspace diff run-3fa9c1 src/main.rs docs\n  tribune workspace diff run-3fa9c1 --stat"
    )]
    Diff {
        /// The run, as `tribune workspace list` names it.
        id: String,
        /// Only these paths, and what is in them.
        paths: Vec<String>,
        /// No texts, only what was changed.
        #[arg(long)]
        stat: bool,
    },
    /// Take changes over into the folder they were made for.
    ///
    /// All of them, or those you name. What somebody else changed in the folder since is left where it is, and both versions
    /// stay. Names that programs of this machine obey land only if you name each of them, or say --traps. Links that lead out of
    /// the folder and set-id bits never land. Each landing is judged by the law and stands in the ledger; if the law asks
    /// someone, this waits until they have decided.
    ///
    /// Exit codes: 0 everything that was asked for landed, 1 something was left.
    #[command(
        after_help = "Examples:\n  tribune workspace land run-3fa9c1 --all\n  tribune workspace land run-3fa9c1 src docs/guide.md\n  tribune workspace land run-3fa9c1 .envrc"
    )]
    Land {
        /// The run, as `tribune workspace list` names it.
        id: String,
        /// These paths, and what is in them.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        paths: Vec<String>,
        /// Everything.
        #[arg(long)]
        all: bool,
        /// Also names that programs of this machine obey, without naming each.
        #[arg(long)]
        traps: bool,
    },
    /// Throw changes away, for good.
    #[command(
        after_help = "Examples:\n  tribune workspace discard run-3fa9c1\n  tribune workspace discard run-3fa9c1 target"
    )]
    Discard {
        /// The run, as `tribune workspace list` names it.
        id: String,
        /// Only these paths, and what is in them [default: everything].
        paths: Vec<String>,
    },
}

pub(crate) fn run(command: &WorkspaceCommand, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
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
    Ok(Outcome::Done)
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
            times::since(one["began_at"].as_str().unwrap_or_default()),
            cell(&one["program"]),
            cell(&one["folder"]),
        ]
    };
    let all = list["workspaces"].as_array();
    let rows: Vec<Vec<String>> = all.into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return "no changes wait to be landed: `tribune run` makes some".to_owned();
    }
    let heading = ["ID", "CHANGES", "SIZE", "AGE", "PROGRAM", "FOLDER"];
    let see = next_command(home, "workspace diff ID");
    format!("{}\n{}", table(&heading, &rows, paint), paint.faint(&format!("see them: {see}")))
}
