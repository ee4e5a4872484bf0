//! A running MCP server: its sandbox, its connection and its tools.

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
use tribune_sandbox::workspace::AutorunGuard;
use tribune_sandbox::{Child, ProgramStreams, SandboxLauncher};

use super::client::{Client, Fault};
use super::launch_profile::Site;
use super::server_spec::ServerSpec;
use super::tools::{Listing, Tool};
use crate::disk_quota::Quota;
use crate::exec::warn;
use crate::{Captured, watched};

/// Time limit for a server to start and list its tools. Interpreters take one or two seconds on a busy machine.
const START: Duration = Duration::from_secs(20);

/// How long a server that closed its output may take to exit, and its last error output to arrive.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Maximum bytes kept of its error output, which say why it did not start.
const STDERR_BYTES: usize = 4096;

/// Maximum characters of it that are reported.
const STDERR_SHOWN: usize = 300;

/// A running server of a session. Dropping it ends the server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: ServerSpec,
    pub(super) tools: Vec<Tool>,
    /// The number of its tools that cannot be offered.
    pub(super) left_out: usize,
    pub(super) client: Arc<Client>,
    /// Redacts the server's own secrets, besides all others, from its output.
    pub(super) redactor: Redactor,
    end: CancellationToken,
    _ends: DropGuard,
}

/// What the daemon provides for every server.
pub(super) struct ServerHost<'a> {
    pub(super) launcher: SandboxLauncher,
    pub(super) redactor: &'a Redactor,
    pub(super) tasks: &'a TaskTracker,
}

impl Server {
    /// Starts a server that the gate admitted, and waits for its list of tools. The error is a sentence without a full stop.
    pub(super) async fn start(
        admission: Admission,
        spec: ServerSpec,
        site: Site,
        egress: Option<EgressLease>,
        ServerHost { launcher, redactor, tasks }: ServerHost<'_>,
    ) -> Result<Self, String> {
        let redactor = redactor.clone().with_exact_values(spec.secrets());
        let mut quota = Quota::of_folder(&site.workspace, site.max_bytes);
        let launched = spec.clone();
        let starting = tokio::task::spawn_blocking(move || {
            let profile = site.profile(&launched, egress.as_ref())?;
            let folders = site.may_change.then(|| site.workspace.clone());
            let guard = AutorunGuard::new(folders, warn).map_err(|error| error.to_string())?;
            // Dropping the child ends the sandbox, so a caller that stops waiting leaves none behind.
            let child =
                launcher.launch(&profile, ProgramStreams::piped()).map_err(|error| error.to_string())?;
            // The admission is for this one start.
            drop(admission);
            Ok::<_, String>((guard, child, egress))
        });
        // The guard is dropped after the child, when nothing of the server runs any more.
        let (guard, mut child, egress) =
            starting.await.map_err(|_| "the daemon is being torn down".to_owned())??;
        let broken = |error: io::Error| format!("its pipes cannot be used ({error})");
        let (stdin, stdout, stderr) = pipes(&mut child).map_err(broken)?;
        let over = child.as_fd().try_clone_to_owned().and_then(watched).map_err(broken)?;
        let client = Arc::new(Client::new(stdin, stdout));
        let (end, gone) = (CancellationToken::new(), CancellationToken::new());
        let said = Arc::new(Mutex::new(Captured::new(STDERR_BYTES)));
        let supervisor =
            Supervisor { client: Arc::clone(&client), said: Arc::clone(&said), end: end.clone() };
        let is_gone = gone.clone().drop_guard();
        tasks.spawn(async move {
            let _sockets = egress;
            let over = async { drop(over.readable().await) };
            supervisor.run((guard, child), stderr, over, &mut quota).await;
            drop(is_gone);
        });
        let ends = end.clone().drop_guard();
        let greeted = tokio::time::timeout(START, client.greet(&spec, &redactor)).await;
        let Listing { tools, left_out } = match greeted.unwrap_or(Err(Fault::TimedOut)) {
            Ok(listing) => listing,
            Err(fault) => {
                if matches!(fault, Fault::Ended(_)) {
                    // How it exited says more than that it did.
                    let _ = tokio::time::timeout(START, gone.cancelled()).await;
                }
                let why = redactor.redact(&describe(fault, &client)).into_owned();
                return Err(format!("{why}{}", last_words(&said, &redactor)));
            }
        };
        Ok(Self { spec, tools, left_out, client, redactor, end, _ends: ends })
    }

