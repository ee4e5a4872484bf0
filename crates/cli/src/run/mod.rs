//! `tribune run`: anything, in a box. The daemon gives it a session, a layer for its changes and the ways out; this starts it where
//! the operator sits, with their own streams, and stays to its end.
//!
//! With the name of a profile it is an agent of another make on the folder ([`agent`]).
//!
//! [`run_spec`] is what was asked for, [`profile`] the box it becomes, [`terminal`] a terminal of its own, [`stdio_pipes`] pipes to other
//! streams, [`signals`] what is passed on, [`supervise`] the way to its end.

mod agent;
mod profile;
mod run_spec;
mod signals;
mod stdio_pipes;
mod supervise;
mod terminal;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use tribune_client::ClientError;
use tribune_constitution::Asking;
use tribune_contract::{Exit, Started};
use tribune_host::Home;
use tribune_host::quota::Quota;
use tribune_sandbox::{House, Launcher};

use self::agent::AgentOrder;
use self::run_spec::{Opened, Order};
use self::signals::Signals;
use self::stdio_pipes::Keys;
use self::supervise::{Company, Ended};
use self::terminal::Seat;
use crate::error::{CliError, NOT_RUN, Outcome};
use crate::output::{Format, Output, clean, json_line};
use crate::pending_approvals::Questions;
use crate::up::{count, next_command};
use crate::{daemon, detach, workspace};

/// Run any command in a box: it sees its project and nothing else of this machine, and reaches no address but those you name.
///
/// The current folder is its project. It works on a layer of its own, so that the folder stays as it is until you say
/// `tribune workspace land`. Connections go through a proxy (HTTP_PROXY and HTTPS_PROXY are set): places that you name with --net
/// are let through, all others wait until you decide, in the inbox or with the words that are printed. If the house has a model,
/// OPENAI_BASE_URL or ANTHROPIC_BASE_URL lead to it, and no key is needed. Everything stands in the ledger.
///
/// With the name of an agent (claude, codex, gemini, opencode, or a profile of your own) it talks to that agent on the folder, as
/// `tribune chat` does: what it changes, it changes there, and the law decides each call. Words behind `--` are said to it; its
/// program takes no options here. `tribune run -- claude` runs the program itself.
///
/// Starts the daemon if none runs. Ends with the command's own exit code, with 128 + n if a signal n ended it, and with 125 if
/// Tribune ended it or could not start it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune run -- make test\n  tribune run --net pypi.org --net files.pythonhosted.org -- pip download requests\n  tribune run -- bash\n  tribune run claude\n  tribune run codex -- fix the failing test\n  tribune run --workspace direct --net 127.0.0.1:8080 -- ./smoke-test.sh\n\nAfterwards:\n  tribune workspace diff ID\n  tribune workspace land ID --all"
)]
pub(crate) struct RunArgs {
    /// A place it may connect to; may be given several times. Without a port: 443 and 80. tcp:// before it lets anything through.
    #[arg(long, value_name = "HOST[:PORT]")]
    net: Vec<String>,
    /// Its project [default: the current folder].
    #[arg(long, value_name = "DIR")]
    rw: Option<PathBuf>,
    /// Another folder that it may read, under the same name; may be given several times.
    #[arg(long, value_name = "DIR")]
    ro: Vec<PathBuf>,
    /// Where its changes go.
    #[arg(long, value_enum, default_value_t = WorkspaceMode::Overlay, value_name = "MODE")]
    workspace: WorkspaceMode,
    /// What to call it [default: a name is made up].
    #[arg(long)]
    name: Option<String>,
    /// A variable it gets, with a value or with the one it has here; may be given several times.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// For an agent: the model it thinks with [default: the house's].
    #[arg(long, value_name = "PROVIDER:MODEL")]
    model: Option<String>,
    /// For an agent: how far it is let go. `ask`, `approve-all`, `approve-reads` or `deny-all` [default: as the law says].
    #[arg(long, value_parser = crate::agents::asking)]
    mode: Option<Asking>,
    /// Let it read your terminal though its output goes elsewhere; otherwise it has nothing to read then.
    #[arg(short, long)]
    input: bool,
    /// Say nothing beside what the command says.
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Where changes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorkspaceMode {
    /// To a layer of their own, until you land them.
    Overlay,
    /// To the folder at once; names that programs of this machine obey stay as they are.
    Direct,
    /// Nowhere: it cannot change the folder.
    ReadOnly,
}

impl WorkspaceMode {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::Direct => "direct",
            Self::ReadOnly => "read-only",
        }
    }
}

