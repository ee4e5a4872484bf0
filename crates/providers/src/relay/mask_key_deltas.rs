//! Masks the API key in an event stream, where the key may be split between the text deltas of several events.
//!
//! Each text of a response is tracked separately, identified by its path in the event data. While the end of a text may
//! be the start of the key, events are held back until the text continues. Every character of a found key becomes `*`.
//! Only events that contain a part of the key are rewritten; all others pass unchanged.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use serde_json::Value;

use super::frames::{EventSplitter, StreamPiece, data, with_data};
use super::mask_key::MIN_KEY_BYTES;
use crate::key::ApiKey;

/// Length of a key prefix at the end of a text from which on events are held back. Shorter ones reveal nothing of the
/// key and occur in ordinary words.
const MIN_HELD_PREFIX: usize = 4;

/// Bytes of events that are held back. Beyond this limit a possible start of the key is masked like a key.
const MAX_HELD_BYTES: usize = 256 << 10;

/// Texts of one response that are tracked at once.
const MAX_TEXTS: usize = 1024;

/// Nesting depth of an event that is searched.
const MAX_DEPTH: usize = 32;

/// Masks the key in the events of one response.
pub struct DeltaKeyMask {
    key: Option<ApiKey>,
    splitter: EventSplitter,
    held: VecDeque<HeldEvent>,
    /// Number of the next event.
    next: u64,
    /// By text path: the end of the text, if it may be the start of the key.
    open_prefixes: HashMap<String, Vec<TextSpan>>,
}

/// An event that is held back.
struct HeldEvent {
    number: u64,
    bytes: Vec<u8>,
    /// The ranges to mask.
    masks: Vec<TextRange>,
}

/// A byte range of the text with this path.
struct TextRange {
    path: String,
    range: Range<usize>,
}

/// A byte range of a text in one event.
#[derive(Clone)]
struct TextSpan {
    /// The number of the event.
    number: u64,
    range: Range<usize>,
}

impl std::fmt::Debug for DeltaKeyMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deltas")
    }
}

impl DeltaKeyMask {
    pub(super) fn new(key: Option<&ApiKey>) -> Self {
        let key = key.filter(|key| key.bytes().len() >= MIN_KEY_BYTES).cloned();
        Self {
            key,
            splitter: EventSplitter::default(),
            held: VecDeque::new(),
            next: 0,
            open_prefixes: HashMap::new(),
        }
    }

    /// Takes the next bytes and returns the events that can be passed on.
    #[must_use]
    pub fn push(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Some(key) = self.key.clone() else { return bytes };
        let mut splitter = std::mem::take(&mut self.splitter);
        splitter.push(bytes, |piece| match piece {
            StreamPiece::Event(event) => self.event(event, key.bytes()),
            StreamPiece::Loose(bytes) => drop(self.hold(bytes)),
        });
        self.splitter = splitter;
        if self.held.iter().map(|event| event.bytes.len()).sum::<usize>() > MAX_HELD_BYTES {
            for (path, spans) in std::mem::take(&mut self.open_prefixes) {
                self.mask(&path, &spans);
            }
        }
        self.release()
    }

