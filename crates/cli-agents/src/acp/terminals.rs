//! The client's terminals: commands that the host runs for an agent. Each is a call of its turn like any other; this
//! module gives it an id, shows its output, and answers the agent's requests about it.
//!
//! A terminal lives as long as its turn: a command that still runs then is ended, and the id is not valid afterwards.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};

use super::terminal_request::TerminalRequest;
use super::wire;
use crate::call_join::CallLink;
use crate::normalize::NormalizedCall;
use crate::passthrough::pass_through;
use tribune_runtime::terminal::{EndRequest, ExitStatus, Terminal};
use tribune_runtime::{EventKind, TERMINAL_CREATED};
use tribune_runtime::{HostExecutedCall, Toolbox};

/// Terminals of a turn that are not released, whether their commands run or are over. Each is a sandbox, or holds an
/// output.
pub(super) const MAX_TERMINALS: usize = 16;

/// Responses about terminals that wait for an event.
const MAX_WAITING: usize = 64;

/// Released terminals that no call showed yet, and whose commands are remembered for one that does, the newest.
const MAX_RELEASED: usize = 64;

/// How long the end of a turn waits until the commands that still ran are on record as ended.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Terminals so far, of all agents: an id is used once.
static TERMINALS_SO_FAR: AtomicU64 = AtomicU64::new(0);

/// The terminals of a turn.
pub(super) struct TurnTerminals {
    tools: Arc<dyn Toolbox>,
    entries: HashMap<String, TerminalEntry>,
    /// Released terminals: their ids and commands.
    released: VecDeque<(String, NormalizedCall)>,
    /// Running commands; each returns the id of its terminal.
    running: FuturesUnordered<BoxFuture<'static, String>>,
    answers: FuturesUnordered<BoxFuture<'static, TerminalResponse>>,
}

struct TerminalEntry {
    terminal: Arc<Terminal>,
    command: NormalizedCall,
    /// The call that it is part of, if that is known.
    link: Option<CallLink>,
    /// A report of a call showed this terminal.
    is_shown: bool,
    is_released: bool,
}

/// A line to the agent, and the terminal and call ids if it opens a terminal.
struct TerminalResponse {
    line: String,
    opens: Option<(String, String)>,
}

/// What happens to terminals.
pub(super) enum TerminalEvent {
    /// A line to the agent.
    Response(String),
    /// A command runs: the line that says so, and the event for clients.
    Started { line: String, event: Option<EventKind>, link: Option<(CallLink, NormalizedCall)> },
    /// A command was not run, and why.
    NotStarted { link: CallLink, command: NormalizedCall, why: String },
}

impl TurnTerminals {
    pub(super) fn new(tools: Arc<dyn Toolbox>) -> Self {
        let (running, answers) = (FuturesUnordered::new(), FuturesUnordered::new());
        Self { tools, entries: HashMap::new(), released: VecDeque::new(), running, answers }
    }

