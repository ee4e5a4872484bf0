//! The events of a streamed message.
//!
//! Kinds of events, blocks and deltas that are not known are passed over, as the API asks of its clients.

use std::collections::BTreeMap;

use serde_json::Value;

use super::usage;
use crate::decode_error::Fault;
use crate::error_body::Complaint;
use crate::event::{Ended, ModelEvent, TokenUsage};
use crate::ids::CallIds;
use crate::limits::MAX_CALLS;
use crate::sanitize::word;

/// Reads one message.
#[derive(Debug)]
pub(crate) struct Reader {
    ids: CallIds,
    usage: TokenUsage,
    /// Blocks that have begun and not ended, by the provider's index.
    open: BTreeMap<u64, Block>,
    calls: usize,
    reason: Option<Ended>,
    has_ended: bool,
}

#[derive(Debug)]
enum Block {
    Thinking {
        signature: String,
    },
    Call {
        index: usize,
        /// Arguments that came with the beginning, used if no others follow.
        initial: Option<String>,
    },
    /// Needs no care at its end.
    Plain,
}

impl Reader {
    pub(crate) fn new(ids: CallIds) -> Self {
        let usage = TokenUsage::default();
        Self { ids, usage, open: BTreeMap::new(), calls: 0, reason: None, has_ended: false }
    }

    pub(crate) fn event(
        &mut self,
        name: Option<&str>,
        data: &str,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), Fault> {
        if self.has_ended {
            return Ok(());
        }
        let event: Value =
            serde_json::from_str(data).map_err(|_| Fault::malformed("an event is not JSON"))?;
        match text(&event, "/type").or(name).unwrap_or_default() {
            "message_start" => self.count(event.pointer("/message/usage"), out),
            "content_block_start" => self.begin(&event, out)?,
            "content_block_delta" => self.more(&event, out)?,
            "content_block_stop" => {
                if let Some(block) = self.open.remove(&index(&event)) {
                    close(block, out);
                }
            }
            "message_delta" => {
                if let Some(reason) = text(&event, "/delta/stop_reason") {
                    self.reason = Some(ended(reason));
                }
                self.count(event.get("usage"), out);
            }
            "message_stop" => self.end(out),
            "error" => return Err(Fault::Complaint(Complaint::of_event(&event))),
            _ => {}
        }
        Ok(())
    }

    /// The body has ended: that is the end of the message too if its reason has come.
    pub(crate) fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        match (self.has_ended, &self.reason) {
            (true, _) => Ok(()),
            (false, Some(_)) => {
                self.end(out);
                Ok(())
            }
            (false, None) => Err(Fault::Cut),
        }
    }

    fn begin(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        let part = event.get("content_block").unwrap_or(&Value::Null);
        let block = match text(part, "/type").unwrap_or_default() {
            "text" => {
                say(part, "/text", ModelEvent::Text, out);
                Block::Plain
            }
            "thinking" => {
                say(part, "/thinking", ModelEvent::Thinking, out);
                Block::Thinking { signature: text(part, "/signature").unwrap_or_default().to_owned() }
            }
            "redacted_thinking" => {
                say(part, "/data", ModelEvent::RedactedThinking, out);
                Block::Plain
            }
            "tool_use" => {
                if self.calls == MAX_CALLS {
                    return Err(Fault::too_large("the number of calls", MAX_CALLS));
                }
                let Some(name) = text(part, "/name").filter(|name| !name.is_empty()) else {
                    return Err(Fault::malformed("a call has no name"));
                };
                let id = self.ids.claim(text(part, "/id").unwrap_or_default());
                let index = self.calls;
                self.calls += 1;
                out.push(ModelEvent::CallBegun { index, id, name: name.to_owned() });
                let given = part.get("input").and_then(Value::as_object).filter(|input| !input.is_empty());
                Block::Call { index, initial: given.and_then(|input| serde_json::to_string(input).ok()) }
            }
            _ => Block::Plain,
        };
        if let Some(before) = self.open.insert(index(event), block) {
            close(before, out);
        }
        Ok(())
    }

    fn more(&mut self, event: &Value, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        let delta = event.get("delta").unwrap_or(&Value::Null);
        let block = self.open.get_mut(&index(event));
        match text(delta, "/type").unwrap_or_default() {
            "text_delta" => {
                say(delta, "/text", ModelEvent::Text, out);
            }
            "thinking_delta" => {
                say(delta, "/thinking", ModelEvent::Thinking, out);
            }
            "signature_delta" => match block {
                Some(Block::Thinking { signature }) => {
                    signature.push_str(text(delta, "/signature").unwrap_or_default());
                }
                _ => return Err(Fault::malformed("a signature belongs to no thought")),
            },
            "input_json_delta" => match block {
                Some(Block::Call { index, initial }) => {
                    let index = *index;
                    let arguments = |delta| ModelEvent::CallArguments { index, delta };
                    if say(delta, "/partial_json", arguments, out) {
                        *initial = None;
                    }
                }
                // The input of a tool that runs at the provider.
                Some(Block::Plain) => {}
                Some(Block::Thinking { .. }) | None => {
                    return Err(Fault::malformed("arguments belong to no call"));
                }
            },
            _ => {}
        }
        Ok(())
    }

    /// Usage is cumulative, so no number of it ever falls.
    fn count(&mut self, usage: Option<&Value>, out: &mut Vec<ModelEvent>) {
        if let Some(usage) = usage.and_then(|usage| usage::read(usage, self.usage)) {
            self.usage = usage;
            out.push(ModelEvent::Usage(usage));
        }
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        for (_, block) in std::mem::take(&mut self.open) {
            close(block, out);
        }
        self.has_ended = true;
        let reason = self.reason.take().unwrap_or(Ended::EndTurn);
        out.push(ModelEvent::Ended(reason.settled(self.calls > 0)));
    }
}

fn close(block: Block, out: &mut Vec<ModelEvent>) {
    match block {
        Block::Thinking { signature } if !signature.is_empty() => out.push(ModelEvent::Signature(signature)),
        Block::Call { index, initial: Some(delta) } => out.push(ModelEvent::CallArguments { index, delta }),
        Block::Thinking { .. } | Block::Call { .. } | Block::Plain => {}
    }
}

/// Tells of a text; whether there was any.
fn say(
    part: &Value,
    pointer: &str,
    event: impl FnOnce(String) -> ModelEvent,
    out: &mut Vec<ModelEvent>,
) -> bool {
    let said = text(part, pointer).filter(|text| !text.is_empty());
    if let Some(text) = said {
        out.push(event(text.to_owned()));
    }
    said.is_some()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn index(event: &Value) -> u64 {
    event.get("index").and_then(Value::as_u64).unwrap_or(0)
}

fn ended(reason: &str) -> Ended {
    match reason {
        "end_turn" | "stop_sequence" => Ended::EndTurn,
        "tool_use" => Ended::ToolUse,
        // Either way the answer is truncated.
        "max_tokens" | "model_context_window_exceeded" => Ended::MaxTokens,
        "refusal" => Ended::Refusal,
        other => Ended::Other(word(other)),
    }
}
