//! Observes a stream in a format that has no parser: extracts the token usage and whether the stream is complete, and
//! ignores everything else.

use serde_json::Value;

use super::frames::{EventSplitter, StreamPiece, data};
use super::token_counter::{CountedUsage, ResponseEnd};
use super::wire::ApiFormat;
use crate::event::TokenUsage;

/// Observes one relayed stream.
#[derive(Debug)]
pub(super) struct UsageObserver {
    wire: ApiFormat,
    splitter: EventSplitter,
    usage: Option<TokenUsage>,
    ending: ResponseEnd,
}

impl UsageObserver {
    pub(super) fn new(wire: ApiFormat) -> Self {
        Self { wire, splitter: EventSplitter::default(), usage: None, ending: ResponseEnd::Truncated }
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
            ApiFormat::Responses => data.get("response").unwrap_or(&Value::Null),
            ApiFormat::Gemini | ApiFormat::Messages | ApiFormat::Chat => &data,
        };
        self.usage = self.wire.usage(response).or(self.usage);
        self.ending = match self.wire {
            ApiFormat::Responses => match data["type"].as_str() {
                Some("response.completed" | "response.incomplete") => ResponseEnd::Complete,
                Some("response.failed" | "error") => ResponseEnd::Failed,
                _ => self.ending,
            },
            ApiFormat::Gemini | ApiFormat::Messages | ApiFormat::Chat => {
                let ends = |candidate: &Value| candidate["finishReason"].is_string();
                let mut candidates = data["candidates"].as_array().into_iter().flatten();
                // A blocked prompt has no candidates but a block reason.
                let is_complete = candidates.any(ends) || data["promptFeedback"]["blockReason"].is_string();
                match data.get("error").is_some_and(Value::is_object) {
                    true => ResponseEnd::Failed,
                    false if is_complete => ResponseEnd::Complete,
                    false => self.ending,
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use tribune_testkit::upstream::ModelOutput;

    use super::*;

    fn observed(wire: ApiFormat, bytes: &[u8]) -> (Option<u64>, ResponseEnd) {
        let mut observer = UsageObserver::new(wire);
        bytes.chunks(13).for_each(|piece| observer.push(piece));
        let CountedUsage { usage, ending } = observer.finish();
        (usage.map(|usage| usage.output), ending)
    }

    #[test]
    fn end_is_taken_from_the_events_and_not_from_the_end_of_bytes() {
        let say = ModelOutput::new().text("hello there").usage(30, 7, 0);
        let responses = |stop: &str| say.clone().stop(stop).responses().bytes();
        assert_eq!(observed(ApiFormat::Responses, &responses("completed")), (Some(7), ResponseEnd::Complete));
        assert_eq!(
            observed(ApiFormat::Responses, &responses("incomplete")),
            (Some(7), ResponseEnd::Complete)
        );
        assert_eq!(observed(ApiFormat::Responses, &responses("failed")), (Some(7), ResponseEnd::Failed));
        assert_eq!(
            observed(ApiFormat::Responses, &say.responses().first(5).bytes()),
            (None, ResponseEnd::Truncated)
        );
        assert_eq!(observed(ApiFormat::Gemini, &say.gemini().bytes()), (Some(7), ResponseEnd::Complete));
        assert_eq!(
            observed(ApiFormat::Gemini, &say.gemini().first(1).bytes()),
            (Some(7), ResponseEnd::Truncated)
        );
        let blocked = b"data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{\"promptTokenCount\":3}}\n\n";
        assert_eq!(observed(ApiFormat::Gemini, blocked), (Some(0), ResponseEnd::Complete));
        let failed = b"data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\n\n";
        assert_eq!(observed(ApiFormat::Gemini, failed), (None, ResponseEnd::Failed));
        // End markers inside the model's text do not count.
        let words = ModelOutput::new().text("\"type\":\"response.completed\" \"finishReason\":\"STOP\"");
        assert_eq!(
            observed(ApiFormat::Responses, &words.responses().first(8).bytes()).1,
            ResponseEnd::Truncated
        );
        assert_eq!(observed(ApiFormat::Gemini, &words.gemini().first(2).bytes()).1, ResponseEnd::Truncated);
        for garbage in [&b"data: 5\n\n"[..], b"data: []\n\n", b"not a stream", b""] {
            assert_eq!(observed(ApiFormat::Responses, garbage), (None, ResponseEnd::Truncated));
            assert_eq!(observed(ApiFormat::Gemini, garbage), (None, ResponseEnd::Truncated));
        }
    }
}
