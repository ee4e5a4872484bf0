//! `tribune acp`: an editor's way to the daemon. Lines come in and go to the daemon, its messages go out as lines; the agent itself
//! is in the daemon, and stays there when the editor goes.

mod lines;

use std::cell::Cell;
use std::io::{BufReader, Write as _};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tribune_agents::{AgentId, SessionKey};
use tribune_client::ClientError;
use tribune_client::acp::{self, Receiving, Sending};
use tribune_storage::home::Home;

use self::lines::Line;
use crate::error::{CliError, Outcome};
use crate::output::Output;
use crate::up::next_command;
use crate::{daemon, detach};

/// Bytes of one line, where no daemon says what it takes.
const MAX_LINE: usize = 8 << 20;

/// Lines on their way.
const ON_THE_WAY: usize = 64;

/// How long nothing comes when everything that was asked is answered, but for prompts.
const QUIET: Duration = Duration::from_millis(250);

/// How long the last lines may take to come, and to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Be an ACP agent on standard input and output, for an editor.
///
/// Editors and other ACP clients start this. It attaches to the daemon of this home, or starts one, and passes lines on: every agent
/// of the house can be talked to, its calls are judged by the law, and what needs a person is asked in the editor. It ends when
/// standard input does; the session lives on, and can be loaded again.
///
/// Nothing but ACP is written to standard output.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune acp\n  tribune acp --agent claude\n  acpx --agent 'tribune acp' exec 'What is in this folder?'\n\nHow editors are told: docs/guide/editors.md"
)]
pub(crate) struct AcpArgs {
    /// Whom new sessions are with [default: main].
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentId>,
    /// Take up this session instead of opening a new one, the first time that one is asked for.
    #[arg(long, value_name = "KEY")]
    session: Option<SessionKey>,
}

pub(crate) fn run(args: &AcpArgs, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let connected = daemon::runtime()?.block_on(async {
        match reach(args, home, output).await {
            Ok((sending, receiving)) => {
                let lines = read_lines(sending.most_bytes().unwrap_or(MAX_LINE));
                carry(lines, sending, receiving).await
            }
            Err(error) => {
                refuse(read_lines(MAX_LINE), &error.to_string()).await;
                Err(error)
            }
        }
    });
    connected.map(|()| Outcome::Done)
}

/// The daemon of this home; started if there is none.
async fn reach(args: &AcpArgs, home: &Home, output: &Output) -> Result<(Sending, Receiving), CliError> {
    if daemon::is_running(home).is_none() {
        match detach::start_apart(home) {
            Ok(()) => {
                let stop = next_command(home, "down");
                output.aside(&format!(
                    "started the daemon of {} (it ends with: {stop})",
                    home.root().display()
                ));
            }
            // Someone else was faster.
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

/// The lines of standard input, read by a thread of its own: nothing else can be kept from ending by it.
fn read_lines(most: usize) -> mpsc::Receiver<Line> {
    let (send, lines) = mpsc::channel(ON_THE_WAY);
    std::thread::spawn(move || {
        let mut input = BufReader::new(std::io::stdin().lock());
        while let Ok(Some(line)) = lines::next(&mut input, most) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The answer to a request that got no further than this.
fn failure(id: &Value, code: i64, word: &str, message: &str) -> String {
    let error = json!({ "code": code, "message": message, "data": { "code": word } });
    json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
}

fn too_large(id: &Value, most: usize) -> String {
    let what = format!(
        "the message is larger than {most} bytes: send less at once, or raise gateway.maxMessageBytes"
    );
    failure(id, -32602, "too_large", &what)
}

/// Passes lines on until either side ends.
async fn carry(
    mut lines: mpsc::Receiver<Line>,
    mut sending: Sending,
    mut receiving: Receiving,
) -> Result<(), CliError> {
    let (out, mut written) = write_lines();
    let (refused, heard) = (out.clone(), Cell::new(Instant::now()));
    let forth = async {
        while let Some(line) = lines.recv().await {
            match line {
                Line::Whole(line) => sending.send(line).await?,
                Line::TooLong { id: Some(id), most } => {
                    let _ = refused.send(too_large(&id, most)).await;
                }
                // Nobody waits for an answer.
                Line::TooLong { id: None, .. } => {}
            }
        }
        heard.set(Instant::now());
        Ok::<_, ClientError>(())
    };
    let ended = {
        let back = async {
            loop {
                let message = receiving.next().await?;
                heard.set(Instant::now());
                if out.send(message).await.is_err() {
                    // Nobody reads any more.
                    return Ok::<_, ClientError>(());
                }
            }
        };
        let mut back = std::pin::pin!(back);
        tokio::select! {
            ended = &mut back => ended,
            ended = forth => match ended {
                // What was asked just before the end is answered still.
                Ok(()) => tokio::select! {
                    ended = &mut back => ended,
                    () = silence(&heard) => Ok(()),
                },
                failed => failed,
            },
        }
    };
    sending.close().await;
    drop((out, refused));
    let _ = tokio::time::timeout(LAST_LINES, written.recv()).await;
    Ok(ended?)
}

/// Waits until nothing came for a moment, but not for long.
async fn silence(heard: &Cell<Instant>) {
    let quiet = async {
        while heard.get().elapsed() < QUIET {
            tokio::time::sleep_until(heard.get() + QUIET).await;
        }
    };
    let _ = tokio::time::timeout(LAST_LINES, quiet).await;
}

/// Writes lines to standard output, in a thread of its own. What is returned second ends when all are written.
fn write_lines() -> (mpsc::Sender<String>, mpsc::Receiver<()>) {
    let (send, mut lines) = mpsc::channel::<String>(ON_THE_WAY);
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

/// Answers every request with why there is no daemon, until nobody asks.
async fn refuse(mut lines: mpsc::Receiver<Line>, why: &str) {
    let (out, mut written) = write_lines();
    while let Some(line) = lines.recv().await {
        let id = match line {
            Line::Whole(line) => lines::request_id(line.as_bytes()),
            Line::TooLong { id, .. } => id,
        };
        if let Some(id) = id
            && out.send(failure(&id, -32603, "no_daemon", why)).await.is_err()
        {
            return;
        }
    }
    drop(out);
    let _ = tokio::time::timeout(LAST_LINES, written.recv()).await;
}
