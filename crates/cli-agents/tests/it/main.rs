//! Agents of others, played in memory: what runs them, what judges them, and what was said in a turn.
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
    AgentRuntime, ContentBlock, Errand, EventKind, Handle, Leave, OwnCall, RuntimeError, Speaker, Terminal,
    ToolCall, ToolOutcome, ToolSpec, Toolbox, TurnInput, When,
};

/// A law that a test writes, and what it was asked and told.
pub(crate) struct Court {
    law: fn(&OwnCall) -> Leave,
    /// Each call that leave was asked for: its id, its tool, and the one thing that its input says.
    asked: Mutex<Vec<(String, String, String)>>,
    told: Mutex<Vec<(String, ToolOutcome)>>,
    /// Commands that are followed.
    followed: Mutex<Vec<Errand>>,
    /// Calls that the house was to make, and those under leave that was given.
    made: Mutex<Vec<Errand>>,
}

impl Court {
    fn with(law: fn(&OwnCall) -> Leave) -> Arc<Self> {
        Arc::new(Self {
            law,
            asked: Mutex::default(),
            told: Mutex::default(),
            followed: Mutex::default(),
            made: Mutex::default(),
        })
    }

    /// Nothing is allowed.
    fn strict() -> Arc<Self> {
        Self::with(|_| Leave::Refused("the law says no".to_owned()))
    }

    /// Everything is allowed that is asked about before.
    fn after_asking() -> Arc<Self> {
        Self::with(|call| match call.when {
            When::Before => Leave::Given,
            When::Underway => Leave::Refused("a person has to be asked".to_owned()),
        })
    }

    fn asked(&self) -> Vec<(String, String, String)> {
        self.asked.lock().unwrap().clone()
    }

    fn told(&self) -> Vec<(String, ToolOutcome)> {
        self.told.lock().unwrap().clone()
    }
}

#[async_trait]
impl Toolbox for Court {
    fn tools(&self) -> &[ToolSpec] {
        &[]
    }

    /// Of servers' tools, `no` is refused, `wait` waits for somebody to decide, all else is done.
    async fn call(&self, call: ToolCall) -> ToolOutcome {
        if !call.name.starts_with("mcp__") {
            return ToolOutcome::error("no");
        }
        let word = call.input["word"].clone();
        self.made.lock().unwrap().push(Errand::Call(call));
        match word.as_str() {
            Some("no") => ToolOutcome::error("denied: the law says no"),
            Some("wait") => std::future::pending().await,
            _ => ToolOutcome::good("made"),
        }
    }

    async fn ask_leave(&self, call: OwnCall) -> Leave {
        let said = ["path", "command", "url", "word"].iter().find_map(|name| call.call.input[name].as_str());
        let asked = (call.call.id.clone(), call.call.name.clone(), said.unwrap_or_default().to_owned());
        self.asked.lock().unwrap().push(asked);
        if said == Some("wait") {
            std::future::pending::<()>().await;
        }
        (self.law)(&call)
    }

    async fn carry_out(&self, id: &str) -> ToolOutcome {
        self.made.lock().unwrap().push(Errand::Allowed(id.to_owned()));
        ToolOutcome::good(format!("what came of {id}, and @private.txt"))
    }

    /// `no` is refused, `wait` waits for somebody to decide, all else writes a word and runs until it is ended.
    async fn follow(&self, errand: Errand, terminal: Arc<Terminal>) -> ToolOutcome {
        self.followed.lock().unwrap().push(errand.clone());
        match &errand {
            Errand::Call(call) if call.input["command"] == "no" => {
                return ToolOutcome::error("denied: the law says no");
            }
            Errand::Call(call) if call.input["command"] == "wait" => std::future::pending().await,
            Errand::Call(_) | Errand::Allowed(_) => {}
        }
        terminal.begin();
        terminal.pen().write(b"hello");
        terminal.unwanted().await;
        let outcome = ToolOutcome::good("ended");
        self.told.lock().unwrap().push((errand.id().to_owned(), outcome.clone()));
        outcome
    }

    async fn report(&self, id: &str, outcome: ToolOutcome) {
        self.told.lock().unwrap().push((id.to_owned(), outcome));
    }
}

fn handle(peer: &str) -> Handle {
    let key = format!("agent:main:cli:local:dm:{peer}").parse().unwrap();
    Handle { key: Arc::new(key), session_id: peer.into() }
}

/// What came of a turn.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    events: Vec<EventKind>,
    error: Option<RuntimeError>,
}

impl Heard {
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

    /// The code and the sentence of what ended it.
    fn error(&self) -> (&str, &str) {
        let error = self.error.as_ref().unwrap_or_else(|| panic!("{self:?}"));
        (&error.code, &error.message)
    }
}

/// Runs a turn under a law.
async fn turn(backend: &CliBackend, peer: &str, court: &Arc<Court>) -> Heard {
    turn_until(backend, peer, court, CancellationToken::new()).await
}

async fn turn_until(
    backend: &CliBackend,
    peer: &str,
    court: &Arc<Court>,
    cancel: CancellationToken,
) -> Heard {
    heard_of(backend, peer, TurnInput { cancel, ..input(court) }).await
}

/// What a turn under a law begins with.
fn input(court: &Arc<Court>) -> TurnInput {
    TurnInput {
        content: vec![ContentBlock::text("hello")],
        speaker: Speaker::Owner,
        stored_as: None,
        system: String::new(),
        preceding: Vec::new(),
        tools: Arc::clone(court) as Arc<dyn Toolbox>,
        cancel: CancellationToken::new(),
    }
}

async fn heard_of(backend: &CliBackend, peer: &str, input: TurnInput) -> Heard {
    let mut heard = Heard::default();
    let mut events = backend.run_turn(&handle(peer), input);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => heard.events.push(event.kind),
            Err(error) => heard.error = Some(error),
        }
    }
    heard
}
