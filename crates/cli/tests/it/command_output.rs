//! The output of each command, as text and as JSON.

use insta::{Settings, assert_snapshot};

use crate::fixture::Place;

/// Replaces values that differ from run to run.
pub(crate) fn settings(place: &Place) -> Settings {
    let mut settings = Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.add_filter(&place.folder.path().display().to_string(), "[PLACE]");
    settings.add_filter(r"b3:[0-9a-f]{64}", "[CID]");
    settings.add_filter(r"b3:[0-9a-f]{12}", "[CID]");
    settings.add_filter(r"b3:[0-9a-f]{8}", "[CID]");
    settings.add_filter(r"\bn[0-9a-f]{12}\b", "[NODE]");
    settings.add_filter(r"ed25519:[0-9a-f]{64}", "[KEY]");
    settings
        .add_filter(r"(tribune/[0-9a-f]{16}|example\.com/agents)\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44}", "[VKEY]");
    settings.add_filter(r"tribune/[0-9a-f]{16}", "[NAME]");
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "[TIME]");
    settings.add_filter(r"— \S+ [A-Za-z0-9+/=]{92}", "— [SIGNATURE]");
    settings.add_filter(r"[A-Za-z0-9+/]{43}=", "[HASH]");
    settings
}

#[test]
fn a_first_walk_through_the_ledger() {
    let place = Place::new();
    let first = place.call(&["ledger", "note", "first light"]);
    let kept = place.ok(&["ledger", "checkpoint", "-o", "kept"]);
    let second = place.ok(&["ledger", "note", "second", "--tag", "demo"]);
    settings(&place).bind(|| {
        assert_snapshot!("note_first_err", first.err);
        assert_snapshot!("note_first_out", first.out);
        assert_snapshot!("checkpoint_to_file", kept);
        assert_snapshot!("note_second", second);
        assert_snapshot!("tail", place.ok(&["ledger", "tail"]));
        assert_snapshot!("tail_quality", place.ok(&["ledger", "tail", "--quality", "key_change"]));
        assert_snapshot!("show", place.ok(&["ledger", "show", "2"]));
        assert_snapshot!("verify", place.ok(&["ledger", "verify"]));
        assert_snapshot!(
            "verify_kept",
            place.ok(&["ledger", "verify", "--checkpoint", "kept", "--key", "home/keys/ledger.vkey"])
        );
        assert_snapshot!("checkpoint", place.ok(&["ledger", "checkpoint"]));
        assert_snapshot!("export", place.ok(&["ledger", "export", "out"]));
        assert_snapshot!("verify_export", place.ok(&["ledger", "verify", "out"]));
        assert_snapshot!("rebuild_check", place.ok(&["ledger", "rebuild", "--check"]));
        assert_snapshot!("rebuild", place.ok(&["ledger", "rebuild"]));
        assert_snapshot!("graph_dot", place.ok(&["ledger", "graph"]));
        assert_snapshot!("graph_mermaid", place.ok(&["ledger", "graph", "--mermaid"]));
        assert_snapshot!("prove", place.ok(&["ledger", "prove", "2", "-o", "two.tlog-proof"]));
        assert_snapshot!(
            "verify_proof",
            place.ok(&["ledger", "verify", "two.tlog-proof", "--key", "home/keys/ledger.vkey"])
        );
        assert_snapshot!("prove_since", place.ok(&["ledger", "prove", "--since", "2"]));
        assert_snapshot!("keys_show", place.ok(&["keys", "show"]));
        assert_snapshot!("keys_rotate", place.ok(&["keys", "rotate"]));
    });
}

