//! `tribune sessions`: lists, shows, ends and forgets sessions. All requests go to the daemon, which owns the sessions.

use std::io::{self, IsTerminal as _, Write as _};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tribune_client::{ClientError, RpcClient, RpcIncoming};
use tribune_constitution::suggest_name::nearest;
use tribune_storage::home::Home;

use crate::approvals::card;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, cell, clean, clean_text, excerpt, json_line, short_cid, table};
use crate::{daemon, hints, sandbox_report};

/// Rows of one page, which is the daemon's limit.
const PAGE: usize = 1_000;

/// Characters of a call's input that are shown.
const INPUT_CHARS: usize = 200;

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions.
    #[command(
        after_help = "Examples:\n  tribune sessions list\n  tribune sessions list --agent main --state idle"
    )]
    List(ListArgs),
    /// Show a session: its terms, its turns, the sandboxes of its commands, and its newest messages.
    ///
    /// The texts come from the vault. Forgotten texts are shown as (shredded): the ledger keeps a commitment to them,
    /// but nobody can read them any more.
    #[command(after_help = "Example:\n  tribune sessions show agent:main:cli:local:dm:operator -n 5")]
    Show {
        /// The session's key, as `tribune sessions list` prints it.
        key: String,
        /// How many turns and messages to show.
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        lines: u32,
    },
    /// Close a session. A running turn is cancelled first. The conversation is kept, and the session can be opened
    /// again.
    Close {
        /// The session's key.
        key: String,
    },
    /// Close a session and destroy its conversation permanently.
    ///
    /// The key that encrypts the texts is destroyed, so nobody can read them again; only a copy of the whole home, made
    /// before, still could. The ledger keeps its entries, which hold commitments instead of texts, and still verifies.
    Forget {
        /// The session's key.
        key: String,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Cancel the running turn of a session.
    Cancel {
        /// The session's key.
        key: String,
    },
    /// Print the events of a session, one line of JSON each.
    #[command(
        after_help = "Examples:\n  tribune sessions events agent:main:cli:local:dm:operator\n  tribune sessions events agent:main:cli:local:dm:operator --after 120 --follow"
    )]
    Events {
        /// The session's key.
        key: String,
        /// Only events after this number [default: from the oldest that is kept].
        #[arg(long, value_name = "SEQ")]
        after: Option<u64>,
        /// Keep printing new events until interrupted.
        #[arg(short, long)]
        follow: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only sessions of this agent.
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Only sessions in this state.
    #[arg(long, value_parser = ["idle", "running", "cancelled", "closed"])]
    state: Option<String>,
    /// At most this many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

pub(crate) fn run(
    command: SessionsCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    if let SessionsCommand::Forget { key, yes: false } = &command
        && !confirmed(key)?
    {
        output.notice("nothing was forgotten");
        return Ok(CommandOutcome::Failed);
    }
    daemon::runtime()?.block_on(async {
        let mut client = daemon::connect(home).await?;
        match &command {
            SessionsCommand::List(args) => list(&mut client, args, output).await?,
            SessionsCommand::Show { key, lines } => show(&mut client, key, *lines, output).await?,
            SessionsCommand::Close { key } => {
                let closed = call_for_session(&mut client, "session.close", key).await?;
                output.result(|_| format!("closed {}", clean(key)), &closed)?;
            }
            SessionsCommand::Forget { key, .. } => forget(&mut client, key, home, output).await?,
            SessionsCommand::Cancel { key } => cancel(&mut client, key, output).await?,
            SessionsCommand::Events { key, after, follow: false } => {
                events(&mut client, key, *after, output).await?;
            }
            SessionsCommand::Events { key, after, follow: true } => {
                follow(&mut client, key, *after, output).await?;
            }
        }
        client.close().await;
        Ok(CommandOutcome::Done)
    })
}

/// Calls a method with a session's key. If there is no such session, the error suggests the nearest key.
async fn call_for_session(client: &mut RpcClient, method: &str, key: &str) -> Result<Value, CliError> {
    ask(client, method, key, json!({ "session_key": key })).await
}

async fn ask(client: &mut RpcClient, method: &str, key: &str, params: Value) -> Result<Value, CliError> {
    match client.call(method, &params).await {
        Ok(result) => Ok(result),
        Err(error @ ClientError::Rpc { .. })
            if matches!(error.code(), Some("not_found" | "invalid_params")) =>
        {
            let sessions = client.call("session.list", &json!({ "limit": PAGE })).await?;
            let keys: Vec<&str> =
                rows(&sessions, "sessions").filter_map(|row| row["session_key"].as_str()).collect();
            let meant =
                nearest(key, &keys).or_else(|| keys.iter().copied().find(|known| known.contains(key)));
            Err(CliError::Input(match meant {
                Some(meant) if meant != key => {
                    format!("there is no session `{key}`: did you mean `{meant}`?")
                }
                Some(_) => error.to_string(),
                None => {
                    format!("there is no session `{key}`: list the sessions with `tribune sessions list`")
                }
            }))
        }
        Err(error) => Err(error.into()),
    }
}

fn rows<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

async fn list(client: &mut RpcClient, args: &ListArgs, output: &mut Output) -> Result<(), CliError> {
    let params = json!({ "agent_id": args.agent, "state": args.state, "limit": args.limit });
    let page = client.call("session.list", &params).await?;
    let none = rows(&page, "sessions").next().is_none() && (args.agent.is_some() || args.state.is_some());
    output
        .result(|paint| if none { "no such sessions".to_owned() } else { list_text(&page, paint) }, &page)?;
    if !page["next"].is_null() {
        output.notice("there are more: raise --limit, or narrow it with --agent or --state");
    }
    Ok(())
}

/// Sessions as a table.
pub(crate) fn list_text(page: &Value, paint: Paint) -> String {
    let row = |session: &Value| {
        ["session_key", "state", "mode", "mandate", "turns", "last_activity"]
            .map(|name| cell(&session[name]))
            .to_vec()
    };
    let rows: Vec<Vec<String>> = rows(page, "sessions").map(row).collect();
    if rows.is_empty() {
        return "no sessions: `tribune chat` opens one".to_owned();
    }
    table(&["KEY", "STATE", "MODE", "MANDATE", "TURNS", "LAST ACTIVITY"], &rows, paint)
}

async fn show(client: &mut RpcClient, key: &str, lines: u32, output: &mut Output) -> Result<(), CliError> {
    let session = call_for_session(client, "session.status", key).await?;
    let newest = json!({ "session_key": key, "limit": lines });
    let turns = client.call("session.turns", &newest).await?["turns"].take();
    let messages = client.call("session.history", &newest).await?["messages"].take();
    let sandboxes = sandbox_report::of_session(client, key).await?;
    let value = json!({ "session": session, "turns": turns, "held": sandboxes, "messages": messages });
    output.result(
        |paint| {
            let mut parts = vec![info_text(&value["session"], paint), turns_text(&value, paint)];
            parts.extend(sandbox_report::text(&value["held"], paint));
            parts.push(history_text(&value, paint));
            if let Some(stderr) = value["session"]["agent_stderr"].as_str() {
                parts.push(format!(
                    "{}\n{}",
                    paint.faint("the agent's standard error"),
                    clean_text(stderr.trim_end())
                ));
            }
            parts.join("\n\n")
        },
        &value,
    )?;
    Ok(())
}

/// The terms of a session.
pub(crate) fn info_text(session: &Value, paint: Paint) -> String {
    let names = [
        "session_key",
        "agent_id",
        "state",
        "mode",
        "mandate",
        "backend",
        "model",
        "created_at",
        "last_activity",
        "turns",
    ];
    let line = |name: &str| {
        format!("{} {}", paint.faint(&format!("{:<14}", name.replace('_', " "))), cell(&session[name]))
    };
    let mut lines: Vec<String> = names.into_iter().map(line).collect();
    let read = card::context(session["trust"].as_str().unwrap_or_default(), session["private"] == true);
    lines.push(format!("{} {read}", paint.faint(&format!("{:<14}", "context"))));
    if !session["workspace"].is_null() {
        lines.push(line("workspace"));
    }
    for folder in session["further_folders"].as_array().into_iter().flatten() {
        lines.push(format!("{} {}", paint.faint(&format!("{:<14}", "further folder")), cell(folder)));
    }
    for name in ["closed_for", "failure"] {
        if !session[name].is_null() {
            lines.push(line(name));
        }
    }
    lines.join("\n")
}

fn turns_text(value: &Value, paint: Paint) -> String {
    let row = |turn: &Value| {
        let ended = match turn["stop_reason"].as_str() {
            Some(reason) => clean(reason),
            None => "running".to_owned(),
        };
        vec![
            short_cid(turn["turn"].as_str().unwrap_or_default()),
            ended,
            cell(&turn["usage"]["input_tokens"]),
            cell(&turn["usage"]["output_tokens"]),
            cell(&turn["started_at"]),
        ]
    };
    let rows: Vec<Vec<String>> = rows(value, "turns").map(row).collect();
    if rows.is_empty() {
        return "no turns yet".to_owned();
    }
    table(&["TURN", "ENDED", "IN", "OUT", "STARTED"], &rows, paint)
}

/// Messages with their texts.
pub(crate) fn history_text(value: &Value, paint: Paint) -> String {
    let message = |message: &Value| {
        let role = message["role"].as_str().unwrap_or_default();
        let name = match (role, message["name"].as_str()) {
            ("tool_call" | "tool", Some(name)) => format!("{} {}", clean(role), clean(name)),
            _ => clean(role),
        };
        let head = format!("{name}  {}", cell(&message["at"]));
        format!("{}\n{}", paint.faint(&head), words(role, &message["content"], paint))
    };
    let messages: Vec<String> = rows(value, "messages").map(message).collect();
    if messages.is_empty() { "no messages yet".to_owned() } else { messages.join("\n\n") }
}

fn words(role: &str, content: &Value, paint: Paint) -> String {
    match content {
        Value::Null => paint.unsure("(shredded)"),
        Value::Array(blocks) if role != "tool_call" => {
            let block = |block: &Value| match block["text"].as_str() {
                Some(text) => clean_text(text),
                None => format!("({})", cell(&block["type"])),
            };
            let text: Vec<String> = blocks.iter().map(block).collect();
            match text.join("\n").trim_end() {
                "" => paint.faint("(nothing)"),
                text => text.to_owned(),
            }
        }
        other => excerpt(&other.to_string(), INPUT_CHARS),
    }
}

/// Asks for confirmation. Without a terminal it is an error.
fn confirmed(key: &str) -> Result<bool, CliError> {
    let what = format!(
        "This destroys the conversation of `{}` and cannot be undone. The ledger keeps its entries and still verifies.",
        clean(key)
    );
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(CliError::Input(format!("{what} Add --yes to do it")));
    }
    let mut err = io::stderr().lock();
    write!(err, "{what}\nForget it? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn forget(client: &mut RpcClient, key: &str, home: &Home, output: &mut Output) -> Result<(), CliError> {
    let forgotten = call_for_session(client, "session.forget", key).await?;
    output.result(
        |_| {
            let text = format!(
                "forgotten: nobody can read the conversation of {} any more\nentry {} records it; check that the ledger is sound with `tribune ledger verify`",
                clean(key),
                short_cid(forgotten["cid"].as_str().unwrap_or_default())
            );
            hints::name_home_if_needed(home, &text)
        },
        &forgotten,
    )?;
    Ok(())
}

async fn cancel(client: &mut RpcClient, key: &str, output: &mut Output) -> Result<(), CliError> {
    let cancelled = call_for_session(client, "session.cancel", key).await?;
    output.result(|_| cancelled_text(&cancelled).to_owned(), &cancelled)?;
    Ok(())
}

/// The result of a cancel, in words.
pub(crate) fn cancelled_text(cancelled: &Value) -> &'static str {
    if cancelled["cancelled"] == true { "cancelled" } else { "no turn is running" }
}

