//! `tribune run`: runs a command in a sandbox. The daemon opens a session, an overlay for the changes and the sockets
//! for network access. This process starts the command with the operator's own streams and supervises it to its end.
//!
//! With the name of a profile it runs a CLI agent on the folder ([`agent`]).
//!
//! [`run_spec`] is the request, [`profile`] the sandbox profile, [`terminal`] a pseudo-terminal, [`stdio_pipes`] pipes
//! to other streams, [`signals`] the signals that are forwarded, [`supervise`] the loop until the command ends.

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
use tribune_constitution::ApprovalMode;
use tribune_contract::{ProgramExit, StartReport};
use tribune_sandbox::workspace::AutorunGuard;
use tribune_sandbox::{InstanceId, SandboxLauncher};
use tribune_storage::home::Home;
use tribune_tools::disk_quota::Quota;

use self::agent::AgentRun;
use self::run_spec::{OpenedRun, RunSpec};
use self::signals::Signals;
use self::stdio_pipes::TerminalInput;
use self::supervise::{RunEnd, Supervisor};
use self::terminal::Stdio;
use crate::error::{CliError, CommandOutcome, NOT_RUN};
use crate::hints::next_command;
use crate::output::{Format, Output, clean, count, json_line};
use crate::pending_approvals::PendingApprovals;
use crate::{daemon, detach, workspace};

