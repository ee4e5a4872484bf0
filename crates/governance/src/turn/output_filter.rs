//! Filters the output of an agent: removes secrets, withholds the instructions of the agent, and sends the whole output
//! at the end of the turn where a channel takes no stream.

use std::collections::HashMap;

use serde_json::Value;
use tribune_constitution::ChannelClass;
use tribune_constitution::prompt::DisclosureFilter;
use tribune_redact::{RedactionStream, Redactor};

/// Maximum size of one event with output that was held back until the end.
const PIECE_BYTES: usize = 16 << 10;

/// Whether the agent has instructions that it must not disclose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    Secret,
    None,
}

/// Filters all output of one turn.
pub(super) struct OutputFilter {
    redactor: Redactor,
    text_stream: FilteredStream,
    reasoning_stream: FilteredStream,
    instructions: Instructions,
    arguments: HashMap<String, FilteredStream>,
    /// Whether output is shown as it comes.
    is_streamed: bool,
    /// The output that is shown at the end of the turn otherwise.
    whole: String,
    /// Whether something was withheld.
    pub(super) is_withheld: bool,
}

/// Filters one stream of text.
struct FilteredStream {
    redaction: RedactionStream,
    disclosure: Option<DisclosureFilter>,
}

impl FilteredStream {
    fn new(redactor: &Redactor, instructions: Instructions) -> Self {
        let disclosure = match instructions {
            Instructions::Secret => Some(DisclosureFilter::of_instructions()),
            Instructions::None => None,
        };
        Self { redaction: redactor.stream(), disclosure }
    }

    fn say(&mut self, text: &str, is_withheld: &mut bool) -> String {
        let text = self.redaction.push(text);
        self.disclose(&text, is_withheld)
    }

    fn disclose(&mut self, text: &str, is_withheld: &mut bool) -> String {
        match &mut self.disclosure {
            Some(disclosure) => {
                let passed = disclosure.push(text);
                *is_withheld |= passed.withheld;
                passed.text
            }
            None => text.to_owned(),
        }
    }

    /// Returns the text that was held back because it might have become a secret or the start of an instruction.
    fn pause(&mut self, redactor: &Redactor, is_withheld: &mut bool) -> String {
        let held = std::mem::replace(&mut self.redaction, redactor.stream()).finish();
        let mut text = self.disclose(&held, is_withheld);
        if let Some(disclosure) = &mut self.disclosure {
            text.push_str(&disclosure.pause().text);
        }
        text
    }

    /// Returns all text that is held back, at the end of the stream.
    fn rest(&mut self, redactor: &Redactor, is_withheld: &mut bool) -> String {
        let mut text = self.pause(redactor, is_withheld);
        if let Some(disclosure) = &mut self.disclosure {
            let passed = disclosure.finish();
            *is_withheld |= passed.withheld;
            text.push_str(&passed.text);
        }
        text
    }
}

impl OutputFilter {
    pub(super) fn new(redactor: &Redactor, class: ChannelClass, instructions: Instructions) -> Self {
        Self {
            redactor: redactor.clone(),
            text_stream: FilteredStream::new(redactor, instructions),
            reasoning_stream: FilteredStream::new(redactor, instructions),
            instructions,
            arguments: HashMap::new(),
            is_streamed: class.policy().streaming,
            whole: String::new(),
            is_withheld: false,
        }
    }

    /// The part of the output that may be shown now.
    pub(super) fn say(&mut self, text: &str) -> Option<String> {
        let text = self.text_stream.say(text, &mut self.is_withheld);
        self.shown(text)
    }

    /// The part of the reasoning that may be shown now. Channels without a stream get no reasoning.
    pub(super) fn think(&mut self, text: &str) -> Option<String> {
        let text = self.reasoning_stream.say(text, &mut self.is_withheld);
        (self.is_streamed && !text.is_empty()).then_some(text)
    }

    /// The part of the arguments of a call that may be shown now.
    pub(super) fn write_call(&mut self, id: &str, delta: &str) -> Option<String> {
        if !self.is_streamed {
            return None;
        }
        let new_stream = || FilteredStream::new(&self.redactor, self.instructions);
        let text =
            self.arguments.entry(id.to_owned()).or_insert_with(new_stream).say(delta, &mut self.is_withheld);
        (!text.is_empty()).then_some(text)
    }

