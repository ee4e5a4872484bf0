//! The questions of one turn: what an agent asks goes to the toolbox and the answer back, and what it tells as done is compared
//! with what it had leave for. All of it is the same whatever the agent speaks.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::Value;

use crate::agent_protocol::Step;
use crate::executed_calls::Through;
use crate::mcp_bridge::Servers;
use crate::mcp_tool_names::Names;
use crate::normalize::Wanted;
use crate::tool_calls::{Ask, Calls, Standing, Telling, Untold};
use tribune_runtime::{Leave, OwnCall, RuntimeError, ToolCall, ToolOutcome, Toolbox, When};

/// Questions of an agent that wait at once.
const MAX_WAITING: usize = 64;

/// Bytes of what they say.
const MAX_WAITING_BYTES: usize = 32 << 20;

/// What is put on record of leave to have a server's tool called, of which nobody made use.
const NOT_MADE: &str = "the agent did not have the house make this call";

/// A question of the agent's, as far as it has to be answered.
pub(crate) trait Question: Send + 'static {
    /// The way in which it is asked, if the agent has several for one call.
    fn way(&self) -> &'static str;

    /// The line that answers it, and whether that lets the call go.
    fn answer(&self, ruling: &Ruling) -> (String, bool);
}

/// What is answered to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ruling {
    Allow,
    Refuse(String),
    /// Nobody decides it any more.
    Cancelled,
}

/// The questions of a turn, and its calls.
pub(crate) struct Leaves<Q> {
    tools: Arc<dyn Toolbox>,
    pub(crate) workspace: Arc<str>,
    pub(crate) calls: Calls,
    waiting: FuturesUnordered<BoxFuture<'static, Decided>>,
    open: Vec<Open<Q>>,
    pub(crate) asks: usize,
    /// Calls of servers' tools that the house made.
    pub(crate) through: Through,
    under_way: UnderWay,
}

struct Open<Q> {
    ask: usize,
    size: usize,
    question: Q,
}

/// What it means that a call is told as under way before anyone was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnderWay {
    IsDone,
    /// The agent says so of calls that it asks about next.
    MayBeAsked,
}

/// How a call went that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Went {
    Well,
    Wrong,
}

/// Whether a call was carried out at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WasMade {
    Yes,
    No,
}

/// What came of a question.
pub(crate) struct Decided {
    ask: usize,
    call: String,
    given: Vec<(String, Wanted)>,
    refused: Option<String>,
}

impl<Q: Question> Leaves<Q> {
    pub(crate) fn new(
        tools: Arc<dyn Toolbox>,
        workspace: Arc<str>,
        under_way: UnderWay,
        servers: Option<&Servers>,
    ) -> Self {
        let (calls, waiting) = (Calls::new(Names::of(servers)), FuturesUnordered::new());
        let (open, through) = (Vec::new(), Through::default());
        Self { tools, workspace, calls, waiting, open, asks: 0, through, under_way }
    }

    /// The agent asks leave for a call of which a line tells. Returns what is to be answered at once.
    pub(crate) fn ask(&mut self, question: Q, told: &Value, line: &str) -> Result<Vec<String>, Untold> {
        let waiting: usize = self.open.iter().map(|open| open.size).sum();
        if self.open.len() >= MAX_WAITING || waiting + line.len() > MAX_WAITING_BYTES {
            return Ok(vec![question.answer(&Ruling::Cancelled).0]);
        }
        let id = self.calls.tell(told, line, Telling::GoesOn)?;
        let Some(call) = self.calls.get(&id) else { return Ok(Vec::new()) };
        let wanted = call.asked(&self.workspace);
        let way = question.way();
        let size = line.len();
        let is_same = |ask: &&mut Ask| ask.wanted == wanted && !ask.ways.contains(&way);
        if !call.is_over
            && let Some(ask) = call.asks.iter_mut().rev().find(is_same)
        {
            // The agent asks about it in another way, too.
            ask.ways.push(way);
            let ruling = match &ask.standing {
                Standing::Waits => {
                    self.open.push(Open { ask: ask.number, size, question });
                    return Ok(Vec::new());
                }
                Standing::Allowed => Ruling::Allow,
                Standing::Refused(why) => Ruling::Refuse(why.clone()),
            };
            return Ok(vec![question.answer(&ruling).0]);
        }
        call.begin_question();
        let parts: Vec<(String, Wanted)> =
            call.ids(&id, wanted.len()).into_iter().zip(wanted.clone()).collect();
        let number = self.asks;
        self.asks += 1;
        self.calls.asked(&id, Ask::new(number, wanted, way, line))?;
        self.open.push(Open { ask: number, size, question });
        let (tools, said) = (Arc::clone(&self.tools), line.to_owned());
        self.waiting.push(Box::pin(async move {
            let mut refused = None;
            let mut given = Vec::new();
            for (own, wanted) in parts {
                match tools.ask_leave(own_call(&own, wanted.clone(), &said, When::Before)).await {
                    Leave::Given => given.push((own, wanted)),
                    Leave::Refused(why) => {
                        refused = Some(why);
                        break;
                    }
                }
            }
            Decided { ask: number, call: id, given, refused }
        }));
        Ok(Vec::new())
    }

