//! `tribune approvals`: calls that wait for a person, what to do about them, and what was granted. [`card`] is how one
//! call is shown, [`watch`] the live screen.

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
use tribune_client::Client;
use tribune_host::{Clock as _, Home, SystemClock};
use tribune_ledger::Timestamp;

use crate::approver_connection::Door;
use crate::error::{CliError, Outcome};
use crate::output::{Output, Paint, clean, excerpt, table};
use crate::sessions::cell;
use crate::{daemon, times};

/// Approvals asked for at once; the daemon gives no more.
const PAGE: usize = 1_000;

/// Rows whose exact action is looked up for a list.
const MAX_SHOWN: usize = 200;

/// Characters of an action on one line.
const WHAT_CHARS: usize = 60;

/// Letters of an id that a call is named by at least.
const MIN_PREFIX: usize = 2;

/// Letters of a whole id.
const ID_CHARS: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Approvals {
    #[command(flatten)]
    door: Door,
    #[command(subcommand)]
    command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List what waits for a person, oldest first.
    ///
    /// With another --state, the newest first: those that were asked last.
    #[command(
        after_help = "Examples:\n  tribune approvals list\n  tribune approvals list --state denied --limit 20"
    )]
    List {
        /// What is listed.
        #[arg(long, default_value = "pending", value_parser = ["pending", "allowed", "denied", "expired", "withdrawn", "any"])]
        state: String,
        /// At most this many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: u32,
    },
    /// Show exactly what would run, why it is asked, and what could be granted.
    #[command(after_help = "Example:\n  tribune approvals show 7k")]
    Show {
        /// Its id, or the first letters of it.
        id: String,
    },
    /// A live screen with one key for each decision.
    ///
    /// j and k or the arrows select, a allows once, s for the session, p picks a pattern to grant, d denies, D denies and
    /// ends the turn, Enter shows all of it, q leaves. Without a terminal it prints a line for each call as it comes.
    #[command(
        after_help = "Examples:\n  tribune approvals watch\n  tribune approvals watch --json | while read -r line; do notify-send tribune; done"
    )]
    Watch,
    /// Allow a call: once, or also what is like it.
    ///
    /// Without an option just this call runs, exactly as it was shown: if anything about it changes before it starts, it
    /// comes back. The options also make a grant, so that the same need not be asked again; `tribune approvals grants`
    /// lists those.
    #[command(
        after_help = "Examples:\n  tribune approvals allow 7k\n  tribune approvals allow 7k --session\n  tribune approvals allow 7k --for 2h --reason \"release day\"\n  tribune approvals allow 7k --pattern 'git status'\n  tribune approvals allow 7k --edit"
    )]
    Allow(AllowArgs),
    /// Deny a call. The agent is told, and goes on without it.
    #[command(
        after_help = "Examples:\n  tribune approvals deny 7k --reason \"not on a Friday\"\n  tribune approvals deny 7k --stop"
    )]
    Deny {
        /// Its id, or the first letters of it.
        id: String,
        /// And end the agent's turn.
        #[arg(long)]
        stop: bool,
        /// Why; the agent is told, and the log keeps it.
        #[arg(long)]
        reason: Option<String>,
    },
    /// List the grants in force, newest first.
    Grants,
    /// Take a grant back. What it covered is asked again.
    Revoke {
        /// The grant's id, as `tribune approvals grants` prints it, or the first letters of it.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AllowArgs {
    /// Its id, or the first letters of it.
    id: String,
    /// And the same again, as long as the session is open.
    #[arg(long, conflicts_with_all = ["until", "span", "pattern"])]
    session: bool,
    /// And the same again, until a time: 2030-01-31T18:00:00Z or 2030-01-31.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// And the same again, for so long: 30m, 2h, 7d.
    #[arg(long = "for", value_name = "SPAN", conflicts_with = "until", allow_hyphen_values = true)]
    span: Option<String>,
    /// And whatever this covers; `tribune approvals show` suggests some. May be bounded with --until or --for.
    #[arg(long)]
    pattern: Option<String>,
    /// Change the words of a message or a file in your editor ($VISUAL or $EDITOR) first, and let those go.
    #[arg(long, conflicts_with_all = ["session", "until", "span", "pattern"])]
    edit: bool,
    /// Let these words go instead of the call's own; `-` reads them from the standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["edit", "session", "until", "span", "pattern"])]
    text_file: Option<PathBuf>,
    /// Why; the log keeps it.
    #[arg(long)]
    reason: Option<String>,
}

