//! The running agents: one for each session, started for its first turn, and ended when it is idle for long, when its
//! session is closed, when it violates the protocol or the law, and with the daemon.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent_protocol::{AgentProtocol, ConnectedAgent, HandshakeError, HandshakeParams, ResumeState};
use crate::connection::AgentConnection;
use crate::denial_notes::DenialNotes;
use crate::process_limit::{ActivityHandle, ProcessLimit, ProcessPermit};
use crate::spawner::{AgentProcess, ProcessCounter, SpawnedAgent, Spawner};
use tribune_runtime::SessionKey;
use tribune_runtime::{ErrorKind, Handle, RuntimeError};

/// How long an agent may take to exit before it is killed. The slowest of the known ones needs two seconds.
const EXIT_TIMEOUT: Duration = Duration::from_secs(4);

/// How long the exit of an agent is waited for after the end of its output, to report how it ended.
const EXIT_REPORT_WAIT: Duration = Duration::from_secs(1);

/// How often, and how far apart, the processes of a cancelled turn are counted. Agents that end them need a fraction of
/// that, and the end of the turn waits no longer.
const STRAGGLER_CHECKS: usize = 12;
const STRAGGLER_PAUSE: Duration = Duration::from_millis(25);

/// Bytes of its standard error that are kept, the newest.
const STDERR_BYTES: usize = 16 << 10;

/// All agents of one backend.
pub(crate) struct AgentPool {
    protocol: &'static dyn AgentProtocol,
    spawner: Arc<dyn Spawner>,
    agents: Mutex<HashMap<SessionKey, Arc<tokio::sync::Mutex<Option<RunningAgent>>>>>,
    tasks: TaskTracker,
    shutdown_token: CancellationToken,
    idle: Duration,
    limit: Arc<ProcessLimit>,
}

/// A running agent.
#[derive(Clone)]
pub(crate) struct RunningAgent {
    pub(crate) agent: ConnectedAgent,
    /// The file of the workspace with instructions for agents.
    pub(crate) instructions: Option<Arc<str>>,
    counter: Arc<dyn ProcessCounter>,
    stderr: StderrTail,
    /// Requests its end.
    closing: CancellationToken,
    /// Fires when its process is gone.
    gone: CancellationToken,
    activity: ActivityHandle,
}

/// The standard streams of a process.
struct ProcessStreams {
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    stderr: Box<dyn AsyncRead + Send + Unpin>,
}

/// A process with its tasks.
struct SupervisedProcess {
    connection: AgentConnection,
    stderr: StderrTail,
    /// Fires when the process is gone.
    gone: CancellationToken,
}

/// The end of an agent's standard error.
#[derive(Clone, Default)]
struct StderrTail(Arc<Mutex<Vec<u8>>>);

impl StderrTail {
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

/// Whether the agent ran before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentOrigin {
    Running,
    Started,
}

impl AgentPool {
    pub(crate) fn new(
        protocol: &'static dyn AgentProtocol,
        spawner: Arc<dyn Spawner>,
        idle: Duration,
        limit: Arc<ProcessLimit>,
    ) -> Self {
        Self {
            protocol,
            spawner,
            agents: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown_token: CancellationToken::new(),
            idle,
            limit,
        }
    }

