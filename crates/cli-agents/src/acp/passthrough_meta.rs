//! Passes on the metadata of an agent's text chunks. Text becomes redacted events, chunk by chunk; unknown members of
//! the chunks (`_meta`, message ids) are passed on separately, once for all chunks that have the same.

use serde_json::{Value, json};

use super::wire;
use crate::passthrough::pass_through;
use tribune_runtime::{EventKind, MESSAGE_CHUNK_META, THOUGHT_CHUNK_META};

/// Known members of a permission request, its call, a piece of the call's content, and an option.
const ASKED: [&str; 3] = ["sessionId", "toolCall", "options"];
const CALL: [&str; 9] =
    ["toolCallId", "title", "kind", "name", "status", "content", "locations", "rawInput", "rawOutput"];
const PIECE: [&str; 6] = ["type", "path", "oldText", "newText", "content", "terminalId"];
const OPTION: [&str; 3] = ["optionId", "name", "kind"];

/// Known members of the response to a prompt, and of its token counts.
const ANSWER: [&str; 2] = ["stopReason", "usage"];
const TOKENS: [&str; 3] = ["inputTokens", "outputTokens", "totalTokens"];

/// The metadata of the newest chunks of a turn.
#[derive(Debug, Default)]
pub(super) struct ChunkMetadata {
    message: Option<Value>,
    thought: Option<Value>,
}

/// The kind of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkKind {
    Message,
    Thought,
}

impl ChunkMetadata {
    /// The metadata of this chunk, if it differs from that of the chunk before.
    pub(super) fn changed(&mut self, words: ChunkKind, params: &Value) -> Option<EventKind> {
        let mut around = params.clone();
        around["update"]["content"]["text"] = "".into();
        let (kind, before) = match words {
            ChunkKind::Message => (MESSAGE_CHUNK_META, &mut self.message),
            ChunkKind::Thought => (THOUGHT_CHUNK_META, &mut self.thought),
        };
        let is_same = match &before {
            Some(before) => *before == around,
            None => is_bare(&around),
        };
        if is_same {
            return None;
        }
        let line = wire::notification("session/update", &around);
        *before = Some(around);
        pass_through(kind, &line)
    }
}

/// Whether a chunk has no metadata.
fn is_bare(params: &Value) -> bool {
    has_only(params, &["sessionId", "update"])
        && has_only(&params["update"], &["sessionUpdate", "content"])
        && has_only(&params["update"]["content"], &["type", "text"])
}

/// Whether a permission request has members that a normalized call does not.
pub(super) fn has_unknown_members(params: &Value) -> bool {
    let all = |list: &Value, known: &[&str]| {
        list.as_array().into_iter().flatten().all(|item| has_only(item, known))
    };
    let call = &params["toolCall"];
    let is_plain = has_only(params, &ASKED)
        && has_only(call, &CALL)
        && all(&call["content"], &PIECE)
        && all(&params["options"], &OPTION);
    !is_plain
}

/// The response to a prompt, if it says more than the stop reason and the token counts.
pub(super) fn prompt_response_meta(answer: &Value) -> Option<EventKind> {
    let is_plain = has_only(answer, &ANSWER) && has_only(&answer["usage"], &TOKENS);
    let line = || json!({ "jsonrpc": "2.0", "result": answer }).to_string();
    (!is_plain).then(line).and_then(|line| pass_through("session/prompt", &line))
}

/// The response that began or resumed a session, byte by byte, if it says more than the session id.
pub(super) fn session_response_meta(method: &str, answer: &Value, line: &str) -> Option<EventKind> {
    (!has_only(answer, &["sessionId"])).then(|| pass_through(method, line)).flatten()
}

fn has_only(value: &Value, known: &[&str]) -> bool {
    value.as_object().is_none_or(|object| object.keys().all(|name| known.contains(&name.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, meta: Value) -> Value {
        let content = json!({ "type": "text", "text": text });
        let mut update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
        if !meta.is_null() {
            update["_meta"] = meta;
        }
        json!({ "sessionId": "s", "update": update })
    }

    #[test]
    fn chunk_metadata_is_passed_on_when_it_changes() {
        let mut around = ChunkMetadata::default();
        let mut changes =
            |text: &str, meta: Value| match around.changed(ChunkKind::Message, &said(text, meta)) {
                Some(EventKind::AgentUpdate { kind, line }) => {
                    assert_eq!(kind, MESSAGE_CHUNK_META);
                    assert!(!line.contains(text), "{line}");
                    true
                }
                None => false,
                Some(other) => panic!("{other:?}"),
            };
        assert!(!changes("plain", Value::Null));
        assert!(changes("first", json!({ "n": 1 })));
        assert!(!changes("second", json!({ "n": 1 })));
        assert!(changes("third", json!({ "n": 2 })));
        assert!(changes("fourth", Value::Null), "it stands around no more");
        assert!(!changes("fifth", Value::Null));
    }

    #[test]
    fn only_unknown_members_are_passed_on() {
        let plain = json!({ "sessionId": "s", "toolCall": { "toolCallId": "t", "content": [{ "type": "diff", "path": "p" }] },
                            "options": [{ "optionId": "y", "name": "Yes", "kind": "allow_once" }] });
        assert!(!has_unknown_members(&plain));
        for place in ["", "/toolCall", "/toolCall/content/0", "/options/0"] {
            let mut more = plain.clone();
            more.pointer_mut(place).unwrap()["_meta"] = json!({ "x": 1 });
            assert!(has_unknown_members(&more), "{place}");
        }
        let usage = json!({ "inputTokens": 1, "outputTokens": 2, "totalTokens": 3 });
        assert_eq!(prompt_response_meta(&json!({ "stopReason": "end_turn", "usage": usage })), None);
        assert!(prompt_response_meta(&json!({ "stopReason": "end_turn", "_meta": 1 })).is_some());
        assert!(
            prompt_response_meta(&json!({ "stopReason": "end_turn", "usage": { "thoughtTokens": 1 } }))
                .is_some()
        );
        let line = "{ \"id\":2 , \"result\": {\"sessionId\":\"s\", \"x\":1.50}}";
        let answer: Value = serde_json::from_str::<Value>(line).unwrap()["result"].take();
        let as_it_came = EventKind::AgentUpdate { kind: "session/new".into(), line: line.into() };
        assert_eq!(session_response_meta("session/new", &answer, line), Some(as_it_came));
        assert_eq!(session_response_meta("session/new", &json!({ "sessionId": "s" }), line), None);
        assert_eq!(session_response_meta("session/resume", &Value::Null, line), None);
    }
}
