//! Chat Completions streams tell their tokens only if asked to. Where we asked and the client did not, the chunk that tells
//! them is taken out again.

use serde_json::Value;

use super::frames::{Frames, Piece, data};

/// A stream on its way to a client that did not ask for its tokens.
#[derive(Debug, Default)]
pub struct UnaskedUsage(Frames);

impl UnaskedUsage {
    /// Takes the next bytes and gives those of whole events, but for the one that was not asked for.
    #[must_use]
    pub fn push(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        self.0.push(bytes, |piece| match piece {
            Piece::Event(event) if tells_usage_alone(&event) => {}
            Piece::Event(bytes) | Piece::Loose(bytes) => out.extend(bytes),
        });
        out
    }

    /// The stream has ended: gives what was not complete.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        self.0.finish()
    }
}

/// Whether an event holds a chunk without choices that tells the tokens.
fn tells_usage_alone(event: &[u8]) -> bool {
    let Some(chunk) = data(event) else { return false };
    let has_no_choices = chunk.get("choices").and_then(Value::as_array).is_some_and(Vec::is_empty);
    has_no_choices && chunk.get("usage").is_some_and(Value::is_object)
}

#[cfg(test)]
mod tests {
    use tribune_testkit::upstream::{Reply, Say};

    use super::*;
    use crate::limits::MAX_EVENT_BYTES;

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
