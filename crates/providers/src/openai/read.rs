//! Decodes the chunks of a streamed completion.
//!
//! Servers omit different fields, so each field is looked up separately and a value of an unexpected type counts as
//! missing. The completion ends with `[DONE]`, or with the body if a finish reason has arrived: usage follows the
//! finish reason.

use serde_json::Value;

use super::calls::ToolCallAssembler;
use super::{reasoning, usage};
use crate::decode_error::DecodeError;
use crate::error_body::ReportedError;
use crate::event::{FinishReason, ModelEvent, TokenUsage};
use crate::ids::CallIds;
use crate::sanitize::word;

/// Decodes one completion.
#[derive(Debug)]
pub(crate) struct CompletionDecoder {
    calls: ToolCallAssembler,
    usage: Option<TokenUsage>,
    reason: Option<FinishReason>,
    has_refused: bool,
    has_ended: bool,
}

impl CompletionDecoder {
    pub(crate) fn new(ids: CallIds) -> Self {
        Self {
            calls: ToolCallAssembler::new(ids),
            usage: None,
            reason: None,
            has_refused: false,
            has_ended: false,
        }
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
        if data == "[DONE]" {
            return self.end(out);
        }
        let chunk: Value =
            serde_json::from_str(data).map_err(|_| DecodeError::malformed("a chunk is not JSON"))?;
        if name == Some("error") || chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(DecodeError::Reported(ReportedError::from_event(&chunk)));
        }
        let choice = chunk.pointer("/choices/0").unwrap_or(&Value::Null);
        self.choice(choice, out)?;
        // Moonshot puts the usage into the choice.
        let reported = [chunk.get("usage"), choice.get("usage")].into_iter().flatten().find_map(usage::read);
        if let Some(usage) = reported.filter(|usage| self.usage != Some(*usage)) {
            self.usage = Some(usage);
            out.push(ModelEvent::Usage(usage));
        }
        Ok(())
    }

    /// Handles the end of the body.
    pub(crate) fn finish(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        match (self.has_ended, &self.reason) {
            (true, _) => Ok(()),
            (false, Some(_)) => self.end(out),
            (false, None) => Err(DecodeError::Truncated),
        }
    }

    fn choice(&mut self, choice: &Value, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        // Some servers send a complete message instead of a delta.
        let delta = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let text = |key: &str| delta.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let reasoning = text("reasoning_content").or_else(|| text("reasoning"));
        let details: String = reasoning::read(delta).filter_map(reasoning::text).collect();
        if let Some(thought) = reasoning.or(Some(details.as_str()).filter(|text| !text.is_empty())) {
            out.push(ModelEvent::Thinking(thought.to_owned()));
        }
        out.extend(reasoning::read(delta).cloned().map(ModelEvent::ReasoningDetail));
        if let Some(content) = text("content") {
            out.push(ModelEvent::Text(content.to_owned()));
        }
        if let Some(refusal) = text("refusal") {
            self.has_refused = true;
            out.push(ModelEvent::Text(refusal.to_owned()));
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.calls.apply(call, out)?;
        }
        if let Some(reason) =
            choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty())
        {
            self.reason = Some(finish_reason(reason));
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        self.calls.finish()?;
        self.has_ended = true;
        let reason = match self.reason.take() {
            Some(FinishReason::EndTurn) | None if self.has_refused => FinishReason::Refusal,
            Some(reason) => reason.corrected(self.calls.any()),
            None => FinishReason::EndTurn.corrected(self.calls.any()),
        };
        out.push(ModelEvent::Finished(reason));
        Ok(())
    }
}

fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "stop" | "eos" | "end_turn" => FinishReason::EndTurn,
        "tool_calls" | "function_call" => FinishReason::ToolUse,
        "length" | "max_tokens" => FinishReason::MaxTokens,
        // A content filter of the provider removed the response or the rest of it.
        "content_filter" => FinishReason::Refusal,
        other => FinishReason::Other(word(other)),
    }
}
