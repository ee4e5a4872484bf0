//! One server that runs: its box, the way to it, and the tools that it has.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tribune_contract::ProgramExit;
use tribune_egress::EgressLease;
use tribune_governance::gate::Admission;
use tribune_redact::Redactor;
use tribune_sandbox::{Child, ProgramStreams, SandboxLauncher};

use super::client::{Client, Fault};
use super::launch_profile::Site;
use super::server_spec::ServerSpec;
use super::tools::{Listing, Tool};
use crate::disk_quota::Quota;
use crate::{Captured, watched};

/// For a server to come up and tell its tools. Interpreters take a second or two on a busy machine.
const START: Duration = Duration::from_secs(20);

/// For a server that closed its output to end by itself, and for what it wrote last to be read.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Bytes of its error output that are kept, to say why it did not start.
const STDERR_BYTES: usize = 4096;

/// Characters of it that are told.
const STDERR_TOLD: usize = 300;

/// A server of a session. Dropped, it is ended.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) wanted: ServerSpec,
    pub(super) tools: Vec<Tool>,
    /// Tools that it has and that cannot be offered.
    pub(super) left_out: usize,
    pub(super) client: Arc<Client>,
    /// Takes its own secrets out of what it says, beside all others.
    pub(super) redactor: Redactor,
    end: CancellationToken,
    _ends: DropGuard,
}

impl Server {
    /// Starts a server that the gate let in, and waits until it has told its tools. The error is a sentence without its end.
    pub(super) async fn start(
        admission: Admission,
        wanted: ServerSpec,
        (site, way_out): (Site, Option<EgressLease>),
        (launcher, redactor, tasks): (SandboxLauncher, &Redactor, &TaskTracker),
    ) -> Result<Self, String> {
        let redactor = redactor.clone().with_exact_values(wanted.secrets());
        let mut quota = Quota::of_folder(&site.workspace, site.max_bytes);
        let order = wanted.clone();
        let starting = tokio::task::spawn_blocking(move || {
            let profile = site.profile(&order, way_out.as_ref())?;
            // Whoever stops waiting leaves no sandbox behind: dropping it ends it.
            let child =
                launcher.launch(&profile, ProgramStreams::piped()).map_err(|error| error.to_string())?;
            // The leave is for this one start.
            drop(admission);
            Ok::<_, String>((child, way_out))
        });
        let (mut child, way_out) =
            starting.await.map_err(|_| "the daemon is being torn down".to_owned())??;
        let broken = |error: io::Error| format!("its pipes cannot be used ({error})");
        let (stdin, stdout, stderr) = pipes(&mut child).map_err(broken)?;
        let over = child.as_fd().try_clone_to_owned().and_then(watched).map_err(broken)?;
        let client = Arc::new(Client::new(stdin, stdout));
        let (end, gone) = (CancellationToken::new(), CancellationToken::new());
        let said = Arc::new(Mutex::new(Captured::new(STDERR_BYTES)));
        let kept = Kept { client: Arc::clone(&client), said: Arc::clone(&said), end: end.clone() };
        let is_gone = gone.clone().drop_guard();
        tasks.spawn(async move {
            let _sockets = way_out;
            let over = async { drop(over.readable().await) };
            kept.keep(child, stderr, over, &mut quota).await;
            drop(is_gone);
        });
        let ends = end.clone().drop_guard();
        let greeted = tokio::time::timeout(START, client.greet(&wanted, &redactor)).await;
        let Listing { tools, left_out } = match greeted.unwrap_or(Err(Fault::TimedOut)) {
            Ok(listing) => listing,
            Err(fault) => {
                if matches!(fault, Fault::Ended(_)) {
                    // How it ended tells more than that it did.
                    let _ = tokio::time::timeout(START, gone.cancelled()).await;
                }
                let why = redactor.redact(&told(fault, &client)).into_owned();
                return Err(format!("{why}{}", last_words(&said, &redactor)));
            }
        };
        Ok(Self { wanted, tools, left_out, client, redactor, end, _ends: ends })
    }