async fn events(
    client: &mut RpcClient,
    key: &str,
    mut after: Option<u64>,
    output: &mut Output,
) -> Result<(), CliError> {
    loop {
        let params = json!({ "session_key": key, "after": after, "follow": false, "limit": PAGE });
        let page = ask(client, "session.events", key, params).await?;
        for event in rows(&page, "events") {
            after = event["seq"].as_u64().max(after);
            output.result(|_| json_line(event), event)?;
        }
        let is_last = rows(&page, "events").next().is_none();
        if is_last || page["last_seq"].as_u64().is_none_or(|last| after >= Some(last)) {
            return Ok(());
        }
    }
}

async fn follow(
    client: &mut RpcClient,
    key: &str,
    mut after: Option<u64>,
    output: &mut Output,
) -> Result<(), CliError> {
    let params = json!({ "session_key": key, "after": after });
    let following = ask(client, "session.events", key, params).await?;
    loop {
        let message = match client.next().await {
            Ok(RpcIncoming::Notification(message)) => message,
            Ok(RpcIncoming::Response(..)) => continue,
            Err(error) => {
                let place = after.map_or_else(String::new, |after| format!(" --after {after}"));
                output.notice(&format!("go on with: tribune sessions events {}{place} --follow", clean(key)));
                return Err(error.into());
            }
        };
        match message.method.as_str() {
            "session.event" => {
                let event = &message.params["event"];
                after = event["seq"].as_u64().or(after);
                output.result(|_| json_line(event), event)?;
            }
            "session.ended" if message.params["subscription"] == following["subscription"] => {
                if let Some(error) = message.error() {
                    return Err(error.into());
                }
                output.notice("the session was closed: there are no more events");
                return Ok(());
            }
            _ => {}
        }
    }
}
