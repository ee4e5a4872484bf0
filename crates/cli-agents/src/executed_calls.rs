//! Calls of MCP servers' tools that the host executed and that the agent has not reported yet.

use std::collections::VecDeque;

use crate::normalize::NormalizedCall;

/// How many are remembered, the newest.
const MAX_UNREPORTED: usize = 64;

/// Executed calls, until the agent reports them.
#[derive(Debug, Default)]
pub(crate) struct ExecutedCalls(VecDeque<NormalizedCall>);

impl ExecutedCalls {
    pub(crate) fn add(&mut self, call: NormalizedCall) {
        if self.0.len() >= MAX_UNREPORTED {
            self.0.pop_front();
        }
        self.0.push_back(call);
    }

    /// Whether this is one of them. It is one call's.
    pub(crate) fn take(&mut self, report: &NormalizedCall) -> bool {
        let at = self.0.iter().position(|executed| executed == report);
        let at = at.or_else(|| self.0.iter().position(|executed| executed.covers(report)));
        at.is_some_and(|at| self.0.remove(at).is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_executed_call_is_taken_once() {
        let wanted = |n: u64| NormalizedCall { tool: "mcp__a__b".to_owned(), input: json!({ "n": n }) };
        let mut executed = ExecutedCalls::default();
        for n in 0..=MAX_UNREPORTED as u64 {
            executed.add(wanted(n));
        }
        assert!(!executed.take(&wanted(0)), "the oldest is forgotten");
        assert!(executed.take(&wanted(1)) && !executed.take(&wanted(1)));
        let other = NormalizedCall { tool: "mcp__a__c".to_owned(), input: json!({ "n": 2 }) };
        assert!(!executed.take(&other));
        // One that says nothing of its arguments is any of that tool.
        let bare = NormalizedCall { tool: "mcp__a__b".to_owned(), input: json!({}) };
        assert!(executed.take(&bare) && !executed.take(&wanted(2)) && executed.take(&wanted(3)));
    }
}