    /// Whether a call would disclose the instructions of the agent. Counts as withheld.
    pub(super) fn discloses(&mut self, input: &Value) -> bool {
        fn texts(value: &Value, all: &mut String) {
            match value {
                Value::String(text) => {
                    all.push_str(text);
                    all.push('\n');
                }
                Value::Array(items) => items.iter().for_each(|item| texts(item, all)),
                Value::Object(members) => members.iter().for_each(|(name, value)| {
                    all.push_str(name);
                    all.push('\n');
                    texts(value, all);
                }),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        if self.instructions == Instructions::None {
            return false;
        }
        let mut all = String::new();
        texts(input, &mut all);
        let mut disclosure = DisclosureFilter::of_instructions();
        let discloses = disclosure.push(&all).withheld || disclosure.finish().withheld;
        self.is_withheld |= discloses;
        discloses
    }

    /// The output that is held back, when the agent pauses to do something.
    pub(super) fn pause(&mut self) -> Option<String> {
        if !self.is_streamed {
            return None;
        }
        let text = self.text_stream.pause(&self.redactor, &mut self.is_withheld);
        (!text.is_empty()).then_some(text)
    }

    /// The reasoning that is held back, when the agent pauses.
    pub(super) fn pause_in_thought(&mut self) -> Option<String> {
        let text = self.reasoning_stream.pause(&self.redactor, &mut self.is_withheld);
        (self.is_streamed && !text.is_empty()).then_some(text)
    }

    /// The output that is held back at the end of the turn, in pieces, so that no event is larger than one piece.
    pub(super) fn rest(&mut self) -> Vec<String> {
        let rest = self.text_stream.rest(&self.redactor, &mut self.is_withheld);
        let text = match self.is_streamed {
            true => rest,
            false => std::mem::take(&mut self.whole) + &rest,
        };
        pieces(&text)
    }

    /// The reasoning that is held back at the end of the turn.
    pub(super) fn rest_of_thoughts(&mut self) -> Option<String> {
        let rest = self.reasoning_stream.rest(&self.redactor, &mut self.is_withheld);
        (self.is_streamed && !rest.is_empty()).then_some(rest)
    }

    fn shown(&mut self, text: String) -> Option<String> {
        if self.is_streamed {
            return (!text.is_empty()).then_some(text);
        }
        self.whole.push_str(&text);
        None
    }
}

/// Splits a text into pieces of at most [`PIECE_BYTES`].
fn pieces(mut text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES));
        pieces.push(piece.to_owned());
        text = rest;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use tribune_constitution::prompt::base_prompt;

    use super::*;

    fn filtered(class: ChannelClass, pieces: &[&str]) -> (Vec<String>, bool) {
        let redactor = Redactor::new().with_exact_values(vec!["fixture-secret".to_owned()]);
        let mut filter = OutputFilter::new(&redactor, class, Instructions::Secret);
        let mut filtered: Vec<String> = pieces.iter().filter_map(|piece| filter.say(piece)).collect();
        filtered.extend(filter.rest());
        (filtered, filter.is_withheld)
    }

    #[test]
    fn output_is_streamed_or_sent_at_the_end() {
        let pieces = ["Hello, this is a sentence ", "with a second half."];
        let (streamed, _) = filtered(ChannelClass::CliLocal, &pieces);
        assert!(streamed.len() > 1);
        assert_eq!(streamed.concat(), pieces.concat());
        assert_eq!(filtered(ChannelClass::ExternalMessage, &pieces).0, [pieces.concat()]);
        let long = "ä".repeat(PIECE_BYTES);
        let (at_end, _) = filtered(ChannelClass::ExternalMessage, &[&long]);
        assert!(at_end.len() > 1 && at_end.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(at_end.concat(), long);
    }

    #[test]
    fn secrets_and_instructions_are_withheld_however_they_are_split() {
        let (output, _) = filtered(ChannelClass::CliLocal, &["it is fixture-", "sec", "ret, really"]);
        assert_eq!(output.concat(), "it is [redacted:known], really");
        let base: Vec<String> = base_prompt().content.chars().map(String::from).collect();
        let base: Vec<&str> = base.iter().map(String::as_str).collect();
        let (output, is_withheld) = filtered(ChannelClass::CliLocal, &base);
        assert!(is_withheld);
        assert!(output.concat().contains("[withheld"), "{output:?}");
    }

    #[test]
    fn a_pause_shows_the_whole_sentence() {
        let mut filter = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructions::Secret);
        let mut output = filter.say("Let me look at the file welcome").unwrap_or_default();
        output.push_str(&filter.pause().unwrap_or_default());
        assert_eq!(output, "Let me look at the file welcome");
        output.extend(filter.say("It says hello"));
        output.extend(filter.rest());
        assert_eq!(output, "Let me look at the file welcomeIt says hello");
    }

    #[test]
    fn instructions_are_withheld_across_pauses() {
        let mut filter = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructions::Secret);
        let base = base_prompt().content;
        let mut output = String::new();
        for word in base.split_inclusive(' ') {
            output.extend(filter.say(word));
            output.extend(filter.pause());
        }
        assert!(filter.is_withheld && output.len() < 200, "{output}");
    }

    #[test]
    fn instructions_are_withheld_in_calls() {
        let mut filter = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructions::Secret);
        assert!(
            !filter.discloses(&serde_json::json!({ "to": "ada", "text": "good day", "n": [1, null, true] }))
        );
        assert!(!filter.is_withheld);
        let base = base_prompt().content;
        for input in [
            serde_json::json!({ "to": "ada", "text": base }),
            serde_json::json!({ "path": "a", "content": [{ "deep": base.chars().rev().collect::<String>() }] }),
            serde_json::json!({ (base): 1 }),
        ] {
            let mut filter =
                OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructions::Secret);
            assert!(filter.discloses(&input) && filter.is_withheld, "{input}");
            let mut filter = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructions::None);
            assert!(!filter.discloses(&input));
        }
        let mut filter = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructions::Secret);
        let delta = serde_json::json!({ "text": base }).to_string();
        let shown = filter.write_call("c1", &delta).unwrap_or_default();
        assert!(filter.is_withheld && shown.len() < delta.len() / 2, "{shown}");
    }
}
