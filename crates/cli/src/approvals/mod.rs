//! `tribune approvals`: lists and decides the calls that wait for a person, and manages grants. [`card`] prints one
//! call, [`watch`] is the live screen.

pub(crate) mod card;
mod draft;
mod grants;
mod keys;
mod raw_terminal;
mod screen;
mod watch;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_ledger::Timestamp;
use tribune_storage::clock::{Clock as _, SystemClock};
use tribune_storage::home::Home;

use crate::approver_connection::ApproverConnection;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, cell, clean, excerpt, table};
use crate::{daemon, times};

/// Approvals of one page, which is the daemon's limit.
const PAGE: usize = 1_000;

/// Rows of a list for which the action is fetched.
const MAX_SHOWN: usize = 200;

/// Characters of an action in a table.
const WHAT_CHARS: usize = 60;

/// The shortest accepted prefix of an id.
const MIN_PREFIX: usize = 2;

/// Characters of a full id.
const ID_CHARS: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(flatten)]
    connection: ApproverConnection,
    #[command(subcommand)]
    command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the calls that wait for a person, oldest first.
    ///
    /// With another --state: the newest first.
    #[command(
        after_help = "Examples:\n  tribune approvals list\n  tribune approvals list --state denied --limit 20"
    )]
    List {
        /// The state of the calls to list.
        #[arg(long, default_value = "pending", value_parser = ["pending", "allowed", "denied", "expired", "withdrawn", "any"])]
        state: String,
        /// At most this many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Show exactly what would run, why a person is asked, and which grants are possible.
    #[command(after_help = "Example:\n  tribune approvals show 7k")]
    Show {
        /// The call's id, or the first characters of it.
        id: String,
    },
    /// Decide calls on a live screen, with one key for each decision.
    ///
    /// Keys: j and k or the arrows select, a allows once, s allows for the session, p picks a pattern to grant, d
    /// denies, D denies and stops the session, Enter shows the whole call, q quits. Without a terminal it prints a line
    /// for each new call.
    #[command(
        after_help = "Examples:\n  tribune approvals watch\n  tribune approvals watch --json | while read -r line; do notify-send tribune; done"
    )]
    Watch,
    /// Allow a call once, or also similar calls.
    ///
    /// Without options only this call runs, exactly as shown: if anything about it changes before it starts, it waits
    /// again. The options also create a grant, so that similar calls are not asked about again; `tribune approvals
    /// grants` lists the grants.
    #[command(
        after_help = "Examples:\n  tribune approvals allow 7k\n  tribune approvals allow 7k --session\n  tribune approvals allow 7k --for 2h --reason \"release day\"\n  tribune approvals allow 7k --pattern 'git status'\n  tribune approvals allow 7k --edit"
    )]
    Allow(AllowArgs),
    /// Deny a call. The agent gets the denial and continues without the call.
    #[command(
        after_help = "Examples:\n  tribune approvals deny 7k --reason \"not on a Friday\"\n  tribune approvals deny 7k --stop"
    )]
    Deny {
        /// The call's id, or the first characters of it.
        id: String,
        /// Also end the turn, and stop the session until its owner speaks in it again.
        #[arg(long)]
        stop: bool,
        /// The reason; the ledger records it, and the agent gets it (a CLI agent over ACP with its next prompt).
        #[arg(long)]
        reason: Option<String>,
    },
    /// List the grants in force, newest first.
    Grants,
    /// Revoke a grant. The calls that it covered are asked about again.
    Revoke {
        /// The grant's id, as `tribune approvals grants` prints it, or the first characters of it.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AllowArgs {
    /// The call's id, or the first characters of it.
    id: String,
    /// Also allow the same call again, while the session is open.
    #[arg(long, conflicts_with_all = ["until", "span", "pattern"])]
    session: bool,
    /// Also allow the same call again, until a time: 2030-01-31T18:00:00Z or 2030-01-31.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Also allow the same call again, for a time span: 30m, 2h, 7d.
    #[arg(long = "for", value_name = "SPAN", conflicts_with = "until", allow_hyphen_values = true)]
    span: Option<String>,
    /// Also allow every call that this pattern covers; `tribune approvals show` suggests patterns. Combine with --until
    /// or --for to limit the time.
    #[arg(long)]
    pattern: Option<String>,
    /// First edit the text of a message or a file in your editor ($VISUAL or $EDITOR); the edited text is used.
    #[arg(long, conflicts_with_all = ["session", "until", "span", "pattern"])]
    edit: bool,
    /// Use the text in this file instead of the call's own; `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["edit", "session", "until", "span", "pattern"])]
    text_file: Option<PathBuf>,
    /// The reason; the ledger records it.
    #[arg(long)]
    reason: Option<String>,
}

