//! What other agents and people read about a turn that is over: a line on the board if calls were denied, and the
//! transcript.

use std::collections::BTreeMap;
use std::sync::Arc;

use tribune_ledger::Timestamp;
use tribune_records::agents::is_canary;
use tribune_runtime::{Role, SessionKey};

use super::Governance;
use super::board_checkins::is_on_board;
use crate::transcript::TranscriptLine;

/// The input of a turn, and its output as far as it was shown.
pub(super) struct Exchange {
    pub(super) input: String,
    pub(super) output: String,
}

/// A turn that is over.
pub(super) struct CompletedTurn {
    pub(super) governance: Arc<Governance>,
    pub(super) key: Arc<SessionKey>,
    pub(super) turn: String,
    pub(super) exchange: Exchange,
    /// Names of tools that were denied.
    pub(super) denied: Vec<String>,
    pub(super) now: Timestamp,
}

impl CompletedTurn {
    /// Writes the board and the transcript. Blocks on the disk.
    pub(super) fn publish(self) {
        let Self { governance, key, turn, exchange, denied, now } = self;
        if is_canary(key.agent()) {
            return;
        }
        if is_on_board(key.agent())
            && let Some(board_line) = board_line(&denied)
            && let Err(error) = governance.agent_files.board.append(&board_line, now, key.agent().as_str())
        {
            tracing::warn!(%error, "the board could not be written");
        }
        if let Err(error) = governance.agent_files.transcripts.append_turn(&key, &lines(&turn, exchange, now))
        {
            tracing::warn!(%error, "the transcript could not be written");
        }
    }
}

/// The transcript lines of a turn.
fn lines(turn: &str, exchange: Exchange, at: Timestamp) -> Vec<TranscriptLine> {
    let line = |role: Role, text: String| TranscriptLine { turn: turn.to_owned(), role, text, at };
    let Exchange { input, output } = exchange;
    let mut lines = vec![line(Role::User, input)];
    if !output.is_empty() {
        lines.push(line(Role::Assistant, output));
    }
    lines
}

/// Adds a turn that an earlier daemon did not finish to its transcript, as far as it got, unless it is there already.
/// Blocks on the disk.
pub(super) fn append_interrupted(
    governance: &Governance,
    key: &SessionKey,
    turn: &str,
    exchange: Exchange,
    now: Timestamp,
) {
    if is_canary(key.agent()) {
        return;
    }
    if let Err(error) = governance.agent_files.transcripts.append_missing(key, &lines(turn, exchange, now)) {
        tracing::warn!(%error, "an interrupted turn could not be written to its transcript");
    }
}

/// The line for the board, such as `3 calls denied: exec (2), write`.
fn board_line(denied: &[String]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in denied {
        *counts.entry(tool).or_default() += 1;
    }
    let tools: Vec<String> = counts
        .into_iter()
        .map(|(tool, count)| if count == 1 { tool.to_owned() } else { format!("{tool} ({count})") })
        .collect();
    let calls = if denied.len() == 1 { "call" } else { "calls" };
    (!denied.is_empty()).then(|| format!("{} {calls} denied: {}", denied.len(), tools.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_counted_by_tool() {
        let denied =
            |tools: &[&str]| board_line(&tools.iter().map(|&tool| tool.to_owned()).collect::<Vec<_>>());
        assert_eq!(denied(&[]), None);
        assert_eq!(denied(&["exec"]).unwrap(), "1 call denied: exec");
        assert_eq!(denied(&["exec", "write", "exec"]).unwrap(), "3 calls denied: exec (2), write");
    }
}
