//! Completes a conversation that was cut off: providers refuse a call without a result, and a result without a call.

use std::collections::HashSet;

use super::host_services::StoredMessage;
use tribune_providers::{AssistantPart, ChatMessage, ToolResult};

/// The result of a call whose turn ended before it did.
const INTERRUPTED: &str = "the turn ended before this call did: whether it took effect is not known";

/// Gives every call of the past its result. The results that are added are not stored: they come out the same each
/// time.
pub(super) fn repair_history(remembered: Vec<StoredMessage>) -> Vec<StoredMessage> {
    let mut whole: Vec<StoredMessage> = Vec::with_capacity(remembered.len());
    let mut open: Vec<String> = Vec::new();
    let mut turn = String::new();
    for StoredMessage { turn: own, message: said } in remembered {
        let said = match said {
            ChatMessage::Results(results) => {
                let mut asked: HashSet<String> = open.drain(..).collect();
                let mut results: Vec<ToolResult> =
                    results.into_iter().filter(|result| asked.remove(&result.id)).collect();
                let mut missing: Vec<String> = asked.into_iter().collect();
                missing.sort_unstable();
                results.extend(missing.into_iter().map(interrupted));
                ChatMessage::Results(results)
            }
            said => {
                close(&mut whole, &mut open, &turn);
                if let ChatMessage::Assistant(parts) = &said {
                    open = calls(parts);
                }
                said
            }
        };
        let is_empty = match &said {
            ChatMessage::User(parts) => parts.is_empty(),
            ChatMessage::Assistant(parts) => parts.is_empty(),
            ChatMessage::Results(results) => results.is_empty(),
        };
        turn.clone_from(&own);
        if !is_empty {
            whole.push(StoredMessage { turn: own, message: said });
        }
    }
    close(&mut whole, &mut open, &turn);
    whole
}

fn close(whole: &mut Vec<StoredMessage>, open: &mut Vec<String>, turn: &str) {
    if !open.is_empty() {
        let results = open.drain(..).map(interrupted).collect();
        whole.push(StoredMessage { turn: turn.to_owned(), message: ChatMessage::Results(results) });
    }
}

fn interrupted(id: String) -> ToolResult {
    ToolResult { id, content: INTERRUPTED.to_owned(), is_error: true }
}

fn calls(parts: &[AssistantPart]) -> Vec<String> {
    let id = |part: &AssistantPart| match part {
        AssistantPart::ToolUse { id, .. } => Some(id.clone()),
        AssistantPart::Thinking { .. }
        | AssistantPart::RedactedThinking { .. }
        | AssistantPart::ReasoningDetail(_)
        | AssistantPart::Text(_) => None,
    };
    parts.iter().filter_map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> AssistantPart {
        AssistantPart::ToolUse { id: id.into(), name: "read".into(), arguments: "{}".into(), signature: None }
    }

    fn result(id: &str) -> ToolResult {
        ToolResult { id: id.into(), content: "ok".into(), is_error: false }
    }

    fn said(said: Vec<ChatMessage>) -> Vec<ChatMessage> {
        let remembered =
            said.into_iter().map(|said| StoredMessage { turn: "t".into(), message: said }).collect();
        repair_history(remembered).into_iter().map(|one| one.message).collect()
    }

    #[test]
    fn every_call_has_a_result_and_every_result_a_call() {
        let whole = vec![
            ChatMessage::user("go"),
            ChatMessage::Assistant(vec![call("a"), call("b")]),
            ChatMessage::Results(vec![result("a"), result("b")]),
            ChatMessage::Assistant(vec![AssistantPart::Text("done".into())]),
        ];
        assert_eq!(said(whole.clone()), whole);
        let cut = said(vec![
            ChatMessage::user("go"),
            ChatMessage::Assistant(vec![call("a")]),
            ChatMessage::user("and?"),
        ]);
        assert_eq!(cut[2], ChatMessage::Results(vec![interrupted("a".into())]));
        assert_eq!(cut.len(), 4);
        let half = said(vec![
            ChatMessage::user("go"),
            ChatMessage::Assistant(vec![call("a"), call("b")]),
            ChatMessage::Results(vec![result("b"), result("x")]),
        ]);
        assert_eq!(half[2], ChatMessage::Results(vec![result("b"), interrupted("a".into())]));
        let end = said(vec![ChatMessage::user("go"), ChatMessage::Assistant(vec![call("a")])]);
        assert_eq!(end[2], ChatMessage::Results(vec![interrupted("a".into())]));
        assert_eq!(
            said(vec![ChatMessage::user("go"), ChatMessage::Results(vec![result("a")])]),
            [ChatMessage::user("go")]
        );
    }
}
