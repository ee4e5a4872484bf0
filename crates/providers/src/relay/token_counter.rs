//! Counts the tokens of a relayed response without delaying it.

use serde_json::Value;

use crate::decode_error::DecodeError;
use crate::event::{ModelEvent, TokenUsage};
use crate::ids::CallIds;
use crate::parser::StreamParser;

use super::usage_observer::UsageObserver;
use super::wire::ApiFormat;

/// Bytes of an unstreamed response that are kept for parsing; the tokens of a longer one stay unknown. A completion is
/// far smaller.
const MAX_WHOLE_BYTES: usize = 4 << 20;

/// Reads the usage of one response as its bytes are relayed.
#[derive(Debug)]
pub struct TokenCounter {
    wire: ApiFormat,
    state: CounterState,
    usage: Option<TokenUsage>,
}

#[derive(Debug)]
enum CounterState {
    /// A stream in a dialect that has a parser.
    Stream(Box<StreamParser>),
    /// A stream in another format.
    Observed(UsageObserver),
    /// An unstreamed JSON response.
    Whole(Vec<u8>),
    /// The rest of the response is not parsed.
    Over(ResponseEnd),
}

/// How a response ended, by its own content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEnd {
    /// It contains its end, or its format has no end marker.
    Complete,
    /// It stops before its end marker.
    Truncated,
    /// It ends with an error from the provider.
    Failed,
}

/// The result of counting one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedUsage {
    /// `None` if the provider did not report it.
    pub usage: Option<TokenUsage>,
    pub ending: ResponseEnd,
}

impl TokenCounter {
    /// For an event stream.
    pub fn for_stream(wire: ApiFormat) -> Self {
        let state = match wire.parser_dialect() {
            Some(dialect) => CounterState::Stream(Box::new(StreamParser::new(dialect, CallIds::default()))),
            None => CounterState::Observed(UsageObserver::new(wire)),
        };
        Self { wire, state, usage: None }
    }

    /// For an unstreamed JSON response.
    pub const fn for_json(wire: ApiFormat) -> Self {
        Self { wire, state: CounterState::Whole(Vec::new()), usage: None }
    }

    /// Parses the next bytes of the response.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.state {
            CounterState::Stream(parser) => {
                let mut events = Vec::new();
                let result = parser.push(bytes, &mut events);
                self.update_usage(&events);
                if let Err(error) = result {
                    self.state = CounterState::Over(ending(&error));
                }
            }
            CounterState::Observed(observer) => observer.push(bytes),
            CounterState::Whole(kept) if kept.len() + bytes.len() <= MAX_WHOLE_BYTES => {
                kept.extend_from_slice(bytes)
            }
            CounterState::Whole(_) => self.state = CounterState::Over(ResponseEnd::Complete),
            CounterState::Over(_) => {}
        }
    }

    /// Handles the end of the response, complete or not.
    pub fn finish(mut self) -> CountedUsage {
        let ending = match &mut self.state {
            CounterState::Stream(parser) => {
                let mut events = Vec::new();
                let result = parser.finish(&mut events);
                self.update_usage(&events);
                result.map_or_else(|error| ending(&error), |()| ResponseEnd::Complete)
            }
            CounterState::Whole(kept) => {
                let response = serde_json::from_slice::<Value>(kept).unwrap_or(Value::Null);
                self.usage = self.wire.usage(&response);
                ResponseEnd::Complete
            }
            CounterState::Observed(observer) => {
                let counted = observer.finish();
                self.usage = counted.usage;
                counted.ending
            }
            CounterState::Over(ending) => *ending,
        };
        CountedUsage { usage: self.usage, ending }
    }

    fn update_usage(&mut self, events: &[ModelEvent]) {
        let reported = events.iter().rev().find_map(|event| match event {
            ModelEvent::Usage(usage) => Some(*usage),
            _ => None,
        });
        self.usage = reported.or(self.usage);
    }
}