    pub(crate) fn protocol(&self) -> &'static dyn AgentProtocol {
        self.protocol
    }

    pub(crate) fn spawner(&self) -> &dyn Spawner {
        &*self.spawner
    }

    /// The limit of running agents, if the session's agent has to be started and would wait for the end of another's
    /// turn.
    pub(crate) fn blocking_limit(&self, session: &Handle) -> Option<usize> {
        let slot = {
            let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            agents.get(&*session.key).map(Arc::clone)
        };
        // A locked slot is being started.
        let is_running = slot.is_some_and(|slot| {
            slot.try_lock().is_ok_and(|slot| slot.as_ref().is_some_and(|running| !running.is_over()))
        });
        let waits = !is_running && self.spawner.counts_toward_limit(session) && self.limit.is_full();
        waits.then(|| self.limit.limit_size())
    }

    /// The session's agent, started if none runs.
    pub(crate) async fn agent(&self, session: &Handle) -> Result<(RunningAgent, AgentOrigin), RuntimeError> {
        if self.shutdown_token.is_cancelled() {
            return Err(draining());
        }
        let slot = {
            let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(agents.entry((*session.key).clone()).or_default())
        };
        let mut slot = slot.lock().await;
        let generation = self.spawner.mcp_generation(session);
        let fits = |running: &&RunningAgent| {
            running.generation() == generation && !running.is_over() && running.activity.begin_turn()
        };
        if let Some(running) = slot.as_ref().filter(fits) {
            return Ok((running.clone(), AgentOrigin::Running));
        }
        if let Some(over) = slot.take() {
            over.wait_gone().await;
        }
        let running = self.start(session).await?;
        *slot = Some(running.clone());
        Ok((running, AgentOrigin::Started))
    }

    async fn start(&self, session: &Handle) -> Result<RunningAgent, RuntimeError> {
        match self.start_once(session, ResumeState::New).await {
            Ok(running) => Ok(running),
            Err(HandshakeError::Failed(error)) => Err(error),
            Err(HandshakeError::CannotResume) => {
                self.spawner.forget_conversation_id(session);
                self.start_once(session, ResumeState::Lost).await.map_err(|error| match error {
                    HandshakeError::Failed(error) => error,
                    HandshakeError::CannotResume => {
                        let what = "the agent begins with a conversation that it does not have: try again";
                        RuntimeError::new(ErrorKind::AgentProtocol, what)
                    }
                })
            }
        }
    }

    /// Starts an agent. `afresh` says how its conversation began if the agent resumes none.
    async fn start_once(
        &self,
        session: &Handle,
        afresh: ResumeState,
    ) -> Result<RunningAgent, HandshakeError> {
        let closing = self.shutdown_token.child_token();
        let permit = match self.spawner.counts_toward_limit(session) {
            true => {
                let taking = self.shutdown_token.run_until_cancelled(self.limit.take(&closing)).await;
                taking.ok_or_else(|| HandshakeError::Failed(draining()))?
            }
            false => self.limit.acquire_unbounded(&closing),
        };
        let SpawnedAgent {
            stdin,
            stdout,
            stderr,
            process,
            process_counter: counter,
            profile,
            workspace,
            conversation: resumable,
            instructions,
            servers,
        } = self.spawner.spawn(session).await.map_err(HandshakeError::Failed)?;
        if profile.protocol() != self.protocol.protocol() {
            let what = format!(
                "the profile `{}` is not for the backend `{}`: close the session and open it again",
                profile.id(),
                self.protocol.protocol().backend()
            );
            return Err(HandshakeError::Failed(RuntimeError::new(ErrorKind::NoProfile, what)));
        }
        let activity = permit.activity();
        let streams = ProcessStreams { stdin, stdout, stderr };
        let SupervisedProcess { connection, stderr, gone } =
            self.supervise(session, process, streams, permit, closing.clone());
        // A start that is given up leaves no process behind.
        let guard = StartGuard(Some(connection.clone()));
        let params = HandshakeParams {
            profile: &profile,
            workspace: &workspace,
            resumable: resumable.as_deref(),
            servers: servers.as_ref().map_or(&[], |servers| &servers.all),
        };
        let mut conversation =
            self.protocol.handshake(&connection, params).await.map_err(|error| match error {
                HandshakeError::Failed(error) => HandshakeError::Failed(with_stderr(error, &stderr.text())),
                HandshakeError::CannotResume => error,
            })?;
        if conversation.began == ResumeState::New {
            conversation.began = afresh;
        }
        if let Some(id) = &conversation.id {
            self.spawner.store_conversation_id(session, id);
        }
        guard.complete();
        Ok(RunningAgent {
            agent: ConnectedAgent {
                connection,
                profile: Arc::new(profile),
                workspace: workspace.into(),
                conversation: Arc::new(conversation),
                servers,
                denials: DenialNotes::default(),
            },
            instructions: instructions.map(Into::into),
            counter,
            stderr,
            closing,
            gone,
            activity,
        })
    }

    /// Connects to a process, and starts the tasks that serve it.
    fn supervise(
        &self,
        session: &Handle,
        process: Box<dyn AgentProcess>,
        streams: ProcessStreams,
        permit: ProcessPermit,
        closing: CancellationToken,
    ) -> SupervisedProcess {
        let (connection, reading, writing) =
            AgentConnection::new(self.protocol, streams.stdin, streams.stdout);
        let stderr = StderrTail::default();
        self.tasks.spawn(reading);
        self.tasks.spawn(writing);
        self.tasks.spawn(collect(streams.stderr, stderr.clone(), connection.clone()));
        let supervisor =
            ProcessSupervisor { connection: connection.clone(), process, closing, permit, idle: self.idle };
        let (spawner, tail, handle) = (Arc::clone(&self.spawner), stderr.clone(), session.clone());
        let gone = CancellationToken::new();
        // Fires however the supervisor ends.
        let last = gone.clone().drop_guard();
        self.tasks.spawn(async move {
            supervisor.supervise().await;
            spawner.keep_stderr(&handle, &tail.text());
            drop(last);
        });
        SupervisedProcess { connection, stderr, gone }
    }

    /// Ends the session's agent. Returns when it is gone, within bounds.
    pub(crate) async fn close(&self, key: &SessionKey) {
        let slot = self.agents.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        let Some(slot) = slot else { return };
        if let Some(running) = slot.lock().await.take() {
            running.wait_gone().await;
        }
    }

    /// Ends all agents at once, with everything that they started. They are resumed by their next turn.
    pub(crate) fn stop_all(&self) {
        let slots: Vec<_> = {
            let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            agents.values().map(Arc::clone).collect()
        };
        for slot in slots {
            self.tasks.spawn(async move {
                if let Some(running) = slot.lock().await.take() {
                    running.agent.connection.disconnect("everything was stopped");
                }
            });
        }
    }

    /// Ends all agents. Returns when they are gone.
    pub(crate) async fn shutdown(&self) {
        self.shutdown_token.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl RunningAgent {
    /// Whether it takes no turn any more.
    fn is_over(&self) -> bool {
        self.agent.connection.has_ended() || self.closing.is_cancelled()
    }

    /// The generation of the MCP servers that it was started with.
    fn generation(&self) -> u64 {
        self.agent.servers.as_ref().map_or(0, |servers| servers.generation)
    }

    /// Requests its end and waits until its process is gone, within bounds: the next one has the same home folder.
    async fn wait_gone(&self) {
        self.closing.cancel();
        let _ = tokio::time::timeout(2 * EXIT_TIMEOUT, self.gone.cancelled()).await;
    }

    /// Marks it as idle after a turn.
    pub(crate) fn end_turn(&self, spawner: &dyn Spawner, session: &Handle) {
        self.agent.connection.mark_idle();
        self.activity.end_turn();
        spawner.keep_stderr(session, &self.stderr.text());
    }

    /// Whether a process that was started since `began` still runs, although the turn was cancelled.
    pub(crate) async fn has_stragglers(&self, began: Instant) -> bool {
        for _ in 0..STRAGGLER_CHECKS {
            let counter = Arc::clone(&self.counter);
            let counted = tokio::task::spawn_blocking(move || counter.started_since(began));
            // The count fails only while the daemon is torn down.
            if counted.await.unwrap_or_default() == 0 {
                return false;
            }
            tokio::time::sleep(STRAGGLER_PAUSE).await;
        }
        true
    }

    /// Ends it with all that it started. Returns when its process is gone, within bounds.
    pub(crate) async fn end(&self) {
        self.agent.connection.disconnect("what its turn had started went on when it was cancelled");
        let _ = tokio::time::timeout(EXIT_REPORT_WAIT, self.gone.cancelled()).await;
    }

    /// The error, with the last line of the agent's standard error.
    pub(crate) fn explain(&self, error: RuntimeError) -> RuntimeError {
        with_stderr(error, &self.stderr.text())
    }
}

fn draining() -> RuntimeError {
    RuntimeError::new(ErrorKind::Draining, "the daemon is stopping and starts no agents")
}

/// Breaks the connection unless the start completes.
struct StartGuard(Option<AgentConnection>);

impl StartGuard {
    fn complete(mut self) {
        self.0 = None;
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.disconnect("it was given up at its start");
        }
    }
}