    /// Ends it, whoever still waits for an answer.
    pub(super) fn end(&self) {
        self.end.cancel();
    }

    pub(super) fn is_there(&self) -> bool {
        !self.client.over.is_cancelled()
    }
}

/// A server's processes, from their start to their end.
struct Kept {
    client: Arc<Client>,
    said: Arc<Mutex<Captured>>,
    end: CancellationToken,
}

impl Kept {
    async fn keep(
        self,
        mut child: Child,
        stderr: ChildStderr,
        over: impl Future<Output = ()>,
        quota: &mut Quota,
    ) {
        let mut over = std::pin::pin!(over);
        let mut reading = std::pin::pin!(read(stderr, &self.said));
        let mut is_read = false;
        // None if it ended by itself.
        let ended_for = loop {
            tokio::select! {
                () = &mut reading, if !is_read => is_read = true,
                () = &mut over => break None,
                () = self.end.cancelled() => break Some("it was ended".to_owned()),
                () = self.client.over.cancelled() => {
                    let exited = tokio::time::timeout(LAST_WORDS, &mut over).await;
                    break exited.is_err().then(|| self.client.why());
                }
                too_much = quota.exceeded() => if let Some(why) = too_much { break Some(why) },
            }
        };
        let is_alive = ended_for.is_some();
        let burial = tokio::task::spawn_blocking(move || {
            if is_alive {
                child.kill();
            }
            child.wait()
        });
        let exit = burial.await;
        if !is_read {
            let _ = tokio::time::timeout(LAST_WORDS, reading).await;
        }
        let why = ended_for.unwrap_or_else(|| match exit {
            Ok(Ok(ProgramExit::Code { code })) => format!("its program ended with code {code}"),
            Ok(Ok(ProgramExit::Signal { signal })) => format!("its program was ended by signal {signal}"),
            Ok(Ok(ProgramExit::OutOfTime | ProgramExit::Killed) | Err(_)) | Err(_) => {
                "its program was ended".to_owned()
            }
        });
        self.client.end(&why);
    }
}

fn pipes(child: &mut Child) -> io::Result<(ChildStdin, ChildStdout, ChildStderr)> {
    let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
    Ok((
        ChildStdin::from_std(child.stdin().ok_or_else(missing)?)?,
        ChildStdout::from_std(child.stdout().ok_or_else(missing)?)?,
        ChildStderr::from_std(child.stderr().ok_or_else(missing)?)?,
    ))
}

/// Reads what it has to say beside MCP. Some of it is kept, and none of it is logged: it may hold anything.
async fn read(mut stderr: ChildStderr, said: &Mutex<Captured>) {
    let mut chunk = [0; 4096];
    while let Ok(got) = stderr.read(&mut chunk).await {
        if got == 0 {
            return;
        }
        said.lock().unwrap_or_else(PoisonError::into_inner).push(&chunk[..got]);
    }
}

fn told(fault: Fault, client: &Client) -> String {
    match fault {
        Fault::Ended(_) => client.why(),
        Fault::TimedOut => format!("it told no tools within {} s", START.as_secs()),
        Fault::Refused(why) => format!("it refused: {}", short(&why)),
        Fault::Nonsense(why) => why.to_owned(),
    }
}

/// The beginning and the end of what it said on its error output, in one line: some say why first, and some last.
fn last_words(said: &Mutex<Captured>, redactor: &Redactor) -> String {
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).text();
    let said = redactor.redact(&said);
    let words: Vec<&str> = said.split_whitespace().collect();
    let line: Vec<char> = words.join(" ").chars().collect();
    let text = |part: &[char]| short(&part.iter().collect::<String>());
    match line.len() {
        0 => String::new(),
        length if length <= STDERR_TOLD => format!(". It said: {}", text(&line)),
        length => {
            let half = STDERR_TOLD / 2;
            format!(". It said: {} … {}", text(&line[..half]), text(&line[length - half..]))
        }
    }
}

/// Words of a server in a sentence: short, and on one line.
pub(super) fn short(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() || c == '`' { ' ' } else { c });
    plain.take(STDERR_TOLD).collect()
}
