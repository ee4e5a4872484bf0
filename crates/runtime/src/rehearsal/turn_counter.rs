//! Counts a turn's events, tokens and steps, and enforces its limits.

use super::cursor::TurnEnding;
use super::limits::{MAX_STEPS, MAX_TURN_BYTES};
use crate::content::text_of;
use crate::error::{ErrorKind, RuntimeError};
use crate::event::{EventKind, RuntimeEvent, Usage};
use crate::runtime::TurnInput;

/// Bytes that count as one token: the usual rule of thumb.
const BYTES_PER_TOKEN: u64 = 4;

/// Counts for one turn.
#[derive(Debug)]
pub(super) struct TurnCounter {
    seq: u64,
    steps: u32,
    bytes_in: u64,
    bytes_out: u64,
    /// The script set the tokens itself.
    is_set_by_script: bool,
}

impl TurnCounter {
    pub(super) fn new(input: &TurnInput) -> Self {
        let preceding: usize =
            input.injected_messages.iter().map(|message| text_of(&message.content).len()).sum();
        let bytes = input.system.len() + preceding + text_of(&input.content).len();
        Self { seq: 0, steps: 0, bytes_in: bytes as u64, bytes_out: 0, is_set_by_script: false }
    }

    /// Counts one event, wait or step. `Err` if that is one too many.
    pub(super) fn step(&mut self) -> Result<(), TurnEnding> {
        self.steps += 1;
        let message = if self.steps > MAX_STEPS {
            format!("The script did {MAX_STEPS} things in one turn and was stopped.")
        } else if self.bytes_out > MAX_TURN_BYTES {
            format!("The script said {MAX_TURN_BYTES} bytes in one turn and was stopped.")
        } else {
            return Ok(());
        };
        let message = format!("{message} Use smaller numbers in `repeat` and `flood`.");
        Err(TurnEnding::Error(RuntimeError::new(ErrorKind::TooLong, message)))
    }

    pub(super) const fn steps(&self) -> u32 {
        self.steps
    }

    /// The event with its number.
    pub(super) fn event(&mut self, kind: EventKind) -> RuntimeEvent {
        match &kind {
            EventKind::TextDelta { text } | EventKind::ReasoningDelta { text } => {
                self.bytes_out += text.len() as u64;
            }
            EventKind::ToolCallUpdate { input_delta, .. } => self.bytes_out += input_delta.len() as u64,
            EventKind::UsageUpdate { .. } => self.is_set_by_script = true,
            EventKind::ToolCall { .. }
            | EventKind::ToolResult { .. }
            | EventKind::Done { .. }
            | EventKind::Error { .. }
            | EventKind::TurnStarted { .. }
            | EventKind::PolicyGate { .. }
            | EventKind::ApprovalRequested { .. }
            | EventKind::ApprovalDecided { .. }
            | EventKind::MailboxInjected { .. }
            | EventKind::LedgerAppend { .. }
            | EventKind::Notice { .. }
            | EventKind::AgentUpdate { .. }
            | EventKind::Ungoverned { .. } => {}
        }
        self.seq += 1;
        RuntimeEvent { seq: self.seq, kind }
    }

    /// The tokens of the turn, unless the script named them.
    pub(super) fn estimate(&self) -> Option<Usage> {
        let tokens = |bytes: u64| u32::try_from(bytes / BYTES_PER_TOKEN).unwrap_or(u32::MAX);
        (!self.is_set_by_script)
            .then(|| Usage { input_tokens: tokens(self.bytes_in), output_tokens: tokens(self.bytes_out) })
    }
}
