//! `tribune approvers`: people other than the operator who may decide calls.

use clap::Subcommand;
use serde_json::{Value, json};
use tribune_storage::home::Home;

use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, cell, table};

/// Changes that are printed; the JSON has more, and the ledger all of them.
const SHOWN_CHANGES: usize = 10;

#[derive(Debug, Subcommand)]
pub(crate) enum ApproversCommand {
    /// List the approvers and their roles, and the newest changes of approvers and agents with who made them.
    List,
    /// Add an approver. Its token is printed once and not stored.
    ///
    /// Roles say what it may decide: the law can require a role for a tool (approvals.roles in policy/law.json5). An
    /// approver without a role decides calls that require none.
    #[command(
        after_help = "Examples:\n  tribune approvers add ada --role release\n  tribune approvals --token ada.token allow 7k"
    )]
    Add {
        /// Its id: lowercase letters, digits, `-` and `_`; not the id of an agent.
        id: String,
        /// A role; may be repeated.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
    },
    /// Remove an approver. Its token stops working at once.
    Remove {
        /// The approver's id.
        id: String,
    },
}

pub(crate) fn run(
    command: &ApproversCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    match command {
        ApproversCommand::List => {
            let list = daemon::ask(home, "approver.list", &json!({}))?;
            output.result(|paint| text(&list, paint), &list)?;
        }
        ApproversCommand::Add { id, roles } => {
            let added = daemon::ask(home, "approver.add", &json!({ "id": id, "roles": roles }))?;
            output.result(
                |_| {
                    format!(
                        "added {}\ntoken: {}\nit is shown only now: pass it on over a channel that you trust",
                        cell(&added["id"]),
                        cell(&added["token"])
                    )
                },
                &added,
            )?;
        }
        ApproversCommand::Remove { id } => {
            let left = daemon::ask(home, "approver.remove", &json!({ "id": id }))?;
            output.result(|_| format!("removed {}", cell(&json!(id))), &left)?;
        }
    }
    Ok(CommandOutcome::Done)
}

fn text(list: &Value, paint: Paint) -> String {
    let row = |approver: &Value| {
        let roles: Vec<String> = approver["roles"].as_array().into_iter().flatten().map(cell).collect();
        let roles =
            if roles.is_empty() { "none: calls that require no role".to_owned() } else { roles.join(", ") };
        vec![cell(&approver["id"]), roles, cell(&approver["changed_by"]), cell(&approver["changed_at"])]
    };
    let rows: Vec<Vec<String>> = list["approvers"].as_array().into_iter().flatten().map(row).collect();
    let approvers = match rows.is_empty() {
        true => "only the operator decides: add others with `tribune approvers add`".to_owned(),
        false => table(&["ID", "ROLES", "BY", "AT"], &rows, paint),
    };
    let change = |change: &Value| {
        let who = format!("{} {}", cell(&change["kind"]), cell(&change["id"]));
        vec![cell(&change["at"]), cell(&change["by"]), cell(&change["change"]), who]
    };
    let changes: Vec<Vec<String>> =
        list["changes"].as_array().into_iter().flatten().take(SHOWN_CHANGES).map(change).collect();
    if changes.is_empty() {
        return approvers;
    }
    format!("{approvers}\n\n{}", table(&["CHANGED AT", "BY", "CHANGE", "WHO"], &changes, paint))
}