/// A stream that Tribune cannot parse may still be complete for the client.
const fn ending(error: &DecodeError) -> ResponseEnd {
    match error {
        DecodeError::Truncated => ResponseEnd::Truncated,
        DecodeError::Reported(_) => ResponseEnd::Failed,
        DecodeError::Malformed(_) | DecodeError::TooLarge { .. } => ResponseEnd::Complete,
    }
}

#[cfg(test)]
mod tests {
    use tribune_testkit::upstream::ModelOutput;

    use super::*;

    fn counted(mut tally: TokenCounter, bytes: &[u8], piece: usize) -> CountedUsage {
        bytes.chunks(piece).for_each(|piece| tally.push(piece));
        tally.finish()
    }

    #[test]
    fn stream_usage_does_not_depend_on_chunking() {
        let say = ModelOutput::new().text("hello").call("c1", "read", "{}").usage(30, 7, 60);
        let usage = Some(TokenUsage { input: 30, output: 7, cache_read: 60, cache_written: 0 });
        for piece in [1, 7, usize::MAX] {
            for (wire, bytes) in [
                (ApiFormat::Messages, say.anthropic().bytes()),
                (ApiFormat::Chat, say.openai().bytes()),
                (ApiFormat::Chat, say.openai().crlf().bytes()),
                (ApiFormat::Responses, say.responses().bytes()),
                (ApiFormat::Responses, say.responses().multiline_data().bytes()),
                (ApiFormat::Gemini, say.gemini().bytes()),
            ] {
                let wanted = CountedUsage { usage, ending: ResponseEnd::Complete };
                assert_eq!(
                    counted(TokenCounter::for_stream(wire), &bytes, piece),
                    wanted,
                    "{wire:?} {piece}"
                );
            }
        }
    }

    #[test]
    fn truncated_stream_keeps_the_usage_reported_so_far() {
        let bytes = ModelOutput::new().text("hello").usage(30, 7, 0).anthropic().first(4).bytes();
        let CountedUsage { usage, ending } =
            counted(TokenCounter::for_stream(ApiFormat::Messages), &bytes, 11);
        assert_eq!((usage.map(|usage| usage.input), ending), (Some(30), ResponseEnd::Truncated));
        let failed = b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
        assert_eq!(
            counted(TokenCounter::for_stream(ApiFormat::Messages), failed, 9),
            CountedUsage { usage: None, ending: ResponseEnd::Failed }
        );
    }

    #[test]
    fn unstreamed_response_usage() {
        let anthropic =
            br#"{"content":[],"usage":{"input_tokens":5,"output_tokens":2,"cache_creation_input_tokens":1}}"#;
        let usage = TokenUsage { input: 5, output: 2, cache_read: 0, cache_written: 1 };
        assert_eq!(counted(TokenCounter::for_json(ApiFormat::Messages), anthropic, 10).usage, Some(usage));
        let openai = br#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
        let usage = TokenUsage { input: 5, output: 2, ..TokenUsage::default() };
        assert_eq!(counted(TokenCounter::for_json(ApiFormat::Chat), openai, 10).usage, Some(usage));
        let responses = br#"{"output":[],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":2}}"#;
        let usage = TokenUsage { input: 5, output: 2, cache_read: 4, cache_written: 0 };
        assert_eq!(counted(TokenCounter::for_json(ApiFormat::Responses), responses, 10).usage, Some(usage));
        let gemini = ModelOutput::new().text("hello").usage(5, 2, 4).gemini_unstreamed().bytes();
        assert_eq!(counted(TokenCounter::for_json(ApiFormat::Gemini), &gemini, 10).usage, Some(usage));
        for none in [&b"{}"[..], b"not json", b"{\"usage\":null}", &vec![b' '; MAX_WHOLE_BYTES + 1]] {
            assert_eq!(counted(TokenCounter::for_json(ApiFormat::Chat), none, 1 << 20).usage, None);
        }
    }
}
