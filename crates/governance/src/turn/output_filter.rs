//! What an agent says on its way out: secrets are taken out, the agent's instructions are kept in, and a channel that takes
//! no pieces gets the whole at the end.

use std::collections::HashMap;

use serde_json::Value;
use tribune_constitution::ChannelClass;
use tribune_constitution::prompt::DisclosureFilter;
use tribune_redact::{RedactionStream, Redactor};

/// Bytes of one event with words that were held back until the end.
const PIECE_BYTES: usize = 16 << 10;

/// Whether the agent was given instructions that it must not disclose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructed {
    Yes,
    No,
}

/// Everything that is said in one turn.
pub(super) struct OutputFilter {
    redactor: Redactor,
    aloud: FilteredStream,
    thought: FilteredStream,
    instructed: Instructed,
    arguments: HashMap<String, FilteredStream>,
    /// Whether pieces are shown as they come.
    is_streamed: bool,
    /// What is shown at the end, where they are not.
    whole: String,
    /// Something was withheld.
    pub(super) is_withheld: bool,
}

/// One stream of words.
struct FilteredStream {
    redacting: RedactionStream,
    disclosure: Option<DisclosureFilter>,
}

impl FilteredStream {
    fn new(redactor: &Redactor, instructed: Instructed) -> Self {
        let disclosure = match instructed {
            Instructed::Yes => Some(DisclosureFilter::of_instructions()),
            Instructed::No => None,
        };
        Self { redacting: redactor.stream(), disclosure }
    }

    fn say(&mut self, text: &str, is_withheld: &mut bool) -> String {
        let text = self.redacting.push(text);
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

    /// What was held back because it might have become a secret, or the beginning of an instruction.
    fn pause(&mut self, redactor: &Redactor, is_withheld: &mut bool) -> String {
        let held = std::mem::replace(&mut self.redacting, redactor.stream()).finish();
        let mut text = self.disclose(&held, is_withheld);
        if let Some(disclosure) = &mut self.disclosure {
            text.push_str(&disclosure.pause().text);
        }
        text
    }

    /// What was held back.
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
    pub(super) fn new(redactor: &Redactor, class: ChannelClass, instructed: Instructed) -> Self {
        Self {
            redactor: redactor.clone(),
            aloud: FilteredStream::new(redactor, instructed),
            thought: FilteredStream::new(redactor, instructed),
            instructed,
            arguments: HashMap::new(),
            is_streamed: class.policy().streaming,
            whole: String::new(),
            is_withheld: false,
        }
    }

    /// What may be shown now of something said.
    pub(super) fn say(&mut self, text: &str) -> Option<String> {
        let text = self.aloud.say(text, &mut self.is_withheld);
        self.shown(text)
    }

    /// What may be shown now of a thought. Channels that take no pieces take no thoughts.
    pub(super) fn think(&mut self, text: &str) -> Option<String> {
        let text = self.thought.say(text, &mut self.is_withheld);
        (self.is_streamed && !text.is_empty()).then_some(text)
    }

    /// What may be shown now of a call that is being written.
    pub(super) fn write_call(&mut self, id: &str, delta: &str) -> Option<String> {
        if !self.is_streamed {
            return None;
        }
        let voice = || FilteredStream::new(&self.redactor, self.instructed);
        let text =
            self.arguments.entry(id.to_owned()).or_insert_with(voice).say(delta, &mut self.is_withheld);
        (!text.is_empty()).then_some(text)
    }

    /// Whether a call would carry the agent's instructions away. It is remembered as withheld.
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
        if self.instructed == Instructed::No {
            return false;
        }
        let mut all = String::new();
        texts(input, &mut all);
        let mut disclosure = DisclosureFilter::of_instructions();
        let discloses = disclosure.push(&all).withheld || disclosure.finish().withheld;
        self.is_withheld |= discloses;
        discloses
    }

    /// What was held back of what was said, when the agent falls silent to do something.
    pub(super) fn pause(&mut self) -> Option<String> {
        if !self.is_streamed {
            return None;
        }
        let text = self.aloud.pause(&self.redactor, &mut self.is_withheld);
        (!text.is_empty()).then_some(text)
    }

    /// The same of thoughts.
    pub(super) fn pause_in_thought(&mut self) -> Option<String> {
        let text = self.thought.pause(&self.redactor, &mut self.is_withheld);
        (self.is_streamed && !text.is_empty()).then_some(text)
    }

