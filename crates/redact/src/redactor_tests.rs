use proptest::prelude::*;

use super::*;
use crate::fakes::{Fake, alnum, by_prefix, fakes};
use crate::prefixes::PREFIXES;

/// Text before and after a secret.
const CONTEXTS: [(&str, &str); 9] = [
    ("", ""),
    ("say \"", "\", then more"),
    ("{\\\"a\\\":\\\"", "\\\"}"),
    ("VALUE=", "\nNEXT=1"),
    ("https://h.example/x?k=", "&b=1"),
    ("a line ends in ", "\nand another begins"),
    ("x\\n", "\\ny"),
    ("in `", "` marks"),
    ("ü", "ü"),
];

#[test]
fn every_kind_is_found_and_replaced_whole() {
    let redactor = Redactor::new();
    for fake in fakes() {
        for (before, after) in CONTEXTS {
            let text = format!("{before}{}{after}", fake.text());
            // A password may have any character, so it ends only where the string or the argument ends.
            if fake.kind == "password" && after == "ü" {
                continue;
            }
            assert_eq!(redactor.redact(&text), format!("{before}{}{after}", fake.redacted()), "in {text}");
            assert!(redactor.contains_secret(&text), "{text}");
            assert_eq!(redactor.first_secret(&text), Some(before.len() + fake.before.len()), "{text}");
        }
        let twice = format!("{0} {0}", fake.text());
        assert_eq!(redactor.redact(&twice), format!("{0} {0}", fake.redacted()));
    }
}

#[test]
fn every_prefix_has_a_fake_and_fakes_have_many_kinds() {
    for prefix in PREFIXES.iter().filter(|prefix| !prefix.is_label) {
        assert!(
            by_prefix().iter().any(|(kind, text, _)| *kind == prefix.kind && *text == prefix.text),
            "{}",
            prefix.text
        );
    }
    for prefix in PREFIXES.iter().filter(|prefix| prefix.is_label) {
        assert!(fakes().iter().any(|fake| fake.before.ends_with(prefix.text)), "{}", prefix.text);
    }
}

#[test]
fn private_key_without_end_line_extends_to_the_end() {
    let text = format!("see -----BEGIN {} KEY-----\nüaa\nbb -----END CERTIFICATE-----", "EC PRIVATE");
    assert_eq!(Redactor::new().redact(&text), "see [redacted:private-key]");
}

#[test]
fn overlapping_secrets_become_one_placeholder() {
    let text = format!("ghp{}{}ey{}{}.ey{}{}.x", "_", alnum(30), "J", alnum(20), "J", alnum(20));
    assert_eq!(Redactor::new().redact(&text), "[redacted:github-token]");
}

#[test]
fn text_without_secrets_is_not_copied() {
    assert!(matches!(Redactor::new().redact("nothing here"), Cow::Borrowed("nothing here")));
}

#[test]
fn exact_values_are_found_in_every_encoding() {
    let redactor = Redactor::new().with_exact_values(vec![
        "correct horse".to_owned(),
        "short".to_owned(),
        String::new(),
    ]);
    let redactor =
        redactor.with_exact_values(vec!["correct horse battery".to_owned(), "horse \"x\" ü".to_owned()]);
    assert_eq!(
        redactor.redact("a correct horse battery, a correct horse, a short horse"),
        "a [redacted:known], a [redacted:known], a short horse"
    );
    assert_eq!(redactor.redact("a correct horse \"x\" ü."), "a [redacted:known].");
    assert_eq!(
        redactor.redact("\"horse \\\"x\\\" ü\", \"horse \\\"x\\\" \\u00fc\""),
        "\"[redacted:known]\", \"[redacted:known]\""
    );
    assert_eq!(
        redactor.redact("?a=correct%20horse&b=correct+horse&"),
        "?a=[redacted:known]&b=[redacted:known]&"
    );
    assert_eq!(redactor.redact("base64: Y29ycmVjdCBob3JzZQ=="), "base64: [redacted:known]==");
    assert_eq!(redactor.first_secret("ä correct horse"), Some(3));
    assert!(!redactor.contains_secret("correct hors"));
    assert_eq!(format!("{redactor:?}"), "Redactor(3 known values)");
}

#[test]
fn mail_and_telephone_are_redacted_on_request() {
    let text = "Write to jo.doe+x@mail.example.org. Call +49 30 1234567, +1 (415) 555-2671, (415) 555-2671 or 415-555-2671!";
    assert_eq!(Redactor::new().redact(text), text);
    assert_eq!(
        Redactor::new().with_emails().with_phones().redact(text),
        "Write to [redacted:email]. Call [redacted:phone], [redacted:phone], [redacted:phone] or [redacted:phone]!"
    );
    let redactor = Redactor::new().with_emails().with_phones();
    for text in [
        "v1.22.333-4444, 2026-11-15T19:41:04Z, 1731700000000, 127.0.0.1:18789, 192.168.100.2000",
        "@override, user@host, a@b.c, 1 + 2, +5, (123), 555-2671, 0x4155552671, 1,234,567.89",
        crate::fakes::UUID,
    ] {
        assert_eq!(redactor.redact(text), text);
    }
}

#[test]
fn sources_of_this_crate_contain_no_secret() {
    for source in [
        include_str!("fakes.rs"),
        include_str!("prefixes.rs"),
        include_str!("structured_tokens.rs"),
        include_str!("named_values.rs"),
        include_str!("cookies.rs"),
        include_str!("curl.rs"),
        include_str!("redactor_tests.rs"),
    ] {
        let first = Redactor::new().first_secret(source);
        assert_eq!(first.map(|at| source[at..].chars().take(40).collect::<String>()), None);
    }
}

