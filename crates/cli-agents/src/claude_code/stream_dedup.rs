//! Drops duplicates: Claude Code sends text in chunks, and then again as a whole message.

use serde_json::Value;

use tribune_runtime::EventKind;

/// The chunks received of the current message.
#[derive(Debug, Default)]
pub(super) struct StreamDedup {
    message: Option<String>,
    has_text: bool,
    has_thoughts: bool,
}

impl StreamDedup {
    /// A chunk, as the Messages API streams it.
    pub(super) fn piece(&mut self, event: &Value) -> Option<EventKind> {
        match event["type"].as_str()? {
            "message_start" => {
                let message = event["message"]["id"].as_str().map(str::to_owned);
                *self = Self { message, ..Self::default() };
                None
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                match delta["type"].as_str()? {
                    "text_delta" => {
                        self.has_text = true;
                        text(&delta["text"])
                    }
                    "thinking_delta" => {
                        self.has_thoughts = true;
                        thought(&delta["thinking"])
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A block of a whole message, unless its chunks were received.
    pub(super) fn whole(&self, message: &Value, block: &Value) -> Option<EventKind> {
        let is_this = self.message.is_some() && message["id"].as_str() == self.message.as_deref();
        match block["type"].as_str()? {
            "text" if !(is_this && self.has_text) => text(&block["text"]),
            "thinking" if !(is_this && self.has_thoughts) => thought(&block["thinking"]),
            _ => None,
        }
    }
}

fn text(words: &Value) -> Option<EventKind> {
    words
        .as_str()
        .filter(|words| !words.is_empty())
        .map(|words| EventKind::TextDelta { text: words.to_owned() })
}

fn thought(words: &Value) -> Option<EventKind> {
    let words = words.as_str().filter(|words| !words.is_empty());
    words.map(|words| EventKind::ReasoningDelta { text: words.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_received_in_chunks_is_not_repeated() {
        let mut dedup = StreamDedup::default();
        let start = |id: &str| json!({ "type": "message_start", "message": { "id": id } });
        let delta = |delta: Value| json!({ "type": "content_block_delta", "delta": delta });
        let whole = |id: &str| json!({ "id": id });
        let (words, thoughts) =
            (json!({ "type": "text", "text": "hello" }), json!({ "type": "thinking", "thinking": "hm" }));
        assert_eq!(dedup.piece(&start("m1")), None);
        let thought = EventKind::ReasoningDelta { text: "hm".into() };
        assert_eq!(
            dedup.piece(&delta(json!({ "type": "thinking_delta", "thinking": "hm" }))),
            Some(thought.clone())
        );
        assert_eq!(dedup.whole(&whole("m1"), &thoughts), None);
        // No chunk of its text was received.
        let text = EventKind::TextDelta { text: "hello".into() };
        assert_eq!(dedup.whole(&whole("m1"), &words), Some(text.clone()));
        let piece = json!({ "type": "text_delta", "text": "hello" });
        assert_eq!(dedup.piece(&delta(piece)), Some(text.clone()));
        assert_eq!(dedup.whole(&whole("m1"), &words), None);
        // A message of its own making, such as an API error.
        assert_eq!(dedup.whole(&whole("m2"), &words), Some(text.clone()));
        assert_eq!(dedup.whole(&json!({}), &words), Some(text));
        dedup.piece(&start("m3"));
        assert_eq!(dedup.whole(&whole("m3"), &thoughts), Some(thought));
        for odd in
            [json!(null), json!({ "type": "ping" }), delta(json!({})), delta(json!({ "type": "text_delta" }))]
        {
            assert_eq!(dedup.piece(&odd), None);
        }
    }
}
