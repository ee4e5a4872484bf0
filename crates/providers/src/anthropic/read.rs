//! Decodes the events of a streamed message.
//!
//! Unknown kinds of events, blocks and deltas are ignored, as the API requires of its clients.

use std::collections::BTreeMap;

use serde_json::Value;

use super::usage;
use crate::decode_error::DecodeError;
use crate::error_body::ReportedError;
use crate::event::{FinishReason, ModelEvent, TokenUsage};
use crate::ids::CallIds;
use crate::limits::MAX_CALLS;
use crate::sanitize::word;

/// Decodes one message.
#[derive(Debug)]
pub(crate) struct MessageDecoder {
    ids: CallIds,
    usage: TokenUsage,
    /// Blocks that have started and not stopped, by the provider's index.
    open: BTreeMap<u64, OpenBlock>,
    calls: usize,
    reason: Option<FinishReason>,
    has_ended: bool,
}

#[derive(Debug)]
enum OpenBlock {
    Thinking {
        signature: String,
    },
    Call {
        index: usize,
        /// Arguments from the start event, used if no deltas follow.
        initial: Option<String>,
    },
    /// Emits nothing at its end.
    Plain,
}

impl MessageDecoder {
    pub(crate) fn new(ids: CallIds) -> Self {
        let usage = TokenUsage::default();
        Self { ids, usage, open: BTreeMap::new(), calls: 0, reason: None, has_ended: false }
    }

    pub(crate) fn event(
        &mut self,
        name: Option<&str>,
        data: &str,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        if self.has_ended {
            return Ok(());
        }
        let event: Value =
            serde_json::from_str(data).map_err(|_| DecodeError::malformed("an event is not JSON"))?;
        match text(&event, "/type").or(name).unwrap_or_default() {
            "message_start" => self.update_usage(event.pointer("/message/usage"), out),
            "content_block_start" => self.start_block(&event, out)?,
            "content_block_delta" => self.apply_delta(&event, out)?,
            "content_block_stop" => {
                if let Some(block) = self.open.remove(&index(&event)) {
                    end_block(block, out);
                }
            }
            "message_delta" => {
                if let Some(reason) = text(&event, "/delta/stop_reason") {
                    self.reason = Some(stop_reason(reason));
                }
                self.update_usage(event.get("usage"), out);
            }
            "message_stop" => self.end(out),
            "error" => return Err(DecodeError::Reported(ReportedError::from_event(&event))),
            _ => {}
        }
        Ok(())
    }

    /// Handles the end of the body. The message is complete if its stop reason has arrived.
    pub(crate) fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        match (self.has_ended, &self.reason) {
            (true, _) => Ok(()),
            (false, Some(_)) => {
                self.end(out);
                Ok(())
            }
            (false, None) => Err(DecodeError::Truncated),
        }
    }

    fn start_block(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let part = event.get("content_block").unwrap_or(&Value::Null);
        let block = match text(part, "/type").unwrap_or_default() {
            "text" => {
                emit_text(part, "/text", ModelEvent::Text, out);
                OpenBlock::Plain
            }
            "thinking" => {
                emit_text(part, "/thinking", ModelEvent::Thinking, out);
                OpenBlock::Thinking { signature: text(part, "/signature").unwrap_or_default().to_owned() }
            }
            "redacted_thinking" => {
                emit_text(part, "/data", ModelEvent::RedactedThinking, out);
                OpenBlock::Plain
            }
            "tool_use" => {
                if self.calls == MAX_CALLS {
                    return Err(DecodeError::too_large("the number of calls", MAX_CALLS));
                }
                let Some(name) = text(part, "/name").filter(|name| !name.is_empty()) else {
                    return Err(DecodeError::malformed("a call has no name"));
                };
                let id = self.ids.claim(text(part, "/id").unwrap_or_default());
                let index = self.calls;
                self.calls += 1;
                out.push(ModelEvent::CallStarted { index, id, name: name.to_owned() });
                let input = part.get("input").and_then(Value::as_object).filter(|input| !input.is_empty());
                OpenBlock::Call { index, initial: input.and_then(|input| serde_json::to_string(input).ok()) }
            }
            _ => OpenBlock::Plain,
        };
        if let Some(replaced) = self.open.insert(index(event), block) {
            end_block(replaced, out);
        }
        Ok(())
    }

    fn apply_delta(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let delta = event.get("delta").unwrap_or(&Value::Null);
        let block = self.open.get_mut(&index(event));
        match text(delta, "/type").unwrap_or_default() {
            "text_delta" => {
                emit_text(delta, "/text", ModelEvent::Text, out);
            }
            "thinking_delta" => {
                emit_text(delta, "/thinking", ModelEvent::Thinking, out);
            }
            "signature_delta" => match block {
                Some(OpenBlock::Thinking { signature }) => {
                    signature.push_str(text(delta, "/signature").unwrap_or_default());
                }
                _ => return Err(DecodeError::malformed("a signature is outside of a thinking block")),
            },
            "input_json_delta" => match block {
                Some(OpenBlock::Call { index, initial }) => {
                    let index = *index;
                    let arguments = |delta| ModelEvent::CallArguments { index, delta };
                    if emit_text(delta, "/partial_json", arguments, out) {
                        *initial = None;
                    }
                }
                // The input of a tool that the provider executes.
                Some(OpenBlock::Plain) => {}
                Some(OpenBlock::Thinking { .. }) | None => {
                    return Err(DecodeError::malformed("arguments are outside of a tool call"));
                }
            },
            _ => {}
        }
        Ok(())
    }

    /// Emits the usage. Numbers are cumulative, so none ever decreases.
    fn update_usage(&mut self, usage: Option<&Value>, out: &mut Vec<ModelEvent>) {
        if let Some(usage) = usage.and_then(|usage| usage::read(usage, self.usage)) {
            self.usage = usage;
            out.push(ModelEvent::Usage(usage));
        }
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        for (_, block) in std::mem::take(&mut self.open) {
            end_block(block, out);
        }
        self.has_ended = true;
        let reason = self.reason.take().unwrap_or(FinishReason::EndTurn);
        out.push(ModelEvent::Finished(reason.corrected(self.calls > 0)));
    }
}

fn end_block(block: OpenBlock, out: &mut Vec<ModelEvent>) {
    match block {
        OpenBlock::Thinking { signature } if !signature.is_empty() => {
            out.push(ModelEvent::Signature(signature))
        }
        OpenBlock::Call { index, initial: Some(delta) } => {
            out.push(ModelEvent::CallArguments { index, delta })
        }
        OpenBlock::Thinking { .. } | OpenBlock::Call { .. } | OpenBlock::Plain => {}
    }
}

/// Emits an event for the text at `pointer`, if it is not empty. Returns whether it was emitted.
fn emit_text(
    part: &Value,
    pointer: &str,
    event: impl FnOnce(String) -> ModelEvent,
    out: &mut Vec<ModelEvent>,
) -> bool {
    let found = text(part, pointer).filter(|text| !text.is_empty());
    if let Some(text) = found {
        out.push(event(text.to_owned()));
    }
    found.is_some()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn index(event: &Value) -> u64 {
    event.get("index").and_then(Value::as_u64).unwrap_or(0)
}

fn stop_reason(reason: &str) -> FinishReason {
    match reason {
        "end_turn" | "stop_sequence" => FinishReason::EndTurn,
        "tool_use" => FinishReason::ToolUse,
        // Both mean that the response is truncated.
        "max_tokens" | "model_context_window_exceeded" => FinishReason::MaxTokens,
        "refusal" => FinishReason::Refusal,
        other => FinishReason::Other(word(other)),
    }
}
