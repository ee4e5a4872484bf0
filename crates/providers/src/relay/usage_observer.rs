//! Observes a stream in a format that has no parser: extracts the token usage and whether the stream is complete, and
//! ignores everything else.

use serde_json::Value;

use super::frames::{EventSplitter, StreamPiece, data};
use super::token_counter::{CountedUsage, Ending};
use super::wire::Wire;
use crate::event::TokenUsage;

/// Observes one relayed stream.
#[derive(Debug)]
pub(super) struct UsageObserver {
    wire: Wire,
    splitter: EventSplitter,
    usage: Option<TokenUsage>,
    ending: Ending,
}

impl UsageObserver {
    pub(super) fn new(wire: Wire) -> Self {
        Self { wire, splitter: EventSplitter::default(), usage: None, ending: Ending::Cut }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut splitter = std::mem::take(&mut self.splitter);
        splitter.push(bytes.to_vec(), |piece| match piece {
            StreamPiece::Event(event) => self.event(&event),
            StreamPiece::Loose(_) => {}
        });
        self.splitter = splitter;
    }

    /// Handles the end of the stream, complete or not.
    pub(super) fn finish(&mut self) -> CountedUsage {
        let rest = self.splitter.finish();
        self.event(&rest);
        CountedUsage { usage: self.usage, ending: self.ending }
    }

    fn event(&mut self, event: &[u8]) {
        let Some(data) = data(event) else { return };
        let response = match self.wire {
            Wire::Responses => data.get("response").unwrap_or(&Value::Null),
            Wire::Gemini | Wire::Messages | Wire::Chat => &data,
        };
        self.usage = self.wire.usage(response).or(self.usage);
        self.ending = match self.wire {
            Wire::Responses => match data["type"].as_str() {
                Some("response.completed" | "response.incomplete") => Ending::Whole,
                Some("response.failed" | "error") => Ending::Failed,
                _ => self.ending,
            },
            Wire::Gemini | Wire::Messages | Wire::Chat => {
                let ends = |candidate: &Value| candidate["finishReason"].is_string();
                let mut candidates = data["candidates"].as_array().into_iter().flatten();
                // A blocked prompt has no candidates but a block reason.
                let is_complete = candidates.any(ends) || data["promptFeedback"]["blockReason"].is_string();
                match data.get("error").is_some_and(Value::is_object) {
                    true => Ending::Failed,
                    false if is_complete => Ending::Whole,
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

    fn observed(wire: Wire, bytes: &[u8]) -> (Option<u64>, Ending) {
        let mut observer = UsageObserver::new(wire);
        bytes.chunks(13).for_each(|piece| observer.push(piece));
        let CountedUsage { usage, ending } = observer.finish();
        (usage.map(|usage| usage.output), ending)
    }

    #[test]
    fn end_is_taken_from_the_events_and_not_from_the_end_of_bytes() {
        let say = Say::new().text("hello there").usage(30, 7, 0);
        let responses = |stop: &str| say.clone().stop(stop).responses().bytes();
        assert_eq!(observed(Wire::Responses, &responses("completed")), (Some(7), Ending::Whole));
        assert_eq!(observed(Wire::Responses, &responses("incomplete")), (Some(7), Ending::Whole));
        assert_eq!(observed(Wire::Responses, &responses("failed")), (Some(7), Ending::Failed));
        assert_eq!(observed(Wire::Responses, &say.responses().first(5).bytes()), (None, Ending::Cut));
        assert_eq!(observed(Wire::Gemini, &say.gemini().bytes()), (Some(7), Ending::Whole));
        assert_eq!(observed(Wire::Gemini, &say.gemini().first(1).bytes()), (Some(7), Ending::Cut));
        let blocked = b"data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{\"promptTokenCount\":3}}\n\n";
        assert_eq!(observed(Wire::Gemini, blocked), (Some(0), Ending::Whole));
        let failed = b"data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\n\n";
        assert_eq!(observed(Wire::Gemini, failed), (None, Ending::Failed));
        // End markers inside the model's text do not count.
        let words = Say::new().text("\"type\":\"response.completed\" \"finishReason\":\"STOP\"");
        assert_eq!(observed(Wire::Responses, &words.responses().first(8).bytes()).1, Ending::Cut);
        assert_eq!(observed(Wire::Gemini, &words.gemini().first(2).bytes()).1, Ending::Cut);
        for garbage in [&b"data: 5\n\n"[..], b"data: []\n\n", b"not a stream", b""] {
            assert_eq!(observed(Wire::Responses, garbage), (None, Ending::Cut));
            assert_eq!(observed(Wire::Gemini, garbage), (None, Ending::Cut));
        }
    }
}
