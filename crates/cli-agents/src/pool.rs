//! The agents that run: one for each session, started when it is first spoken to, and ended when it is idle for long, when its
//! session is closed, when it breaks a rule, and with the daemon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent_protocol::{Began, Conversation, FirstWords, Offered, Tongue, Unmet};
use crate::connection::Link;
use crate::mcp_bridge::Servers;
use crate::process_limit::{Berth, Berths, Usage};
use crate::profile::Profile;
use crate::spawner::{Census, Process, Spawned, Spawner};
use tribune_runtime::SessionKey;
use tribune_runtime::{Handle, RuntimeError};

/// How long an agent that is told to end may take before it is ended. The slowest of the known ones needs two seconds.
const GOODBYE: Duration = Duration::from_secs(4);

/// How long after its last word an agent's own end is waited for, to tell how it ended.
const LAST_WORD: Duration = Duration::from_secs(1);

/// How often, and how long apart, it is looked whether the commands of a cancelled turn have ended. Agents that end them need a
/// fraction of that, and whoever waits for the end of the turn waits no longer.
const STRAGGLER_LOOKS: usize = 12;
const STRAGGLER_PAUSE: Duration = Duration::from_millis(25);

/// Bytes of its standard error that are kept, the newest.
const STDERR_BYTES: usize = 16 << 10;

/// All agents of this backend.
pub(crate) struct Pool {
    tongue: &'static dyn Tongue,
    spawner: Arc<dyn Spawner>,
    agents: Mutex<HashMap<SessionKey, Arc<tokio::sync::Mutex<Option<Live>>>>>,
    tasks: TaskTracker,
    leaving: CancellationToken,
    idle: Duration,
    berths: Arc<Berths>,
}

/// An agent that runs.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) link: Link,
    pub(crate) profile: Arc<Profile>,
    pub(crate) workspace: Arc<str>,
    pub(crate) conversation: Arc<Conversation>,
    /// The MCP servers that the house runs for it.
    pub(crate) servers: Option<Servers>,
    /// The file of the workspace that has words for agents.
    pub(crate) instructions: Option<Arc<str>>,
    census: Arc<dyn Census>,
    stderr: Stderr,
    /// Ends it in peace.
    closing: CancellationToken,
    /// Nothing of it is left.
    gone: CancellationToken,
    usage: Usage,
}

impl Live {
    /// The servers that it was told of.
    pub(crate) fn told_servers(&self) -> Option<&Servers> {
        self.servers.as_ref().filter(|_| self.conversation.servers == Offered::Told)
    }
}

/// The newest of what an agent said on its standard error.
#[derive(Clone, Default)]
struct Stderr(Arc<Mutex<Vec<u8>>>);

impl Stderr {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let over = kept.len().saturating_sub(STDERR_BYTES);
        kept.drain(..over);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// Whether the agent was there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Running,
    Started,
}

impl Pool {
    pub(crate) fn new(
        tongue: &'static dyn Tongue,
        spawner: Arc<dyn Spawner>,
        idle: Duration,
        berths: Arc<Berths>,
    ) -> Self {
        Self {
            tongue,
            spawner,
            agents: Mutex::default(),
            tasks: TaskTracker::new(),
            leaving: CancellationToken::new(),
            idle,
            berths,
        }
    }

