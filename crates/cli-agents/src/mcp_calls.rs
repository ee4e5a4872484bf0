//! Calls of tools that servers of the house's have, joined to what the agent said of them. It is the house that makes such a call,
//! whichever way the agent speaks of it: what it had leave for runs under that leave, what it told of is decided as that call, and
//! what it then tells as done was done here or has no leave.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc;

use crate::mcp_bridge::{Handed, Servers, TOO_MUCH};
use crate::normalize::Wanted;
use crate::permissions::{Leaves, Question};
use crate::terminal_calls::{Before, Joint};
use crate::tool_calls::{Ask, Calls, Standing, Untold};
use tribune_runtime::{Errand, ToolCall, ToolOutcome, Toolbox};

/// Calls of servers' tools that the house makes for an agent at once. Each may wait for a person.
const MAX_AT_ONCE: usize = 16;

impl Calls {
    /// Leave for exactly this call of a server's tool: its id in the record, and the call that it is part of. It is taken out.
    fn take_served(&mut self, wanted: &Wanted) -> Option<(String, String)> {
        self.all().find_map(|(id, call)| Some((call.take(|given| given == wanted)?, id.clone())))
    }

    /// The call that tells of this and that nobody was asked about.
    fn told_served(&mut self, wanted: &Wanted, workspace: &str) -> Option<String> {
        let is_it = |of: &[Wanted]| matches!(of, [only] if wanted.covers(only));
        let mut told = self.all().filter(|(_, call)| {
            call.asks.is_empty() && !call.is_over && !call.is_run_here() && is_it(&call.wanted(workspace))
        });
        told.next().map(|(id, _)| id.clone())
    }

    /// How the newest question about exactly this stands.
    fn asked_served(&mut self, wanted: &Wanted) -> Option<Standing> {
        let asks = self.all().filter(|(_, call)| !call.is_over).flat_map(|(_, call)| &call.asks);
        let of_it = asks.filter(|ask| ask.wanted.contains(wanted));
        of_it.max_by_key(|ask| ask.number).map(|ask| ask.standing.clone())
    }
}

impl<Q: Question> Leaves<Q> {
    /// The agent calls a tool of a server.
    fn wants_served(&mut self, wanted: &Wanted) -> Result<Before, Untold> {
        if let Some((own, call)) = self.calls.take_served(wanted) {
            return Ok(Before::Allowed(own, Joint::new(call, None)));
        }
        if let Some(id) = self.calls.told_served(wanted, &self.workspace) {
            let number = self.asks;
            self.asks += 1;
            self.calls.asked(&id, Ask::new(number, vec![wanted.clone()], "", ""))?;
            let Some(call) = self.calls.get(&id) else { return Ok(Before::Nothing) };
            let own = call.ids(&id, 1).concat();
            return Ok(Before::Told(own, Joint::new(id, Some(number))));
        }
        Ok(match self.calls.asked_served(wanted) {
            Some(Standing::Waits) => Before::Waits,
            Some(Standing::Refused(why)) => Before::Refused(why),
            Some(Standing::Allowed) | None => Before::Nothing,
        })
    }
}

/// The calls of servers' tools that the house makes in one turn.
pub(crate) struct AtServers {
    tools: Arc<dyn Toolbox>,
    /// None where the session has no servers, and when the turn takes no more.
    handed: Option<mpsc::Receiver<Handed>>,
    underway: FuturesUnordered<BoxFuture<'static, Came>>,
    /// Calls so far that have no other id.
    called: usize,
}

/// What came of a call.
pub(crate) struct Came {
    handed: Handed,
    outcome: ToolOutcome,
    joint: Option<Joint>,
}

/// What happens to calls of servers' tools.
pub(crate) enum News {
    Handed(Handed),
    Came(Came),
}

impl AtServers {
    pub(crate) fn new(tools: Arc<dyn Toolbox>, servers: Option<&Servers>) -> Self {
        let handed = servers.map(|servers| servers.hatch.open());
        Self { tools, handed, underway: FuturesUnordered::new(), called: 0 }
    }

    /// Waits for the next thing that happens; for ever if nothing can.
    pub(crate) async fn next(&mut self) -> News {
        let Self { handed, underway, .. } = self;
        let handed = async {
            match handed {
                Some(handed) => handed.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            // What came of a call is known before the next is looked at.
            Some(came) = underway.next() => News::Came(came),
            Some(handed) = handed => News::Handed(handed),
            else => std::future::pending().await,
        }
    }

    /// Takes no more calls, and waits for none: whoever made one is told so.
    pub(crate) fn end(&mut self) {
        self.handed = None;
        self.underway.clear();
    }

    /// Does what follows.
    pub(crate) fn take<Q: Question>(&mut self, news: News, leaves: &mut Leaves<Q>) -> Result<(), Untold> {
        match news {
            News::Handed(handed) => self.make(handed, leaves),
            News::Came(Came { handed, outcome, joint }) => {
                if let Some(joint) = joint {
                    let Handed { tool, arguments, .. } = &handed;
                    leaves.runs(&joint, &Wanted { tool: tool.clone(), input: arguments.clone() });
                }
                // Whoever called may be gone.
                let _ = handed.answer.send(outcome);
                Ok(())
            }
        }
    }

    /// Has a call made: under the leave that there is for exactly that, or as a call that is decided now.
    fn make<Q: Question>(&mut self, handed: Handed, leaves: &mut Leaves<Q>) -> Result<(), Untold> {
        let refuse = |handed: Handed, why: &str| {
            let _ = handed.answer.send(ToolOutcome::error(why));
            Ok(())
        };
        let wanted = Wanted { tool: handed.tool.clone(), input: handed.arguments.clone() };
        let Wanted { tool: name, input } = wanted.clone();
        if self.underway.len() >= MAX_AT_ONCE {
            leaves.through.went(wanted);
            return refuse(handed, TOO_MUCH);
        }
        let (errand, joint) = match leaves.wants_served(&wanted)? {
            Before::Allowed(own, joint) => (Errand::Allowed(own), Some(joint)),
            Before::Told(id, joint) => (Errand::Call(ToolCall { id, name, input }), Some(joint)),
            // It was answered here, whatever the agent calls that when it tells of it.
            Before::Waits => {
                leaves.through.went(wanted);
                return refuse(
                    handed,
                    "leave for this call was asked and is not given yet: wait for the answer",
                );
            }
            Before::Refused(why) => {
                leaves.through.went(wanted);
                return refuse(handed, &why);
            }
            Before::Nothing => {
                leaves.through.went(wanted);
                self.called += 1;
                (Errand::Call(ToolCall { id: format!("served-{}", self.called), name, input }), None)
            }
        };
        let tools = Arc::clone(&self.tools);
        self.underway.push(Box::pin(async move {
            let outcome = match errand {
                Errand::Call(call) => tools.call(call).await,
                Errand::Allowed(own) => tools.carry_out(&own).await,
            };
            Came { handed, outcome, joint }
        }));
        Ok(())
    }
}
