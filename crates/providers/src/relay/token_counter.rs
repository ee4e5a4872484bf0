//! Counts the tokens of an answer that passes by, without holding it up.

use serde_json::Value;

use crate::decode_error::Fault;
use crate::event::{ModelEvent, TokenUsage};
use crate::ids::CallIds;
use crate::parser::Parser;

use super::usage_observer::Watch;
use super::wire::Wire;

/// Bytes of an answer in one piece that are kept to be read; the tokens of a longer one are not known. A completion is far
/// below this.
const MAX_WHOLE_BYTES: usize = 4 << 20;

/// Reads along.
#[derive(Debug)]
pub struct Tally {
    wire: Wire,
    form: Form,
    usage: Option<TokenUsage>,
}

#[derive(Debug)]
enum Form {
    /// One that our own loop reads as well.
    Stream(Box<Parser>),
    Watched(Watch),
    Whole(Vec<u8>),
    /// Nothing more can be learned from it.
    Over(Ending),
}

/// How an answer ended, as far as its own words say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It has its end, or is of a kind that has none of its own.
    Whole,
    /// It stops before its end.
    Cut,
    /// It ends with an error of the provider's.
    Failed,
}

/// What was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tallied {
    /// `None` if the provider did not say.
    pub usage: Option<TokenUsage>,
    pub ending: Ending,
}

impl Tally {
    /// For a stream of events.
    pub fn of_stream(wire: Wire) -> Self {
        let form = match wire.parsed_as() {
            Some(dialect) => Form::Stream(Box::new(Parser::new(dialect, CallIds::default()))),
            None => Form::Watched(Watch::new(wire)),
        };
        Self { wire, form, usage: None }
    }

    /// For an answer in one piece of JSON.
    pub const fn of_whole(wire: Wire) -> Self {
        Self { wire, form: Form::Whole(Vec::new()), usage: None }
    }

    /// Takes bytes that pass by.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.form {
            Form::Stream(parser) => {
                let mut events = Vec::new();
                let result = parser.push(bytes, &mut events);
                self.take(&events);
                if let Err(fault) = result {
                    self.form = Form::Over(ending(&fault));
                }
            }
            Form::Watched(watch) => watch.push(bytes),
            Form::Whole(kept) if kept.len() + bytes.len() <= MAX_WHOLE_BYTES => kept.extend_from_slice(bytes),
            Form::Whole(_) => self.form = Form::Over(Ending::Whole),
            Form::Over(_) => {}
        }
    }

    /// The answer has ended, well or not.
    pub fn finish(mut self) -> Tallied {
        let ending = match &mut self.form {
            Form::Stream(parser) => {
                let mut events = Vec::new();
                let result = parser.finish(&mut events);
                self.take(&events);
                result.map_or_else(|fault| ending(&fault), |()| Ending::Whole)
            }
            Form::Whole(kept) => {
                let said = serde_json::from_slice::<Value>(kept).unwrap_or(Value::Null);
                self.usage = self.wire.usage(&said);
                Ending::Whole
            }
            Form::Watched(watch) => {
                let (usage, ending) = watch.finish();
                self.usage = usage;
                ending
            }
            Form::Over(ending) => *ending,
        };
        Tallied { usage: self.usage, ending }
    }

    fn take(&mut self, events: &[ModelEvent]) {
        let counted = events.iter().rev().find_map(|event| match event {
            ModelEvent::Usage(usage) => Some(*usage),
            _ => None,
        });
        self.usage = counted.or(self.usage);
    }
}

/// What cannot be read by us may still be whole for whoever asked.
const fn ending(fault: &Fault) -> Ending {
    match fault {
        Fault::Cut => Ending::Cut,
        Fault::Complaint(_) => Ending::Failed,
        Fault::Malformed(_) | Fault::TooLarge { .. } => Ending::Whole,
    }
}

#[cfg(test)]
mod tests {
    use tribune_testkit::upstream::Say;

    use super::*;

    fn tallied(mut tally: Tally, bytes: &[u8], piece: usize) -> Tallied {
        bytes.chunks(piece).for_each(|piece| tally.push(piece));
        tally.finish()
    }

    #[test]
    fn tokens_of_a_stream_are_counted_wherever_it_is_cut() {
        let say = Say::new().text("hello").call("c1", "read", "{}").usage(30, 7, 60);
        let usage = Some(TokenUsage { input: 30, output: 7, cache_read: 60, cache_written: 0 });
        for piece in [1, 7, usize::MAX] {
            for (wire, bytes) in [
                (Wire::Messages, say.anthropic().bytes()),
                (Wire::Chat, say.openai().bytes()),
                (Wire::Chat, say.openai().crlf().bytes()),
                (Wire::Responses, say.responses().bytes()),
                (Wire::Responses, say.responses().many_lines().bytes()),
                (Wire::Gemini, say.gemini().bytes()),
            ] {
                let wanted = Tallied { usage, ending: Ending::Whole };
                assert_eq!(tallied(Tally::of_stream(wire), &bytes, piece), wanted, "{wire:?} {piece}");
            }
        }
    }

    #[test]
    fn a_stream_without_its_end_is_cut_and_what_it_said_counts() {
        let bytes = Say::new().text("hello").usage(30, 7, 0).anthropic().first(4).bytes();
        let Tallied { usage, ending } = tallied(Tally::of_stream(Wire::Messages), &bytes, 11);
        assert_eq!((usage.map(|usage| usage.input), ending), (Some(30), Ending::Cut));
        let failed = b"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
        assert_eq!(
            tallied(Tally::of_stream(Wire::Messages), failed, 9),
            Tallied { usage: None, ending: Ending::Failed }
        );
    }

    #[test]
    fn tokens_of_an_answer_in_one_piece() {
        let anthropic =
            br#"{"content":[],"usage":{"input_tokens":5,"output_tokens":2,"cache_creation_input_tokens":1}}"#;
        let usage = TokenUsage { input: 5, output: 2, cache_read: 0, cache_written: 1 };
        assert_eq!(tallied(Tally::of_whole(Wire::Messages), anthropic, 10).usage, Some(usage));
        let openai = br#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
        let usage = TokenUsage { input: 5, output: 2, ..TokenUsage::default() };
        assert_eq!(tallied(Tally::of_whole(Wire::Chat), openai, 10).usage, Some(usage));
        let responses = br#"{"output":[],"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":2}}"#;
        let usage = TokenUsage { input: 5, output: 2, cache_read: 4, cache_written: 0 };
        assert_eq!(tallied(Tally::of_whole(Wire::Responses), responses, 10).usage, Some(usage));
        let gemini = Say::new().text("hello").usage(5, 2, 4).gemini_whole().bytes();
        assert_eq!(tallied(Tally::of_whole(Wire::Gemini), &gemini, 10).usage, Some(usage));
        for none in [&b"{}"[..], b"not json", b"{\"usage\":null}", &vec![b' '; MAX_WHOLE_BYTES + 1]] {
            assert_eq!(tallied(Tally::of_whole(Wire::Chat), none, 1 << 20).usage, None);
        }
    }
}