    /// Whether another terminal may be opened.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < MAX_TERMINALS && self.answers.len() < MAX_WAITING
    }

    /// Has a command run. The response comes when it runs, or is refused.
    pub(super) fn open(
        &mut self,
        request: Value,
        terminal_request: TerminalRequest,
        call: HostExecutedCall,
        link: Option<CallLink>,
    ) {
        let name = format!("term-{}", TERMINALS_SO_FAR.fetch_add(1, Ordering::Relaxed) + 1);
        let terminal = Arc::new(Terminal::new(terminal_request.output_limit));
        let call_id = call.id().to_owned();
        let is_shown = link.is_some();
        let entries = TerminalEntry {
            terminal: Arc::clone(&terminal),
            command: terminal_request.command,
            link,
            is_shown,
            is_released: false,
        };
        self.entries.insert(name.clone(), entries);
        let (tools, followed, own) = (Arc::clone(&self.tools), Arc::clone(&terminal), name.clone());
        self.running.push(Box::pin(async move {
            let outcome = tools.run_with_terminal(call, Arc::clone(&followed)).await;
            followed.close(outcome);
            own
        }));
        self.answers.push(Box::pin(async move {
            let why = tokio::select! {
                biased;
                () = terminal.begun() => {
                    let line = wire::response(&request, &json!({ "terminalId": name }));
                    return TerminalResponse { line, opens: Some((name, call_id)) };
                }
                _ = terminal.over() => terminal.outcome().map(|outcome| outcome.content).unwrap_or_default(),
                () = terminal.unwanted() => "the turn is over: the command was not started".to_owned(),
            };
            TerminalResponse { line: wire::error(&request, wire::INTERNAL, &why), opens: None }
        }));
    }

    /// Handles a request about an existing terminal. Returns the response, unless it has to wait.
    pub(super) fn on_request(&mut self, request: &Value, method: &str, params: &Value) -> Option<String> {
        let Some(name) = params["terminalId"].as_str() else {
            return Some(wire::error(request, wire::INVALID_PARAMS, "`terminalId` names the terminal"));
        };
        // The agent does not know the id of a terminal whose command does not run yet.
        let is_there = |entries: &&mut TerminalEntry| !entries.is_released && entries.terminal.has_started();
        let Some(entries) = self.entries.get_mut(name).filter(is_there) else {
            let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
            let what = format!(
                "there is no terminal `{name}`: it was released, was of an earlier turn, or never one of this session"
            );
            return Some(wire::error(request, wire::NOT_FOUND, &what));
        };
        let terminal = Arc::clone(&entries.terminal);
        if method == "terminal/output" {
            let seen = terminal.snapshot();
            let mut shown = json!({ "output": seen.output, "truncated": seen.is_truncated });
            if let Some(exit) = seen.exit {
                shown["exitStatus"] = status(exit);
            }
            return Some(wire::response(request, &shown));
        }
        if self.answers.len() >= MAX_WAITING {
            return Some(wire::error(request, wire::INTERNAL, "too much is asked at once: nothing is done"));
        }
        match method {
            "terminal/kill" => terminal.request_end(EndRequest::Killed),
            "terminal/release" => {
                entries.is_released = true;
                terminal.request_end(EndRequest::Killed);
                if terminal.is_closed() {
                    self.forget(name);
                }
            }
            // `terminal/wait_for_exit` changes nothing.
            _ => {}
        }
        let (request, is_waited_for) = (request.clone(), method == "terminal/wait_for_exit");
        self.answers.push(Box::pin(async move {
            let exit = terminal.over().await;
            let result = if is_waited_for { status(exit) } else { json!({}) };
            TerminalResponse { line: wire::response(&request, &result), opens: None }
        }));
        None
    }

    /// The commands of terminals that a report of a call shows, each for the first report that does.
    pub(super) fn commands_shown_in(&mut self, report: &Value) -> Vec<NormalizedCall> {
        let pieces = report["content"].as_array().into_iter().flatten();
        let names = pieces
            .filter(|piece| piece["type"] == "terminal")
            .filter_map(|piece| piece["terminalId"].as_str());
        let mut ran = Vec::new();
        for name in names {
            let is_new = |entries: &&mut TerminalEntry| entries.terminal.has_started() && !entries.is_shown;
            if let Some(entries) = self.entries.get_mut(name).filter(is_new) {
                entries.is_shown = true;
                ran.push(entries.command.clone());
            } else if let Some(at) = self.released.iter().position(|(known, _)| known == name) {
                ran.extend(self.released.remove(at).map(|(_, command)| command));
            }
        }
        ran
    }

    /// Waits for the next event; for ever if no terminal is open.
    pub(super) async fn next(&mut self) -> TerminalEvent {
        loop {
            let answer = tokio::select! {
                biased;
                // The outcome of a command is known before the response is sent.
                Some(name) = self.running.next(), if !self.running.is_empty() => {
                    match self.on_command_end(&name) {
                        Some(event) => return event,
                        None => continue,
                    }
                }
                Some(answer) = self.answers.next(), if !self.answers.is_empty() => answer,
                else => std::future::pending().await,
            };
            let (line, name, call) = match answer {
                TerminalResponse { line, opens: Some((name, call)) } => (line, name, call),
                TerminalResponse { line, opens: None } => return TerminalEvent::Response(line),
            };
            let notification = json!({ "jsonrpc": "2.0", "method": TERMINAL_CREATED, "params": { "terminalId": name, "callId": call } });
            let entries = self.entries.get(&name);
            let link = entries.and_then(|entries| Some((entries.link.clone()?, entries.command.clone())));
            return TerminalEvent::Started {
                line,
                event: pass_through(TERMINAL_CREATED, &notification.to_string()),
                link,
            };
        }
    }

    /// A command is over, or was never started.
    fn on_command_end(&mut self, name: &str) -> Option<TerminalEvent> {
        let entries = self.entries.get(name)?;
        let has_begun = entries.terminal.has_started();
        if has_begun && !entries.is_released {
            return None;
        }
        let TerminalEntry { terminal, command, link, .. } = self.forget(name)?;
        let link = link.filter(|_| !has_begun)?;
        let why = terminal.outcome().map(|outcome| outcome.content).unwrap_or_default();
        Some(TerminalEvent::NotStarted { link, command, why })
    }

    /// Removes a finished one. A call that shows it may still be reported.
    fn forget(&mut self, name: &str) -> Option<TerminalEntry> {
        let entries = self.entries.remove(name)?;
        if entries.terminal.has_started() && !entries.is_shown {
            self.released.truncate(MAX_RELEASED - 1);
            self.released.push_front((name.to_owned(), entries.command.clone()));
        }
        Some(entries)
    }

    /// Ends every command that runs, and keeps the others from starting. It does not wait.
    pub(super) fn end(&self) {
        self.entries.values().for_each(|entries| entries.terminal.request_end(EndRequest::TurnEnded));
    }

    /// At the end of the turn: ends every command, and waits until that is on record.
    pub(super) async fn settle(&mut self) -> Vec<String> {
        self.end();
        let settled = async {
            while self
                .entries
                .values()
                .any(|entries| entries.terminal.has_started() && !entries.terminal.is_closed())
            {
                if self.running.next().await.is_none() {
                    return;
                }
            }
        };
        // A command that takes longer is given up with the turn.
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, settled).await;
        let mut lines = Vec::new();
        // Requests that still wait get their responses.
        while let Some(Some(answer)) = futures_util::FutureExt::now_or_never(self.answers.next()) {
            lines.push(answer.line);
        }
        lines
    }
}

/// Names of signals, by their numbers.
const SIGNALS: [(i32, &str); 12] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
];

/// The exit status of a command in ACP.
fn status(exit: ExitStatus) -> Value {
    match exit {
        ExitStatus::Code(code) => json!({ "exitCode": code, "signal": null }),
        ExitStatus::Signal(number) => {
            let known = SIGNALS.iter().find(|(signal, _)| *signal == number);
            let name = known.map_or_else(|| format!("SIG{number}"), |(_, name)| (*name).to_owned());
            json!({ "exitCode": null, "signal": name })
        }
    }
}