#[test]
fn ledger_commands_print_json() {
    let place = Place::new();
    place.ok(&["keys", "init", "--name", "example.com/agents"]);
    place.ok(&["ledger", "note", "--json", "first light"]);
    place.ok(&["ledger", "checkpoint", "-o", "kept"]);
    settings(&place).bind(|| {
        assert_snapshot!("json_note", place.ok(&["ledger", "note", "--json", "second"]));
        assert_snapshot!("json_tail", place.ok(&["ledger", "tail", "-n", "1", "--json"]));
        assert_snapshot!("json_show", place.ok(&["ledger", "show", "1", "--json"]));
        assert_snapshot!("json_verify", place.ok(&["ledger", "verify", "--json", "--checkpoint", "kept"]));
        assert_snapshot!("json_checkpoint", place.ok(&["ledger", "checkpoint", "--json"]));
        assert_snapshot!("json_prove", place.ok(&["ledger", "prove", "1", "--json"]));
        assert_snapshot!("json_prove_since", place.ok(&["ledger", "prove", "--since", "1", "--json"]));
        assert_snapshot!("json_export", place.ok(&["ledger", "export", "out", "--json"]));
        assert_snapshot!("json_rebuild_check", place.ok(&["ledger", "rebuild", "--check", "--json"]));
        assert_snapshot!("json_graph", place.ok(&["ledger", "graph", "--json"]));
        assert_snapshot!("json_keys_show", place.ok(&["keys", "show", "--json"]));
        assert_snapshot!("json_keys_rotate", place.ok(&["keys", "rotate", "--json"]));
        assert_snapshot!("json_error", place.call(&["keys", "init", "--json"]).err);
    });
}

#[test]
fn help_teaches() {
    let place = Place::new();
    settings(&place).bind(|| {
        assert_snapshot!("help", place.ok(&["--help"]));
        assert_snapshot!("help_ledger", place.ok(&["ledger", "--help"]));
        assert_snapshot!("help_verify", place.ok(&["ledger", "verify", "--help"]));
        assert_snapshot!("help_keys", place.ok(&["keys", "--help"]));
        assert_snapshot!("help_approvals_allow", place.ok(&["approvals", "allow", "--help"]));
        assert_snapshot!("help_law_backtest", place.ok(&["law", "backtest", "--help"]));
        assert_snapshot!("help_run", place.ok(&["run", "--help"]));
        assert_snapshot!("help_workspace", place.ok(&["workspace", "--help"]));
        assert_snapshot!("help_workspace_diff", place.ok(&["workspace", "diff", "--help"]));
        assert_snapshot!("help_workspace_land", place.ok(&["workspace", "land", "--help"]));
        assert_snapshot!("help_law_check", place.ok(&["law", "check", "--help"]));
        for command in
            ["init", "up", "down", "status", "doctor", "completions", "approvals", "approvers", "law"]
        {
            assert_snapshot!(format!("help_{command}"), place.ok(&[command, "--help"]));
        }
    });
}

#[test]
fn wrong_calls_say_what_is_right_and_end_with_64() {
    let place = Place::new();
    place.ok(&["ledger", "note", "one"]);
    let wrong = |args: &[&str]| {
        let said = place.call(args);
        assert_eq!(said.code, 64, "{args:?}: {said:?}");
        said.err
    };
    assert!(wrong(&["ledger", "tial"]).contains("tail"));
    assert!(
        wrong(&["ledger", "tail", "--quality", "gossip"]).contains("`gossip` is not a kind of ledger entry")
    );
    assert!(wrong(&["ledger", "prove"]).contains("<ENTRY>"));
    settings(&place).bind(|| {
        assert_snapshot!("wrong_show", wrong(&["ledger", "show", "99"]));
        assert_snapshot!("wrong_show_cid", wrong(&["ledger", "show", "b3:0000"]));
        assert_snapshot!("wrong_note_empty", wrong(&["ledger", "note", ""]));
        assert_snapshot!("wrong_note_long", wrong(&["ledger", "note", &"x".repeat(9000)]));
        assert_snapshot!("wrong_key", wrong(&["ledger", "verify", "--key", "nonsense"]));
        assert_snapshot!("wrong_path", wrong(&["ledger", "verify", "nowhere"]));
        assert_snapshot!("wrong_proof_without_key", wrong(&["ledger", "verify", "home/keys/ledger.vkey"]));
        assert_snapshot!("wrong_since", wrong(&["ledger", "prove", "--since", "7"]));
        assert_snapshot!("wrong_init", wrong(&["keys", "init"]));
    });
}