pub(crate) fn run(args: ApprovalsArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let ApprovalsArgs { connection, command } = args;
    let runtime = daemon::runtime()?;
    let done = runtime.block_on(async {
        let mut client = connection.connect(home).await?;
        match command {
            ApprovalsCommand::List { state, limit } => list(&mut client, &state, limit, output).await?,
            ApprovalsCommand::Show { id } => {
                let id = resolve(&mut client, &id).await?;
                let approval = client.call("approval.show", &json!({ "id": id })).await?;
                output.result(|paint| card::text(&approval, paint), &approval)?;
            }
            ApprovalsCommand::Watch => return watch::run(client, home, connection, output).await,
            ApprovalsCommand::Allow(args) => {
                let id = resolve(&mut client, &args.id).await?;
                let mut params = allow_params(&args, &id)?;
                if let Some(file) = &args.text_file {
                    params["text"] = draft::from_file(file)?.into();
                } else if args.edit {
                    let approval = client.call("approval.show", &json!({ "id": id })).await?;
                    params["text"] = draft::edited(&approval)?.into();
                }
                let decided = client.call("approval.decide", &params).await?;
                print_decided(&decided, output)?;
            }
            ApprovalsCommand::Deny { id, stop, reason } => {
                let id = resolve(&mut client, &id).await?;
                let decision = if stop { "deny_stop" } else { "deny" };
                let params = json!({ "id": id, "decision": decision, "reason": reason });
                let decided = client.call("approval.decide", &params).await?;
                print_decided(&decided, output)?;
            }
            ApprovalsCommand::Grants => grants::list(&mut client, output).await?,
            ApprovalsCommand::Revoke { id } => grants::revoke(&mut client, &id, output).await?,
        }
        client.close().await;
        Ok(CommandOutcome::Done)
    });
    // A thread may still be blocked on a key, and cannot be woken.
    runtime.shutdown_background();
    done
}

/// The parameters of `approval.decide` for `allow`.
fn allow_params(args: &AllowArgs, id: &str) -> Result<Value, CliError> {
    let until = match (&args.until, &args.span) {
        (Some(until), _) => Some(grant_end(until)?),
        (None, Some(span)) => Some(SystemClock.now().plus(times::parse_span(span)?)),
        (None, None) => None,
    };
    let decision = match (args.session, &args.pattern, until) {
        (true, ..) => "allow_session",
        (false, Some(_), _) => "allow_pattern",
        (false, None, Some(_)) => "allow_until",
        (false, None, None) => "allow_once",
    };
    Ok(json!({
        "id": id, "decision": decision, "pattern": args.pattern, "reason": args.reason,
        "until": until.map(|until| until.to_string()),
    }))
}

/// Parses the end of a grant. For a span, the error names the option for spans.
fn grant_end(until: &str) -> Result<Timestamp, CliError> {
    match times::parse_span(until) {
        Ok(_) => Err(CliError::Input(format!("`{until}` is a time span, not a time: write --for {until}"))),
        Err(_) => times::parse_time_point(until),
    }
}

/// The full id of the approval whose id starts with the typed text.
pub(crate) async fn resolve(client: &mut RpcClient, typed: &str) -> Result<String, CliError> {
    let typed = typed.to_ascii_lowercase();
    // A full id may be of a decided approval; the daemon reports its state.
    if typed.len() >= ID_CHARS {
        return Ok(typed);
    }
    let found = with_prefix(client, "pending", &typed).await?;
    if found.is_empty() && typed.len() >= MIN_PREFIX {
        // It may just have been decided; the daemon reports its state.
        if let [decided] = with_prefix(client, "any", &typed).await?.as_slice() {
            return Ok(id_of(decided).to_owned());
        }
    }
    pick(&typed, &found)
}

/// The approvals in this state whose ids have this prefix.
async fn with_prefix(client: &mut RpcClient, state: &str, typed: &str) -> Result<Vec<Value>, CliError> {
    let mut found = Vec::new();
    let mut after = Value::Null;
    loop {
        let params = json!({ "state": state, "limit": PAGE, "after": after });
        let page = client.call("approval.list", &params).await?;
        found.extend(rows(&page).filter(|row| id_of(row).starts_with(typed)).cloned());
        after = page["next"].clone();
        if after.is_null() {
            return Ok(found);
        }
    }
}

/// The only match; no match or several are errors.
fn pick(typed: &str, found: &[Value]) -> Result<String, CliError> {
    if typed.len() < MIN_PREFIX {
        let what = format!("`{typed}` is too short: type at least {MIN_PREFIX} characters of the id");
        return Err(CliError::Input(what));
    }
    match found {
        [] => Err(CliError::Input(format!(
            "no waiting call has an id that begins with `{typed}`: list the waiting calls with `tribune approvals list`"
        ))),
        [one] => Ok(id_of(one).to_owned()),
        several => {
            let name = |row: &Value| {
                format!("{} ({} by {})", id_of(row), cell(&row["tool"]), cell(&row["agent_id"]))
            };
            let names: Vec<String> = several.iter().take(5).map(name).collect();
            Err(CliError::Input(format!("several ids begin with `{typed}`: {}", names.join(", "))))
        }
    }
}