pub(crate) fn run(args: Approvals, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let Approvals { door, command } = args;
    let runtime = daemon::runtime()?;
    let done = runtime.block_on(async {
        let mut client = door.connect(home).await?;
        match command {
            ApprovalsCommand::List { state, limit } => list(&mut client, &state, limit, output).await?,
            ApprovalsCommand::Show { id } => {
                let id = resolve(&mut client, &id).await?;
                let approval = client.call("approval.show", &json!({ "id": id })).await?;
                output.result(|paint| card::text(&approval, Some(home), paint), &approval)?;
            }
            ApprovalsCommand::Watch => return watch::run(client, home, door, output).await,
            ApprovalsCommand::Allow(args) => {
                let id = resolve(&mut client, &args.id).await?;
                let mut wish = wish(&args, &id)?;
                if let Some(file) = &args.text_file {
                    wish["text"] = draft::from_file(file)?.into();
                } else if args.edit {
                    let approval = client.call("approval.show", &json!({ "id": id })).await?;
                    wish["text"] = draft::edited(&approval)?.into();
                }
                let decided = client.call("approval.decide", &wish).await?;
                say_decided(&decided, output)?;
            }
            ApprovalsCommand::Deny { id, stop, reason } => {
                let id = resolve(&mut client, &id).await?;
                let decision = if stop { "deny_stop" } else { "deny" };
                let params = json!({ "id": id, "decision": decision, "reason": reason });
                let decided = client.call("approval.decide", &params).await?;
                say_decided(&decided, output)?;
            }
            ApprovalsCommand::Grants => grants::list(&mut client, output).await?,
            ApprovalsCommand::Revoke { id } => grants::revoke(&mut client, &id, output).await?,
        }
        client.close().await;
        Ok(Outcome::Done)
    });
    // A key may still be waited for, in a thread that cannot be woken.
    runtime.shutdown_background();
    done
}

