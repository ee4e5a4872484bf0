//! Makes tool call ids unique in the whole conversation.
//!
//! Some servers send no ids, the same id for all calls, or the same ids again in the next response. A missing or
//! duplicate id is replaced. Providers accept that, because they receive call and result with the same id. The
//! assignment is deterministic: the same request and the same stream give the same ids.

use std::collections::HashSet;

use super::limits::MAX_CALL_ID_CHARS;
use super::message::{AssistantPart, ChatMessage};

/// The tool call ids that a conversation has used.
#[derive(Debug, Clone, Default)]
pub struct CallIds {
    taken: HashSet<String>,
    next: usize,
}

impl CallIds {
    /// The ids of the calls in `messages`.
    pub fn used_in(messages: &[ChatMessage]) -> Self {
        let mut ids = Self::default();
        for message in messages {
            let ChatMessage::Assistant(parts) = message else { continue };
            for part in parts {
                if let AssistantPart::ToolUse { id, .. } = part {
                    ids.taken.insert(id.clone());
                }
            }
        }
        ids.next = ids.taken.len();
        ids
    }

    /// Reserves the offered id if it is valid and unused, or else a new one.
    pub(super) fn claim(&mut self, offered: &str) -> String {
        let is_usable = !offered.is_empty()
            && offered.chars().count() <= MAX_CALL_ID_CHARS
            && offered.chars().all(|char| !char.is_control() && !char.is_whitespace());
        if is_usable && self.taken.insert(offered.to_owned()) {
            return offered.to_owned();
        }
        loop {
            let id = format!("call_{}", self.next);
            self.next += 1;
            if self.taken.insert(id.clone()) {
                return id;
            }
        }
    }
}
