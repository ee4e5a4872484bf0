use std::os::unix::fs::{MetadataExt as _, symlink};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const LOCAL: &str = "agent:main:cli:local:dm:op";
const AMPLE: TranscriptLimits = TranscriptLimits { max_bytes: 1 << 20, max_turns: 1000 };

fn transcript(home: &TempDir, key: &str, limits: TranscriptLimits) -> Transcript {
    let redactor = Redactor::new().with_exact_values(vec!["open sesame".to_owned()]);
    Transcript::new(home.path(), &key.parse().unwrap(), limits, redactor)
}

fn line(turn: impl ToString, role: Role, text: &str) -> TranscriptLine {
    let at = "2026-11-15T19:41:04.000000Z".parse().unwrap();
    TranscriptLine { turn: turn.to_string(), role, text: text.to_owned(), at }
}

fn exchange(turn: impl ToString) -> [TranscriptLine; 2] {
    let turn = turn.to_string();
    [line(&turn, Role::User, "how many?"), line(&turn, Role::Assistant, "some")]
}

fn kept(transcript: &Transcript) -> Vec<Value> {
    let text = fs::read_to_string(transcript.path()).unwrap();
    assert!(text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The turns in the file, without adjacent duplicates.
fn kept_turns(transcript: &Transcript) -> Vec<u64> {
    let mut turns: Vec<u64> =
        kept(transcript).iter().map(|line| line["turn"].as_str().unwrap().parse().unwrap()).collect();
    turns.dedup();
    turns
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn has_turn_finds_complete_lines_only() {
    let home = TempDir::new().unwrap();
    let transcript = transcript(&home, LOCAL, AMPLE);
    assert!(!transcript.has_turn("1").unwrap() && !home.path().join("agents").exists());
    transcript.append_turn(&exchange(1)).unwrap();
    let mut file = OpenOptions::new().append(true).open(transcript.path()).unwrap();
    file.write_all(b"{\"turn\":\"2\",\"ro").unwrap();
    assert!(transcript.has_turn("1").unwrap(), "complete");
    assert!(!transcript.has_turn("2").unwrap(), "incomplete");
    assert!(!transcript.has_turn("some").unwrap(), "part of a text, and no turn");
}

#[test]
fn storage_path_correct() {
    let home = TempDir::new().unwrap();
    let transcript = transcript(&home, LOCAL, AMPLE);
    assert_eq!(transcript.path(), home.path().join("agents/main/sessions/agent:main:cli:local:dm:op.jsonl"));
    assert!(!home.path().join("agents").exists());
    transcript.append_turn(&exchange(1)).unwrap();
    assert_eq!(
        fs::read_to_string(transcript.path()).unwrap(),
        concat!(
            r#"{"at":"2026-11-15T19:41:04.000000Z","role":"user","text":"how many?","turn":"1"}"#,
            "\n",
            r#"{"at":"2026-11-15T19:41:04.000000Z","role":"assistant","text":"some","turn":"1"}"#,
            "\n"
        )
    );
    assert_eq!(mode(transcript.path()), 0o600);
    for folder in ["agents", "agents/main", "agents/main/sessions"] {
        assert_eq!(mode(&home.path().join(folder)), 0o700, "{folder}");
    }
}

#[test]
fn secrets_never_reach_the_disk() {
    let home = TempDir::new().unwrap();
    let limits = TranscriptLimits { max_bytes: 1024, ..AMPLE };
    let canary = format!("trb{}{}", "_", "ca".repeat(32));
    for limits in [AMPLE, limits] {
        let transcript = transcript(&home, LOCAL, limits);
        // Also where the text is truncated within the secret.
        for length in (0..1200).step_by(37) {
            let text = format!("{} {canary} open sesame", "x".repeat(length));
            transcript.append_turn(&[line(length, Role::User, &text)]).unwrap();
            let text = fs::read_to_string(transcript.path()).unwrap();
            assert!(!text.contains("caca") && !text.contains("sesame"), "{length}");
        }
    }
    let transcript = transcript(&home, "agent:main:web:a:dm:b", AMPLE);
    transcript.append_turn(&[line(1, Role::Tool, &format!("key {canary}, open sesame"))]).unwrap();
    assert_eq!(kept(&transcript)[0]["text"], json!("key [redacted:operator-token], [redacted:known]"));
}

#[test]
fn external_conversations_keep_only_the_agents_output() {
    let home = TempDir::new().unwrap();
    let lines = [
        line(1, Role::User, "private"),
        line(1, Role::Mailbox, "private"),
        line(1, Role::Tool, "private"),
        line(1, Role::Assistant, "public"),
    ];
    for (key, count) in [
        (LOCAL, 4),
        ("agent:main:rpc:a:dm:b", 4),
        ("agent:main:web:a:dm:b", 4),
        ("agent:main:subagent:01J", 4),
        ("agent:main:cli:local:dm:op:subagent:7", 4),
        ("agent:main:telegram:1:dm:2", 1),
        ("agent:main:CLI:1:dm:2", 1),
        // A peer chose this name.
        ("agent:main:telegram:1:dm:subagent", 1),
        ("agent:main:telegram:subagent:dm:cli", 1),
    ] {
        let transcript = transcript(&home, key, AMPLE);
        transcript.append_turn(&lines).unwrap();
        assert_eq!(kept(&transcript).len(), count, "{key}");
        assert_eq!(fs::read_to_string(transcript.path()).unwrap().contains("private"), count == 4, "{key}");
    }
    // Without lines to keep, no file is created.
    let silent = transcript(&home, "agent:main:telegram:1:dm:3", AMPLE);
    silent.append_turn(&lines[..3]).unwrap();
    silent.append_turn(&[]).unwrap();
    assert!(!silent.path().exists());
}

#[test]
fn the_newest_turns_are_kept_within_the_bound() {
    let home = TempDir::new().unwrap();
    let limits = TranscriptLimits { max_turns: 8, ..AMPLE };
    let first = transcript(&home, LOCAL, limits);
    for turn in 1..=30 {
        // Halfway, another process continues.
        let again = transcript(&home, LOCAL, limits);
        if turn <= 15 { &first } else { &again }.append_turn(&exchange(turn)).unwrap();
        let turns = kept_turns(&first);
        assert!(turns.len() <= 8 && turns.len() as u64 >= turn.min(6), "{turns:?}");
        assert!(turns.is_sorted() && turns.last() == Some(&turn) && kept(&first).len() == 2 * turns.len());
        assert_eq!(turns.len() as u64, turn - turns[0] + 1, "{turns:?}");
    }
    assert_eq!(mode(first.path()), 0o600);

    let one = transcript(&home, "agent:main:cli:a:dm:b", TranscriptLimits { max_turns: 1, ..AMPLE });
    for turn in 1..=3 {
        one.append_turn(&exchange(turn)).unwrap();
        assert_eq!(kept_turns(&one), [turn]);
    }
}

#[test]
fn the_file_stays_within_its_size_limit() {
    let home = TempDir::new().unwrap();
    let limits = TranscriptLimits { max_bytes: 4096, ..AMPLE };
    let transcript = transcript(&home, LOCAL, limits);
    for turn in 1..=200_u64 {
        let text = "wörd \" \u{1} ".repeat(usize::try_from(turn * 7 % 60).unwrap());
        transcript.append_turn(&[line(turn, Role::User, &text), line(turn, Role::Assistant, "ok")]).unwrap();
        assert!(fs::metadata(transcript.path()).unwrap().len() <= 4096);
        let turns = kept_turns(&transcript);
        assert!(turns.last() == Some(&turn) && turns.len() as u64 == turn - turns[0] + 1, "{turns:?}");
    }
}

#[test]
fn a_turn_that_is_too_large_is_truncated() {
    let home = TempDir::new().unwrap();
    let limits = TranscriptLimits { max_bytes: 1024, ..AMPLE };
    let transcript = transcript(&home, LOCAL, limits);
    transcript.append_turn(&exchange(1)).unwrap();
    for (turn, text) in [(2, "ü".repeat(5000)), (3, "\u{1}".repeat(5000)), (4, "\"\\\n".repeat(5000))] {
        transcript
            .append_turn(&[line(turn, Role::User, &text), line(turn, Role::Assistant, "short")])
            .unwrap();
        let lines = kept(&transcript);
        let [.., cut, short] = lines.as_slice() else { panic!("{lines:?}") };
        let begin = cut["text"].as_str().unwrap().strip_suffix("… [cut]").unwrap();
        assert!(text.starts_with(begin) && begin.len() > 60, "{begin}");
        assert_eq!((&cut["turn"], &short["text"]), (&json!(turn.to_string()), &json!("short")));
        let size = fs::metadata(transcript.path()).unwrap().len();
        assert!((400..=1024).contains(&size), "{size}");
    }
    let many: Vec<TranscriptLine> =
        (0..500).map(|i| line(9, Role::Assistant, &format!("{i} {text}", text = "x".repeat(300)))).collect();
    transcript.append_turn(&many).unwrap();
    let lines = kept(&transcript);
    assert_eq!(lines.len(), 4);
    assert!(lines[3]["text"].as_str().unwrap().starts_with("499 x"));
    // Not even the names fit: nothing is added, and nothing fails.
    transcript.append_turn(&[line("t".repeat(5000), Role::User, "x")]).unwrap();
    assert_eq!(kept(&transcript), lines);
}

#[test]
fn a_link_in_place_of_the_file_is_not_followed() {
    let home = TempDir::new().unwrap();
    let victim = home.path().join("victim");
    fs::write(&victim, "untouched\n").unwrap();
    let transcript = transcript(&home, LOCAL, AMPLE);
    fs::create_dir_all(transcript.path().parent().unwrap()).unwrap();
    for target in [victim.clone(), home.path().join("missing"), home.path().to_owned()] {
        symlink(&target, transcript.path()).unwrap();
        let refused = transcript.append_turn(&exchange(1)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "`{}` is a link or another kind of file than expected: move it away to continue the transcript",
                transcript.path().display()
            )
        );
        transcript.forget().unwrap();
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched\n");
    assert!(!home.path().join("missing").exists());
    transcript.append_turn(&exchange(1)).unwrap();
    assert_eq!(kept(&transcript).len(), 2);
}

#[test]
fn a_link_in_place_of_a_folder_is_not_followed() {
    for folder in ["agents", "agents/main", "agents/main/sessions"] {
        let (home, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let link = home.path().join(folder);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(elsewhere.path(), &link).unwrap();
        let refused = transcript(&home, LOCAL, AMPLE).append_turn(&exchange(1));
        assert!(matches!(refused, Err(TranscriptError::InTheWay(path)) if path == link), "{folder}");
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_pipe_or_folder_in_place_of_the_file_does_not_block() {
    let home = TempDir::new().unwrap();
    let transcript = transcript(&home, LOCAL, AMPLE);
    fs::create_dir_all(transcript.path()).unwrap();
    assert!(matches!(transcript.append_turn(&exchange(1)), Err(TranscriptError::InTheWay(_))));
    fs::remove_dir(transcript.path()).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, transcript.path(), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(transcript.append_turn(&exchange(1)), Err(TranscriptError::InTheWay(_))));
}

#[test]
fn an_incomplete_or_invalid_file_is_repaired() {
    let home = TempDir::new().unwrap();
    let limits = TranscriptLimits { max_bytes: 2048, max_turns: 4 };
    let writer = transcript(&home, LOCAL, limits);
    writer.append_turn(&exchange(1)).unwrap();
    let mut torn = fs::read(writer.path()).unwrap();
    torn.extend_from_slice(b"{\"at\":\"2026");
    fs::write(writer.path(), &torn).unwrap();
    let again = transcript(&home, LOCAL, limits);
    again.append_turn(&exchange(2)).unwrap();
    assert_eq!(kept_turns(&again), [1, 2]);

    // Larger than the bound, without a valid line: only the new turn is left.
    fs::write(writer.path(), [b'\xFF'; 100_000]).unwrap();
    again.append_turn(&exchange(3)).unwrap();
    assert_eq!(kept_turns(&again), [3]);

    // Removed by another process.
    fs::remove_file(again.path()).unwrap();
    again.append_turn(&exchange(4)).unwrap();
    assert_eq!(kept_turns(&again), [4]);
}

#[test]
fn a_forgotten_session_starts_again() {
    let home = TempDir::new().unwrap();
    let transcript = transcript(&home, LOCAL, TranscriptLimits { max_turns: 2, ..AMPLE });
    transcript.forget().unwrap();
    for turn in 1..=2 {
        transcript.append_turn(&exchange(turn)).unwrap();
    }
    transcript.forget().unwrap();
    assert!(!transcript.path().exists());
    transcript.forget().unwrap();
    for turn in 3..=4 {
        transcript.append_turn(&exchange(turn)).unwrap();
    }
    assert_eq!(kept_turns(&transcript), [3, 4]);
}