    /// Ends the server. Open calls fail.
    pub(super) fn end(&self) {
        self.end.cancel();
    }

    pub(super) fn is_there(&self) -> bool {
        !self.client.over.is_cancelled()
    }
}

/// Supervises the processes of a server from their start to their end.
struct Supervisor {
    client: Arc<Client>,
    said: Arc<Mutex<Captured>>,
    end: CancellationToken,
}

impl Supervisor {
    async fn run(
        self,
        (guard, mut child): (AutorunGuard, Child),
        stderr: ChildStderr,
        over: impl Future<Output = ()>,
        quota: &mut Quota,
    ) {
        let mut over = std::pin::pin!(over);
        let mut reading = std::pin::pin!(read(stderr, &self.said));
        let mut is_read = false;
        // `None` if it ended by itself.
        let ended_for = loop {
            tokio::select! {
                () = &mut reading, if !is_read => is_read = true,
                () = &mut over => break None,
                () = self.end.cancelled() => break Some("it was ended".to_owned()),
                () = self.client.over.cancelled() => {
                    let exited = tokio::time::timeout(EXIT_GRACE, &mut over).await;
                    break exited.is_err().then(|| self.client.why());
                }
                too_much = quota.exceeded() => if let Some(why) = too_much { break Some(why) },
            }
        };
        let is_alive = ended_for.is_some();
        let reaped = tokio::task::spawn_blocking(move || {
            if is_alive {
                child.kill();
            }
            let exit = child.wait();
            drop(guard);
            exit
        });
        let exit = reaped.await;
        if !is_read {
            let _ = tokio::time::timeout(EXIT_GRACE, reading).await;
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

/// Reads its error output. Keeps a part, and logs nothing, because it may contain anything.
async fn read(mut stderr: ChildStderr, said: &Mutex<Captured>) {
    let mut chunk = [0; 4096];
    while let Ok(got) = stderr.read(&mut chunk).await {
        if got == 0 {
            return;
        }
        said.lock().unwrap_or_else(PoisonError::into_inner).push(&chunk[..got]);
    }
}

fn describe(fault: Fault, client: &Client) -> String {
    match fault {
        Fault::Ended(_) => client.why(),
        Fault::TimedOut => format!("it listed no tools within {} s", START.as_secs()),
        Fault::Refused(why) => format!("it refused: {}", short(&why)),
        Fault::Nonsense(why) => why.to_owned(),
    }
}

/// The beginning and the end of its error output, on one line: some programs give the reason first, some last.
fn last_words(said: &Mutex<Captured>, redactor: &Redactor) -> String {
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).text();
    let said = redactor.redact(&said);
    let words: Vec<&str> = said.split_whitespace().collect();
    let line: Vec<char> = words.join(" ").chars().collect();
    let text = |part: &[char]| short(&part.iter().collect::<String>());
    match line.len() {
        0 => String::new(),
        length if length <= STDERR_SHOWN => format!(". Its error output: {}", text(&line)),
        length => {
            let half = STDERR_SHOWN / 2;
            format!(". Its error output: {} … {}", text(&line[..half]), text(&line[length - half..]))
        }
    }
}

/// A text of a server for a sentence: short, and on one line.
pub(super) fn short(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() || c == '`' { ' ' } else { c });
    plain.take(STDERR_SHOWN).collect()
}
