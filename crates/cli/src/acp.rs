//! `tribune acp`: connects an editor to the daemon over ACP. Lines from standard input go to the daemon, its messages
//! come back as lines. The agent runs in the daemon and survives the editor.

mod lines;

use std::cell::Cell;
use std::io::{BufReader, Write as _};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tribune_client::ClientError;
use tribune_client::acp::{self, AcpReceiver, AcpSender};
use tribune_json_rpc::{self as json_rpc, ErrorObject, INTERNAL_ERROR, INVALID_PARAMS};
use tribune_runtime::{AgentId, SessionKey};
use tribune_storage::home::Home;

use self::lines::InputLine;
use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::output::Output;
use crate::{daemon, detach};

/// Bytes of one line, if the daemon does not say its limit.
const MAX_LINE: usize = 8 << 20;

/// Lines that may be queued in each direction.
const QUEUED_LINES: usize = 64;

/// Silence after which all requests but prompts count as answered.
const QUIET_TIME: Duration = Duration::from_millis(250);

/// How long the last lines may take to arrive and to be written.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(2);

/// Serve an editor as an ACP agent on standard input and output.
///
/// Editors and other ACP clients start this command. It connects to the daemon of this home, or starts one, and gives
/// the editor every agent of the home. The law judges each call, and the editor shows the questions that a person must
/// answer. The command ends with its standard input; the session stays and can be loaded again.
///
/// Only ACP messages are written to standard output.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune acp\n  tribune acp --agent claude\n  acpx --agent 'tribune acp' exec 'What is in this folder?'\n\nHow to set up editors: docs/guide/editors.md"
)]
pub(crate) struct AcpArgs {
    /// The agent of new sessions [default: main].
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentId>,
    /// Resume this session the first time that the editor asks for a new one.
    #[arg(long, value_name = "KEY")]
    session: Option<SessionKey>,
}

pub(crate) fn run(args: &AcpArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let connected = daemon::runtime()?.block_on(async {
        match connect_or_start(args, home, output).await {
            Ok((sending, receiving)) => {
                let lines = read_lines(sending.most_bytes().unwrap_or(MAX_LINE));
                forward(lines, sending, receiving).await
            }
            Err(error) => {
                reject_all(read_lines(MAX_LINE), &error.to_string()).await;
                Err(error)
            }
        }
    });
    connected.map(|()| CommandOutcome::Done)
}

/// Connects to the daemon of this home, and starts one if none runs.
async fn connect_or_start(
    args: &AcpArgs,
    home: &Home,
    output: &Output,
) -> Result<(AcpSender, AcpReceiver), CliError> {
    if daemon::is_running(home).is_none() {
        match detach::start_via_child(home) {
            Ok(()) => {
                let stop = next_command(home, "down");
                output.notice(&format!(
                    "started the daemon of {} (stop it with: {stop})",
                    home.root().display()
                ));
            }
            // Another process started it first.
            Err(_) if daemon::is_running(home).is_some() => {}
            Err(error) => return Err(error),
        }
    }
    let none = || CliError::NoDaemon(home.root().to_owned());
    let whereabouts = daemon::is_running(home).ok_or_else(none)?;
    let token = daemon::token(home)?;
    let (agent, session) =
        (args.agent.as_ref().map(AgentId::as_str), args.session.as_ref().map(SessionKey::as_str));
    Ok(acp::connect(&whereabouts.address.to_string(), Some(&token), agent, session).await?)
}

/// Reads standard input in its own thread, because a blocked read cannot be cancelled.
fn read_lines(most: usize) -> mpsc::Receiver<InputLine> {
    let (send, lines) = mpsc::channel(QUEUED_LINES);
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin().lock());
        while let Ok(Some(line)) = lines::read_line(&mut input, most) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The error answer to a request that did not reach the daemon.
fn failure(id: &Value, code: i64, word: &str, message: &str) -> String {
    json_rpc::error_response(id, &ErrorObject::named(code, word, message))
}

fn too_large(id: &Value, most: usize) -> String {
    let what = format!(
        "the message is larger than {most} bytes: send less at once, or raise gateway.maxMessageBytes"
    );
    failure(id, INVALID_PARAMS, "too_large", &what)
}

/// Forwards lines in both directions until either side ends.
async fn forward(
    mut lines: mpsc::Receiver<InputLine>,
    mut sending: AcpSender,
    mut receiving: AcpReceiver,
) -> Result<(), CliError> {
    let (out, mut written) = write_lines();
    let (replies, last_heard) = (out.clone(), Cell::new(Instant::now()));
    let to_daemon = async {
        while let Some(line) = lines.recv().await {
            match line {
                InputLine::Whole(line) => sending.send(line).await?,
                InputLine::TooLong { id: Some(id), most } => {
                    let _ = replies.send(too_large(&id, most)).await;
                }
                // A notification gets no answer.
                InputLine::TooLong { id: None, .. } => {}
            }
        }
        last_heard.set(Instant::now());
        Ok::<_, ClientError>(())
    };
    let ended = {
        let from_daemon = async {
            loop {
                let message = receiving.next().await?;
                last_heard.set(Instant::now());
                if out.send(message).await.is_err() {
                    // The editor closed the output.
                    return Ok::<_, ClientError>(());
                }
            }
        };
        let mut from_daemon = std::pin::pin!(from_daemon);
        tokio::select! {
            ended = &mut from_daemon => ended,
            ended = to_daemon => match ended {
                // Requests from just before the end still get their answers.
                Ok(()) => tokio::select! {
                    ended = &mut from_daemon => ended,
                    () = wait_quiet(&last_heard) => Ok(()),
                },
                failed => failed,
            },
        }
    };
    sending.close().await;
    drop((out, replies));
    let _ = tokio::time::timeout(LAST_LINES_TIMEOUT, written.recv()).await;
    Ok(ended?)
}

/// Waits until nothing has arrived for [`QUIET_TIME`], at most [`LAST_LINES_TIMEOUT`].
async fn wait_quiet(last_heard: &Cell<Instant>) {
    let quiet = async {
        while last_heard.get().elapsed() < QUIET_TIME {
            tokio::time::sleep_until(last_heard.get() + QUIET_TIME).await;
        }
    };
    let _ = tokio::time::timeout(LAST_LINES_TIMEOUT, quiet).await;
}

/// Writes lines to standard output in its own thread. The second value ends when all lines are written.
fn write_lines() -> (mpsc::Sender<String>, mpsc::Receiver<()>) {
    let (send, mut lines) = mpsc::channel::<String>(QUEUED_LINES);
    let (done, written) = mpsc::channel(1);
    std::thread::spawn(move || {
        let _done = done;
        let mut output = std::io::stdout().lock();
        while let Some(mut line) = lines.blocking_recv() {
            line.push('\n');
            if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
                return;
            }
        }
    });
    (send, written)
}

/// Answers every request with the reason why there is no daemon, until the input ends.
async fn reject_all(mut lines: mpsc::Receiver<InputLine>, why: &str) {
    let (out, mut written) = write_lines();
    while let Some(line) = lines.recv().await {
        let id = match line {
            InputLine::Whole(line) => lines::request_id(line.as_bytes()),
            InputLine::TooLong { id, .. } => id,
        };
        if let Some(id) = id
            && out.send(failure(&id, INTERNAL_ERROR, "no_daemon", why)).await.is_err()
        {
            return;
        }
    }
    drop(out);
    let _ = tokio::time::timeout(LAST_LINES_TIMEOUT, written.recv()).await;
}
