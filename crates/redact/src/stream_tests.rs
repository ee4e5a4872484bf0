use proptest::prelude::*;

use super::*;
use crate::fakes::fakes;
use crate::redactor::tests::{redactors, texts};

fn through<'a>(redactor: &Redactor, pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut stream = redactor.stream();
    let mut out: String = pieces.into_iter().map(|piece| stream.push(piece)).collect();
    out.push_str(&stream.finish());
    out
}

/// Cuts a text into chunks of these lengths in characters, repeated in turn.
fn cut<'a>(text: &'a str, lengths: &[usize]) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let at = rest.char_indices().nth((*length).max(1)).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(at);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[test]
fn secrets_are_found_across_chunk_borders() {
    let redactor = Redactor::new();
    for fake in fakes() {
        let text = format!("ü say \"{}\" and go on", fake.text());
        let whole = redactor.redact(&text);
        assert_eq!(through(&redactor, cut(&text, &[1])), whole);
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert_eq!(through(&redactor, [&text[..at], &text[at..]]), whole, "cut at {at}");
        }
    }
}

#[test]
fn prose_is_emitted_without_delay() {
    let redactor = Redactor::new().with_exact_values(vec!["open sesame".to_owned()]);
    let mut stream = redactor.stream();
    for word in [
        "The ",
        "password ",
        "is: ",
        "required",
        ". ",
        "漢字",
        "を",
        "書く",
        "。",
        " Der ",
        "Schlüssel",
        " passt",
    ] {
        let out = stream.push(word);
        assert!(out.len() + 2 >= word.len(), "{word:?} gave {out:?}");
    }
    assert_eq!(stream.push(" in open sesam"), "t in ");
    assert_eq!(stream.push("e is"), "[redacted:known] i");
    assert_eq!(stream.finish(), "s");
}

#[test]
fn buffer_stays_small_for_hostile_input() {
    let redactor = Redactor::new().with_emails().with_phones();
    let key = format!("-----BEGIN {} KEY-----", "PRIVATE");
    for piece in ["sk-", "eyJ", "://a:", "a", "A1", "token=", "+1(", &key, "0", "@", "a.", "Bearer a1"] {
        let mut stream = redactor.stream();
        let mut most = 0;
        for _ in 0..5_000 {
            let _ = stream.push(piece);
            most = most.max(stream.text.len());
        }
        assert!(most < 8_000, "{piece}: {most}");
    }
}

#[test]
fn bytes_may_be_cut_within_a_character() {
    let text = "ü€😀 ok \u{fffd}";
    for length in 1..5 {
        let mut stream = Redactor::new().stream();
        let mut out: String = text.as_bytes().chunks(length).map(|bytes| stream.push_bytes(bytes)).collect();
        out.push_str(&stream.finish());
        assert_eq!(out, text);
    }
    let mut stream = Redactor::new().stream();
    let mut out = stream.push_bytes(b"a\xff\xe2\x82");
    out.push_str(&stream.push_bytes(b"b\xe2"));
    out.push_str(&stream.finish());
    assert_eq!(out, "a\u{fffd}\u{fffd}b\u{fffd}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn stream_output_equals_redacted_text(
        redactor in redactors(),
        text in texts(),
        lengths in prop::collection::vec(1..40_usize, 1..6),
    ) {
        let whole = redactor.redact(&text).into_owned();
        prop_assert_eq!(through(&redactor, cut(&text, &lengths)), whole.as_str(), "from {:?}", text);
        prop_assert_eq!(through(&redactor, cut(&text, &[1])), whole.as_str(), "from {:?}", text);
    }

    #[test]
    fn stream_output_equals_redacted_text_when_long(
        redactor in redactors(),
        start in texts(),
        (filler, count) in (prop::sample::select(vec!["a", "aB3", " ", "eyJ", "é", "."]), 1..3_000_usize),
        end in texts(),
        length in 1..2_000_usize,
    ) {
        let text = format!("{start}{}{end}", filler.repeat(count));
        let whole = redactor.redact(&text).into_owned();
        prop_assert_eq!(through(&redactor, cut(&text, &[length])), whole);
    }
}