    /// A question is refused without anyone having been asked: the call is known as one that has no leave.
    pub(crate) fn refuse(&mut self, told: &Value, line: &str, why: &str) -> Result<(), Untold> {
        let id = self.calls.tell(told, line, Telling::GoesOn)?;
        let Some(call) = self.calls.get(&id) else { return Ok(()) };
        let wanted = call.asked(&self.workspace);
        call.begin_question();
        let mut ask = Ask::new(self.asks, wanted, "", line);
        ask.standing = Standing::Refused(why.to_owned());
        self.asks += 1;
        self.calls.asked(&id, ask)
    }

    /// Waits until a question is decided; for ever if none waits.
    pub(crate) async fn decided(&mut self) -> Decided {
        match self.waiting.next().await {
            Some(decided) => decided,
            None => std::future::pending().await,
        }
    }

    /// The lines that answer a question which was decided.
    pub(crate) async fn answers(&mut self, decided: Decided) -> Vec<String> {
        let Decided { ask: number, call, given, refused } = decided;
        let ruling = refused.clone().map_or(Ruling::Allow, Ruling::Refuse);
        let mut lines = Vec::new();
        let mut allows = false;
        // Whoever asked in several ways is told the same in each.
        for open in self.open.extract_if(.., |open| open.ask == number) {
            let (line, lets_go) = open.question.answer(&ruling);
            lines.push(line);
            allows |= lets_go;
        }
        if !allows {
            // Part of it was allowed, the agent withdrew the question, or it offers no way to say yes to this alone.
            for (own, _) in &given {
                let what = ToolOutcome::error("it was not made: the whole was refused");
                self.tools.report(own, what).await;
            }
        }
        let ask =
            self.calls.get(&call).and_then(|call| call.asks.iter_mut().find(|ask| ask.number == number));
        if let Some(ask) = ask {
            if allows {
                ask.standing = Standing::Allowed;
                ask.given = given;
            } else {
                let why = refused.unwrap_or_else(|| "it was not allowed".to_owned());
                ask.standing = Standing::Refused(why);
            }
        }
        lines
    }

    /// The agent does not want an answer any more.
    pub(crate) fn withdraw(&mut self, is_it: impl Fn(&Q) -> bool) {
        self.open.retain(|open| !is_it(&open.question));
    }

    /// The lines that answer every question which waits: nobody decides it any more.
    pub(crate) fn let_go(&mut self) -> Vec<String> {
        self.waiting.clear();
        self.open.drain(..).map(|open| open.question.answer(&Ruling::Cancelled).0).collect()
    }

    /// Takes in what is told of a call, and puts on record what came of it. `ran` is what it shows of what the house ran.
    pub(crate) async fn told(
        &mut self,
        told: &Value,
        line: &str,
        telling: Telling,
        ran: Vec<Wanted>,
    ) -> Option<Step> {
        let id = match self.calls.tell(told, line, telling) {
            Ok(id) => id,
            Err(untold) => return Some(Step::Failed(untold.into())),
        };
        let call = self.calls.get(&id)?;
        for command in ran {
            call.run_here(command);
        }
        let is_unasked = call.asks.is_empty();
        match call.status() {
            None | Some("pending" | "in_progress") => None,
            // It was carried out and went wrong. Of one that was refused it is believed that it was not.
            Some("broke") if is_unasked => self.done(&id, Went::Wrong).await,
            // So was one that was under way, unless that is said of calls that are asked about next.
            Some("failed") if is_unasked && call.is_begun() && self.under_way == UnderWay::IsDone => {
                self.done(&id, Went::Wrong).await
            }
            Some("broke" | "failed") => {
                self.came_to_nothing(&id).await;
                None
            }
            // Whatever else it is called, it is no longer to come.
            Some(_) => self.done(&id, Went::Well).await,
        }
    }

