//! Terminals of the client's side: commands that an agent has run by the house instead of by itself. Each is a call of its turn like
//! any other; what is here gives it a name, shows what it writes, and answers for it.
//!
//! A terminal lives as long as its turn: what still runs when that is over is ended, and its name means nothing afterwards.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Value, json};

use super::terminal_request::Order;
use super::wire;
use crate::normalize::Wanted;
use crate::passthrough::handed_on;
use crate::terminal_calls::Joint;
use tribune_runtime::terminal::{Ending, Exit, Terminal};
use tribune_runtime::{Errand, Toolbox};
use tribune_runtime::{EventKind, TERMINAL};

/// Terminals of a turn that are not released, whether their commands run or are over. Each is a box, or holds an output.
pub(super) const MAX_TERMINALS: usize = 16;

/// Answers about terminals that wait for something to happen.
const MAX_WAITING: usize = 64;

/// Terminals that were released before a call showed them, and whose commands are remembered for one that does, the newest.
const MAX_RELEASED: usize = 64;

/// How long the end of a turn waits until what still ran is on record as ended. Then it is written off.
const ENDING: Duration = Duration::from_secs(5);

/// Terminals so far, of all agents: a name is given out once.
static GIVEN_OUT: AtomicU64 = AtomicU64::new(0);

/// The terminals of a turn.
pub(super) struct Terminals {
    tools: Arc<dyn Toolbox>,
    held: HashMap<String, Held>,
    /// Of terminals that are gone: their names, and what they ran.
    released: VecDeque<(String, Wanted)>,
    /// Commands under way; each comes back as the name of its terminal.
    running: FuturesUnordered<BoxFuture<'static, String>>,
    answers: FuturesUnordered<BoxFuture<'static, Answer>>,
}

struct Held {
    terminal: Arc<Terminal>,
    command: Wanted,
    /// The call that it is part of, if that is known.
    joint: Option<Joint>,
    /// A call was told that is this.
    is_shown: bool,
    is_released: bool,
}

/// A line to the agent, and the name of the terminal that it opens.
struct Answer {
    line: String,
    opens: Option<(String, String)>,
}

/// What comes of terminals.
pub(super) enum News {
    /// A line to the agent.
    Answer(String),
    /// A command runs: the line that tells so, and what everyone else is told.
    Opened { line: String, event: Option<EventKind>, joint: Option<(Joint, Wanted)> },
    /// A command was not run, and why.
    NotRun { joint: Joint, command: Wanted, why: String },
}

impl Terminals {
    pub(super) fn new(tools: Arc<dyn Toolbox>) -> Self {
        let (running, answers) = (FuturesUnordered::new(), FuturesUnordered::new());
        Self { tools, held: HashMap::new(), released: VecDeque::new(), running, answers }
    }

    /// Whether another one may be opened.
    pub(super) fn has_room(&self) -> bool {
        self.held.len() < MAX_TERMINALS && self.answers.len() < MAX_WAITING
    }

    /// Has a command run. The answer comes when it runs, or is refused.
    pub(super) fn open(&mut self, request: Value, order: Order, errand: Errand, joint: Option<Joint>) {
        let name = format!("term-{}", GIVEN_OUT.fetch_add(1, Ordering::Relaxed) + 1);
        let terminal = Arc::new(Terminal::new(order.keeps));
        let call = errand.id().to_owned();
        let is_shown = joint.is_some();
        let held = Held {
            terminal: Arc::clone(&terminal),
            command: order.command,
            joint,
            is_shown,
            is_released: false,
        };
        self.held.insert(name.clone(), held);
        let (tools, followed, own) = (Arc::clone(&self.tools), Arc::clone(&terminal), name.clone());
        self.running.push(Box::pin(async move {
            let outcome = tools.follow(errand, Arc::clone(&followed)).await;
            followed.close(outcome);
            own
        }));
        self.answers.push(Box::pin(async move {
            let why = tokio::select! {
                biased;
                () = terminal.begun() => {
                    let line = wire::response(&request, &json!({ "terminalId": name }));
                    return Answer { line, opens: Some((name, call)) };
                }
                _ = terminal.over() => terminal.outcome().map(|outcome| outcome.content).unwrap_or_default(),
                () = terminal.unwanted() => "the turn is over: the command was not started".to_owned(),
            };
            Answer { line: wire::error(&request, wire::INTERNAL, &why), opens: None }
        }));
    }