/// What `allow` asks for, as the daemon takes it.
fn wish(args: &AllowArgs, id: &str) -> Result<Value, CliError> {
    let until = match (&args.until, &args.span) {
        (Some(until), _) => Some(moment(until)?),
        (None, Some(span)) => Some(SystemClock.now().plus(times::span(span)?)),
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

/// The end of a grant. A span is asked for with another option.
fn moment(until: &str) -> Result<Timestamp, CliError> {
    match times::span(until) {
        Ok(_) => Err(CliError::Input(format!("`{until}` is a span and no time: write --for {until}"))),
        Err(_) => times::moment(until),
    }
}

/// The approval that was meant, by the first letters of its id.
pub(crate) async fn resolve(client: &mut Client, typed: &str) -> Result<String, CliError> {
    let typed = typed.to_ascii_lowercase();
    // A whole id may be of one that waits no more, and the daemon knows best what became of it.
    if typed.len() >= ID_CHARS {
        return Ok(typed);
    }
    let found = beginning(client, "pending", &typed).await?;
    if found.is_empty() && typed.len() >= MIN_PREFIX {
        // Perhaps it was decided a moment ago; the daemon says what became of it.
        if let [decided] = beginning(client, "any", &typed).await?.as_slice() {
            return Ok(id_of(decided).to_owned());
        }
    }
    pick(&typed, &found)
}

/// The approvals in this state whose ids begin like this.
async fn beginning(client: &mut Client, state: &str, typed: &str) -> Result<Vec<Value>, CliError> {
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

/// The one that begins like this, among those that do.
fn pick(typed: &str, found: &[Value]) -> Result<String, CliError> {
    if typed.len() < MIN_PREFIX {
        let what = format!("`{typed}` is too short: type at least {MIN_PREFIX} letters of the id");
        return Err(CliError::Input(what));
    }
    match found {
        [] => Err(CliError::Input(format!(
            "nothing that waits begins with `{typed}`: `tribune approvals list` shows what does"
        ))),
        [one] => Ok(id_of(one).to_owned()),
        several => {
            let name = |row: &Value| {
                format!("{} ({} by {})", id_of(row), cell(&row["tool"]), cell(&row["agent_id"]))
            };
            let names: Vec<String> = several.iter().take(5).map(name).collect();
            Err(CliError::Input(format!("several begin with `{typed}`: {}", names.join(", "))))
        }
    }
}

pub(crate) fn rows(page: &Value) -> impl Iterator<Item = &Value> {
    page["approvals"].as_array().into_iter().flatten()
}

pub(crate) fn id_of(approval: &Value) -> &str {
    approval["id"].as_str().unwrap_or_default()
}

async fn list(client: &mut Client, state: &str, limit: u32, output: &mut Output) -> Result<(), CliError> {
    let mut page = client.call("approval.list", &json!({ "state": state, "limit": limit })).await?;
    for row in page["approvals"].as_array_mut().into_iter().flatten().take(MAX_SHOWN) {
        let shown = client.call("approval.show", &json!({ "id": id_of(row) })).await?;
        row["what"] = card::what(&shown).into();
    }
    output.result(|paint| list_text(&page, state, paint), &page)?;
    if !page["next"].is_null() {
        output.aside("there are more: raise --limit");
    }
    Ok(())
}

/// Approvals as a table.
pub(crate) fn list_text(page: &Value, state: &str, paint: Paint) -> String {
    let row = |row: &Value| {
        let left = match row["state"].as_str() {
            Some("pending") => times::until(row["expires_at"].as_str().unwrap_or_default()),
            _ => cell(&row["state"]),
        };
        vec![
            cell(&row["id"]),
            times::since(row["created_at"].as_str().unwrap_or_default()),
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

/// What came of a decision, in a sentence.
pub(crate) fn decided_text(decided: &Value) -> String {
    let id = cell(&decided["id"]);
    if decided["without_turn"] == true && decided["state"] == "allowed" {
        return match decided["came_of_it"].as_str() {
            Some("ran") => {
                format!(
                    "{id} is allowed; the turn that asked is over, so its agent is told by letter that the call ran"
                )
            }
            Some("denied") => format!(
                "{id} is allowed, but by now the law denies the call, so it did not run; its agent is told by letter. More about it: tribune approvals show {id}"
            ),
            Some(word) => format!(
                "{id} is allowed, but the call came to this: {}; its agent is told by letter. More about it: tribune approvals show {id}",
                clean(word)
            ),
            None => format!(
                "{id} is allowed; the turn that asked is over, so the call is carried out now and its agent is told by letter. If something about it has changed it waits again: tribune approvals list"
            ),
        };
    }
    match (decided["missing"].as_u64().unwrap_or(0), decided["grant"].as_str()) {
        (0, None) => format!("{id} is {}", cell(&decided["state"])),
        (0, Some(grant)) => {
            let grant = clean(grant);
            format!(
                "{id} is {}, and the grant {grant} covers what is like it; take it back with: tribune approvals revoke {grant}",
                cell(&decided["state"])
            )
        }
        (1, _) => format!("{id} waits for one more person to agree"),
        (missing, _) => format!("{id} waits for {missing} more people to agree"),
    }
}

fn say_decided(decided: &Value, output: &mut Output) -> Result<(), CliError> {
    output.result(|_| decided_text(decided), decided)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_by_the_first_letters_of_its_id() {
        let row = |id: &str| json!({ "id": id, "tool": "exec", "agent_id": "main" });
        let (one, two) = (row("0a1b2c3d"), row("0a9z9z9z"));
        let said = |typed: &str, found: &[Value]| pick(typed, found).map_err(|error| error.to_string());
        assert_eq!(said("0a1", std::slice::from_ref(&one)), Ok("0a1b2c3d".to_owned()));
        assert!(said("0", std::slice::from_ref(&one)).unwrap_err().contains("too short"));
        assert!(said("zz", &[]).unwrap_err().contains("nothing that waits begins with `zz`"));
        let several = said("0a", &[one, two]).unwrap_err();
        assert_eq!(several, "several begin with `0a`: 0a1b2c3d (exec by main), 0a9z9z9z (exec by main)");
    }
}