    /// A call is told as done: each part of it had leave, or is judged now.
    async fn done(&mut self, id: &str, went: Went) -> Option<Step> {
        let call = self.calls.get(id)?;
        call.is_over = true;
        // What went through the house by that name was this, whatever else its name could mean.
        if call.asks.is_empty() && call.went_through(&mut self.through, &self.workspace) {
            return None;
        }
        let parts = match call.asks.is_empty() {
            true => call.wanted(&self.workspace),
            false => call.done(&self.workspace),
        };
        // It says no more than that it is done: then it is what was asked about last.
        if parts.is_empty()
            && let Some(ask) = call.asks.last().filter(|ask| ask.standing != Standing::Allowed)
        {
            let first = ask.wanted.first();
            let tool = first.map_or_else(|| "unknown".to_owned(), |wanted| wanted.tool.clone());
            let shown = first.map_or_else(|| call.title(), |wanted| wanted.shown(&call.title()));
            let what = format!("`{shown}` was carried out without leave");
            return Some(Step::Ungoverned { id: id.to_owned(), tool, what });
        }
        let mut reported = Vec::new();
        let mut unasked = Vec::new();
        for part in parts {
            if call.settled.iter().any(|settled| settled.covers(&part)) {
                continue;
            }
            if part.is_served() {
                // Leave to have it done is not its being done.
                if self.through.take(&part) {
                    call.settled.push(part);
                    continue;
                }
            } else if let Some(own) = call.take(|given| given.covers(&part)) {
                reported.push((own, part));
                continue;
            }
            let is_refused = |ask: &Ask| {
                ask.standing != Standing::Allowed && ask.wanted.iter().any(|wanted| wanted.covers(&part))
            };
            if call.asks.iter().any(is_refused) {
                let what = format!("`{}` was carried out without leave", part.shown(&call.title()));
                return Some(Step::Ungoverned { id: id.to_owned(), tool: part.tool, what });
            }
            if call.is_told_of_here(&part) {
                continue;
            }
            // Judged, and on record, as what it says of itself.
            let words = match part.is_served() {
                // The house did not make it, so it was something else.
                true => call.in_its_own_words(&self.workspace),
                false => call.asked(&self.workspace),
            };
            let same = words.iter().find(|words| words.covers(&part)).or(words.first());
            let words = same.cloned().unwrap_or_else(|| part.clone());
            call.settled.push(part);
            if !unasked.contains(&words) {
                unasked.push(words);
            }
        }
        // What is not told of any more was part of it when it was allowed.
        reported.extend(call.take_given());
        let outcome = ToolOutcome { content: call.outcome(), is_error: went == Went::Wrong };
        for (own, wanted) in reported {
            self.tools.report(&own, came_of(&wanted, outcome.clone())).await;
        }
        self.look_back(id, unasked, &outcome, WasMade::Yes).await
    }

    /// A call is told to have failed.
    async fn came_to_nothing(&mut self, id: &str) {
        let Some(call) = self.calls.get(id) else { return };
        let was_over = std::mem::replace(&mut call.is_over, true);
        let outcome = ToolOutcome::error(call.outcome());
        if call.asks.is_empty() && !was_over {
            if call.went_through(&mut self.through, &self.workspace) {
                return;
            }
            let mut parts = call.wanted(&self.workspace);
            parts.retain(|part| !call.has_settled(part));
            if parts.iter().any(Wanted::is_served) {
                parts = call.in_its_own_words(&self.workspace);
            }
            // Nothing came of it, so nothing is ungoverned.
            let _ = self.look_back(id, parts, &outcome, WasMade::No).await;
            return;
        }
        for (own, wanted) in call.take_given() {
            self.tools.report(&own, came_of(&wanted, outcome.clone())).await;
        }
    }

    /// Puts parts of a call to the gate that the agent carried out without asking. Nobody can be asked any more, so that the law
    /// alone decides.
    async fn look_back(
        &mut self,
        id: &str,
        parts: Vec<Wanted>,
        outcome: &ToolOutcome,
        was_made: WasMade,
    ) -> Option<Step> {
        let call = self.calls.get(id)?;
        let (said, title) = (call.line().to_owned(), call.title());
        for (own, wanted) in call.ids(id, parts.len()).into_iter().zip(parts) {
            let (tool, shown) = (wanted.tool.clone(), wanted.shown(&title));
            match self.tools.ask_leave(own_call(&own, wanted, &said, When::Underway)).await {
                Leave::Given => self.tools.report(&own, outcome.clone()).await,
                Leave::Refused(why) if was_made == WasMade::Yes => {
                    let what = format!("`{shown}` was carried out unasked: {why}");
                    return Some(Step::Ungoverned { id: own, tool, what });
                }
                // It says that nothing came of it, and one refusal of it is enough on record.
                Leave::Refused(_) => return None,
            }
        }
        None
    }

    /// The turn is over, or cut off: what was begun and never asked about is judged.
    pub(crate) async fn judge_begun(&mut self) -> Option<Step> {
        for id in self.calls.begun_unasked() {
            if let Some(step) = self.done(&id, Went::Well).await {
                return Some(step);
            }
        }
        None
    }

    /// The turn is over: what leave was given for has an end.
    pub(crate) async fn close_books(&mut self) {
        for (own, wanted) in self.calls.take_unreported() {
            let outcome = ToolOutcome::good("the turn ended, and the agent did not say what came of it");
            self.tools.report(&own, came_of(&wanted, outcome)).await;
        }
    }
}

impl From<Untold> for RuntimeError {
    fn from(untold: Untold) -> Self {
        let what = match untold {
            Untold::Nameless => "the agent told of a call without an id that could be one, and was stopped",
            Untold::TooMuch => "the agent told of more calls than a turn may have, and was stopped",
        };
        Self::new("agent_protocol", what)
    }
}

/// What goes on record of something that leave was given for, by what the agent tells of it.
fn came_of(wanted: &Wanted, told: ToolOutcome) -> ToolOutcome {
    if wanted.is_served() { ToolOutcome::error(NOT_MADE) } else { told }
}

fn own_call(id: &str, wanted: Wanted, said: &str, when: When) -> OwnCall {
    let call = ToolCall { id: id.to_owned(), name: wanted.tool, input: wanted.input };
    OwnCall { call, said: said.to_owned(), when }
}
