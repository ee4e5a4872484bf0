//! Agents that are futures: each start of an agent plays the next script.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::Profile;
use tribune_cli_agents::{
    AgentProcess, McpCallChannel, ProcessCounter, ServerEndpoint, SessionMcpServers, SpawnedAgent, Spawner,
};
use tribune_runtime::{Handle, RuntimeError};

/// What an agent does from its start to its end.
pub(crate) type AgentScript = Box<dyn FnOnce(AgentPipes) -> BoxFuture<'static, ()> + Send>;

/// An agent's ends of its pipes.
pub(crate) struct AgentPipes {
    pub(crate) lines: Lines<BufReader<DuplexStream>>,
    pub(crate) output: DuplexStream,
}

impl AgentPipes {
    /// The next message to it; null at the end of its input.
    pub(crate) async fn next(&mut self) -> Value {
        match self.lines.next_line().await {
            Ok(Some(line)) => serde_json::from_str(&line).unwrap(),
            _ => Value::Null,
        }
    }

    pub(crate) async fn say(&mut self, what: &Value) {
        self.write(&format!("{what}\n")).await;
    }

    pub(crate) async fn write(&mut self, text: &str) {
        // A disconnected agent cannot write any more.
        let _ = self.output.write_all(text.as_bytes()).await;
    }

    /// Does nothing until its input closes.
    pub(crate) async fn wait_for_close(&mut self) {
        while !self.next().await.is_null() {}
    }
}

/// Starts agents that play scripts.
pub(crate) struct FakeSpawner {
    profile: Value,
    parts: Mutex<VecDeque<AgentScript>>,
    /// The conversation to resume, for each start.
    pub(crate) started: Mutex<Vec<Option<String>>>,
    /// How each ended: by itself, or killed.
    pub(crate) ends: Arc<Mutex<Vec<&'static str>>>,
    pub(crate) remembered: Mutex<Option<String>>,
    /// They do not exit when their script ends.
    never_exit: bool,
    /// The file with instructions in their workspace.
    instructions: Option<&'static str>,
    /// MCP servers of their session.
    servers: Option<SessionMcpServers>,
    /// The generation of the session's servers now.
    pub(crate) edition: AtomicU64,
    /// The processes that run beside them.
    pub(crate) census: Arc<FixedCount>,
}

impl FakeSpawner {
    pub(crate) fn new(profile: Value, parts: Vec<AgentScript>) -> Self {
        Self {
            profile,
            parts: Mutex::new(parts.into()),
            started: Mutex::default(),
            ends: Arc::default(),
            remembered: Mutex::default(),
            never_exit: false,
            instructions: None,
            servers: None,
            edition: AtomicU64::new(0),
            census: Arc::default(),
        }
    }

    /// The same, with agents that do not exit by themselves.
    pub(crate) fn that_never_exit(self) -> Self {
        Self { never_exit: true, ..self }
    }
}

impl FakeSpawner {
    /// The same, with instructions in the workspace.
    pub(crate) fn with_instructions(self, name: &'static str) -> Self {
        Self { instructions: Some(name), ..self }
    }

    /// The same, with an MCP server in the session. Its calls come through the returned channel.
    pub(crate) fn with_server(self) -> (Self, Arc<McpCallChannel>) {
        let with_server =
            ServerEndpoint { name: "probe".to_owned(), url: "http://127.0.0.1:4100/probe".to_owned() };
        let channel = Arc::new(McpCallChannel::default());
        let tools = vec!["mcp__probe__add".to_owned()];
        let servers =
            SessionMcpServers { all: vec![with_server], tools, channel: Arc::clone(&channel), generation: 1 };
        (Self { servers: Some(servers), edition: AtomicU64::new(1), ..self }, channel)
    }
}

impl FakeSpawner {
    fn servers_now(&self) -> u64 {
        self.edition.load(Ordering::Relaxed)
    }
}

/// Counts what a test sets.
#[derive(Default)]
pub(crate) struct FixedCount(pub(crate) AtomicUsize);

impl ProcessCounter for FixedCount {
    fn started_since(&self, _: Instant) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

struct InMemory {
    over: CancellationToken,
    killed: CancellationToken,
    ends: Arc<Mutex<Vec<&'static str>>>,
}

#[async_trait]
impl AgentProcess for InMemory {
    async fn ended(&mut self) -> String {
        self.over.cancelled().await;
        "its program ended with code 0".to_owned()
    }

    async fn kill(&mut self) {
        self.ends.lock().unwrap().push("killed");
        self.killed.cancel();
    }
}

#[async_trait]
impl Spawner for FakeSpawner {
    fn check(&self, _: &Handle) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn spawn(&self, _: &Handle) -> Result<SpawnedAgent, RuntimeError> {
        let conversation = self.remembered.lock().unwrap().clone();
        self.started.lock().unwrap().push(conversation.clone());
        let part = self.parts.lock().unwrap().pop_front().expect("there is a part for each start");
        let (stdin, input) = tokio::io::duplex(1 << 16);
        let (output, stdout) = tokio::io::duplex(1 << 16);
        let (over, killed) = (CancellationToken::new(), CancellationToken::new());
        let process = InMemory { over: over.clone(), killed: killed.clone(), ends: Arc::clone(&self.ends) };
        let (ends, is_stubborn) = (Arc::clone(&self.ends), self.never_exit);
        tokio::spawn(async move {
            let pipes = AgentPipes { lines: BufReader::new(input).lines(), output };
            tokio::select! {
                () = part(pipes) => {}
                () = killed.cancelled() => return over.cancel(),
            }
            if is_stubborn {
                killed.cancelled().await;
            } else {
                ends.lock().unwrap().push("by itself");
            }
            over.cancel();
        });
        Ok(SpawnedAgent {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(tokio::io::empty()),
            process: Box::new(process),
            process_counter: Arc::clone(&self.census) as Arc<dyn ProcessCounter>,
            profile: serde_json::from_value::<Profile>(self.profile.clone()).unwrap(),
            workspace: "/workspace".to_owned(),
            conversation,
            instructions: self.instructions.map(str::to_owned),
            servers: self
                .servers
                .clone()
                .map(|servers| SessionMcpServers { generation: self.servers_now(), ..servers }),
        })
    }

    fn mcp_generation(&self, _: &Handle) -> u64 {
        self.servers_now()
    }

    fn store_conversation_id(&self, _: &Handle, conversation: &str) {
        *self.remembered.lock().unwrap() = Some(conversation.to_owned());
    }

    fn forget_conversation_id(&self, _: &Handle) {
        *self.remembered.lock().unwrap() = None;
    }

    async fn changed_autorun_files(&self, _: &Handle) -> Vec<String> {
        Vec::new()
    }

    fn keep_stderr(&self, _: &Handle, _: &str) {}
}

/// The smallest profile for this protocol.
pub(crate) fn profile(protocol: &str) -> Value {
    json!({ "id": "played", "title": "played", "command": ["played"], "protocol": protocol })
}
