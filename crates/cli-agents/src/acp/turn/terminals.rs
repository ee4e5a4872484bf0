//! Commands that the house runs in a turn of an agent: what the agent wants of them, and what comes of that.

use serde_json::Value;

use super::AcpTurn;
use crate::acp::terminal_request::Order;
use crate::acp::terminals::{MAX_TERMINALS, News};
use crate::acp::wire;
use crate::agent_protocol::Step;
use crate::normalize::Wanted;
use crate::terminal_calls::Before;
use crate::tool_calls::Untold;
use tribune_runtime::{Errand, ToolCall};

impl AcpTurn {
    /// Something is wanted of a terminal. Returns the line that answers it, unless that has to wait.
    pub(super) fn of_terminal(
        &mut self,
        request: &Value,
        method: &str,
        params: &Value,
        line: &str,
    ) -> Result<Option<String>, Untold> {
        const KNOWN: [&str; 4] =
            ["terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"];
        if !self.profile.capabilities().terminal {
            return Ok(Some(wire::error(request, wire::METHOD_NOT_FOUND, "this is not offered here")));
        }
        match method {
            "terminal/create" => self.create(request, params, line).map(Result::err),
            method if KNOWN.contains(&method) => Ok(self.terminals.asked(request, method, params)),
            _ => Ok(Some(wire::error(request, wire::METHOD_NOT_FOUND, "there is no such method"))),
        }
    }

    /// A command is to be run for the agent: under the leave that it has for exactly that, or as a call that is decided now.
    /// Returns the line that refuses it.
    fn create(&mut self, request: &Value, params: &Value, line: &str) -> Result<Result<(), String>, Untold> {
        let refused = |why: &str| Ok(Err(wire::error(request, wire::INTERNAL, why)));
        let order = match Order::new(params, &self.workspace) {
            Ok(order) => order,
            Err(why) => return Ok(Err(wire::error(request, wire::INVALID_PARAMS, &why))),
        };
        if self.is_cancelled {
            return refused("the turn was cancelled: nothing is started any more");
        }
        if !self.terminals.has_room() {
            let why = format!("{MAX_TERMINALS} terminals are open, which is the most: release one first");
            return refused(&why);
        }
        let (errand, joint) = match self.leaves.wants_run(&order.command, line)? {
            Before::Allowed(own, joint) => (Errand::Allowed(own), Some(joint)),
            Before::Told(id, joint) => {
                let Wanted { tool: name, input } = order.command.clone();
                (Errand::Call(ToolCall { id, name, input }), Some(joint))
            }
            Before::Waits => {
                return refused("leave for this command was asked and is not given yet: wait for the answer");
            }
            Before::Refused(why) => return refused(&why),
            Before::Nothing => (Errand::Call(self.callback(order.command.clone())), None),
        };
        self.terminals.open(request.clone(), order, errand, joint);
        Ok(Ok(()))
    }

    /// Something came of a terminal.
    pub(super) async fn of_terminals(&mut self, news: News) -> Option<Step> {
        match news {
            News::Answer(line) => {
                self.link.send(line).await;
                None
            }
            News::Opened { line, event, joint } => {
                if let Some((joint, command)) = joint {
                    self.leaves.runs(&joint, &command);
                }
                self.link.send(line).await;
                event.and_then(Step::said)
            }
            News::NotRun { joint, command, why } => {
                self.leaves.not_run(&joint, &command, &why);
                None
            }
        }
    }
}