pub(crate) fn run(args: &RunArgs, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let said: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(order) = AgentOrder::of(args, home, &said)? {
        return order.carry_out(args, home, output);
    }
    if args.mode.is_some() || args.model.is_some() {
        let what = "--mode and --model are for agents, and this is a program: leave them out";
        return Err(CliError::Input(what.to_owned()));
    }
    // Until something runs, nothing is the command's.
    run_in_a_box(args, home, output).map_err(CliError::before_a_run)
}

fn run_in_a_box(args: &RunArgs, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let order = Order::of(args)?;
    stdio_pipes::check()?;
    start_daemon(args.quiet, home, output)?;
    daemon::runtime()?.block_on(async {
        let mut client = daemon::connect(home).await?;
        let answer = client.call("run.open", &order.params()).await?;
        let opened = Opened::read(answer)?;
        let lock = opened.take_lock()?;
        let signals = Signals::new().map_err(CliError::System)?;
        let keys = if args.input { Keys::PassedOn } else { Keys::LeftAlone };
        let mut seat = Seat::take(keys).map_err(CliError::System)?;
        if seat.is_terminal() && !args.quiet {
            let watch = next_command(home, "approvals watch");
            output.aside(&format!("{}: its questions are in another terminal: {watch}\r", opened.id));
        }
        let profile = profile::of(&order, &opened)?;
        let launcher = Launcher::this_program(House::of(home.root())).once();
        let quota = match (&opened.layers, order.mode) {
            (Some(layers), _) => Some(Quota::of_layer(layers, opened.max_bytes)),
            (None, WorkspaceMode::Direct) => Some(Quota::of_folder(&opened.folder, opened.max_bytes)),
            (None, WorkspaceMode::Overlay | WorkspaceMode::ReadOnly) => None,
        };
        let child = match launcher.launch(&profile, seat.streams().map_err(CliError::System)?) {
            Ok(child) => child,
            Err(error) => {
                // Nothing was said yet.
                let _ = seat.leave();
                drop(lock);
                let ended = json!({ "id": opened.id, "outcome": "not_started" });
                // What could not be started has not ended; the connection ends it all the same.
                let _ = client.call("run.ended", &ended).await;
                return Err(CliError::NotRun(error.to_string()));
            }
        };
        let started = child.started();
        if !args.quiet {
            for note in protected(started) {
                output.aside(&format!("{}: {note}{}", opened.id, if seat.is_terminal() { "\r" } else { "" }));
            }
        }
        let facts = json!({
            "id": opened.id, "limited_by": started.limited_by.to_string(), "landlock_abi": started.landlock_abi,
        });
        let client = match client.call("run.started", &facts).await {
            Ok(_) => Some(client),
            // What cannot be written down does not run.
            Err(error @ ClientError::Rpc { .. }) => return Err(error.into()),
            Err(_) => None,
        };
        let questions = Questions::about_egress(home, &opened.session_key);
        let company = Company { child, client, signals, questions, quota, output };
        let (ended, client) = company.stay(&mut seat).await?;
        let said = seat.leave();
        drop(lock);
        let left = tell_end(client, &opened, &ended).await;
        let outcome = farewell(args, home, output, (&opened, &ended), left.as_ref());
        Ok(match said {
            Ok(()) => outcome,
            Err(error) => unheard(output, &error, outcome),
        })
    })
}

/// What the command said and nobody got is told, and is no success.
fn unheard(output: &Output, error: &std::io::Error, outcome: Outcome) -> Outcome {
    output.aside(&format!("tribune: not all that the command said could be written: {error}"));
    match outcome {
        Outcome::Code(0) => Outcome::Failed,
        other => other,
    }
}

