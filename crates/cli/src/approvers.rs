//! `tribune approvers`: who may decide beside the operator.

use clap::Subcommand;
use serde_json::{Value, json};
use tribune_storage::home::Home;

use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::{Output, Paint, table};
use crate::sessions::cell;

#[derive(Debug, Subcommand)]
pub(crate) enum ApproversCommand {
    /// List who may decide beside the operator.
    List,
    /// Add an approver. Its token is printed once and kept nowhere.
    ///
    /// Roles say what it may decide: those that the law names for a tool (approvals.roles in policy/law.json5). Without
    /// any it decides what asks for no role.
    #[command(
        after_help = "Examples:\n  tribune approvers add ada --role release\n  tribune approvals --token ada.token allow 7k"
    )]
    Add {
        /// Lowercase letters, digits, `-` and `_`; not the name of an agent.
        id: String,
        /// A role; may be given several times.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
    },
    /// Remove an approver. Its token is worth nothing from then on.
    Remove {
        /// The approver's id.
        id: String,
    },
}

pub(crate) fn run(command: &ApproversCommand, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
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
                        "added {}\ntoken: {}\nit is shown only now: hand it over on a way you trust",
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
    Ok(Outcome::Done)
}

fn text(list: &Value, paint: Paint) -> String {
    let row = |approver: &Value| {
        let roles: Vec<String> = approver["roles"].as_array().into_iter().flatten().map(cell).collect();
        let roles =
            if roles.is_empty() { "none: what asks for no role".to_owned() } else { roles.join(", ") };
        vec![cell(&approver["id"]), roles]
    };
    let rows: Vec<Vec<String>> = list["approvers"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return "only the operator decides: `tribune approvers add` adds others".to_owned();
    }
    table(&["ID", "ROLES"], &rows, paint)
}
