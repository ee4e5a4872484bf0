//! Chat Completions streams tell their tokens only if asked to. Where we asked and the client did not, the chunk that tells
//! them is taken out again.
//!
//! Bytes are passed on event by event: half an event is of no use to any reader of such a stream.

use serde_json::Value;

use crate::provider::limits::MAX_EVENT_BYTES;

/// A stream on its way to a client that did not ask for its tokens.
#[derive(Debug, Default)]
pub struct UnaskedUsage {
    /// The event that is not complete.
    held: Vec<u8>,
    /// Where the line that is not complete begins in it.
    line: usize,
    /// Whether the last byte was a CR, which a LF may belong to.
    after_cr: bool,
    /// An event was longer than any should be: the rest goes on as it comes.
    has_given_up: bool,
}

impl UnaskedUsage {
    /// Takes the next bytes and gives those of whole events, but for the one that was not asked for.
    #[must_use]
    pub fn push(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        if self.has_given_up {
            return bytes;
        }
        let mut out = Vec::with_capacity(self.held.len() + bytes.len());
        for byte in bytes {
            // The LF of a CR LF ends no line of its own.
            let belongs_to_cr = byte == b'\n' && std::mem::take(&mut self.after_cr);
            if belongs_to_cr && self.held.is_empty() {
                out.push(byte);
                continue;
            }
            self.held.push(byte);
            if belongs_to_cr {
                self.line = self.held.len();
                continue;
            }
            self.after_cr = byte == b'\r';
            if matches!(byte, b'\r' | b'\n') {
                let is_blank = self.line + 1 == self.held.len();
                self.line = self.held.len();
                if is_blank {
                    self.end_event(&mut out);
                }
            }
        }
        if self.held.len() > MAX_EVENT_BYTES {
            self.has_given_up = true;
            out.append(&mut self.held);
        }
        out
    }

    /// The stream has ended: gives what was not complete.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    fn end_event(&mut self, out: &mut Vec<u8>) {
        if !tells_usage_alone(&self.held) {
            out.append(&mut self.held);
        }
        self.held.clear();
        self.line = 0;
    }
}

/// Whether an event holds a chunk without choices that tells the tokens.
fn tells_usage_alone(event: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(event) else { return false };
    let data: Vec<&str> =
        text.split(['\r', '\n']).filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
    let Ok(chunk) = serde_json::from_str::<Value>(&data.join("\n")) else { return false };
    let has_no_choices = chunk.get("choices").and_then(Value::as_array).is_some_and(Vec::is_empty);
    has_no_choices && chunk.get("usage").is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use tribune_testkit::upstream::{Reply, Say};

    use super::*;

    fn passed(bytes: &[u8], piece: usize) -> String {
        let mut filter = UnaskedUsage::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(piece) {
            out.extend(filter.push(piece.to_vec()));
        }
        out.extend(filter.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_the_chunk_that_tells_tokens_alone_is_taken_out() {
        let reply = || Say::new().text("hello wörld").call("c1", "read", "{\"a\":1}").openai();
        for reply in [reply(), reply().crlf(), reply().many_lines(), reply().with_comments("ping")] {
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
    fn everything_else_passes_to_the_byte() {
        let choice = r#"{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":1}}"#;
        let first = r#"{"choices":[],"prompt_filter_results":[],"usage":null}"#;
        let reply = Reply::events([(None, choice.to_owned()), (None, first.to_owned())]);
        let mut bytes = reply.bytes();
        bytes.extend(b": a comment\r\rdata: not json\n\r\ndata: \xc3\xbc\r\n\r\ndata: cut");
        for piece in [1, 3, usize::MAX] {
            assert_eq!(passed(&bytes, piece).as_bytes(), bytes, "{piece}");
        }
        let endless = vec![b'x'; MAX_EVENT_BYTES + 10];
        assert_eq!(passed(&endless, 1 << 20).as_bytes(), endless);
    }
}