/// What is said of folders that are protected as a whole, because there is too much in them to do it name by name.
fn protected(started: &Started) -> Vec<String> {
    let told = [("read-only", &started.read_only), ("hidden", &started.emptied)];
    let told = told.into_iter().filter(|(_, folders)| !folders.is_empty());
    told.map(|(how, folders)| format!("{how} as a whole: `{}`", folders.join("`, `"))).collect()
}

/// Starts the daemon if none runs.
fn start_daemon(is_quiet: bool, home: &Home, output: &mut Output) -> Result<(), CliError> {
    if daemon::is_running(home).is_some() {
        return Ok(());
    }
    let started = detach::start(detach::other_port(home)?, home, output)?;
    if !is_quiet {
        let stop = next_command(home, "down");
        output.aside(&format!("started the daemon at http://{} (it ends with: {stop})", started.address));
    }
    Ok(())
}

/// Tells the daemon how it ended; what it left behind, if the daemon is still there.
async fn tell_end(
    client: Option<tribune_client::Client>,
    opened: &Opened,
    ended: &Ended,
) -> Option<serde_json::Value> {
    let mut client = client?;
    let (outcome, code, signal) = match ended {
        Ended::Exit(Exit::Code { code }) => ("exited", Some(*code), None),
        Ended::Exit(Exit::Signal { signal }) => ("exited", None, Some(*signal)),
        Ended::Exit(Exit::OutOfTime | Exit::Killed) => ("killed", None, None),
        Ended::OverQuota(_) => ("over_quota", None, None),
    };
    let params = json!({ "id": opened.id, "outcome": outcome, "code": code, "signal": signal });
    let left = client.call("run.ended", &params).await.ok();
    client.close().await;
    left
}

/// Says what is left to do, and ends as the command did.
fn farewell(
    args: &RunArgs,
    home: &Home,
    output: &Output,
    (opened, ended): (&Opened, &Ended),
    left: Option<&serde_json::Value>,
) -> Outcome {
    let code = match ended {
        Ended::Exit(Exit::Code { code }) => u8::try_from(*code).unwrap_or(u8::MAX),
        Ended::Exit(Exit::Signal { signal }) => u8::try_from(128 + *signal).unwrap_or(u8::MAX),
        Ended::Exit(Exit::OutOfTime | Exit::Killed) => 137,
        Ended::OverQuota(_) => NOT_RUN,
    };
    if let Ended::OverQuota(why) = ended {
        output.aside(&format!("tribune: {why}"));
    }
    if output.format() == Format::Json {
        let changes = left.map_or(serde_json::Value::Null, |left| left["changes"].clone());
        let said = json!({ "id": opened.id, "session_key": opened.session_key, "exit_code": code, "changes": changes });
        // Standard output is the command's.
        crate::output::side_line(&json_line(&said));
    }
    if args.quiet || opened.layers.is_none() {
        return Outcome::Code(code);
    }
    let id = &opened.id;
    let Some(left) = left else {
        let see = next_command(home, &format!("workspace diff {id}"));
        output.aside(&format!(
            "tribune: the daemon ended meanwhile; what was changed is there when it is back: {see}"
        ));
        return Outcome::Code(code);
    };
    let changes = left["changes"].as_u64().unwrap_or(0);
    let command = |words: &str| next_command(home, &format!("workspace {words}"));
    if let Some(fault) = left["fault"].as_str() {
        let discard = command(&format!("discard {id}"));
        output.aside(&format!(
            "tribune: what it changed cannot be told: {}\n  discard: {discard}",
            clean(fault)
        ));
    }
    if changes > 0 {
        let size = workspace::bytes(left["bytes"].as_u64().unwrap_or(0));
        let traps = match left["traps"].as_u64().unwrap_or(0) {
            0 => String::new(),
            traps => format!(", {traps} of them under names that programs of this machine obey"),
        };
        output.aside(&format!(
            "tribune: {} ({size}){traps}; the folder is as it was\n  see:     {}\n  land:    {}\n  discard: {}",
            count(changes, "change", "changes"),
            command(&format!("diff {id}")),
            command(&format!("land {id} --all")),
            command(&format!("discard {id}")),
        ));
    }
    Outcome::Code(code)
}