/// Run a command in a sandbox: it sees only its project, and reaches only the network addresses that you allow.
///
/// The current folder is its project. Changes go to an overlay, and the folder stays as it is until you run `tribune
/// workspace land`. Connections go through a proxy (HTTP_PROXY and HTTPS_PROXY are set): addresses that you name with
/// --net are allowed; every other one waits for your decision in the inbox, and the commands to decide are printed. If
/// a default model is configured, OPENAI_BASE_URL or ANTHROPIC_BASE_URL points to it, and the command needs no API key.
/// The ledger records everything.
///
/// With the name of an agent (claude, codex, gemini, opencode, or a profile of yours) you talk to that agent, as in
/// `tribune chat`. It changes the folder directly, and the law decides each call. Words after `--` are the message;
/// options of the agent's program are not accepted here. `tribune run -- claude` runs the program itself.
///
/// The daemon is started if none runs. Exit code: the command's own; 128 + n if signal n ended it; 125 if Tribune ended
/// it or could not start it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune run -- make test\n  tribune run --net pypi.org --net files.pythonhosted.org -- pip download requests\n  tribune run -- bash\n  tribune run claude\n  tribune run codex -- fix the failing test\n  tribune run --workspace direct --net 127.0.0.1:8080 -- ./smoke-test.sh\n\nAfterwards:\n  tribune workspace diff ID\n  tribune workspace land ID --all"
)]
pub(crate) struct RunArgs {
    /// An address that it may connect to; may be repeated. Default ports: 443 and 80. The prefix tcp:// allows any
    /// protocol.
    #[arg(long, value_name = "HOST[:PORT]")]
    net: Vec<String>,
    /// Its project folder [default: the current folder].
    #[arg(long, value_name = "DIR")]
    rw: Option<PathBuf>,
    /// Another folder that it may read, at the same path; may be repeated.
    #[arg(long, value_name = "DIR")]
    ro: Vec<PathBuf>,
    /// Where its changes go.
    #[arg(long, value_enum, default_value_t = WorkspaceMode::Overlay, value_name = "MODE")]
    workspace: WorkspaceMode,
    /// The name of the run [default: generated].
    #[arg(long)]
    name: Option<String>,
    /// An environment variable for it, with a value or with the value from here; may be repeated.
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// For an agent: its model [default: the configured default model].
    #[arg(long, value_name = "PROVIDER:MODEL")]
    model: Option<String>,
    /// For an agent: how much it may do without asking: `ask`, `approve-all`, `approve-reads` or `deny-all` [default:
    /// as the law says].
    #[arg(long, value_parser = crate::agents::asking)]
    mode: Option<ApprovalMode>,
    /// Let it read your terminal even if its output goes elsewhere; by default it then gets no input.
    #[arg(short, long)]
    input: bool,
    /// Print nothing but the command's own output.
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Where changes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorkspaceMode {
    /// To an overlay, until you land them
    Overlay,
    /// To the folder directly; autorun files, which programs of this machine load or run by name, are read-only
    Direct,
    /// Nowhere: the folder is read-only
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

pub(crate) fn run(args: &RunArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let typed: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(spec) = AgentRun::from_args(args, home, &typed)? {
        return spec.talk(args, home, output);
    }
    if args.mode.is_some() || args.model.is_some() {
        let what = "--mode and --model are for agents, but this is a program: leave them out";
        return Err(CliError::Input(what.to_owned()));
    }
    // Before the command runs, no exit code is the command's.
    run_in_sandbox(args, home, output).map_err(CliError::before_a_run)
}

fn run_in_sandbox(args: &RunArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let spec = RunSpec::from_args(args)?;
    stdio_pipes::check()?;
    start_daemon(args.quiet, home, output)?;
    daemon::runtime()?.block_on(async {
        let mut client = daemon::connect(home).await?;
        let answer = client.call("run.open", &spec.params()).await?;
        let opened = OpenedRun::read(answer)?;
        let lock = opened.take_lock()?;
        let signals = Signals::new().map_err(CliError::System)?;
        let input = if args.input { TerminalInput::Forwarded } else { TerminalInput::Ignored };
        let mut stdio = Stdio::attach(input).map_err(CliError::System)?;
        if stdio.is_terminal() && !args.quiet {
            let watch = next_command(home, "approvals watch");
            output.notice(&format!("{}: answer its questions in another terminal: {watch}\r", opened.id));
        }
        let profile = profile::of(&spec, &opened)?;
        let launcher = SandboxLauncher::this_program(InstanceId::of_state_folder(home.root())).without_prewarm();
        let quota = match (&opened.layers, spec.mode) {
            (Some(layers), _) => Some(Quota::of_layer(layers, opened.max_bytes)),
            (None, WorkspaceMode::Direct) => Some(Quota::of_folder(&opened.folder, opened.max_bytes)),
            (None, WorkspaceMode::Overlay | WorkspaceMode::ReadOnly) => None,
        };
        let direct = (spec.mode == WorkspaceMode::Direct).then(|| opened.folder.clone());
        // What is found is printed below; after an error it is moved all the same.
        let guard = AutorunGuard::new(direct, |_| ()).map_err(|error| CliError::NotRun(error.to_string()))?;
        let child = match launcher.launch(&profile, stdio.streams().map_err(CliError::System)?) {
            Ok(child) => child,
            Err(error) => {
                // There is no output yet.
                let _ = stdio.restore();
                drop(lock);
                let ended = json!({ "id": opened.id, "outcome": "not_started" });
                // If this request fails, closing the connection ends the run.
                let _ = client.call("run.ended", &ended).await;
                return Err(CliError::NotRun(error.to_string()));
            }
        };
        let started = child.started();
        if !args.quiet {
            for note in protection_notes(started) {
                output.notice(&format!("{}: {note}{}", opened.id, if stdio.is_terminal() { "\r" } else { "" }));
            }
        }
        let facts = json!({
            "id": opened.id, "limited_by": started.limited_by.to_string(), "landlock_abi": started.landlock_abi,
        });
        let client = match client.call("run.started", &facts).await {
            Ok(_) => Some(client),
            // A run that cannot be recorded must not go on.
            Err(error @ ClientError::Rpc { .. }) => return Err(error.into()),
            Err(_) => None,
        };
        let pending = PendingApprovals::for_egress(home, &opened.session_key);
        let supervisor = Supervisor { child, client, signals, pending, quota, output };
        let (ended, client) = supervisor.run_to_end(&mut stdio).await?;
        let restored = stdio.restore();
        for sentence in guard.finish() {
            output.notice(&format!("{}: {sentence}", opened.id));
        }
        drop(lock);
        let left = record_end(client, &opened, &ended).await;
        let outcome = report_end(args, home, output, &FinishedRun { opened: &opened, ended: &ended, left: left.as_ref() });
        Ok(match restored {
            Ok(()) => outcome,
            Err(error) => report_lost_output(output, &error, outcome),
        })
    })
}

/// Reports output that could not be written, which is no success.
fn report_lost_output(output: &Output, error: &std::io::Error, outcome: CommandOutcome) -> CommandOutcome {
    output.notice(&format!("tribune: part of the command's output could not be written: {error}"));
    match outcome {
        CommandOutcome::Code(0) => CommandOutcome::Failed,
        other => other,
    }
}

/// Notes about folders that are protected as a whole, because they have too many files to protect each.
fn protection_notes(started: &StartReport) -> Vec<String> {
    let kinds = [("read-only", &started.read_only), ("hidden", &started.emptied)];
    let kinds = kinds.into_iter().filter(|(_, folders)| !folders.is_empty());
    kinds.map(|(how, folders)| format!("{how} as a whole: `{}`", folders.join("`, `"))).collect()
}

/// Starts the daemon if none runs.
fn start_daemon(is_quiet: bool, home: &Home, output: &mut Output) -> Result<(), CliError> {
    if daemon::is_running(home).is_some() {
        return Ok(());
    }
    let started = detach::start(detach::free_port_if_taken(home)?, home, output)?;
    if !is_quiet {
        let stop = next_command(home, "down");
        output.notice(&format!("started the daemon at http://{} (stop it with: {stop})", started.address));
    }
    Ok(())
}

/// Reports the end to the daemon. Returns what the run changed, if the daemon still answers.
async fn record_end(
    client: Option<tribune_client::RpcClient>,
    opened: &OpenedRun,
    ended: &RunEnd,
) -> Option<serde_json::Value> {
    let mut client = client?;
    let (outcome, code, signal) = match ended {
        RunEnd::Exit(ProgramExit::Code { code }) => ("exited", Some(*code), None),
        RunEnd::Exit(ProgramExit::Signal { signal }) => ("exited", None, Some(*signal)),
        RunEnd::Exit(ProgramExit::OutOfTime | ProgramExit::Killed) => ("killed", None, None),
        RunEnd::OverQuota(_) => ("over_quota", None, None),
    };
    let params = json!({ "id": opened.id, "outcome": outcome, "code": code, "signal": signal });
    let left = client.call("run.ended", &params).await.ok();
    client.close().await;
    left
}

/// A run that has ended, with what it left behind if the daemon could say so.
struct FinishedRun<'a> {
    opened: &'a OpenedRun,
    ended: &'a RunEnd,
    left: Option<&'a serde_json::Value>,
}

/// Prints the changes and the next commands. Returns the command's exit code.
fn report_end(args: &RunArgs, home: &Home, output: &Output, finished: &FinishedRun<'_>) -> CommandOutcome {
    let FinishedRun { opened, ended, left } = *finished;
    let code = match ended {
        RunEnd::Exit(ProgramExit::Code { code }) => u8::try_from(*code).unwrap_or(u8::MAX),
        RunEnd::Exit(ProgramExit::Signal { signal }) => u8::try_from(128 + *signal).unwrap_or(u8::MAX),
        RunEnd::Exit(ProgramExit::OutOfTime | ProgramExit::Killed) => 137,
        RunEnd::OverQuota(_) => NOT_RUN,
    };
    if let RunEnd::OverQuota(why) = ended {
        output.notice(&format!("tribune: {why}"));
    }
    if output.format() == Format::Json {
        let changes = left.map_or(serde_json::Value::Null, |left| left["changes"].clone());
        let summary = json!({ "id": opened.id, "session_key": opened.session_key, "exit_code": code, "changes": changes });
        // Standard output belongs to the command.
        crate::output::stderr_line(&json_line(&summary));
    }
    if args.quiet || opened.layers.is_none() {
        return CommandOutcome::Code(code);
    }
    let id = &opened.id;
    let Some(left) = left else {
        let see = next_command(home, &format!("workspace diff {id}"));
        output.notice(&format!(
            "tribune: the daemon has ended; once it runs again, see the changes with: {see}"
        ));
        return CommandOutcome::Code(code);
    };
    let changes = left["changes"].as_u64().unwrap_or(0);
    let command = |words: &str| next_command(home, &format!("workspace {words}"));
    if let Some(fault) = left["fault"].as_str() {
        let discard = command(&format!("discard {id}"));
        output
            .notice(&format!("tribune: its changes cannot be read: {}\n  discard: {discard}", clean(fault)));
    }
    if changes > 0 {
        let size = workspace::bytes(left["bytes"].as_u64().unwrap_or(0));
        let traps = match left["traps"].as_u64().unwrap_or(0) {
            0 => String::new(),
            traps => format!(", {traps} of them autorun files"),
        };
        output.notice(&format!(
            "tribune: {} ({size}){traps}; the folder is as it was\n  see:     {}\n  land:    {}\n  discard: {}",
            count(changes, "change", "changes"),
            command(&format!("diff {id}")),
            command(&format!("land {id} --all")),
            command(&format!("discard {id}")),
        ));
    }
    CommandOutcome::Code(code)
}
