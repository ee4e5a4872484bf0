//! What an agent says around its words. Words go out as text, piece by piece and without secrets; what stands beside them in a
//! message (`_meta`, names of messages, whatever nobody here knows) is handed on by itself, once for all words that have the same.

use serde_json::{Value, json};

use crate::passthrough::handed_on;
use tribune_runtime::{AROUND_MESSAGE, AROUND_THOUGHT, EventKind};

/// Members of a question for leave, of its call, of a piece of that call and of an answer to it that everyone knows.
const ASKED: [&str; 3] = ["sessionId", "toolCall", "options"];
const CALL: [&str; 9] =
    ["toolCallId", "title", "kind", "name", "status", "content", "locations", "rawInput", "rawOutput"];
const PIECE: [&str; 6] = ["type", "path", "oldText", "newText", "content", "terminalId"];
const OPTION: [&str; 3] = ["optionId", "name", "kind"];

/// The same of the answer to a prompt, and of the tokens in it.
const ANSWER: [&str; 2] = ["stopReason", "usage"];
const TOKENS: [&str; 3] = ["inputTokens", "outputTokens", "totalTokens"];

/// What stood around the newest words of a turn.
#[derive(Debug, Default)]
pub(super) struct Around {
    message: Option<Value>,
    thought: Option<Value>,
}

/// Which words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    Message,
    Thought,
}

impl Around {
    /// What stands around these words, if it is not what stood around those before.
    pub(super) fn changed(&mut self, words: Words, params: &Value) -> Option<EventKind> {
        let mut around = params.clone();
        around["update"]["content"]["text"] = "".into();
        let (kind, before) = match words {
            Words::Message => (AROUND_MESSAGE, &mut self.message),
            Words::Thought => (AROUND_THOUGHT, &mut self.thought),
        };
        let is_same = match &before {
            Some(before) => *before == around,
            None => is_bare(&around),
        };
        if is_same {
            return None;
        }
        let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": around }).to_string();
        *before = Some(around);
        handed_on(kind, &line)
    }
}

/// Whether nothing stands around words.
fn is_bare(params: &Value) -> bool {
    has_only(params, &["sessionId", "update"])
        && has_only(&params["update"], &["sessionUpdate", "content"])
        && has_only(&params["update"]["content"], &["type", "text"])
}

/// Whether a question for leave says something that is in no call of the house's.
pub(super) fn says_more(params: &Value) -> bool {
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

/// The answer to a prompt, if it says more than why the turn ended and what it used.
pub(super) fn answered(answer: &Value) -> Option<EventKind> {
    let is_plain = has_only(answer, &ANSWER) && has_only(&answer["usage"], &TOKENS);
    let line = || json!({ "jsonrpc": "2.0", "result": answer }).to_string();
    (!is_plain).then(line).and_then(|line| handed_on("session/prompt", &line))
}

/// The answer with which a session begins or goes on, byte by byte, if it says more than what the session is called.
pub(super) fn opened(method: &str, answer: &Value, line: &str) -> Option<EventKind> {
    (!has_only(answer, &["sessionId"])).then(|| handed_on(method, line)).flatten()
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
    fn what_stands_around_words_is_told_when_it_changes_and_never_with_the_words() {
        let mut around = Around::default();
        let mut changes = |text: &str, meta: Value| match around.changed(Words::Message, &said(text, meta)) {
            Some(EventKind::AgentUpdate { kind, line }) => {
                assert_eq!(kind, AROUND_MESSAGE);
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
    fn only_what_says_more_is_handed_on() {
        let plain = json!({ "sessionId": "s", "toolCall": { "toolCallId": "t", "content": [{ "type": "diff", "path": "p" }] },
                            "options": [{ "optionId": "y", "name": "Yes", "kind": "allow_once" }] });
        assert!(!says_more(&plain));
        for place in ["", "/toolCall", "/toolCall/content/0", "/options/0"] {
            let mut more = plain.clone();
            more.pointer_mut(place).unwrap()["_meta"] = json!({ "x": 1 });
            assert!(says_more(&more), "{place}");
        }
        let usage = json!({ "inputTokens": 1, "outputTokens": 2, "totalTokens": 3 });
        assert_eq!(answered(&json!({ "stopReason": "end_turn", "usage": usage })), None);
        assert!(answered(&json!({ "stopReason": "end_turn", "_meta": 1 })).is_some());
        assert!(answered(&json!({ "stopReason": "end_turn", "usage": { "thoughtTokens": 1 } })).is_some());
        let line = "{ \"id\":2 , \"result\": {\"sessionId\":\"s\", \"x\":1.50}}";
        let answer: Value = serde_json::from_str::<Value>(line).unwrap()["result"].take();
        let as_it_came = EventKind::AgentUpdate { kind: "session/new".into(), line: line.into() };
        assert_eq!(opened("session/new", &answer, line), Some(as_it_came));
        assert_eq!(opened("session/new", &json!({ "sessionId": "s" }), line), None);
        assert_eq!(opened("session/resume", &Value::Null, line), None);
    }
}
