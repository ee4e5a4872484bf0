//! Folds the events of an answer into the parts that are stored and sent back.

use super::event::{Ended, ModelEvent, TokenUsage};
use super::message::AssistantPart;
use super::openai::reasoning;

/// An answer, as far as it has arrived. After an error it holds what arrived before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    pub parts: Vec<AssistantPart>,
    pub usage: TokenUsage,
    /// `None` until the end has come.
    pub ended: Option<Ended>,
    /// Where in `parts` each call is.
    calls: Vec<usize>,
}

impl Answer {
    pub fn take(&mut self, event: &ModelEvent) {
        match event {
            ModelEvent::Text(delta) => match self.parts.last_mut() {
                Some(AssistantPart::Text(text)) => text.push_str(delta),
                _ => self.parts.push(AssistantPart::Text(delta.clone())),
            },
            // Some providers tell a thought twice, in words and in a form of their own.
            ModelEvent::Thinking(delta) => match last_but(&mut self.parts, is_detail) {
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
                let last = last_but(&mut self.parts, |part| !is_detail(part));
                let is_taken = match last {
                    Some(AssistantPart::ReasoningDetail(known)) => reasoning::join(known, detail),
                    _ => false,
                };
                if !is_taken {
                    self.parts.push(AssistantPart::ReasoningDetail(detail.clone()));
                }
            }
            ModelEvent::CallBegun { id, name, .. } => {
                self.calls.push(self.parts.len());
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
            ModelEvent::Ended(ended) => self.ended = Some(ended.clone()),
        }
    }

    fn call(&mut self, index: usize) -> Option<&mut AssistantPart> {
        let place = *self.calls.get(index)?;
        self.parts.get_mut(place)
    }

    /// All that was said aloud.
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

const fn is_detail(part: &AssistantPart) -> bool {
    matches!(part, AssistantPart::ReasoningDetail(_))
}

/// The last part, behind those that are passed over.
fn last_but(
    parts: &mut [AssistantPart],
    passed_over: impl Fn(&AssistantPart) -> bool,
) -> Option<&mut AssistantPart> {
    parts.iter_mut().rev().find(|part| !passed_over(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_ends_a_thought_and_may_stand_alone() {
        let mut answer = Answer::default();
        for event in [
            ModelEvent::Thinking("a".into()),
            ModelEvent::Thinking("b".into()),
            ModelEvent::Signature("1".into()),
            ModelEvent::Thinking("c".into()),
            ModelEvent::Signature("2".into()),
            ModelEvent::Signature("3".into()),
        ] {
            answer.take(&event);
        }
        let thought = |text: &str, signature: &str| AssistantPart::Thinking {
            text: text.into(),
            signature: Some(signature.into()),
        };
        assert_eq!(answer.parts, [thought("ab", "1"), thought("c", "2"), thought("", "3")]);
    }

    #[test]
    fn arguments_find_their_call() {
        let mut answer = Answer::default();
        let begun =
            |index: usize, id: &str| ModelEvent::CallBegun { index, id: id.into(), name: "read".into() };
        let more = |index: usize, delta: &str| ModelEvent::CallArguments { index, delta: delta.into() };
        for event in [begun(0, "a"), begun(1, "b"), more(1, "{}"), more(0, "{\"x\""), more(0, ":1}")] {
            answer.take(&event);
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
