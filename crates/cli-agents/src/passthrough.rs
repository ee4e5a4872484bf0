//! Messages of an agent that have no event of their own, passed on as they came.

use tribune_runtime::EventKind;

use crate::truncate::truncate_update;

/// Bytes of one message that is passed on.
const MAX_UPDATE_BYTES: usize = 256 << 10;

/// The message as an event; a message that is too long for one is shortened. `None` if it cannot be shortened.
pub(crate) fn pass_through(kind: &str, line: &str) -> Option<EventKind> {
    let kind = kind.chars().filter(|c| !c.is_control()).take(64).collect();
    let line = match line.len() <= MAX_UPDATE_BYTES {
        true => line.to_owned(),
        false => truncate_update(line, MAX_UPDATE_BYTES)?,
    };
    Some(EventKind::AgentUpdate { kind, line })
}