pub(crate) fn rows(page: &Value) -> impl Iterator<Item = &Value> {
    page["approvals"].as_array().into_iter().flatten()
}

pub(crate) fn id_of(approval: &Value) -> &str {
    approval["id"].as_str().unwrap_or_default()
}

async fn list(client: &mut RpcClient, state: &str, limit: u32, output: &mut Output) -> Result<(), CliError> {
    let mut page = client.call("approval.list", &json!({ "state": state, "limit": limit })).await?;
    for row in page["approvals"].as_array_mut().into_iter().flatten().take(MAX_SHOWN) {
        let shown = client.call("approval.show", &json!({ "id": id_of(row) })).await?;
        row["what"] = card::what(&shown).into();
    }
    output.result(|paint| list_text(&page, state, paint), &page)?;
    if !page["next"].is_null() {
        output.notice("there are more: raise --limit");
    }
    Ok(())
}

/// Approvals as a table.
pub(crate) fn list_text(page: &Value, state: &str, paint: Paint) -> String {
    let row = |row: &Value| {
        let left = match row["state"].as_str() {
            Some("pending") => times::time_left(row["expires_at"].as_str().unwrap_or_default()),
            _ => cell(&row["state"]),
        };
        vec![
            cell(&row["id"]),
            times::age(row["created_at"].as_str().unwrap_or_default()),
            cell(&row["agent_id"]),
            cell(&row["tool"]),
            excerpt(row["what"].as_str().unwrap_or_default(), WHAT_CHARS),
            excerpt(row["reason"].as_str().unwrap_or_default(), WHAT_CHARS),
            left,
        ]
    };
    let rows: Vec<Vec<String>> = rows(page).map(row).collect();
    match (rows.is_empty(), state) {
        (true, "pending") => "nothing waits for a decision".to_owned(),
        (true, state) => format!("no approvals: {state}"),
        (false, "pending") => {
            table(&["ID", "AGE", "AGENT", "TOOL", "WHAT", "WHY", "EXPIRES IN"], &rows, paint)
        }
        (false, _) => table(&["ID", "AGE", "AGENT", "TOOL", "WHAT", "WHY", "STATE"], &rows, paint),
    }
}

/// The result of a decision, in a sentence.
pub(crate) fn decided_text(decided: &Value) -> String {
    let id = cell(&decided["id"]);
    if decided["without_turn"] == true && decided["state"] == "allowed" {
        return match decided["came_of_it"].as_str() {
            Some("ran") => {
                format!(
                    "{id} is allowed and the call ran; the turn that asked is over, so the result was sent to the agent's mailbox"
                )
            }
            Some("denied") => format!(
                "{id} is allowed, but the law now denies the call, so it did not run; the agent's mailbox has a message about it. Details: tribune approvals show {id}"
            ),
            Some(word) => format!(
                "{id} is allowed, but the call ended as: {}; the agent's mailbox has a message about it. Details: tribune approvals show {id}",
                clean(word)
            ),
            None => format!(
                "{id} is allowed; the turn that asked is over, so the call runs now and its result goes to the agent's mailbox. If anything about the call has changed, it waits again: tribune approvals list"
            ),
        };
    }
    match (decided["missing"].as_u64().unwrap_or(0), decided["grant"].as_str()) {
        (0, None) => format!("{id} is {}", cell(&decided["state"])),
        (0, Some(grant)) => {
            let grant = clean(grant);
            format!(
                "{id} is {}, and the grant {grant} covers similar calls; revoke it with: tribune approvals revoke {grant}",
                cell(&decided["state"])
            )
        }
        (1, _) => format!("{id} waits for one more person to agree"),
        (missing, _) => format!("{id} waits for {missing} more people to agree"),
    }
}

fn print_decided(decided: &Value, output: &mut Output) -> Result<(), CliError> {
    output.result(|_| decided_text(decided), decided)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_named_by_a_prefix_of_its_id() {
        let row = |id: &str| json!({ "id": id, "tool": "exec", "agent_id": "main" });
        let (one, two) = (row("0a1b2c3d"), row("0a9z9z9z"));
        let result = |typed: &str, found: &[Value]| pick(typed, found).map_err(|error| error.to_string());
        assert_eq!(result("0a1", std::slice::from_ref(&one)), Ok("0a1b2c3d".to_owned()));
        assert!(result("0", std::slice::from_ref(&one)).unwrap_err().contains("too short"));
        assert!(result("zz", &[]).unwrap_err().contains("no waiting call has an id that begins with `zz`"));
        let several = result("0a", &[one, two]).unwrap_err();
        assert_eq!(several, "several ids begin with `0a`: 0a1b2c3d (exec by main), 0a9z9z9z (exec by main)");
    }
}
