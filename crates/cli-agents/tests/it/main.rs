//! CLI agents in memory: the process, the toolbox and the events of a turn.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod acp;
mod acp_agent;
mod claude_code;
mod fake_agent;
mod mcp_servers;
mod process_limit;
mod terminals;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tribune_cli_agents::CliBackend;
use tribune_runtime::{
    AgentExecutedCall, AgentRuntime, ContentBlock, EventKind, Handle, HostExecutedCall, PermissionOutcome,
    PermissionTiming, ReportedOutcome, RuntimeError, Speaker, Terminal, ToolCall, ToolOutcome, ToolSpec,
    Toolbox, TurnInput,
};

/// A law that a test writes, and a record of its requests and reports.
pub(crate) struct TestToolbox {
    law: fn(&AgentExecutedCall) -> PermissionOutcome,
    /// Each call with a permission request: its id, its tool, and the one text in its input.
    asked: Mutex<Vec<(String, String, String)>>,
    /// Calls that were reported as executed.
    reported: Mutex<Vec<(String, ToolOutcome)>>,
    /// Calls with permission that were reported as not executed.
    unused: Mutex<Vec<String>>,
    /// Commands in terminals.
    followed: Mutex<Vec<HostExecutedCall>>,
    /// Calls that the host was to execute, decided then or under a permission.
    made: Mutex<Vec<HostExecutedCall>>,
}

impl TestToolbox {
    fn with(law: fn(&AgentExecutedCall) -> PermissionOutcome) -> Arc<Self> {
        Arc::new(Self {
            law,
            asked: Mutex::default(),
            reported: Mutex::default(),
            unused: Mutex::default(),
            followed: Mutex::default(),
            made: Mutex::default(),
        })
    }

    /// Nothing is allowed.
    fn strict() -> Arc<Self> {
        Self::with(|_| PermissionOutcome::Denied("the law says no".to_owned()))
    }

    /// Every call is allowed that is requested before it runs.
    fn after_asking() -> Arc<Self> {
        Self::with(|call| match call.timing {
            PermissionTiming::BeforeCall => PermissionOutcome::Granted,
            PermissionTiming::DuringCall => PermissionOutcome::Denied("a person has to be asked".to_owned()),
        })
    }

    fn asked(&self) -> Vec<(String, String, String)> {
        self.asked.lock().unwrap().clone()
    }

    fn reported(&self) -> Vec<(String, ToolOutcome)> {
        self.reported.lock().unwrap().clone()
    }

    fn unused(&self) -> Vec<String> {
        self.unused.lock().unwrap().clone()
    }
}

#[async_trait]
impl Toolbox for TestToolbox {
    fn tools(&self) -> &[ToolSpec] {
        &[]
    }

    /// Of MCP tools, `no` is refused, `wait` waits for a decision, all others succeed.
    async fn call(&self, call: ToolCall) -> ToolOutcome {
        if !call.name.starts_with("mcp__") {
            return ToolOutcome::error("no");
        }
        let word = call.input["word"].clone();
        self.made.lock().unwrap().push(HostExecutedCall::Call(call));
        match word.as_str() {
            Some("no") => ToolOutcome::error("denied: the law says no"),
            Some("wait") => std::future::pending().await,
            _ => ToolOutcome::good("made"),
        }
    }

    async fn request_permission(&self, call: AgentExecutedCall) -> PermissionOutcome {
        let said = ["path", "command", "url", "word"].iter().find_map(|name| call.call.input[name].as_str());
        let asked = (call.call.id.clone(), call.call.name.clone(), said.unwrap_or_default().to_owned());
        self.asked.lock().unwrap().push(asked);
        if said == Some("wait") {
            std::future::pending::<()>().await;
        }
        (self.law)(&call)
    }

    async fn execute_granted(&self, id: &str) -> ToolOutcome {
        self.made.lock().unwrap().push(HostExecutedCall::Granted(id.to_owned()));
        ToolOutcome::good(format!("what came of {id}, and @private.txt"))
    }