    /// Handles the end of the stream: returns all events that were held back.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        self.open_prefixes.clear();
        let mut out = self.release();
        out.extend(self.splitter.finish());
        out
    }

    /// Holds an event back and returns its number.
    fn hold(&mut self, bytes: Vec<u8>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.held.push_back(HeldEvent { number, bytes, masks: Vec::new() });
        number
    }

    fn event(&mut self, event: Vec<u8>, key: &[u8]) {
        let mut value = data(&event);
        let number = self.hold(event);
        let mut texts = Vec::new();
        if let Some(value) = &mut value {
            each_text(value, &mut String::new(), 0, &mut |path, text| {
                texts.push((path.to_owned(), text.clone()))
            });
        }
        for (path, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            self.append(path, &text, number, key);
        }
    }

    /// Appends the part of a text that event `number` contains, and searches the key in it.
    fn append(&mut self, path: String, text: &str, number: u64, key: &[u8]) {
        let mut spans = self.open_prefixes.remove(&path).unwrap_or_default();
        let before: usize = spans.iter().map(|span| span.range.len()).sum();
        // INVARIANT: the open prefix of a text is a prefix of the key.
        let all = [&key[..before.min(key.len())], text.as_bytes()].concat();
        spans.push(TextSpan { number, range: 0..text.len() });
        let mut from = 0;
        while let Some(at) = find(&all[from..], key) {
            let found = from + at..from + at + key.len();
            from = found.end;
            self.mask(&path, &slice(&spans, found));
        }
        let rest = &all[from..];
        let longest = rest.len().min(key.len() - 1);
        let prefix = (1..=longest).rev().find(|length| key.starts_with(&rest[rest.len() - length..]));
        if let Some(length) = prefix
            && self.open_prefixes.len() < MAX_TEXTS
        {
            self.open_prefixes.insert(path, slice(&spans, all.len() - length..all.len()));
        }
    }

    /// Marks spans of a text for masking, in the events that are still held.
    fn mask(&mut self, path: &str, spans: &[TextSpan]) {
        for span in spans {
            if let Some(event) = self.held.iter_mut().find(|event| event.number == span.number) {
                event.masks.push(TextRange { path: path.to_owned(), range: span.range.clone() });
            }
        }
    }

    /// Releases all events before the first one that may contain a part of the key.
    fn release(&mut self) -> Vec<u8> {
        let is_long_enough = |spans: &&Vec<TextSpan>| {
            spans.iter().map(|span| span.range.len()).sum::<usize>() >= MIN_HELD_PREFIX
        };
        let prefixes = self.open_prefixes.values().filter(is_long_enough);
        let first_held = prefixes.flatten().map(|span| span.number).min();
        let mut out = Vec::new();
        let ready = self.held.iter().take_while(|event| first_held.is_none_or(|first| event.number < first));
        let ready = ready.count();
        for event in self.held.drain(..ready) {
            out.extend(event.into_masked());
        }
        out
    }
}

impl HeldEvent {
    /// The bytes of the event, rewritten only if something is to be masked.
    fn into_masked(self) -> Vec<u8> {
        let Some(mut value) = data(&self.bytes).filter(|_| !self.masks.is_empty()) else {
            return self.bytes;
        };
        each_text(&mut value, &mut String::new(), 0, &mut |path, text| {
            for TextRange { range, .. } in self.masks.iter().filter(|mask| mask.path == path) {
                if text.get(range.clone()).is_some() {
                    text.replace_range(range.clone(), &"*".repeat(range.len()));
                }
            }
        });
        with_data(&self.bytes, &value)
    }
}

