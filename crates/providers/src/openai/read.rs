//! The chunks of a streamed completion.
//!
//! Servers differ in what they leave out, so fields are looked for one by one and what has an unexpected type counts as
//! missing. The end is `[DONE]`, or the end of the body once a reason to finish has come: usage follows the reason.

use serde_json::Value;

use super::calls::Calls;
use super::{reasoning, usage};
use crate::decode_error::Fault;
use crate::error_body::Complaint;
use crate::event::{Ended, ModelEvent, TokenUsage};
use crate::ids::CallIds;
use crate::sanitize::word;

/// Reads one completion.
#[derive(Debug)]
pub(crate) struct Reader {
    calls: Calls,
    usage: Option<TokenUsage>,
    reason: Option<Ended>,
    has_refused: bool,
    has_ended: bool,
}

impl Reader {
    pub(crate) fn new(ids: CallIds) -> Self {
        Self { calls: Calls::new(ids), usage: None, reason: None, has_refused: false, has_ended: false }
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
        if data == "[DONE]" {
            return self.end(out);
        }
        let chunk: Value = serde_json::from_str(data).map_err(|_| Fault::malformed("a chunk is not JSON"))?;
        if name == Some("error") || chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Fault::Complaint(Complaint::of_event(&chunk)));
        }
        let choice = chunk.pointer("/choices/0").unwrap_or(&Value::Null);
        self.choice(choice, out)?;
        // Moonshot puts it into the choice.
        let counted = [chunk.get("usage"), choice.get("usage")].into_iter().flatten().find_map(usage::read);
        if let Some(usage) = counted.filter(|usage| self.usage != Some(*usage)) {
            self.usage = Some(usage);
            out.push(ModelEvent::Usage(usage));
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        match (self.has_ended, &self.reason) {
            (true, _) => Ok(()),
            (false, Some(_)) => self.end(out),
            (false, None) => Err(Fault::Cut),
        }
    }

    fn choice(&mut self, choice: &Value, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        // A server that was not asked to stream a part sends it whole.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let text = |key: &str| delta.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let told = text("reasoning_content").or_else(|| text("reasoning"));
        let detailed: String = reasoning::read(delta).filter_map(reasoning::words).collect();
        if let Some(thought) = told.or(Some(detailed.as_str()).filter(|text| !text.is_empty())) {
            out.push(ModelEvent::Thinking(thought.to_owned()));
        }
        out.extend(reasoning::read(delta).cloned().map(ModelEvent::ReasoningDetail));
        if let Some(said) = text("content") {
            out.push(ModelEvent::Text(said.to_owned()));
        }
        if let Some(refusal) = text("refusal") {
            self.has_refused = true;
            out.push(ModelEvent::Text(refusal.to_owned()));
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.calls.take(call, out)?;
        }
        if let Some(reason) =
            choice.get("finish_reason").and_then(Value::as_str).filter(|word| !word.is_empty())
        {
            self.reason = Some(ended(reason));
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Fault> {
        self.calls.finish()?;
        self.has_ended = true;
        let ended = match self.reason.take() {
            Some(Ended::EndTurn) | None if self.has_refused => Ended::Refusal,
            Some(reason) => reason.settled(self.calls.any()),
            None => Ended::EndTurn.settled(self.calls.any()),
        };
        out.push(ModelEvent::Ended(ended));
        Ok(())
    }
}

fn ended(reason: &str) -> Ended {
    match reason {
        "stop" | "eos" | "end_turn" => Ended::EndTurn,
        "tool_calls" | "function_call" => Ended::ToolUse,
        "length" | "max_tokens" => Ended::MaxTokens,
        // A filter of the provider took the answer away, or what was left of it.
        "content_filter" => Ended::Refusal,
        other => Ended::Other(word(other)),
    }
}