    /// `no` is refused, `wait` waits for a decision, all others write a word and run until they are ended.
    async fn run_with_terminal(&self, call: HostExecutedCall, terminal: Arc<Terminal>) -> ToolOutcome {
        self.followed.lock().unwrap().push(call.clone());
        match &call {
            HostExecutedCall::Call(call) if call.input["command"] == "no" => {
                return ToolOutcome::error("denied: the law says no");
            }
            HostExecutedCall::Call(call) if call.input["command"] == "wait" => std::future::pending().await,
            HostExecutedCall::Call(_) | HostExecutedCall::Granted(_) => {}
        }
        terminal.mark_started();
        terminal.writer().write(b"hello");
        terminal.unwanted().await;
        let outcome = ToolOutcome::good("ended");
        self.reported.lock().unwrap().push((call.id().to_owned(), outcome.clone()));
        outcome
    }

    async fn report_result(&self, id: &str, outcome: ReportedOutcome) {
        match outcome {
            ReportedOutcome::Executed(outcome) => {
                self.reported.lock().unwrap().push((id.to_owned(), outcome))
            }
            ReportedOutcome::NotExecuted(_) => self.unused.lock().unwrap().push(id.to_owned()),
        }
    }
}

fn handle(peer: &str) -> Handle {
    let key = format!("agent:main:cli:local:dm:{peer}").parse().unwrap();
    Handle { key: Arc::new(key), session_id: peer.into() }
}

/// The outcome of a turn.
#[derive(Debug, Default)]
pub(crate) struct TurnLog {
    events: Vec<EventKind>,
    error: Option<RuntimeError>,
}

impl TurnLog {
    fn text(&self) -> String {
        let text = |event: &EventKind| match event {
            EventKind::TextDelta { text } => Some(text.clone()),
            _ => None,
        };
        self.events.iter().filter_map(text).collect()
    }

    fn notices(&self) -> Vec<&str> {
        let events = self.events.iter();
        let codes = events.filter_map(|event| match event {
            EventKind::Notice { code, .. } => Some(code.as_str()),
            _ => None,
        });
        codes.collect()
    }

    fn is_ungoverned(&self) -> bool {
        self.events.iter().any(|event| matches!(event, EventKind::Ungoverned { .. }))
    }

    /// The code and the sentence of the error that ended it.
    fn error(&self) -> (&str, &str) {
        let error = self.error.as_ref().unwrap_or_else(|| panic!("{self:?}"));
        (error.code(), &error.message)
    }
}

/// Runs a turn under a law.
async fn turn(backend: &CliBackend, peer: &str, toolbox: &Arc<TestToolbox>) -> TurnLog {
    turn_cancelled_by(backend, peer, toolbox, CancellationToken::new()).await
}

async fn turn_cancelled_by(
    backend: &CliBackend,
    peer: &str,
    toolbox: &Arc<TestToolbox>,
    cancel: CancellationToken,
) -> TurnLog {
    log_of(backend, peer, TurnInput { cancel, ..input(toolbox) }).await
}

/// The input of a turn under a law.
fn input(toolbox: &Arc<TestToolbox>) -> TurnInput {
    TurnInput {
        content: vec![ContentBlock::text("hello")],
        speaker: Speaker::Owner,
        schedule_id: None,
        system: String::new(),
        injected_messages: Vec::new(),
        tools: Arc::clone(toolbox) as Arc<dyn Toolbox>,
        cancel: CancellationToken::new(),
    }
}

async fn log_of(backend: &CliBackend, peer: &str, input: TurnInput) -> TurnLog {
    let mut log = TurnLog::default();
    let mut events = backend.run_turn(&handle(peer), input);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => log.events.push(event.kind),
            Err(error) => log.error = Some(error),
        }
    }
    log
}