/// Supervises a process until its end.
struct ProcessSupervisor {
    connection: AgentConnection,
    process: Box<dyn AgentProcess>,
    closing: CancellationToken,
    /// Its place in the limit, which is free when the process is gone.
    permit: ProcessPermit,
    idle: Duration,
}

/// The reason for which a process ends.
enum EndCause {
    Exited(String),
    OutputClosed,
    Disconnected,
    Requested,
}

impl ProcessSupervisor {
    async fn supervise(mut self) {
        let why = tokio::select! {
            biased;
            how = self.process.ended() => EndCause::Exited(how),
            _ = self.connection.broken() => EndCause::Disconnected,
            () = self.connection.ended() => EndCause::OutputClosed,
            () = self.closing.cancelled() => EndCause::Requested,
            () = self.permit.wait_idle(self.idle) => EndCause::Requested,
        };
        match why {
            EndCause::Exited(how) => {
                // Its last messages are handled before its end.
                let _ = tokio::time::timeout(EXIT_REPORT_WAIT, self.connection.ended()).await;
                return self.connection.disconnect_exited(how);
            }
            EndCause::OutputClosed => {
                if let Ok(how) = tokio::time::timeout(EXIT_REPORT_WAIT, self.process.ended()).await {
                    return self.connection.disconnect_exited(how);
                }
                self.connection.disconnect("it closed its output");
            }
            EndCause::Disconnected => {}
            EndCause::Requested => {
                // Breaking the connection closes its input.
                self.connection.disconnect("it was not used for a while");
                if tokio::time::timeout(EXIT_TIMEOUT, self.process.ended()).await.is_ok() {
                    return;
                }
            }
        }
        self.process.kill().await;
    }
}

async fn collect(mut pipe: Box<dyn AsyncRead + Send + Unpin>, into: StderrTail, connection: AgentConnection) {
    let mut chunk = [0; 4096];
    loop {
        let got = tokio::select! {
            got = pipe.read(&mut chunk) => got,
            _ = connection.broken() => return,
        };
        match got {
            Ok(got) if got > 0 => into.push(&chunk[..got]),
            _ => return,
        }
    }
}

/// The error, with the last line of the agent's standard error.
fn with_stderr(error: RuntimeError, stderr: &str) -> RuntimeError {
    let last = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let Some(last) = last else { return error };
    let last: String = last.chars().filter(|c| !c.is_control()).take(200).collect();
    RuntimeError { message: format!("{} (its last line: {last})", error.message), ..error }
}