    /// Something is wanted of a terminal that is there. Returns the line that answers it, unless that has to wait.
    pub(super) fn asked(&mut self, request: &Value, method: &str, params: &Value) -> Option<String> {
        let Some(name) = params["terminalId"].as_str() else {
            return Some(wire::error(request, wire::INVALID_PARAMS, "`terminalId` names the terminal"));
        };
        // One whose command does not run yet has no name that the agent could know.
        let is_there = |held: &&mut Held| !held.is_released && held.terminal.has_begun();
        let Some(held) = self.held.get_mut(name).filter(is_there) else {
            let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
            let what = format!(
                "there is no terminal `{name}`: it was released, was of an earlier turn, or never one of this session"
            );
            return Some(wire::error(request, wire::NOT_FOUND, &what));
        };
        let terminal = Arc::clone(&held.terminal);
        if method == "terminal/output" {
            let seen = terminal.seen();
            let mut shown = json!({ "output": seen.output, "truncated": seen.is_cut });
            if let Some(exit) = seen.exit {
                shown["exitStatus"] = status(exit);
            }
            return Some(wire::response(request, &shown));
        }
        if self.answers.len() >= MAX_WAITING {
            return Some(wire::error(request, wire::INTERNAL, "too much is asked at once: nothing is done"));
        }
        match method {
            "terminal/kill" => terminal.end(Ending::Killed),
            "terminal/release" => {
                held.is_released = true;
                terminal.end(Ending::Killed);
                if terminal.is_over() {
                    self.forget(name);
                }
            }
            // It is only waited for.
            _ => {}
        }
        let (request, is_waited_for) = (request.clone(), method == "terminal/wait_for_exit");
        self.answers.push(Box::pin(async move {
            let exit = terminal.over().await;
            let result = if is_waited_for { status(exit) } else { json!({}) };
            Answer { line: wire::response(&request, &result), opens: None }
        }));
        None
    }

    /// The commands of terminals that a call shows as its own, each for the first call that does.
    pub(super) fn shown_in(&mut self, told: &Value) -> Vec<Wanted> {
        let pieces = told["content"].as_array().into_iter().flatten();
        let names = pieces
            .filter(|piece| piece["type"] == "terminal")
            .filter_map(|piece| piece["terminalId"].as_str());
        let mut ran = Vec::new();
        for name in names {
            let is_new = |held: &&mut Held| held.terminal.has_begun() && !held.is_shown;
            if let Some(held) = self.held.get_mut(name).filter(is_new) {
                held.is_shown = true;
                ran.push(held.command.clone());
            } else if let Some(at) = self.released.iter().position(|(known, _)| known == name) {
                ran.extend(self.released.remove(at).map(|(_, command)| command));
            }
        }
        ran
    }

    /// Waits for the next thing that happens; for ever if nothing is open.
    pub(super) async fn next(&mut self) -> News {
        loop {
            let answer = tokio::select! {
                biased;
                // What a command came to is known before anyone is told.
                Some(name) = self.running.next(), if !self.running.is_empty() => {
                    match self.ran(&name) {
                        Some(news) => return news,
                        None => continue,
                    }
                }
                Some(answer) = self.answers.next(), if !self.answers.is_empty() => answer,
                else => std::future::pending().await,
            };
            let (line, name, call) = match answer {
                Answer { line, opens: Some((name, call)) } => (line, name, call),
                Answer { line, opens: None } => return News::Answer(line),
            };
            let told = json!({ "jsonrpc": "2.0", "method": TERMINAL, "params": { "terminalId": name, "callId": call } });
            let held = self.held.get(&name);
            let joint = held.and_then(|held| Some((held.joint.clone()?, held.command.clone())));
            return News::Opened { line, event: handed_on(TERMINAL, &told.to_string()), joint };
        }
    }

    /// A command is over, or was never begun.
    fn ran(&mut self, name: &str) -> Option<News> {
        let held = self.held.get(name)?;
        let has_begun = held.terminal.has_begun();
        if has_begun && !held.is_released {
            return None;
        }
        let Held { terminal, command, joint, .. } = self.forget(name)?;
        let joint = joint.filter(|_| !has_begun)?;
        let why = terminal.outcome().map(|outcome| outcome.content).unwrap_or_default();
        Some(News::NotRun { joint, command, why })
    }

    /// Takes one out that is over. A call may still be told that shows it.
    fn forget(&mut self, name: &str) -> Option<Held> {
        let held = self.held.remove(name)?;
        if held.terminal.has_begun() && !held.is_shown {
            self.released.truncate(MAX_RELEASED - 1);
            self.released.push_front((name.to_owned(), held.command.clone()));
        }
        Some(held)
    }

    /// Ends everything that runs, and has nothing begun that does not. Nobody is waited for.
    pub(super) fn end(&self) {
        self.held.values().for_each(|held| held.terminal.end(Ending::TurnOver));
    }

    /// The turn is over: ends everything, and waits until that is on record.
    pub(super) async fn settle(&mut self) -> Vec<String> {
        self.end();
        let settled = async {
            while self.held.values().any(|held| held.terminal.has_begun() && !held.terminal.is_over()) {
                if self.running.next().await.is_none() {
                    return;
                }
            }
        };
        // What takes longer is written off with the turn.
        let _ = tokio::time::timeout(ENDING, settled).await;
        let mut lines = Vec::new();
        // Everyone who still waited is told.
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

/// How a command ended, as ACP tells it.
fn status(exit: Exit) -> Value {
    match exit {
        Exit::Code(code) => json!({ "exitCode": code, "signal": null }),
        Exit::Signal(number) => {
            let known = SIGNALS.iter().find(|(signal, _)| *signal == number);
            let name = known.map_or_else(|| format!("SIG{number}"), |(_, name)| (*name).to_owned());
            json!({ "exitCode": null, "signal": name })
        }
    }
}
