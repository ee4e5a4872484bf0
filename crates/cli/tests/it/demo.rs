//! `tribune demo`, and that it leaves nothing behind.

use std::path::Path;
use std::process::{Command, Stdio};

use insta::{Settings, assert_snapshot};
use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{CliOutput, Place, binary, cli_output};
use crate::in_process_daemon::RunningCall;

/// The demo, with a temporary folder that the test can read.
fn demo(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env("TMPDIR", folder).env("HOME", folder).env_remove("TRIBUNE_HOME");
    command.stdin(Stdio::null());
    command
}

fn listing(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn demo_runs_and_leaves_nothing_behind() {
    let place = Place::new();
    let told: CliOutput = cli_output(demo(place.folder.path(), &["demo"]).output().unwrap());
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{told:?}");
    assert_eq!(listing(place.folder.path()), Vec::<String>::new());
    // Line breaks depend on the values of this run, so they are removed before comparing.
    let words: String = told
        .out
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ") + "\n\n")
        .collect();
    let mut settings = Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.add_filter(r"b3:[0-9a-f]{12}", "[CID]");
    settings.add_filter(r"tribune/[0-9a-f]{16}", "[NAME]");
    settings.add_filter(r"\d+ ms", "[N] ms");
    settings.add_filter(r"\d+ entries", "[N] entries");
    settings.bind(|| assert_snapshot!("demo", words));
    let last = told.out.lines().last().unwrap();
    assert!(last.starts_with("integrity: sound, ") && last.ends_with(" entries"), "{last}");
}

#[test]
fn programs_get_the_facts_and_a_kept_home_verifies() {
    let place = Place::new();
    let told = cli_output(demo(place.folder.path(), &["demo", "--keep", "--json"]).output().unwrap());
    assert_eq!(told.code, 0, "{told:?}");
    let facts: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((&facts["ok"], &facts["verified"]["integrity"]), (&true.into(), &"sound".into()));
    let kept = Path::new(facts["kept"].as_str().unwrap());
    assert_eq!(listing(place.folder.path()), [kept.file_name().unwrap().to_str().unwrap()]);
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o700);

    // The facts are in the ledger.
    let on_kept = |args: &[&str]| {
        let said = cli_output(
            demo(place.folder.path(), &[&["--home", kept.to_str().unwrap(), "--json"], args].concat())
                .output()
                .unwrap(),
        );
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        serde_json::from_str::<Value>(said.out.lines().next().unwrap()).unwrap()
    };
    assert_eq!(on_kept(&["ledger", "verify"])["entries"], facts["verified"]["entries"]);
    let denied = on_kept(&["ledger", "show", facts["denied"]["verdict"].as_str().unwrap()]);
    assert_eq!(denied["entry"]["payload"]["decision"], "deny");
    assert_eq!(denied["entry"]["payload"]["rule"], facts["denied"]["rule"]);
    let cancelled = facts["cancelled"]["turn"].as_str().unwrap();
    assert_eq!(on_kept(&["ledger", "show", cancelled])["entry"]["quality"], "turn");
}

#[test]
fn stopped_midway_it_leaves_nothing_either() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = Place::new();
        let running = RunningCall::new(demo(place.folder.path(), &["demo"]));
        running.until_out("4. An agent writes to another.");
        running.signal(signal);
        let (status, out, err) = running.end();
        assert_eq!((status.code(), err.as_str()), (Some(130), "stopped\n"), "{out}");
        assert_eq!(listing(place.folder.path()), Vec::<String>::new());
    }
}

#[test]
fn a_reader_that_goes_away_leaves_nothing_either() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = demo(place.folder.path(), &["demo"]).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(listing(place.folder.path()), Vec::<String>::new());
}

#[test]
fn without_room_for_a_home_it_says_so() {
    let place = Place::new();
    let told = cli_output(demo(&place.path("missing"), &["demo"]).output().unwrap());
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.err.contains("tribune-demo-"), "{}", told.err);
}
