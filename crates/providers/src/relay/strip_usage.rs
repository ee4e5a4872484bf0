//! Removes the usage chunk from a Chat Completions stream. Such a stream reports usage only on request; Tribune always
//! requests it, and removes the chunk again if the client did not request it.

use serde_json::Value;

use super::frames::{EventSplitter, StreamPiece, data};

/// A stream to a client that did not request the usage.
#[derive(Debug, Default)]
pub struct UsageStripper(EventSplitter);

impl UsageStripper {
    /// Takes the next bytes and returns the complete events without the usage chunk.
    #[must_use]
    pub fn push(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        self.0.push(bytes, |piece| match piece {
            StreamPiece::Event(event) if is_usage_only(&event) => {}
            StreamPiece::Event(bytes) | StreamPiece::Loose(bytes) => out.extend(bytes),
        });
        out
    }

    /// Handles the end of the stream: returns the incomplete event.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        self.0.finish()
    }
}

/// Whether an event is a chunk with usage and without choices.
fn is_usage_only(event: &[u8]) -> bool {
    let Some(chunk) = data(event) else { return false };
    let has_no_choices = chunk.get("choices").and_then(Value::as_array).is_some_and(Vec::is_empty);
    has_no_choices && chunk.get("usage").is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use tribune_testkit::upstream::{ModelOutput, UpstreamReply};

    use super::*;
    use crate::limits::MAX_EVENT_BYTES;

    fn passed(bytes: &[u8], piece: usize) -> String {
        let mut filter = UsageStripper::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(piece) {
            out.extend(filter.push(piece.to_vec()));
        }
        out.extend(filter.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_the_usage_chunk_is_removed() {
        let reply = || ModelOutput::new().text("hello wörld").call("c1", "read", "{\"a\":1}").openai();
        for reply in [reply(), reply().crlf(), reply().multiline_data(), reply().with_comments("ping")] {
            let bytes = reply.bytes();
            let all = String::from_utf8(bytes.clone()).unwrap();
            for piece in [1, 2, 13, usize::MAX] {
                let passed = passed(&bytes, piece);
                assert!(all.contains("prompt_tokens") && !passed.contains("prompt_tokens"), "{piece}");
                assert!(passed.contains("[DONE]"), "{piece}");
                let at = all.find("prompt_tokens").unwrap();
                assert!(all.starts_with(&passed[..passed.len().min(at) / 2]), "{piece}");
            }
        }
    }

    #[test]
    fn all_other_bytes_are_unchanged() {
        let choice = r#"{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":1}}"#;
        let first = r#"{"choices":[],"prompt_filter_results":[],"usage":null}"#;
        let reply = UpstreamReply::events([(None, choice.to_owned()), (None, first.to_owned())]);
        let mut bytes = reply.bytes();
        bytes.extend(b": a comment\r\rdata: not json\n\r\ndata: \xc3\xbc\r\n\r\ndata: cut");
        for piece in [1, 3, usize::MAX] {
            assert_eq!(passed(&bytes, piece).as_bytes(), bytes, "{piece}");
        }
        let endless = vec![b'x'; MAX_EVENT_BYTES + 10];
        assert_eq!(passed(&endless, 1 << 20).as_bytes(), endless);
    }
}