#[test]
fn verify_ends_with_2_when_broken_and_3_when_incomplete() {
    let place = Place::new();
    place.notes(20);
    place.ok(&["ledger", "checkpoint", "-o", "kept"]);
    place.ok(&["ledger", "export", "out"]);
    let verify = |args: &[&str]| {
        place.call(&[&["ledger", "verify", "out", "--key", "home/keys/ledger.vkey"], args].concat())
    };
    assert_eq!(verify(&["--checkpoint", "kept"]).code, 0);

    let entries = place.path("out/entries.jsonl");
    let whole = std::fs::read_to_string(&entries).unwrap();
    std::fs::write(&entries, whole.replacen("note 7", "note 8", 1)).unwrap();
    let broken = verify(&[]);
    assert_eq!(broken.code, 2);
    let cut: Vec<&str> = whole.lines().take(15).collect();
    std::fs::write(&entries, format!("{}\n", cut.join("\n"))).unwrap();
    let incomplete = verify(&["--checkpoint", "kept"]);
    assert_eq!(incomplete.code, 3);
    settings(&place).bind(|| {
        assert_snapshot!("verify_broken", broken.out);
        assert_snapshot!("verify_incomplete", incomplete.out);
    });
}

#[test]
fn lines_are_answered_in_order_and_a_bad_one_loses_nothing_before_it() {
    let place = Place::new();
    let mut command = place.command(&["ledger", "note", "--lines", "--entity", "feed"]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    {
        use std::io::Write as _;
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(format!("one\n\ntwo\n{}\nfive\n", "x".repeat(9000)).as_bytes()).unwrap();
    }
    let said = crate::fixture::cli_output(child.wait_with_output().unwrap());
    assert_eq!(said.code, 64);
    let expected = "error: line 4: the note has more than 8192 bytes, which is the limit\n";
    assert!(said.err.ends_with(expected), "{}", said.err);
    assert_eq!(said.out.lines().map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>(), ["1", "2"]);
    let tail = place.ok(&["ledger", "tail", "--entity", "feed", "--json"]);
    assert_eq!(tail.lines().count(), 2);
}

#[test]
fn following_shows_entries_as_they_come() {
    use std::io::{BufRead as _, BufReader};
    let place = Place::new();
    place.ok(&["ledger", "note", "before"]);
    let mut tail = place
        .command(&["ledger", "tail", "-n", "1", "--follow"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().trim_start().starts_with("1 "));
    place.ok(&["ledger", "note", "after"]);
    assert!(lines.next().unwrap().unwrap().trim_start().starts_with("2 "));
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new();
    place.notes(2000);
    let shell = format!(
        "{} ledger tail -n 2000 | head -1; exit ${{PIPESTATUS[0]}}",
        crate::fixture::binary().display()
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &shell])
        .env("TRIBUNE_HOME", place.home())
        .output()
        .unwrap();
    let said = crate::fixture::cli_output(output);
    assert_eq!((said.code, said.err.as_str(), said.out.lines().count()), (0, "", 1));
}

#[test]
fn verdict_stands_if_the_reader_stops() {
    let place = Place::new();
    place.notes(20);
    place.ok(&["ledger", "export", "out"]);
    let entries = place.path("out/entries.jsonl");
    let whole = std::fs::read_to_string(&entries).unwrap();
    std::fs::write(&entries, whole.replacen("note 7", "note 8", 1)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = place.command(&["ledger", "verify", "out"]).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let input = std::fs::File::open(&entries).unwrap();
    let output = place.command(&["ledger", "note", "--lines"]).stdin(input).stdout(writer).output().unwrap();
    let said = crate::fixture::cli_output(output);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("the reader of the answers has gone"), "{}", said.err);
}

#[test]
fn hostile_export_cannot_control_the_terminal_or_break_json() {
    let place = Place::new();
    place.notes(3);
    place.ok(&["ledger", "export", "out"]);
    let entries = place.path("out/entries.jsonl");
    let whole = std::fs::read_to_string(&entries).unwrap();
    let envelope = r#""envelope":{"\u001b[2J\u001b[Hintegrity: sound":1}"#;
    std::fs::write(&entries, whole.replace("\"envelope\":null", envelope)).unwrap();
    let said = place.call(&["ledger", "verify", "out"]);
    assert_eq!(said.code, 2);
    assert!(said.out.contains("\\u{1b}[2J") && !said.out.contains('\u{1b}'), "{}", said.out);

    std::fs::write(&entries, whole).unwrap();
    let checkpoint = place.path("out/checkpoint");
    let note = std::fs::read_to_string(&checkpoint).unwrap();
    std::fs::write(&checkpoint, note.replacen("\n4\n", "\n18446744073709551615\n", 1)).unwrap();
    let said = place.call(&["ledger", "verify", "out", "--json"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.out.contains("18446744073709551615"));
}

#[test]
fn a_kept_checkpoint_is_never_ignored() {
    let place = Place::new();
    place.notes(3);
    place.ok(&["ledger", "checkpoint", "-o", "kept"]);
    place.ok(&["ledger", "prove", "--since", "2", "-o", "since"]);
    let said =
        place.call(&["ledger", "verify", "since", "--key", "home/keys/ledger.vkey", "--checkpoint", "kept"]);
    assert_eq!(said.code, 64);
    assert!(said.err.contains("--checkpoint goes with a home or an export"), "{}", said.err);
}

#[test]
fn results_are_written_through_links_and_devices() {
    let place = Place::new();
    place.notes(1);
    std::fs::write(place.path("real"), "").unwrap();
    std::os::unix::fs::symlink("real", place.path("link")).unwrap();
    place.ok(&["ledger", "checkpoint", "-o", "link"]);
    assert!(place.path("link").symlink_metadata().unwrap().is_symlink());
    assert!(std::fs::read_to_string(place.path("real")).unwrap().starts_with("tribune/"));
}

#[test]
fn usage_errors_are_json_too() {
    let said = Place::new().call(&["ledger", "tial", "--json"]);
    assert_eq!(said.code, 64);
    let value: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!(value["error"]["kind"], "usage");
}

#[test]
fn every_shell_gets_its_completions() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.ok(&["completions", shell]);
        assert!(script.contains("tribune") && script.contains("doctor"), "{shell}: {script}");
    }
    std::fs::write(place.path("script"), place.ok(&["completions", "bash"])).unwrap();
    let checked = std::process::Command::new("bash").arg("-n").arg(place.path("script")).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(place.call(&["completions", "cmd"]).code, 64);
}

#[test]
fn version_is_printed_in_either_form() {
    let place = Place::new();
    let version = place.ok(&["version"]);
    assert_eq!(version, concat!("tribune ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(version, place.ok(&["--version"]));
    let value: serde_json::Value = serde_json::from_str(&place.ok(&["version", "--json"])).unwrap();
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    assert!(value["sqlite"].is_string() && value["sqlcipher"].is_string(), "{value}");
}

#[test]
fn a_history_of_a_session_is_not_the_operators_to_write() {
    let place = Place::new();
    let said = place.call(&["ledger", "note", "x", "--entity", "agent:main:rpc"]);
    let expected = "error: only sessions write histories that begin with `agent:`: name another entity\n";
    assert_eq!((said.code, said.err.as_str()), (64, expected));
    assert!(!place.home().exists(), "nothing was created");
}