    pub(crate) fn tongue(&self) -> &'static dyn Tongue {
        self.tongue
    }

    pub(crate) fn spawner(&self) -> &dyn Spawner {
        &*self.spawner
    }

    /// How many run, if the session's agent has to be started and waits until the turn of another one ends.
    pub(crate) fn has_no_room_for(&self, session: &Handle) -> Option<usize> {
        let slot = {
            let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            agents.get(&*session.key).map(Arc::clone)
        };
        // Whoever holds it is starting it.
        let is_there = slot.is_some_and(|slot| {
            slot.try_lock().is_ok_and(|slot| slot.as_ref().is_some_and(|live| !live.is_over()))
        });
        let waits = !is_there && self.spawner.needs_room(session) && self.berths.is_full();
        waits.then(|| self.berths.most())
    }

    /// The session's agent, started if none runs.
    pub(crate) async fn agent(&self, session: &Handle) -> Result<(Live, Found), RuntimeError> {
        if self.leaving.is_cancelled() {
            return Err(draining());
        }
        let slot = {
            let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(agents.entry((*session.key).clone()).or_default())
        };
        let mut slot = slot.lock().await;
        let edition = self.spawner.servers_of(session);
        let fits = |live: &&Live| live.edition() == edition && !live.is_over() && live.usage.claim();
        if let Some(live) = slot.as_ref().filter(fits) {
            return Ok((live.clone(), Found::Running));
        }
        if let Some(over) = slot.take() {
            over.buried().await;
        }
        let live = self.start(session).await?;
        *slot = Some(live.clone());
        Ok((live, Found::Started))
    }

    async fn start(&self, session: &Handle) -> Result<Live, RuntimeError> {
        match self.start_once(session, Began::New).await {
            Ok(live) => Ok(live),
            Err(Unmet::Failed(error)) => Err(error),
            Err(Unmet::NotTakenUp) => {
                self.spawner.forget(session);
                self.start_once(session, Began::Lost).await.map_err(|unmet| match unmet {
                    Unmet::Failed(error) => error,
                    Unmet::NotTakenUp => {
                        let what = "the agent begins with a conversation that it does not have: try again";
                        RuntimeError::new("agent_protocol", what)
                    }
                })
            }
        }
    }

    /// Starts an agent. `afresh` is how its conversation came about if it has none from before.
    async fn start_once(&self, session: &Handle, afresh: Began) -> Result<Live, Unmet> {
        let closing = self.leaving.child_token();
        let berth = match self.spawner.needs_room(session) {
            true => {
                let taking = self.leaving.run_until_cancelled(self.berths.take(&closing)).await;
                taking.ok_or_else(|| Unmet::Failed(draining()))?
            }
            false => self.berths.squeeze_in(&closing),
        };
        let Spawned {
            stdin,
            stdout,
            stderr: pipe,
            process,
            census,
            profile,
            workspace,
            conversation,
            instructions,
            servers,
        } = self.spawner.spawn(session).await.map_err(Unmet::Failed)?;
        if profile.protocol() != self.tongue.protocol() {
            let what = format!(
                "the profile `{}` is not for the backend `{}`: close the session and open it again",
                profile.id(),
                self.tongue.backend()
            );
            return Err(Unmet::Failed(RuntimeError::new("no_profile", what)));
        }
        let (link, reading, writing) = Link::new(self.tongue, stdin, stdout);
        let (usage, stderr) = (berth.usage(), Stderr::default());
        self.tasks.spawn(reading);
        self.tasks.spawn(writing);
        self.tasks.spawn(collect(pipe, stderr.clone(), link.clone()));
        let keeper = Keeper { link: link.clone(), process, closing: closing.clone(), berth, idle: self.idle };
        let (spawner, kept, handle) = (Arc::clone(&self.spawner), stderr.clone(), session.clone());
        let gone = CancellationToken::new();
        // However the keeper ends, it is the last.
        let last = gone.clone().drop_guard();
        self.tasks.spawn(async move {
            keeper.keep().await;
            spawner.keep_stderr(&handle, &kept.text());
            drop(last);
        });
        // Whoever gives up in the middle of the first words leaves nothing behind.
        let unborn = Unborn(Some(link.clone()));
        let first = FirstWords {
            profile: &profile,
            workspace: &workspace,
            before: conversation.as_deref(),
            servers: servers.as_ref().map_or(&[], |servers| &servers.all),
        };
        let mut begun = self.tongue.shake_hands(&link, first).await.map_err(|unmet| match unmet {
            Unmet::Failed(error) => Unmet::Failed(with_stderr(error, &stderr.text())),
            Unmet::NotTakenUp => unmet,
        })?;
        if begun.began == Began::New {
            begun.began = afresh;
        }
        if let Some(id) = &begun.id {
            self.spawner.remember(session, id);
        }
        unborn.lives();
        Ok(Live {
            link,
            profile: Arc::new(profile),
            workspace: workspace.into(),
            conversation: Arc::new(begun),
            servers,
            instructions: instructions.map(Into::into),
            census,
            stderr,
            closing,
            gone,
            usage,
        })
    }

    /// Ends the session's agent. Returns when it is gone, within bounds.
    pub(crate) async fn close(&self, key: &SessionKey) {
        let slot = self.agents.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        let Some(slot) = slot else { return };
        if let Some(live) = slot.lock().await.take() {
            live.buried().await;
        }
    }

    /// Ends all that run, at once and with everything they started. They are taken up when they are next spoken to.
    pub(crate) fn stop_all(&self) {
        let slots: Vec<_> = {
            let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            agents.values().map(Arc::clone).collect()
        };
        for slot in slots {
            self.tasks.spawn(async move {
                if let Some(live) = slot.lock().await.take() {
                    live.link.break_off("everything was stopped");
                }
            });
        }
    }

    /// Ends all of them. Returns when they are gone.
    pub(crate) async fn leave(&self) {
        self.leaving.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Live {
    /// Whether it takes no turn any more.
    fn is_over(&self) -> bool {
        self.link.has_ended() || self.closing.is_cancelled()
    }

    /// The edition of the servers that it was started with.
    fn edition(&self) -> u64 {
        self.servers.as_ref().map_or(0, |servers| servers.edition)
    }

    /// Waits until nothing of one that is over is left, within bounds: the next one has the same home folder.
    async fn buried(&self) {
        self.closing.cancel();
        let _ = tokio::time::timeout(2 * GOODBYE, self.gone.cancelled()).await;
    }

    /// A turn is over.
    pub(crate) fn rest(&self, spawner: &dyn Spawner, session: &Handle) {
        self.link.rest();
        self.usage.rest();
        spawner.keep_stderr(session, &self.stderr.text());
    }

    /// Whether something that was started since then goes on, though the agent was told to end its turn.
    pub(crate) async fn has_stragglers(&self, began: Instant) -> bool {
        for _ in 0..STRAGGLER_LOOKS {
            let census = Arc::clone(&self.census);
            let counted = tokio::task::spawn_blocking(move || census.started_since(began));
            // Nobody is there to count only when the daemon is being torn down.
            if counted.await.unwrap_or_default() == 0 {
                return false;
            }
            tokio::time::sleep(STRAGGLER_PAUSE).await;
        }
        true
    }

    /// Ends it with all that it started. Returns when nothing of it is left, within bounds.
    pub(crate) async fn end(&self) {
        self.link.break_off("what its turn had started went on when it was cancelled");
        let _ = tokio::time::timeout(LAST_WORD, self.gone.cancelled()).await;
    }

    /// An error with what the agent last said beside the protocol.
    pub(crate) fn explain(&self, error: RuntimeError) -> RuntimeError {
        with_stderr(error, &self.stderr.text())
    }
}

fn draining() -> RuntimeError {
    RuntimeError::new("draining", "the daemon is stopping and starts no agents")
}

/// Breaks the link unless the first words came to an end.
struct Unborn(Option<Link>);

impl Unborn {
    fn lives(mut self) {
        self.0 = None;
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        if let Some(link) = &self.0 {
            link.break_off("it was given up at its start");
        }
    }
}

/// Keeps a process until its end.
struct Keeper {
    link: Link,
    process: Box<dyn Process>,
    closing: CancellationToken,
    /// Its room, which is free when nothing of it is left.
    berth: Berth,
    idle: Duration,
}

/// Why a process ends.
enum Why {
    Gone(String),
    Silent,
    Broken,
    Told,
}

impl Keeper {
    async fn keep(mut self) {
        let why = tokio::select! {
            biased;
            how = self.process.ended() => Why::Gone(how),
            _ = self.link.broken() => Why::Broken,
            () = self.link.ended() => Why::Silent,
            () = self.closing.cancelled() => Why::Told,
            () = self.berth.unused(self.idle) => Why::Told,
        };
        match why {
            Why::Gone(how) => {
                // What it said before its end comes before its end.
                let _ = tokio::time::timeout(LAST_WORD, self.link.ended()).await;
                return self.link.break_as_gone(how);
            }
            Why::Silent => {
                if let Ok(how) = tokio::time::timeout(LAST_WORD, self.process.ended()).await {
                    return self.link.break_as_gone(how);
                }
                self.link.break_off("it closed its output");
            }
            Why::Broken => {}
            Why::Told => {
                // Its input is closed with the link.
                self.link.break_off("it was not used for a while");
                if tokio::time::timeout(GOODBYE, self.process.ended()).await.is_ok() {
                    return;
                }
            }
        }
        self.process.kill().await;
    }
}

async fn collect(mut pipe: Box<dyn AsyncRead + Send + Unpin>, into: Stderr, link: Link) {
    let mut chunk = [0; 4096];
    loop {
        let got = tokio::select! {
            got = pipe.read(&mut chunk) => got,
            _ = link.broken() => return,
        };
        match got {
            Ok(got) if got > 0 => into.push(&chunk[..got]),
            _ => return,
        }
    }
}

/// The error, with the last line of what the agent said beside the protocol.
fn with_stderr(error: RuntimeError, stderr: &str) -> RuntimeError {
    let last = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let Some(last) = last else { return error };
    let last: String = last.chars().filter(|c| !c.is_control()).take(200).collect();
    RuntimeError { message: format!("{} (its last words: {last})", error.message), ..error }
}