/// Calls `each` for every text of an event, with a path that is the same in all events that continue the text.
fn each_text(value: &mut Value, path: &mut String, depth: usize, each: &mut impl FnMut(&str, &mut String)) {
    if depth > MAX_DEPTH {
        return;
    }
    let mut descend = |path: &mut String, member: &str, value: &mut Value| {
        let length = path.len();
        path.push('/');
        path.push_str(member);
        each_text(value, path, depth + 1, each);
        path.truncate(length);
    };
    match value {
        Value::String(text) => each(path, text),
        Value::Array(items) => {
            for (position, item) in items.iter_mut().enumerate() {
                let number = item.get("index").and_then(Value::as_u64).unwrap_or(position as u64);
                descend(path, &number.to_string(), item);
            }
        }
        Value::Object(members) => {
            // The Responses API numbers its items, and sends each in separate events.
            let index = ["index", "output_index"].iter().find_map(|name| members.get(*name)?.as_u64());
            let index = index.map(|index| index.to_string());
            for (member, value) in members.iter_mut() {
                match &index {
                    Some(index) => descend(path, &format!("{index}.{member}"), value),
                    None => descend(path, member, value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The spans that cover `range`, which counts from the start of the first span.
fn slice(spans: &[TextSpan], range: Range<usize>) -> Vec<TextSpan> {
    let mut at = 0;
    let mut found = Vec::new();
    for span in spans {
        let (begin, end) = (range.start.max(at), range.end.min(at + span.range.len()));
        if begin < end {
            let start = span.range.start + (begin - at);
            found.push(TextSpan { number: span.number, range: start..start + (end - begin) });
        }
        at += span.range.len();
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
    use tribune_testkit::upstream::{ModelOutput, UpstreamReply};

    use super::*;

    const KEY: &str = "fixture-key-5f1c9e0b7a";

    fn masked(bytes: &[u8], chunk_size: usize) -> Vec<u8> {
        let mut deltas = DeltaKeyMask::new(ApiKey::new(KEY).as_ref());
        let mut out = Vec::new();
        for chunk in bytes.chunks(chunk_size) {
            out.extend(deltas.push(chunk.to_vec()));
        }
        out.extend(deltas.finish());
        out
    }

    fn delta(index: u64, text: &str) -> (Option<&'static str>, String) {
        let delta = json!({ "type": "content_block_delta", "index": index, "delta": { "type": "text_delta", "text": text } });
        (Some("content_block_delta"), delta.to_string())
    }

    /// The texts that a reader assembles, by block.
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
    fn split_key_is_masked_in_every_api_format_and_the_rest_is_kept() {
        let say = ModelOutput::new()
            .thinking(&format!("it is {KEY}!"), "c2ln")
            .text(&format!("so {KEY} and {KEY}."))
            .call("c1", "read", &format!("{{\"path\":\"{KEY}\"}}"));
        for reply in [
            say.anthropic(),
            say.openai(),
            say.openai().crlf(),
            say.anthropic().multiline_data(),
            say.responses(),
            say.gemini(),
        ] {
            for chunk_size in [1, 7, usize::MAX] {
                let text = String::from_utf8(masked(&reply.bytes(), chunk_size)).unwrap();
                let mut splitter = EventSplitter::default();
                let mut joined = String::new();
                splitter.push(text.clone().into_bytes(), |piece| {
                    if let StreamPiece::Event(event) = piece
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
    fn interleaved_texts_are_tracked_separately_and_keep_their_order() {
        let (one, two) = KEY.split_at(10);
        let events = [delta(0, one), delta(1, "fixt"), delta(1, "ure"), delta(0, two), delta(1, " ends")];
        let out = masked(&UpstreamReply::events(events).bytes(), usize::MAX);
        assert_eq!(read(&out)[&0], "*".repeat(KEY.len()));
        assert_eq!(read(&out)[&1], "fixture ends");
        let plain =
            UpstreamReply::events([delta(0, "fixture-key-"), delta(0, "less, f"), delta(0, "ixture")])
                .bytes();
        assert_eq!(masked(&plain, 5), plain, "a text without the key is unchanged");
        let escaped = format!("data: {{\"text\":\"\\u0066{}\"}}\n\n", &KEY[1..]);
        assert!(!String::from_utf8(masked(escaped.as_bytes(), 9)).unwrap().contains(&KEY[1..]));
    }

    #[test]
    fn key_prefix_held_beyond_the_limit_is_masked() {
        let mut events = vec![delta(0, &KEY[..12])];
        events.extend((0..40).map(|_| delta(1, &"x".repeat(10_000))));
        let mut deltas = DeltaKeyMask::new(ApiKey::new(KEY).as_ref());
        let out = deltas.push(UpstreamReply::events(events).bytes());
        assert_eq!(read(&out)[&0], "*".repeat(12));
    }

    proptest! {
        #[test]
        fn no_split_reveals_the_key(
            before in "[fix ]{0,6}", after in "[fix ]{0,6}",
            mut cuts in prop::collection::vec(0_usize..40, 0..8), chunk_size in 1_usize..200,
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
            let out = masked(&UpstreamReply::events(events).bytes(), chunk_size);
            let shown = read(&out)[&0].clone();
            prop_assert_eq!(shown.len(), text.len());
            prop_assert!(!shown.contains(&KEY[MIN_HELD_PREFIX - 1..]), "{}", shown);
            prop_assert!(shown.starts_with(&before) && shown.ends_with(&after), "{}", shown);
        }
    }
}
