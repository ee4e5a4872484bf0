//! Calls of MCP servers' tools that the host made and that the agent has not reported yet.

use std::collections::VecDeque;

use crate::normalize::Wanted;

/// Calls that went through the house and that the agent has not told of, and that are remembered for when it does, the newest.
const MAX_UNTOLD: usize = 64;

/// Calls of servers' tools that went through the house, and of which the agent has not told.
#[derive(Debug, Default)]
pub(crate) struct Through(VecDeque<Wanted>);

impl Through {
    pub(crate) fn went(&mut self, call: Wanted) {
        if self.0.len() >= MAX_UNTOLD {
            self.0.pop_front();
        }
        self.0.push_back(call);
    }

    /// Whether this is one of them. It is one call's.
    pub(crate) fn take(&mut self, told: &Wanted) -> bool {
        let at = self.0.iter().position(|went| went == told);
        let at = at.or_else(|| self.0.iter().position(|went| went.covers(told)));
        at.is_some_and(|at| self.0.remove(at).is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_went_through_is_one_calls() {
        let wanted = |n: u64| Wanted { tool: "mcp__a__b".to_owned(), input: json!({ "n": n }) };
        let mut through = Through::default();
        for n in 0..=MAX_UNTOLD as u64 {
            through.went(wanted(n));
        }
        assert!(!through.take(&wanted(0)), "the oldest is forgotten");
        assert!(through.take(&wanted(1)) && !through.take(&wanted(1)));
        let other = Wanted { tool: "mcp__a__c".to_owned(), input: json!({ "n": 2 }) };
        assert!(!through.take(&other));
        // One that says nothing of its arguments is any of that tool.
        let bare = Wanted { tool: "mcp__a__b".to_owned(), input: json!({}) };
        assert!(through.take(&bare) && !through.take(&wanted(2)) && through.take(&wanted(3)));
    }
}
