//! Folds the events of a response into the message parts that are stored and sent back.

use super::event::{FinishReason, ModelEvent, TokenUsage};
use super::message::AssistantPart;
use super::openai::reasoning;

/// A model's response, as far as it has arrived. After an error it holds the parts that arrived before the error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelResponse {
    pub parts: Vec<AssistantPart>,
    pub usage: TokenUsage,
    /// `None` until the model has finished.
    pub finish_reason: Option<FinishReason>,
    /// The index in `parts` of each tool call.
    call_positions: Vec<usize>,
}

impl ModelResponse {
    /// Applies the next event.
    pub fn apply(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(delta) => match self.parts.last_mut() {
                Some(AssistantPart::Text(text)) => text.push_str(delta),
                _ => self.parts.push(AssistantPart::Text(delta.clone())),
            },
            // Some providers send a thought twice: as text and as a reasoning detail.
            ModelEvent::Thinking(delta) => match last_not_matching(&mut self.parts, is_reasoning_detail) {
                Some(AssistantPart::Thinking { text, signature: None }) => text.push_str(delta),
                _ => self.parts.push(AssistantPart::Thinking { text: delta.clone(), signature: None }),
            },
            ModelEvent::Signature(proof) => match self.parts.last_mut() {
                Some(AssistantPart::Thinking { signature: signature @ None, .. }) => {
                    *signature = Some(proof.clone());
                }
                _ => self
                    .parts
                    .push(AssistantPart::Thinking { text: String::new(), signature: Some(proof.clone()) }),
            },
            ModelEvent::RedactedThinking(data) => {
                self.parts.push(AssistantPart::RedactedThinking { data: data.clone() });
            }
            ModelEvent::ReasoningDetail(detail) => {
                let last = last_not_matching(&mut self.parts, |part| !is_reasoning_detail(part));
                let is_merged = match last {
                    Some(AssistantPart::ReasoningDetail(known)) => reasoning::join(known, detail),
                    _ => false,
                };
                if !is_merged {
                    self.parts.push(AssistantPart::ReasoningDetail(detail.clone()));
                }
            }
            ModelEvent::CallStarted { id, name, .. } => {
                self.call_positions.push(self.parts.len());
                self.parts.push(AssistantPart::ToolUse {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                    signature: None,
                });
            }
            ModelEvent::CallArguments { index, delta } => {
                if let Some(AssistantPart::ToolUse { arguments, .. }) = self.call(*index) {
                    arguments.push_str(delta);
                }
            }
            ModelEvent::CallSignature { index, signature: proof } => {
                if let Some(AssistantPart::ToolUse { signature, .. }) = self.call(*index) {
                    *signature = Some(proof.clone());
                }
            }
            ModelEvent::Usage(usage) => self.usage = *usage,
            ModelEvent::Finished(ended) => self.finish_reason = Some(ended.clone()),
        }
    }

    fn call(&mut self, index: usize) -> Option<&mut AssistantPart> {
        let position = *self.call_positions.get(index)?;
        self.parts.get_mut(position)
    }

    /// The visible text, without thinking and tool calls.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            AssistantPart::Text(text) => Some(text.as_str()),
            AssistantPart::Thinking { .. }
            | AssistantPart::RedactedThinking { .. }
            | AssistantPart::ReasoningDetail(_)
            | AssistantPart::ToolUse { .. } => None,
        });
        texts.collect()
    }
}

const fn is_reasoning_detail(part: &AssistantPart) -> bool {
    matches!(part, AssistantPart::ReasoningDetail(_))
}

/// The last part that `is_skipped` does not match.
fn last_not_matching(
    parts: &mut [AssistantPart],
    is_skipped: impl Fn(&AssistantPart) -> bool,
) -> Option<&mut AssistantPart> {
    parts.iter_mut().rev().find(|part| !is_skipped(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_ends_a_thought_and_may_stand_alone() {
        let mut answer = ModelResponse::default();
        for event in [
            ModelEvent::Thinking("a".into()),
            ModelEvent::Thinking("b".into()),
            ModelEvent::Signature("1".into()),
            ModelEvent::Thinking("c".into()),
            ModelEvent::Signature("2".into()),
            ModelEvent::Signature("3".into()),
        ] {
            answer.apply(&event);
        }
        let thought = |text: &str, signature: &str| AssistantPart::Thinking {
            text: text.into(),
            signature: Some(signature.into()),
        };
        assert_eq!(answer.parts, [thought("ab", "1"), thought("c", "2"), thought("", "3")]);
    }

    #[test]
    fn interleaved_arguments_are_appended_to_their_call() {
        let mut answer = ModelResponse::default();
        let begun =
            |index: usize, id: &str| ModelEvent::CallStarted { index, id: id.into(), name: "read".into() };
        let more = |index: usize, delta: &str| ModelEvent::CallArguments { index, delta: delta.into() };
        for event in [begun(0, "a"), begun(1, "b"), more(1, "{}"), more(0, "{\"x\""), more(0, ":1}")] {
            answer.apply(&event);
        }
        let call = |id: &str, arguments: &str| AssistantPart::ToolUse {
            id: id.into(),
            name: "read".into(),
            arguments: arguments.into(),
            signature: None,
        };
        assert_eq!(answer.parts, [call("a", "{\"x\":1}"), call("b", "{}")]);
    }
}
