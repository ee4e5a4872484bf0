//! The terminal requests of a turn, and their outcomes.

use serde_json::Value;

use super::{AcpTurn, callback_id};
use crate::acp::terminal_request::TerminalRequest;
use crate::acp::terminals::{MAX_TERMINALS, TerminalEvent};
use crate::acp::wire;
use crate::agent_protocol::TurnStep;
use crate::call_join::JoinedCall;
use crate::tool_calls::{JoinRule, UpdateError};

impl AcpTurn {
    /// Handles a terminal request. Returns the response, unless it has to wait.
    pub(super) fn terminal_request(
        &mut self,
        request: &Value,
        method: &str,
        params: &Value,
        line: &str,
    ) -> Result<Option<String>, UpdateError> {
        const KNOWN: [&str; 4] =
            ["terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"];
        if !self.profile.capabilities().terminal {
            return Ok(Some(wire::error(request, wire::METHOD_NOT_FOUND, "this is not offered here")));
        }
        match method {
            "terminal/create" => self.create(request, params, line).map(Result::err),
            method if KNOWN.contains(&method) => Ok(self.terminals.on_request(request, method, params)),
            _ => Ok(Some(wire::error(request, wire::METHOD_NOT_FOUND, "there is no such method"))),
        }
    }

    /// Runs a command for the agent: under the permission for exactly that command, or as a call that is decided now.
    /// Returns the line that refuses it.
    fn create(
        &mut self,
        request: &Value,
        params: &Value,
        line: &str,
    ) -> Result<Result<(), String>, UpdateError> {
        let refused = |why: &str| Ok(Err(wire::error(request, wire::INTERNAL, why)));
        let terminal_request = match TerminalRequest::new(params, &self.workspace) {
            Ok(terminal_request) => terminal_request,
            Err(why) => return Ok(Err(wire::error(request, wire::INVALID_PARAMS, &why))),
        };
        if self.is_cancelled {
            return refused("the turn was cancelled: nothing is started any more");
        }
        if !self.terminals.has_room() {
            let why = format!("{MAX_TERMINALS} terminals are open, which is the most: release one first");
            return refused(&why);
        }
        let new_id = || callback_id(&mut self.callbacks);
        let command = &terminal_request.command;
        let (call, link) = match self.permissions.join(JoinRule::Command, command, line, new_id)? {
            JoinedCall::Execute(call, link) => (call, link),
            JoinedCall::Refuse(why) => return refused(&why),
        };
        self.terminals.open(request.clone(), terminal_request, call, link);
        Ok(Ok(()))
    }

    /// Handles an event of a terminal.
    pub(super) async fn on_terminal_event(&mut self, event: TerminalEvent) -> Option<TurnStep> {
        match event {
            TerminalEvent::Response(line) => {
                self.connection.send(line).await;
                None
            }
            TerminalEvent::Started { line, event, link } => {
                if let Some((link, command)) = link {
                    self.permissions.call_started(&link, &command);
                }
                self.connection.send(line).await;
                event.and_then(TurnStep::event)
            }
            TerminalEvent::NotStarted { link, command, why } => {
                self.permissions.call_not_started(&link, &command, &why);
                None
            }
        }
    }
}
