//! Tests of the stream parsers without a server.

use insta::assert_debug_snapshot;
use proptest::prelude::*;
use tribune_providers::{ApiDialect, CallIds, DecodeError, ModelEvent, StreamParser};

use crate::fixture::joined;
use crate::recordings;

/// Parses a stream in these chunks: all events, and the error if there is one.
fn parse<'a>(
    dialect: ApiDialect,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<ModelEvent>, Option<DecodeError>) {
    let mut parser = StreamParser::new(dialect, CallIds::default());
    let mut events = Vec::new();
    for chunk in chunks {
        if let Err(error) = parser.push(chunk, &mut events) {
            assert_eq!(parser.finish(&mut events), Err(error.clone()), "the error is returned again");
            return (events, Some(error));
        }
    }
    let error = parser.finish(&mut events).err();
    (events, error)
}

/// Splits bytes into chunks of these lengths, used cyclically.
fn cut<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for length in lengths.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (chunk, rest) = bytes.split_at((*length).min(bytes.len()));
        chunks.push(chunk);
        bytes = rest;
    }
    chunks
}

#[test]
fn events_of_every_recording() {
    for recording in recordings::all() {
        let (events, error) = parse(recording.dialect, [recording.bytes.as_slice()]);
        let name = format!("{:?}_{}", recording.dialect, recording.name.replace(", ", "_").replace(' ', "_"));
        assert_debug_snapshot!(name, (joined(&events), error));
    }
}

#[test]
fn single_byte_chunks_give_the_same_events() {
    for recording in recordings::all() {
        let whole = parse(recording.dialect, [recording.bytes.as_slice()]);
        assert_eq!(parse(recording.dialect, recording.bytes.chunks(1)), whole, "{}", recording.name);
    }
}

#[test]
fn call_ids_are_unique_in_a_conversation() {
    use tribune_providers::{AssistantPart, ChatMessage};
    let call = |id: &str| AssistantPart::ToolUse {
        id: id.into(),
        name: "read".into(),
        arguments: String::new(),
        signature: None,
    };
    let before = [ChatMessage::Assistant(vec![call("call_2"), call("call_x")])];
    for (name, expected) in [("gemini", vec!["call_3", "call_4"]), ("ollama", vec!["call_3"])] {
        let recording = recordings::named(name);
        let mut parser = StreamParser::new(recording.dialect, CallIds::used_in(&before));
        let mut events = Vec::new();
        parser.push(&recording.bytes, &mut events).unwrap();
        let ids = events.iter().filter_map(|event| match event {
            ModelEvent::CallStarted { id, .. } => Some(id.as_str()),
            _ => None,
        });
        assert_eq!(ids.collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn response_over_the_size_limit_is_an_error() {
    let ping = format!("data: {{\"type\":\"ping\",\"x\":\"{}\"}}\n\n", "x".repeat(1 << 20));
    let mut parser = StreamParser::new(ApiDialect::Anthropic, CallIds::default());
    let mut pushed = 0;
    let error = loop {
        match parser.push(ping.as_bytes(), &mut Vec::new()) {
            Ok(()) => pushed += ping.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(error, DecodeError::TooLarge { what: "the answer", limit: 64 << 20 });
    assert!(pushed <= 64 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_chunking_gives_the_same_events(
        which in 0..recordings::all().len(),
        lengths in prop::collection::vec(1_usize..200, 1..40),
    ) {
        let recording = &recordings::all()[which];
        let whole = parse(recording.dialect, [recording.bytes.as_slice()]);
        prop_assert_eq!(parse(recording.dialect, cut(&recording.bytes, &lengths)), whole);
    }

    #[test]
    fn random_bytes_do_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        lengths in prop::collection::vec(1_usize..50, 1..10),
    ) {
        for dialect in [ApiDialect::Anthropic, ApiDialect::OpenAi] {
            parse(dialect, cut(&bytes, &lengths));
        }
    }

    /// A recording with a section overwritten, removed or repeated, which reaches deeper into the parser than random
    /// bytes.
    #[test]
    fn damaged_recording_gives_the_same_result_in_any_chunks(
        which in 0..recordings::all().len(),
        at in any::<prop::sample::Index>(),
        length in 0_usize..300,
        piece in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'"'), Just(b'{')], 0..20),
        is_repeated in any::<bool>(),
    ) {
        let recording = &recordings::all()[which];
        let mut bytes = recording.bytes.clone();
        let at = at.index(bytes.len());
        let end = (at + length).min(bytes.len());
        let piece = if is_repeated { bytes[at..end].repeat(2) } else { piece };
        bytes.splice(at..end, piece);
        for dialect in [ApiDialect::Anthropic, ApiDialect::OpenAi] {
            let whole = parse(dialect, [bytes.as_slice()]);
            prop_assert_eq!(parse(dialect, bytes.chunks(3)), whole);
        }
    }
}
