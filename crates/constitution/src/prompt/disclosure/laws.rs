//! Properties of any output, however it is split: checked with a plain search that shares no code with the filter.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::tests::{hex, rot13, separated, shown};
use super::*;

fn letters(text: &str) -> Vec<u8> {
    text.bytes().filter(u8::is_ascii_alphabetic).map(|byte| byte.to_ascii_lowercase()).collect()
}

/// Whether some decoding of the output contains a run.
fn discloses(output: &str) -> bool {
    static RUNS: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| {
        let policies = ChannelClass::ALL.map(|class| class.policy().prompt);
        let runs = |text: &&str| letters(text).windows(RUN_LETTERS).map(<[u8]>::to_vec).collect::<Vec<_>>();
        policies.iter().chain([&base_prompt().content]).flat_map(runs).collect()
    });
    let tells = |letters: Vec<u8>| letters.windows(RUN_LETTERS).any(|run| RUNS.contains(run));
    let mut streams = vec![letters(output), letters(&rot13(output))];
    streams.push(letters(output).into_iter().rev().collect());
    for signs in ["", "+/", "-_"] {
        let alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || signs.as_bytes().contains(byte);
        let digits: Vec<u8> = output
            .bytes()
            .filter(alphabet)
            .map(|byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                byte => byte,
            })
            .collect();
        for start in 0..digits.len().min(4) {
            let whole = &digits[start..start + (digits.len() - start) / 4 * 4];
            streams.push(letters(&String::from_utf8_lossy(&STANDARD.decode(whole).unwrap())));
        }
    }
    let digits: Vec<u8> = output.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    for start in 0..digits.len().min(2) {
        let bytes: Vec<u8> = digits[start..].chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        streams.push(letters(&String::from_utf8_lossy(&bytes)));
    }
    streams.into_iter().any(tells)
}

/// A part of a secret text, with or without a whole run, from anywhere.
fn excerpt() -> impl Strategy<Value = String> {
    let texts = [base_prompt().content, ChannelClass::ExternalEmail.policy().prompt];
    (0..texts.len(), any::<prop::sample::Index>(), 1..160_usize).prop_map(move |(text, start, length)| {
        let chars: Vec<char> = texts[text].chars().collect();
        chars[start.index(chars.len())..].iter().take(length).collect()
    })
}

fn encoded() -> impl Strategy<Value = String> {
    (excerpt(), 0..9_u8).prop_map(|(text, way)| match way {
        0 | 1 => text,
        2 => text.to_uppercase(),
        3 => text.chars().rev().collect(),
        4 => rot13(&text),
        5 => STANDARD.encode(text),
        6 => URL_SAFE_NO_PAD.encode(text),
        7 => hex(&text),
        _ => text.split_whitespace().collect::<Vec<_>>().join("\n"),
    })
}

fn piece() -> impl Strategy<Value = String> {
    let separators = ["", "", " ", "-", "\n", "\u{200b}", " \u{feff}\n", "·"];
    prop_oneof![
        3 => (encoded(), prop::sample::select(separators.to_vec()), 1..5_usize)
            .prop_map(|(text, separator, size)| separated(&text, size, separator)),
        1 => "\\PC{0,12}",
        1 => prop::sample::select(&["Here: ", "\\n", "0", "x", "```\n", "1. ", "<b>", "&#", "\\u00", "==", "\\"][..])
            .prop_map(str::to_owned),
    ]
}

fn output() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn shown_output_never_discloses(output in output()) {
        let passed = shown(&output, usize::MAX);
        prop_assert!(!discloses(passed.text.trim_end_matches(NOTICE)), "{}", passed.text);
        if discloses(&output) {
            prop_assert!(passed.withheld);
        }
        match passed.text.strip_suffix(NOTICE) {
            Some(before) if passed.withheld => prop_assert!(output.starts_with(before)),
            _ => prop_assert_eq!(passed.text, output),
        }
    }

    #[test]
    fn splitting_the_output_changes_nothing(output in output(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        let whole = shown(&output, usize::MAX);
        prop_assert_eq!(&shown(&output, 1), &whole);
        let chars: Vec<char> = output.chars().collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
        cuts.extend([0, chars.len()]);
        cuts.sort_unstable();
        let mut filter = DisclosureFilter::of_instructions();
        let mut text = String::new();
        for cut in cuts.windows(2) {
            text.push_str(&filter.push(&String::from_iter(&chars[cut[0]..cut[1]])).text);
            prop_assert!(filter.held.len() <= RUN_LETTERS * HELD_PER_LETTER + 4);
        }
        let end = filter.finish();
        prop_assert_eq!(FilteredText { text: text + &end.text, withheld: end.withheld }, whole);
    }

    #[test]
    fn unrelated_text_passes(output in "(\\PC|[a-zA-Z0-9+/= \\n\\\\<&-]){0,400}") {
        let passed = shown(&output, 3);
        prop_assert_eq!(passed, FilteredText { text: output, withheld: false });
    }
}
