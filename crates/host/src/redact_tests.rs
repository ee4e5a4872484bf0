use super::*;

/// Fake secrets of every kind, put together here so that none stands in the repository.
fn fakes() -> Vec<(&'static str, String)> {
    let letters = |count: usize| "aB3dE5fG7h".chars().cycle().take(count).collect::<String>();
    let upper = |count: usize| letters(count).to_uppercase();
    vec![
        ("operator-token", format!("trb{}{}", "_", "0a".repeat(32))),
        ("api-key", format!("sk{}ant-api03-{}-AA", "-", letters(90))),
        ("api-key", format!("sk{}proj-{}", "-", letters(40))),
        ("api-key", format!("sk{}{}", "-", letters(48))),
        ("github-token", format!("ghp{}{}", "_", letters(36))),
        ("github-token", format!("gho{}{}", "_", letters(36))),
        ("github-token", format!("ghs{}{}", "_", letters(36))),
        ("github-token", format!("github{}pat_{}_{}", "_", letters(22), letters(59))),
        ("aws-key-id", format!("AK{}{}", "IA", upper(16))),
        ("aws-key-id", format!("AS{}{}", "IA", upper(16))),
        ("slack-token", format!("xox{}{}-{}", "b-", 1_234_567_890, letters(24))),
        ("slack-token", format!("xox{}{}", "p-", letters(30))),
        ("google-key", format!("AI{}{}", "za", letters(35))),
        ("stripe-key", format!("sk{}live_{}", "_", letters(24))),
        ("stripe-key", format!("rk{}live_{}", "_", letters(24))),
        ("telegram-token", format!("{}:AA{}", 123_456_789, letters(33))),
        ("jwt", format!("ey{}{}.eyJ{}.{}", "J", letters(20), letters(30), letters(43))),
        (
            "private-key",
            format!(
                "-----BEGIN {}KEY-----\n{}\n{}\n-----END {}KEY-----",
                "RSA PRIVATE ",
                letters(64),
                letters(20),
                "RSA PRIVATE "
            ),
        ),
        ("private-key", format!("-----BEGIN PGP {}KEY BLOCK-----\nü{}\n", "PRIVATE ", letters(64))),
    ]
}

#[test]
fn every_kind_is_found_and_replaced_whole() {
    let redactor = Redactor::new();
    for (kind, secret) in fakes() {
        let mark = format!("[redacted:{kind}]");
        for (before, after) in
            [("", ""), ("key ", ""), ("key=", ""), ("{\"a\":\"", ""), ("x\\n", ""), ("ü", ""), ("_", "")]
        {
            let text = format!("{before}{secret}{after}");
            assert!(redactor.finds(&text), "{kind} after {before:?}");
            assert_eq!(redactor.redact(&text), format!("{before}{mark}{after}"));
            assert_eq!(redactor.first(&text), Some(before.len()), "{kind} after {before:?}");
        }
        let twice = redactor.redact(&format!("{secret} {secret}")).into_owned();
        assert!(!twice.contains(&secret) && twice.starts_with(&mark), "{kind}: {twice}");
        assert!(!redactor.finds(&twice), "{kind}");
        // Text goes on behind it.
        let quoted = redactor.redact(&format!("\"{secret}\", then more")).into_owned();
        assert!(kind == "private-key" || quoted == format!("\"{mark}\", then more"), "{kind}: {quoted}");
    }
}

#[test]
fn what_stands_around_a_secret_stays() {
    let redactor = Redactor::new();
    let token = "z9".repeat(12);
    for (text, kept) in [
        (format!("Authorization: Bearer {token}\n"), "Authorization: Bearer [redacted:bearer]\n"),
        (format!("authorization: bearer\t{token}, next"), "authorization: bearer\t[redacted:bearer], next"),
        (
            format!("see postgres:{}op:{token}@db.local/x for it", "//"),
            "see postgres://[redacted:url-password]@db.local/x for it",
        ),
        (format!("redis:{}:{token}@h:6379", "//"), "redis://[redacted:url-password]@h:6379"),
    ] {
        let redacted = redactor.redact(&text);
        assert_eq!(redacted, kept);
        assert!(!redactor.finds(&redacted));
    }
}

#[test]
fn ordinary_text_is_left_alone_and_not_copied() {
    let redactor = Redactor::new();
    for text in [
        "",
        "The bearer of this letter asks for a desk-lamp and a task-management-application-for-two.",
        "http://127.0.0.1:18789/v1?x=a@b, mail me@example.org, agent:main:telegram:123456789:dm:987654321",
        "b3:0000000000000000000000000000000000000000000000000000000000000000",
        "2026-11-15T19:41:04.000000Z trb_short sk-short AKIA xoxb- -----BEGIN CERTIFICATE-----",
        "https://[::1]:443/x user:pass@ not in a url",
    ] {
        assert!(matches!(redactor.redact(text), Cow::Borrowed(same) if same == text), "{text}");
        assert!(!redactor.finds(text) && redactor.first(text).is_none(), "{text}");
    }
}

#[test]
fn known_values_are_found_by_value() {
    let redactor = Redactor::new().with_known(vec![
        "correct horse".to_owned(),
        "correct horse battery".to_owned(),
        "short".to_owned(),
        String::new(),
    ]);
    assert_eq!(
        redactor.redact("a correct horse battery, a correct horse, a short horse"),
        "a [redacted:known], a [redacted:known], a short horse"
    );
    assert_eq!(redactor.first("ä correct horse"), Some(3));
    assert!(!redactor.finds("correct hors"));
    assert_eq!(format!("{redactor:?}"), "Redactor(2 known values)");
}

#[test]
fn this_repository_shows_no_secret() {
    for source in [include_str!("redact.rs"), include_str!("redact_tests.rs")] {
        assert_eq!(Redactor::new().first(source).map(|at| &source[at..at + 20]), None);
    }
}

/// No text makes it panic; the result never holds a secret, and redacting again changes nothing.
#[test]
fn no_text_breaks_it() {
    let secrets = fakes();
    let mut pieces: Vec<String> = secrets.iter().map(|(_, secret)| format!(" {secret}")).collect();
    for part in
        ["sk-", "eyJ", ".", "://", ":", "@", "-----BEGIN ", "PRIVATE KEY-----", "Bearer ", "ü", "\n", "["]
    {
        pieces.push(part.to_owned());
    }
    let redactor = Redactor::new().with_known(vec!["Bearer ü".to_owned()]);
    let mut state = 7_u64;
    for round in 0..3_000 {
        let mut text = String::new();
        for _ in 0..round % 12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(&pieces[(state >> 33) as usize % pieces.len()]);
        }
        let redacted = redactor.redact(&text).into_owned();
        for (kind, secret) in &secrets {
            assert!(!redacted.contains(secret), "{kind} in {redacted:?} from {text:?}");
        }
        assert_eq!(redactor.finds(&text), redactor.first(&text).is_some(), "{text:?}");
        assert_eq!(redactor.finds(&text), redacted != text, "{text:?}");
    }
}

/// Long hostile texts: beginnings without ends, and ends without beginnings.
#[test]
fn long_texts_take_linear_time() {
    let redactor = Redactor::new();
    for piece in [
        "eyJaaaaaaaaaaa.",
        "://a:",
        "sk-",
        "-----BEGIN PRIVATE KEY",
        "Bearer ",
        "1234567:",
        "a",
        "://a:b\u{40}",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        let begun = std::time::Instant::now();
        let _ = redactor.redact(&text);
        assert!(begun.elapsed().as_secs() < 10, "{piece}");
    }
}
