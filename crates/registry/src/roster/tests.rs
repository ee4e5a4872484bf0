use std::os::unix::fs::PermissionsExt as _;

use tribune_records::agents::UNREGISTERED;

use super::*;

fn roster(text: &str) -> Result<Roster, RosterError> {
    Roster::parse(text.as_bytes(), Path::new("data/agent-roster.jsonl"))
}

fn key(digit: char) -> String {
    format!("ed25519:{}", digit.to_string().repeat(64))
}

fn agent(id: &str) -> RosterAgent {
    RosterAgent {
        id: id.parse().unwrap(),
        name: None,
        backend: "rehearsal".to_owned(),
        profile: None,
        model: None,
        mandate: "default".to_owned(),
        mode: None,
        standing: false,
        pubkey: None,
        accepts_from: Vec::new(),
    }
}

#[test]
fn missing_fields_have_defaults() {
    let text =
        format!("{{\"id\":\"b\"}}\n\n{{\"id\":\"a\",\"standing\":true,\"pubkey\":\"{}\"}}\r\n", key('a'));
    let roster = roster(&text).unwrap();
    let a = RosterAgent { standing: true, pubkey: Some(key('a')), ..agent("a") };
    assert_eq!(roster.iter().cloned().collect::<Vec<_>>(), [agent("b"), a.clone()]);
    assert_eq!(roster.standing().collect::<Vec<_>>(), [&a]);
    assert_eq!(roster.by_pubkey(&key('a')), Some(&a));
    assert_eq!(roster.by_pubkey(&key('b')), None);
    assert_eq!(roster.agent(&"b".parse().unwrap()), Some(&agent("b")));
}

#[test]
fn the_default_roster_has_one_standing_agent() {
    let roster = roster(DEFAULT_ROSTER).unwrap();
    let main = RosterAgent { name: Some("Main".to_owned()), standing: true, ..agent("main") };
    assert_eq!(roster.iter().collect::<Vec<_>>(), [&main]);
}

#[test]
fn faults_are_reported_with_their_line() {
    let (a, b) = (key('a'), key('b').to_uppercase());
    for (line, expected) in [
        (
            r#"{"id":"main"}"#.to_owned(),
            "agent `main` is already on line 1: remove one of the two, or choose another id",
        ),
        (
            r#"{"id":"x","mandat":"all"}"#.to_owned(),
            "this is not a valid agent: unknown field `mandat`, expected one of `id`, `name`, `backend`, `profile`, `model`, `mandate`, `mode`, `standing`, `pubkey`, `accepts_from` (column 18)",
        ),
        (r#"{"name":"x"}"#.to_owned(), "this is not a valid agent: missing field `id` (column 12)"),
        (r#"{"id":"x""#.to_owned(), "this is not a valid agent: EOF while parsing an object (column 9)"),
        (
            r#"{"id":"../x"}"#.to_owned(),
            "`../x` is not an agent id: lowercase letters, digits, `-` and `_`, beginning with a letter or digit, at most 64: choose another id",
        ),
        (
            r#"{"id":"x","mandate":"../../etc/passwd"}"#.to_owned(),
            "`../../etc/passwd` cannot be a mandate: use lowercase letters, digits, `-` and `_`, beginning with a letter or digit",
        ),
        (
            r#"{"id":"x","name":"a\u001b[2J"}"#.to_owned(),
            "the name is empty, too long or holds control characters: use one short line",
        ),
        (
            format!(r#"{{"id":"x","pubkey":"{b}"}}"#),
            "the pubkey does not have the form `ed25519:` and 64 lowercase hex digits: print it again with the agent's own tool",
        ),
        (
            format!(r#"{{"id":"x","pubkey":"{a}"}}"#),
            "agent `main` on line 1 has the same pubkey: give each agent a key of its own",
        ),
        (
            format!(r#"{{"id":"x","name":"{}"}}"#, "y".repeat(MAX_LINE_BYTES)),
            "the line has more than 4096 bytes: shorten it",
        ),
    ] {
        let text = format!("{{\"id\":\"main\",\"pubkey\":\"{a}\"}}\n{line}\n");
        let error = roster(&text).unwrap_err();
        assert_eq!(error.to_string(), format!("data/agent-roster.jsonl:2: {expected}"));
    }
    let error = roster(&"\n".repeat(MAX_LINES + 1)).unwrap_err();
    assert!(matches!(error, RosterError::TooManyLines(_)), "{error}");
    Roster::parse(b"\xff\xfe\n", Path::new("x")).unwrap_err();
}

#[test]
fn adding_keeps_the_other_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/roster.jsonl");
    assert!(Roster::load(&path).unwrap().is_empty());
    let odd = "\n{ \"standing\" : true,\t\"id\":\"odd\" }\r\n{\"id\":\"last\"}";
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, odd).unwrap();
    let new = RosterAgent {
        name: Some("Ä \"quoted\"".to_owned()),
        model: Some("m/1".to_owned()),
        pubkey: Some(key('7')),
        ..agent("new")
    };
    let roster = Roster::add(&path, new.clone()).unwrap();
    assert_eq!(roster.agent(&new.id), Some(&new));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(&format!("{odd}\n{{\"id\":\"new\"")), "{text}");
    let again = Roster::load(&path).unwrap();
    assert_eq!(again.iter().collect::<Vec<_>>(), roster.iter().collect::<Vec<_>>());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let same_key = RosterAgent { pubkey: Some(key('7')), ..agent("other") };
    let bad = RosterAgent { mandate: "a/b".to_owned(), ..agent("other") };
    for refused in [agent("odd"), new, same_key, bad] {
        assert!(matches!(Roster::add(&path, refused), Err(RosterError::Entry(_))));
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn concurrent_additions_are_all_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data/roster.jsonl");
    std::thread::scope(|scope| {
        for n in 0..8 {
            let path = &path;
            scope.spawn(move || Roster::add(path, agent(&format!("agent-{n}"))).unwrap());
        }
    });
    assert_eq!(Roster::load(&path).unwrap().len(), 8);
}

#[test]
fn ids_of_unregistered_callers_are_reserved() {
    for id in ["anonymous", "stranger-0123456789abcdef01234567"] {
        let refused = roster(&format!("{{\"id\":\"{id}\",\"mandate\":\"all\"}}")).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!(
                "data/agent-roster.jsonl:1: `{id}` is reserved for callers that are not in the roster: choose another id"
            )
        );
    }
    let similar = UNREGISTERED.trim_end_matches('-');
    assert!(roster(&format!("{{\"id\":\"{similar}s\"}}\n{{\"id\":\"anonymous-2\"}}")).is_ok());
}
