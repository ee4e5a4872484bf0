//! The output of a backend: filtered, bounded, and recorded where people should see it. Requests of the backend are
//! handled in [`lifecycle`](super::lifecycle).

use std::sync::Arc;

use tribune_ledger::EntryQuality;
use tribune_records::ledger_payloads::{BoardCheckinRecord, UngovernedRecord};
use tribune_runtime::{
    AUTORUN_FILES, AgentRuntime, ErrorKind, EventKind, MESSAGE_CHUNK_META, RuntimeError, SideEffects,
    THOUGHT_CHUNK_META, Usage,
};

use super::backend_stream::{Item, coalesce};
use super::lifecycle::{End, Step, TurnState};
use super::output_filter::OutputFilter;
use super::session_writer::FlushMode;

/// Updates that an ACP agent sends beside its conversation. Their order relative to the output does not matter, so held
/// output is not flushed before them.
const UNORDERED_UPDATES: [&str; 7] = [
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
    MESSAGE_CHUNK_META,
    THOUGHT_CHUNK_META,
];

/// The output of one turn, text and reasoning together. The bound stops a backend that never ends its output.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// What an event counts in addition to its text, so that empty events count too.
const EVENT_BYTES: usize = 32;

/// The output of a turn so far.
pub(super) struct TurnOutput {
    pub(super) filter: OutputFilter,
    /// The text that was shown.
    pub(super) text: String,
    pub(super) usage: Usage,
    /// Bytes that came from the backend, see [`MAX_OUTPUT_BYTES`].
    bytes: usize,
    /// Whether any event was shown.
    has_shown: bool,
}

impl TurnOutput {
    pub(super) fn new(filter: OutputFilter) -> Self {
        Self { filter, text: String::new(), usage: Usage::default(), bytes: 0, has_shown: false }
    }

    /// Adds text. Returns the part that may be shown now.
    fn add_text(&mut self, text: &str) -> Option<EventKind> {
        let text = self.filter.say(text)?;
        Some(self.show(text))
    }

    /// Returns the text that was held back, before something that comes after it.
    pub(super) fn pause(&mut self) -> Option<EventKind> {
        let text = self.filter.pause()?;
        Some(self.show(text))
    }

    /// Returns everything that was held back, at the end of the turn.
    pub(super) fn finish(&mut self) -> Vec<EventKind> {
        let reasoning = self.filter.rest_of_thoughts().map(|text| EventKind::ReasoningDelta { text });
        let mut held: Vec<EventKind> = reasoning.into_iter().collect();
        for text in self.filter.rest() {
            held.push(self.show(text));
        }
        held
    }

    fn show(&mut self, text: String) -> EventKind {
        self.text.push_str(&text);
        EventKind::TextDelta { text }
    }

    /// Counts an event, whether or not it is held back, so that a backend cannot emit without limit while nothing is
    /// shown.
    fn count(&mut self, kind: &EventKind) {
        self.bytes += EVENT_BYTES
            + match kind {
                EventKind::TextDelta { text } | EventKind::ReasoningDelta { text } => text.len(),
                EventKind::ToolCallUpdate { input_delta, .. } => input_delta.len(),
                EventKind::Error { message, .. } | EventKind::Notice { message, .. } => message.len(),
                EventKind::AgentUpdate { line, .. } => line.len(),
                EventKind::Done { .. }
                | EventKind::UsageUpdate { .. }
                | EventKind::Ungoverned { .. }
                | EventKind::ToolCall { .. }
                | EventKind::ToolResult { .. }
                | EventKind::TurnStarted { .. }
                | EventKind::PolicyGate { .. }
                | EventKind::ApprovalRequested { .. }
                | EventKind::ApprovalDecided { .. }
                | EventKind::MailboxInjected { .. }
                | EventKind::LedgerAppend { .. } => 0,
            };
    }
}

