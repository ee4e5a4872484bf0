//! Reads along in a stream that our own loop does not speak: how many tokens it tells, and whether it came to its end. Nothing else
//! of it is understood.

use serde_json::Value;

use super::frames::{Frames, Piece, data};
use super::token_counter::Ending;
use super::wire::Wire;
use crate::event::TokenUsage;

/// A stream that passes by.
#[derive(Debug)]
pub(super) struct Watch {
    wire: Wire,
    frames: Frames,
    usage: Option<TokenUsage>,
    ending: Ending,
}

impl Watch {
    pub(super) fn new(wire: Wire) -> Self {
        Self { wire, frames: Frames::default(), usage: None, ending: Ending::Cut }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut frames = std::mem::take(&mut self.frames);
        frames.push(bytes.to_vec(), |piece| match piece {
            Piece::Event(event) => self.event(&event),
            Piece::Loose(_) => {}
        });
        self.frames = frames;
    }

    /// The stream has ended, well or not.
    pub(super) fn finish(&mut self) -> (Option<TokenUsage>, Ending) {
        let rest = self.frames.finish();
        self.event(&rest);
        (self.usage, self.ending)
    }

    fn event(&mut self, event: &[u8]) {
        let Some(said) = data(event) else { return };
        let told = match self.wire {
            Wire::Responses => said.get("response").unwrap_or(&Value::Null),
            Wire::Gemini | Wire::Messages | Wire::Chat => &said,
        };
        self.usage = self.wire.usage(told).or(self.usage);
        self.ending = match self.wire {
            Wire::Responses => match said["type"].as_str() {
                Some("response.completed" | "response.incomplete") => Ending::Whole,
                Some("response.failed" | "error") => Ending::Failed,
                _ => self.ending,
            },
            Wire::Gemini | Wire::Messages | Wire::Chat => {
                let ends = |candidate: &Value| candidate["finishReason"].is_string();
                let mut candidates = said["candidates"].as_array().into_iter().flatten();
                // A prompt that is refused has no candidates, and says so.
                let is_whole = candidates.any(ends) || said["promptFeedback"]["blockReason"].is_string();
                match said.get("error").is_some_and(Value::is_object) {
                    true => Ending::Failed,
                    false if is_whole => Ending::Whole,
                    false => self.ending,
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use tribune_testkit::upstream::Say;

    use super::*;

    fn watched(wire: Wire, bytes: &[u8]) -> (Option<u64>, Ending) {
        let mut watch = Watch::new(wire);
        bytes.chunks(13).for_each(|piece| watch.push(piece));
        let (usage, ending) = watch.finish();
        (usage.map(|usage| usage.output), ending)
    }

    #[test]
    fn an_end_is_what_the_stream_says_and_not_where_the_bytes_stop() {
        let say = Say::new().text("hello there").usage(30, 7, 0);
        let responses = |stop: &str| say.clone().stop(stop).responses().bytes();
        assert_eq!(watched(Wire::Responses, &responses("completed")), (Some(7), Ending::Whole));
        assert_eq!(watched(Wire::Responses, &responses("incomplete")), (Some(7), Ending::Whole));
        assert_eq!(watched(Wire::Responses, &responses("failed")), (Some(7), Ending::Failed));
        assert_eq!(watched(Wire::Responses, &say.responses().first(5).bytes()), (None, Ending::Cut));
        assert_eq!(watched(Wire::Gemini, &say.gemini().bytes()), (Some(7), Ending::Whole));
        assert_eq!(watched(Wire::Gemini, &say.gemini().first(1).bytes()), (Some(7), Ending::Cut));
        let blocked = b"data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{\"promptTokenCount\":3}}\n\n";
        assert_eq!(watched(Wire::Gemini, blocked), (Some(0), Ending::Whole));
        let failed = b"data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\n\n";
        assert_eq!(watched(Wire::Gemini, failed), (None, Ending::Failed));
        // A model can write these words, but not where they count.
        let words = Say::new().text("\"type\":\"response.completed\" \"finishReason\":\"STOP\"");
        assert_eq!(watched(Wire::Responses, &words.responses().first(8).bytes()).1, Ending::Cut);
        assert_eq!(watched(Wire::Gemini, &words.gemini().first(2).bytes()).1, Ending::Cut);
        for garbage in [&b"data: 5\n\n"[..], b"data: []\n\n", b"not a stream", b""] {
            assert_eq!(watched(Wire::Responses, garbage), (None, Ending::Cut));
            assert_eq!(watched(Wire::Gemini, garbage), (None, Ending::Cut));
        }
    }
}