    /// What was held back of what was said, when the turn ends. Nobody has to hold more than a piece of it at once.
    pub(super) fn rest(&mut self) -> Vec<String> {
        let rest = self.aloud.rest(&self.redactor, &mut self.is_withheld);
        let text = match self.is_streamed {
            true => rest,
            false => std::mem::take(&mut self.whole) + &rest,
        };
        pieces(&text)
    }

    /// What was held back of thoughts.
    pub(super) fn rest_of_thoughts(&mut self) -> Option<String> {
        let rest = self.thought.rest(&self.redactor, &mut self.is_withheld);
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

/// A text in pieces that are no larger than an event should be.
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

    fn heard(class: ChannelClass, pieces: &[&str]) -> (Vec<String>, bool) {
        let redactor = Redactor::new().with_exact_values(vec!["fixture-secret".to_owned()]);
        let mut speech = OutputFilter::new(&redactor, class, Instructed::Yes);
        let mut heard: Vec<String> = pieces.iter().filter_map(|piece| speech.say(piece)).collect();
        heard.extend(speech.rest());
        (heard, speech.is_withheld)
    }

    #[test]
    fn pieces_come_as_they_are_said_or_all_at_once() {
        let pieces = ["Hello, this is a sentence ", "with a second half."];
        let (heard_here, _) = heard(ChannelClass::CliLocal, &pieces);
        assert!(heard_here.len() > 1);
        assert_eq!(heard_here.concat(), pieces.concat());
        assert_eq!(heard(ChannelClass::ExternalMessage, &pieces).0, [pieces.concat()]);
        let long = "ä".repeat(PIECE_BYTES);
        let (heard_there, _) = heard(ChannelClass::ExternalMessage, &[&long]);
        assert!(heard_there.len() > 1 && heard_there.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(heard_there.concat(), long);
    }

    #[test]
    fn secrets_and_instructions_stay_here_however_they_are_cut() {
        let (said, _) = heard(ChannelClass::CliLocal, &["it is fixture-", "sec", "ret, really"]);
        assert_eq!(said.concat(), "it is [redacted:known], really");
        let base: Vec<String> = base_prompt().content.chars().map(String::from).collect();
        let base: Vec<&str> = base.iter().map(String::as_str).collect();
        let (said, is_withheld) = heard(ChannelClass::CliLocal, &base);
        assert!(is_withheld);
        assert!(said.concat().contains("[withheld"), "{said:?}");
    }

    #[test]
    fn whoever_stops_to_do_something_has_said_the_whole_sentence() {
        let mut speech = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructed::Yes);
        let mut said = speech.say("Let me look at the file welcome").unwrap_or_default();
        said.push_str(&speech.pause().unwrap_or_default());
        assert_eq!(said, "Let me look at the file welcome");
        said.extend(speech.say("It says hello"));
        said.extend(speech.rest());
        assert_eq!(said, "Let me look at the file welcomeIt says hello");
    }

    #[test]
    fn instructions_are_withheld_whatever_is_done_between_their_words() {
        let mut speech = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructed::Yes);
        let base = base_prompt().content;
        let mut said = String::new();
        for word in base.split_inclusive(' ') {
            said.extend(speech.say(word));
            said.extend(speech.pause());
        }
        assert!(speech.is_withheld && said.len() < 200, "{said}");
    }

    #[test]
    fn instructions_do_not_leave_through_calls() {
        let mut speech = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructed::Yes);
        assert!(
            !speech.discloses(&serde_json::json!({ "to": "ada", "text": "good day", "n": [1, null, true] }))
        );
        assert!(!speech.is_withheld);
        let base = base_prompt().content;
        for input in [
            serde_json::json!({ "to": "ada", "text": base }),
            serde_json::json!({ "path": "a", "content": [{ "deep": base.chars().rev().collect::<String>() }] }),
            serde_json::json!({ (base): 1 }),
        ] {
            let mut speech = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructed::Yes);
            assert!(speech.discloses(&input) && speech.is_withheld, "{input}");
            let mut speech = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructed::No);
            assert!(!speech.discloses(&input));
        }
        let mut speech = OutputFilter::new(&Redactor::new(), ChannelClass::CliLocal, Instructed::Yes);
        let delta = serde_json::json!({ "text": base }).to_string();
        let shown = speech.write_call("c1", &delta).unwrap_or_default();
        assert!(speech.is_withheld && shown.len() < delta.len() / 2, "{shown}");
    }
}