impl<R: AgentRuntime + 'static> TurnState<R> {
    /// Handles events of the backend. Ends the turn when the backend reports that it is done.
    pub(super) async fn on_backend_events(&mut self, items: Vec<Item>) -> Result<Step, RuntimeError> {
        let mut pending = Vec::new();
        for item in items {
            let event = match item {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => return self.end(pending, error.into()).await,
                Err(_) => {
                    let what = "the backend failed unexpectedly: see the daemon log";
                    return self
                        .end(pending, RuntimeError::new(ErrorKind::BackendPanicked, what).into())
                        .await;
                }
            };
            self.output.count(&event.kind);
            if let Some(end) = self.take_event(event.kind, &mut pending)? {
                return self.end(pending, end).await;
            }
            if self.output.bytes > MAX_OUTPUT_BYTES {
                let what =
                    format!("the turn produced more than {MAX_OUTPUT_BYTES} bytes of output, and was ended");
                return self.end(pending, RuntimeError::new(ErrorKind::TooLong, what).into()).await;
            }
        }
        let is_shown = !pending.is_empty();
        for kind in pending {
            self.recorder.event(kind);
        }
        // The caller flushes the first output, which is faster. The background thread flushes later output, while more
        // comes in.
        let is_first = !self.output.has_shown;
        self.output.has_shown |= is_shown;
        let flush_inline = is_first || self.backend.runtime.side_effects() == SideEffects::None;
        let mode = if flush_inline { FlushMode::InlineMoreFollows } else { FlushMode::Background };
        self.write_listening(mode).await.map(Step::More)
    }

    /// Adds what may be shown of an event to `pending`. Returns the end of the turn if the event ends it.
    fn take_event(
        &mut self,
        kind: EventKind,
        pending: &mut Vec<EventKind>,
    ) -> Result<Option<End>, RuntimeError> {
        let shown = match kind {
            EventKind::Done { stop_reason } => return Ok(Some(End { stop_reason, error: None })),
            EventKind::TextDelta { text } => self.output.add_text(&text),
            EventKind::ReasoningDelta { text } => {
                self.output.filter.think(&text).map(|text| EventKind::ReasoningDelta { text })
            }
            EventKind::ToolCallUpdate { id, input_delta } => {
                let shown = self.output.filter.write_call(&id, &input_delta);
                shown.map(|input_delta| EventKind::ToolCallUpdate { id, input_delta })
            }
            EventKind::UsageUpdate { input_tokens, output_tokens } => {
                self.output.usage = Usage { input_tokens, output_tokens };
                Some(EventKind::UsageUpdate { input_tokens, output_tokens })
            }
            EventKind::Error { code, message } => Some(EventKind::Error { code, message }),
            EventKind::Notice { code, message } => {
                if code == AUTORUN_FILES {
                    pending.push(self.record_notice(&code, &message)?);
                }
                Some(EventKind::Notice { code, message })
            }
            EventKind::AgentUpdate { kind, line } => {
                if !UNORDERED_UPDATES.contains(&kind.as_str()) {
                    self.flush_held_output(pending);
                }
                let line = self.recorder.governance.policy.redactor.redact(&line).into_owned();
                Some(EventKind::AgentUpdate { kind, line })
            }
            EventKind::Ungoverned { id, tool, what } => {
                return self.record_ungoverned(pending, id, tool, &what).map(Some);
            }
            // Only governance emits these events. A backend that emits one is stopped.
            EventKind::ToolCall { .. }
            | EventKind::ToolResult { .. }
            | EventKind::TurnStarted { .. }
            | EventKind::PolicyGate { .. }
            | EventKind::ApprovalRequested { .. }
            | EventKind::ApprovalDecided { .. }
            | EventKind::MailboxInjected { .. }
            | EventKind::LedgerAppend { .. } => {
                let what = "the backend reported an effect without asking for permission, and was stopped";
                return Ok(Some(RuntimeError::new(ErrorKind::Ungoverned, what).into()));
            }
        };
        if let Some(shown) = shown {
            coalesce(pending, shown);
        }
        Ok(None)
    }

    /// Shows held output before an event that comes after it.
    fn flush_held_output(&mut self, pending: &mut Vec<EventKind>) {
        if let Some(text) = self.output.filter.pause_in_thought() {
            coalesce(pending, EventKind::ReasoningDelta { text });
        }
        if let Some(text) = self.output.pause() {
            coalesce(pending, text);
        }
    }

    /// Records a notice that people should see, in addition to the event stream.
    fn record_notice(&mut self, code: &str, message: &str) -> Result<EventKind, RuntimeError> {
        let what_hash = self.recorder.content(message)?;
        let record = BoardCheckinRecord { event: code.to_owned(), what_hash };
        let target = Arc::clone(&self.recorder.handle.session_id);
        let entry = self.recorder.line(EntryQuality::Note, &target, vec![self.origin.entry], &record)?;
        tracing::warn!(session = %self.recorder.handle.key, code, "the agent changed something that a person should check");
        Ok(EventKind::LedgerAppend { entry: Box::new(entry) })
    }

    /// Records that the agent acted without permission, which ends the turn.
    fn record_ungoverned(
        &mut self,
        pending: &mut Vec<EventKind>,
        id: String,
        tool: String,
        what: &str,
    ) -> Result<End, RuntimeError> {
        let what = self.recorder.governance.policy.redactor.redact(what).into_owned();
        let what_hash = self.recorder.content(&what)?;
        let record = UngovernedRecord {
            event: "ungoverned".to_owned(),
            tool: tool.clone(),
            call_id: id.clone(),
            what_hash,
        };
        let target = Arc::clone(&self.recorder.handle.session_id);
        let entry = self.recorder.line(EntryQuality::Note, &target, vec![self.origin.entry], &record)?;
        tracing::error!(session = %self.recorder.handle.key, tool, "an agent acted without permission");
        pending.push(EventKind::Ungoverned { id, tool, what });
        pending.push(EventKind::LedgerAppend { entry: Box::new(entry) });
        let what =
            "the agent executed a call without permission, and was stopped: see the ledger of its session";
        Ok(RuntimeError::new(ErrorKind::Ungoverned, what).into())
    }
}