/// Long hostile texts: starts without ends, and ends without starts.
#[test]
fn long_hostile_texts_finish() {
    let pieces = [
        "sk-",
        "eyJ",
        "eyJaaaaaaaaaaa.",
        "://a:",
        "://a:b\u{40}",
        "-----BEGIN PRIVATE KEY",
        "-----END PRIVATE KEY",
        "Bearer ",
        "1234567:AA",
        "a",
        "token=",
        "password:",
        "-us",
        "MTk4NjIyNDgzNDcxOTI1MjQ4.",
        "+1(",
        "a@b.",
        "0",
        "aaaaaaaa",
        "\\\"",
        "[redacted:",
        "; a=",
        "curl -u a:",
        " -u u ",
        "cookie: ",
        "smtp_pass: ",
        "session=",
    ];
    let key = format!("-----BEGIN {} KEY-----", "PRIVATE");
    let redactor = Redactor::new().with_exact_values(vec!["aaaaaaaa".to_owned()]).with_emails().with_phones();
    for piece in pieces.into_iter().chain([key.as_str()]) {
        let text = piece.repeat((8 << 20) / piece.len());
        let _ = redactor.redact(&text);
    }
}

/// Fragments of texts that are hard to redact.
pub(crate) fn pieces() -> impl Strategy<Value = String> {
    let fakes = fakes();
    let part = (0..fakes.len(), any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map({
        let fakes = fakes.clone();
        move |(which, one, other)| {
            let text: Vec<char> = fakes[which].text().chars().collect();
            let (one, other) = (one.index(text.len() + 1), other.index(text.len() + 1));
            text[one.min(other)..one.max(other)].iter().collect()
        }
    });
    let whole = (0..fakes.len()).prop_map(move |which| fakes[which].text());
    let joint = prop::sample::select(vec![
        " ",
        "\n",
        "\\n",
        "\"",
        "'",
        "=",
        ": ",
        ":",
        "://",
        "@",
        ".",
        "-",
        "_",
        "[",
        "]",
        "[redacted:",
        "[redacted:x]",
        "ü",
        "%22",
        "%3D",
        ";",
        "password",
        "api_key",
        "token",
        "Bearer ",
        "curl ",
        " -u ",
        "Cookie: ",
        "; a=",
        "_pass",
        "sessionid",
        "-----BEGIN ",
        "-----END ",
        "PRIVATE KEY-----",
        "-us1",
        "known value",
        "known",
        " value",
        "horse ü",
        "+1 415 555 2671",
        "415-555-",
        "me@x.org",
        "1234567",
        "/",
        "abcdefab",
        "sk-",
        "eyJ",
        "key-",
        "aaaaaaaaaaaaaaaaaaaaaaaa",
    ])
    .prop_map(str::to_owned);
    prop_oneof![2 => part, 1 => whole, 4 => joint, 1 => "[a-zA-Z0-9 .:/@-]{0,12}"]
}

pub(crate) fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(pieces(), 0..8).prop_map(|pieces| pieces.concat())
}

pub(crate) fn redactors() -> impl Strategy<Value = Redactor> {
    let known = ["known value", "value horse ü", "knownknown", "3dE5fG7haB3dE5", "known value known value"]
        .map(str::to_owned)
        .to_vec();
    let with_known = Redactor::new().with_exact_values(known);
    let all = with_known.clone().with_emails().with_phones();
    prop::sample::select(vec![Redactor::new(), with_known, all])
}

fn surrounded() -> impl Strategy<Value = (String, Fake, String)> {
    let fakes = fakes();
    let around = prop_oneof![
        "[ -~]{0,30}[ \"'=(,`]",
        prop::collection::vec(pieces(), 0..3).prop_map(|pieces| format!("{} ", pieces.concat())),
    ];
    (around.clone(), prop::sample::select(fakes), around)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn redaction_is_idempotent(redactor in redactors(), text in texts()) {
        let once = redactor.redact(&text).into_owned();
        prop_assert_eq!(redactor.redact(&once), once.as_str(), "from {:?}", text);
    }

    #[test]
    fn no_planted_secret_survives((before, fake, after) in surrounded()) {
        let text = format!("{before}{} {after}", fake.text());
        let redacted = Redactor::new().redact(&text).into_owned();
        let edge = before.chars().last().unwrap_or(' ');
        prop_assert!(!redacted.contains(&format!("{edge}{}{}", fake.before, fake.secret)), "{redacted}");
    }

    #[test]
    fn finds_and_first_agree_with_redact(redactor in redactors(), text in texts()) {
        let changes = redactor.redact(&text) != text;
        prop_assert_eq!(redactor.contains_secret(&text), changes);
        prop_assert_eq!(redactor.first_secret(&text).is_some(), changes);
    }

    #[test]
    fn hashes_and_names_are_unchanged(
        hash in "[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9A-F]{64}",
        uuid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        ulid in "01[0-9A-HJKMNP-TV-Z]{24}",
        base64 in "[A-Za-z0-9+/]{86}==",
        (before, after) in prop::sample::select(vec![
            ("", ""), ("commit ", "\n"), ("\"", "\""), ("b3:", ","), ("id=", "&x"), ("checksum = \"", "\""),
            ("sha256:", ""), ("integrity sha512-", ""), ("/objects/", "/x.json"), ("cache-key-", ""), ("`", "`"),
        ]),
    ) {
        for name in [hash, uuid, ulid, base64] {
            let text = format!("{before}{name}{after}");
            prop_assert_eq!(Redactor::new().redact(&text), text.as_str());
        }
    }
}
