//! A toolbox without effects, and a session to play in.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{RehearsalBackend, Scenes};
use crate::content::ContentBlock;
use crate::error::RuntimeError;
use crate::event::{EventKind, RuntimeEvent, StopReason};
use crate::runtime::{AgentRuntime, EventStream, Handle, TurnInput};
use crate::tool::{ToolCall, ToolOutcome, ToolSpec};
use crate::toolbox::{AgentExecutedCall, PermissionOutcome, ReportedOutcome, Toolbox};

/// Answers `TOOL: INPUT`; refuses `exec`; takes as long as the input's `ms` says.
#[derive(Default)]
pub(super) struct FakeTools {
    /// The calls, and how long after the first request each returned.
    pub(super) calls: Mutex<Vec<(ToolCall, Duration)>>,
    first: Mutex<Option<Instant>>,
}

#[async_trait]
impl Toolbox for FakeTools {
    fn tools(&self) -> &[ToolSpec] {
        &[]
    }

    async fn call(&self, call: ToolCall) -> ToolOutcome {
        let first = *self.first.lock().unwrap().get_or_insert_with(Instant::now);
        if let Some(time) = call.input["ms"].as_u64() {
            sleep(Duration::from_millis(time)).await;
        }
        let content = format!("{}: {}", call.name, call.input);
        let outcome =
            if call.name == "exec" { ToolOutcome::error(content) } else { ToolOutcome::good(content) };
        self.calls.lock().unwrap().push((call, first.elapsed()));
        outcome
    }

    async fn request_permission(&self, _: AgentExecutedCall) -> PermissionOutcome {
        PermissionOutcome::Denied("there are no tools here".to_owned())
    }

    async fn execute_granted(&self, _: &str) -> ToolOutcome {
        ToolOutcome::error("there are no tools here")
    }

    async fn report_result(&self, _: &str, _: ReportedOutcome) {}
}

/// A backend with one session.
pub(super) struct TestSession {
    pub(super) backend: RehearsalBackend,
    pub(super) handle: Handle,
    pub(super) tools: Arc<FakeTools>,
    pub(super) cancel: CancellationToken,
}

impl TestSession {
    pub(super) fn new() -> Self {
        Self {
            backend: RehearsalBackend::new(Scenes::builtin()),
            handle: handle("op"),
            tools: Arc::default(),
            cancel: CancellationToken::new(),
        }
    }

    pub(super) fn input(&self, text: &str) -> TurnInput {
        TurnInput {
            content: vec![ContentBlock::text(text)],
            speaker: crate::Speaker::Owner,
            schedule_id: None,
            system: String::new(),
            injected_messages: Vec::new(),
            tools: Arc::clone(&self.tools) as Arc<dyn Toolbox>,
            cancel: self.cancel.clone(),
        }
    }

    pub(super) fn stream(&self, text: &str) -> EventStream {
        self.backend.run_turn(&self.handle, self.input(text))
    }

    /// Plays the lines as a script in one turn.
    pub(super) async fn script(&self, script: &str) -> PlayedTurn {
        let lines: Vec<String> = script.lines().map(|line| format!("!{line}")).collect();
        self.turn(&lines.join("\n")).await
    }

    pub(super) async fn turn(&self, text: &str) -> PlayedTurn {
        PlayedTurn::of(self.stream(text)).await
    }
}

pub(super) fn handle(peer: &str) -> Handle {
    let key = format!("agent:main:cli:local:dm:{peer}");
    Handle { key: Arc::new(key.parse().unwrap()), session_id: key.into() }
}

/// A turn that was played to its end.
#[derive(Debug)]
pub(super) struct PlayedTurn {
    pub(super) events: Vec<EventKind>,
    pub(super) failed: Option<RuntimeError>,
}

impl PlayedTurn {
    /// Collects the turn, and checks what holds for every turn: events are numbered without a gap, the last is one
    /// `done` or one `Err`, and usage comes right before an end that was not a cancel.
    pub(super) async fn of(stream: EventStream) -> Self {
        let items: Vec<Result<RuntimeEvent, RuntimeError>> = stream.collect().await;
        let mut played = Self { events: Vec::new(), failed: None };
        for (index, item) in items.into_iter().enumerate() {
            assert!(played.failed.is_none(), "nothing follows an error");
            match item {
                Ok(event) => {
                    assert_eq!(event.seq, index as u64 + 1);
                    played.events.push(event.kind);
                }
                Err(error) => played.failed = Some(error),
            }
        }
        let dones = played.events.iter().filter(|kind| matches!(kind, EventKind::Done { .. })).count();
        assert_eq!(dones, usize::from(played.failed.is_none()));
        if played.failed.is_none() && played.stop() != StopReason::Cancelled {
            assert!(played.events.iter().any(|kind| matches!(kind, EventKind::UsageUpdate { .. })));
        }
        played
    }

    pub(super) fn stop(&self) -> StopReason {
        match self.events.last() {
            Some(EventKind::Done { stop_reason }) => *stop_reason,
            other => panic!("the last event is {other:?}"),
        }
    }

    pub(super) fn text(&self) -> String {
        self.texts().concat()
    }

    pub(super) fn texts(&self) -> Vec<&str> {
        self.events.iter().filter_map(text_of_delta).collect()
    }

    /// Code and message of the `error` event.
    pub(super) fn error(&self) -> (&str, &str) {
        self.events.iter().find_map(code_and_message).unwrap()
    }
}

fn text_of_delta(kind: &EventKind) -> Option<&str> {
    if let EventKind::TextDelta { text } = kind { Some(text) } else { None }
}

fn code_and_message(kind: &EventKind) -> Option<(&str, &str)> {
    if let EventKind::Error { code, message } = kind { Some((code, message)) } else { None }
}
