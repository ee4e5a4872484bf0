//! Keeps a key out of a stream whose words come in pieces: half of it in one event, the rest in the next.
//!
//! The texts of an answer are followed one by one, each by the place it has in its events. Where one of them ends like the key
//! begins, events wait until it is known how it goes on. Of a key that is found every character becomes `*`, and only the events
//! that hold some of it are written anew; all others pass to the byte.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use serde_json::Value;

use super::frames::{Frames, Piece, data, with_data};
use super::mask_key::MIN_KEY_BYTES;
use crate::key::ApiKey;

/// Characters of a key that a text may end with before its event is held back: fewer say nothing about it, and words end so.
const TELLING: usize = 4;

/// Bytes of events that wait. Beyond it what looks like the beginning of a key is taken for one.
const MAX_HELD_BYTES: usize = 256 << 10;

/// Texts of one answer that are followed at once.
const MAX_TEXTS: usize = 1024;

/// Nesting of an event that is looked into.
const MAX_DEPTH: usize = 32;

/// Events on their way to someone who must not see the key.
pub struct Deltas {
    key: Option<ApiKey>,
    frames: Frames,
    waiting: VecDeque<Waiting>,
    /// Number of the next event.
    next: u64,
    /// How each text ends, as far as that may be the beginning of the key.
    ends: HashMap<String, Vec<Part>>,
}

/// An event that is not let out yet.
struct Waiting {
    number: u64,
    bytes: Vec<u8>,
    /// What has to go, by the name of its text.
    blanks: Vec<(String, Range<usize>)>,
}

/// Some bytes of a text, in the event that brought them.
#[derive(Clone)]
struct Part {
    number: u64,
    range: Range<usize>,
}

impl std::fmt::Debug for Deltas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deltas")
    }
}

impl Deltas {
    pub(super) fn new(key: Option<&ApiKey>) -> Self {
        let key = key.filter(|key| key.bytes().len() >= MIN_KEY_BYTES).cloned();
        Self { key, frames: Frames::default(), waiting: VecDeque::new(), next: 0, ends: HashMap::new() }
    }

    /// Takes the next bytes and gives those of events that can go on.
    #[must_use]
    pub fn push(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Some(key) = self.key.clone() else { return bytes };
        let mut frames = std::mem::take(&mut self.frames);
        frames.push(bytes, |piece| match piece {
            Piece::Event(event) => self.event(event, key.bytes()),
            Piece::Loose(bytes) => drop(self.wait(bytes)),
        });
        self.frames = frames;
        if self.waiting.iter().map(|event| event.bytes.len()).sum::<usize>() > MAX_HELD_BYTES {
            for (text, parts) in std::mem::take(&mut self.ends) {
                self.blank(&text, &parts);
            }
        }
        self.let_out()
    }

    /// The stream has ended: gives everything that waits.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        self.ends.clear();
        let mut out = self.let_out();
        out.extend(self.frames.finish());
        out
    }

    fn wait(&mut self, bytes: Vec<u8>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.push_back(Waiting { number, bytes, blanks: Vec::new() });
        number
    }

    fn event(&mut self, event: Vec<u8>, key: &[u8]) {
        let mut value = data(&event);
        let number = self.wait(event);
        let mut texts = Vec::new();
        if let Some(value) = &mut value {
            each_text(value, &mut String::new(), 0, &mut |name, text| {
                texts.push((name.to_owned(), text.clone()))
            });
        }
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            self.text(name, &text, number, key);
        }
    }

    /// Follows a text one piece further.
    fn text(&mut self, name: String, text: &str, number: u64, key: &[u8]) {
        let mut parts = self.ends.remove(&name).unwrap_or_default();
        let before: usize = parts.iter().map(|part| part.range.len()).sum();
        // INVARIANT: what a text ended with is how the key begins.
        let all = [&key[..before.min(key.len())], text.as_bytes()].concat();
        parts.push(Part { number, range: 0..text.len() });
        let mut from = 0;
        while let Some(at) = find(&all[from..], key) {
            let found = from + at..from + at + key.len();
            from = found.end;
            self.blank(&name, &within(&parts, found));
        }
        let rest = &all[from..];
        let longest = rest.len().min(key.len() - 1);
        let end = (1..=longest).rev().find(|length| key.starts_with(&rest[rest.len() - length..]));
        if let Some(length) = end
            && self.ends.len() < MAX_TEXTS
        {
            self.ends.insert(name, within(&parts, all.len() - length..all.len()));
        }
    }

    /// Marks bytes of a text in the events that still wait.
    fn blank(&mut self, name: &str, parts: &[Part]) {
        for part in parts {
            if let Some(event) = self.waiting.iter_mut().find(|event| event.number == part.number) {
                event.blanks.push((name.to_owned(), part.range.clone()));
            }
        }
    }

    /// Everything before the first event that may hold some of a key.
    fn let_out(&mut self) -> Vec<u8> {
        let telling =
            |parts: &&Vec<Part>| parts.iter().map(|part| part.range.len()).sum::<usize>() >= TELLING;
        let held = self.ends.values().filter(telling).flatten().map(|part| part.number).min();
        let mut out = Vec::new();
        let ready =
            self.waiting.iter().take_while(|event| held.is_none_or(|held| event.number < held)).count();
        for event in self.waiting.drain(..ready) {
            out.extend(event.written());
        }
        out
    }
}

