//! Commands that the house runs for an agent, joined to what the agent said of them: one it had leave for runs under that leave, one
//! it told of is decided as that call. So there is one decision about a command, whichever way the agent speaks of it, and what it
//! then tells as done is known to have been done here.

use crate::normalize::Wanted;
use crate::permissions::{Leaves, Question};
use crate::tool_calls::{Ask, Standing, Untold};

/// What was said before of a command that the house is to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// It has leave, by its id in the record.
    Allowed(String, Joint),
    /// It was told of, and nobody asked about it. This is its id for the record.
    Told(String, Joint),
    /// Somebody is being asked about it.
    Waits,
    Refused(String),
    Nothing,
}

/// The call that a command is part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joint {
    /// By the agent's own id.
    call: String,
    /// The question that the wish to have it run is, if nobody had asked before.
    ask: Option<usize>,
}

impl Joint {
    pub(crate) const fn new(call: String, ask: Option<usize>) -> Self {
        Self { call, ask }
    }
}

impl<Q: Question> Leaves<Q> {
    /// The agent wants a command run, in a line of so many bytes.
    pub(crate) fn wants_run(&mut self, command: &Wanted, line: &str) -> Result<Before, Untold> {
        if let Some((own, call)) = self.calls.take_command(command) {
            return Ok(Before::Allowed(own, Joint { call, ask: None }));
        }
        if let Some(id) = self.calls.told_command(command, &self.workspace) {
            let number = self.asks;
            self.asks += 1;
            self.calls.asked(&id, Ask::new(number, vec![command.clone()], "", line))?;
            let Some(call) = self.calls.get(&id) else { return Ok(Before::Nothing) };
            let own = call.ids(&id, 1).concat();
            return Ok(Before::Told(own, Joint { call: id, ask: Some(number) }));
        }
        Ok(match self.calls.asked_command(command) {
            Some(Standing::Waits) => Before::Waits,
            Some(Standing::Refused(why)) => Before::Refused(why.clone()),
            Some(Standing::Allowed) | None => Before::Nothing,
        })
    }

    /// The command runs.
    pub(crate) fn runs(&mut self, joint: &Joint, command: &Wanted) {
        let Some(call) = self.calls.get(&joint.call) else { return };
        let ask = call.asks.iter_mut().find(|ask| Some(ask.number) == joint.ask);
        if let Some(ask) = ask {
            ask.standing = Standing::Allowed;
            call.run_here(command.clone());
        }
    }

    /// It was not run: whoever does it all the same has no leave for it.
    pub(crate) fn not_run(&mut self, joint: &Joint, command: &Wanted, why: &str) {
        let Some(call) = self.calls.get(&joint.call) else { return };
        call.not_run_here(command);
        if let Some(ask) = call.asks.iter_mut().find(|ask| Some(ask.number) == joint.ask) {
            ask.standing = Standing::Refused(why.to_owned());
        }
    }
}