impl Waiting {
    fn written(self) -> Vec<u8> {
        let Some(mut value) = data(&self.bytes).filter(|_| !self.blanks.is_empty()) else {
            return self.bytes;
        };
        each_text(&mut value, &mut String::new(), 0, &mut |name, text| {
            for (_, range) in self.blanks.iter().filter(|(own, _)| own == name) {
                if text.get(range.clone()).is_some() {
                    text.replace_range(range.clone(), &"*".repeat(range.len()));
                }
            }
        });
        with_data(&self.bytes, &value)
    }
}

/// Every text of an event, with a name that is the same in the events that go on with it.
fn each_text(value: &mut Value, name: &mut String, depth: usize, each: &mut impl FnMut(&str, &mut String)) {
    if depth > MAX_DEPTH {
        return;
    }
    let mut under = |name: &mut String, word: &str, value: &mut Value| {
        let length = name.len();
        name.push('/');
        name.push_str(word);
        each_text(value, name, depth + 1, each);
        name.truncate(length);
    };
    match value {
        Value::String(text) => each(name, text),
        Value::Array(items) => {
            for (place, item) in items.iter_mut().enumerate() {
                let number = item.get("index").and_then(Value::as_u64).unwrap_or(place as u64);
                under(name, &number.to_string(), item);
            }
        }
        Value::Object(members) => {
            // The Responses API numbers its items, and tells each in events of its own.
            let index = ["index", "output_index"].iter().find_map(|name| members.get(*name)?.as_u64());
            let index = index.map(|index| index.to_string());
            for (word, value) in members.iter_mut() {
                match &index {
                    Some(index) => under(name, &format!("{index}.{word}"), value),
                    None => under(name, word, value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The parts of what stands at a place, counted from the beginning of all parts.
fn within(parts: &[Part], range: Range<usize>) -> Vec<Part> {
    let mut at = 0;
    let mut found = Vec::new();
    for part in parts {
        let (begin, end) = (range.start.max(at), range.end.min(at + part.range.len()));
        if begin < end {
            let start = part.range.start + (begin - at);
            found.push(Part { number: part.number, range: start..start + (end - begin) });
        }
        at += part.range.len();
    }
    found
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use tribune_testkit::upstream::{Reply, Say};

    use super::*;

    const KEY: &str = "fixture-key-5f1c9e0b7a";

    fn passed(bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut deltas = Deltas::new(ApiKey::new(KEY).as_ref());
        let mut out = Vec::new();
        for piece in bytes.chunks(piece) {
            out.extend(deltas.push(piece.to_vec()));
        }
        out.extend(deltas.finish());
        out
    }

    fn delta(index: u64, text: &str) -> (Option<&'static str>, String) {
        let delta = json!({ "type": "content_block_delta", "index": index, "delta": { "type": "text_delta", "text": text } });
        (Some("content_block_delta"), delta.to_string())
    }

    /// What a reader puts together, by block.
    fn read(bytes: &[u8]) -> HashMap<u64, String> {
        let mut all: HashMap<u64, String> = HashMap::new();
        for event in
            String::from_utf8(bytes.to_vec()).unwrap().split("\n\n").filter(|event| !event.is_empty())
        {
            let value = data(event.as_bytes()).unwrap();
            let text = value["delta"]["text"].as_str().unwrap_or_default();
            all.entry(value["index"].as_u64().unwrap_or(0)).or_default().push_str(text);
        }
        all
    }

    #[test]
    fn a_key_in_pieces_is_veiled_in_every_dialect_and_the_rest_stays() {
        let say = Say::new()
            .thinking(&format!("it is {KEY}!"), "c2ln")
            .text(&format!("so {KEY} and {KEY}."))
            .call("c1", "read", &format!("{{\"path\":\"{KEY}\"}}"));
        for reply in [
            say.anthropic(),
            say.openai(),
            say.openai().crlf(),
            say.anthropic().many_lines(),
            say.responses(),
            say.gemini(),
        ] {
            for piece in [1, 7, usize::MAX] {
                let text = String::from_utf8(passed(&reply.bytes(), piece)).unwrap();
                let mut frames = Frames::default();
                let mut joined = String::new();
                frames.push(text.clone().into_bytes(), |piece| {
                    if let Piece::Event(event) = piece
                        && let Some(mut value) = data(&event)
                    {
                        each_text(&mut value, &mut String::new(), 0, &mut |_, text| joined.push_str(text));
                    }
                });
                assert!(!joined.contains(&KEY[3..]) && joined.matches('*').count() >= 60, "{joined}");
                let ends = ["message_stop", "[DONE]", "response.completed", "finishReason"];
                assert!(ends.iter().any(|end| text.contains(end)), "{text}");
            }
        }
    }

    #[test]
    fn texts_between_each_other_are_kept_apart_and_in_order() {
        let (one, two) = KEY.split_at(10);
        let events = [delta(0, one), delta(1, "fixt"), delta(1, "ure"), delta(0, two), delta(1, " ends")];
        let out = passed(&Reply::events(events).bytes(), usize::MAX);
        assert_eq!(read(&out)[&0], "*".repeat(KEY.len()));
        assert_eq!(read(&out)[&1], "fixture ends");
        let plain =
            Reply::events([delta(0, "fixture-key-"), delta(0, "less, f"), delta(0, "ixture")]).bytes();
        assert_eq!(passed(&plain, 5), plain, "what is no key passes to the byte");
        let escaped = format!("data: {{\"text\":\"\\u0066{}\"}}\n\n", &KEY[1..]);
        assert!(!String::from_utf8(passed(escaped.as_bytes(), 9)).unwrap().contains(&KEY[1..]));
    }

    #[test]
    fn a_beginning_that_goes_on_for_too_long_is_taken_for_a_key() {
        let mut events = vec![delta(0, &KEY[..12])];
        events.extend((0..40).map(|_| delta(1, &"x".repeat(10_000))));
        let mut deltas = Deltas::new(ApiKey::new(KEY).as_ref());
        let out = deltas.push(Reply::events(events).bytes());
        assert_eq!(read(&out)[&0], "*".repeat(12));
    }

    proptest! {
        #[test]
        fn no_way_to_cut_it_lets_a_key_through(
            before in "[fix ]{0,6}", after in "[fix ]{0,6}",
            mut cuts in prop::collection::vec(0_usize..40, 0..8), piece in 1_usize..200,
        ) {
            let text = format!("{before}{KEY}{after}");
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut from = 0;
            let mut events = Vec::new();
            for cut in cuts.into_iter().map(|cut| cut.min(text.len())) {
                events.push(delta(0, &text[from..cut]));
                events.push(delta(1, "f"));
                from = cut;
            }
            let out = passed(&Reply::events(events).bytes(), piece);
            let said = read(&out)[&0].clone();
            prop_assert_eq!(said.len(), text.len());
            prop_assert!(!said.contains(&KEY[TELLING - 1..]), "{}", said);
            prop_assert!(said.starts_with(&before) && said.ends_with(&after), "{}", said);
        }
    }
}
