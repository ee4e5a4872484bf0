//! Usage errors, open permissions and missing files: each has its exit code and its message.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::daemon_process::ForegroundDaemon;
use crate::fixture::Place;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn unknown_names_are_usage_errors_without_method_names() {
    let place = Place::new();
    let daemon = ForegroundDaemon::start(&place);
    for args in [
        &["chat", "--agent", "nobody", "hello"][..],
        &["chat", "--agent", "No Body", "hello"],
        &["chat", "--session", "nonsense", "hello"],
        &["agents", "show", "nobody"],
        &["agents", "add", "No Body"],
        &["agents", "add", "a", "--mandate", "king"],
        &["sessions", "show", "agent:main:cli:local:dm:nobody"],
        &["sessions", "events", "nonsense"],
        &["chat", "hello", "--loudly"],
    ] {
        let said = place.call(args);
        assert_eq!(said.code, 64, "{args:?}: {said:?}");
        assert!(!said.err.contains("session."), "{args:?}: {said:?}");
    }
    let said = place.call(&["chat", "hello", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.lines().all(|line| line.starts_with('{')), "a flag after the message counts: {said:?}");
    fs::remove_file(place.home().join("run/token")).unwrap();
    let error = place.refused(&["status"]);
    assert!(error.contains("the operator's token") && error.contains("`tribune up`"), "{error}");
    daemon.stop();
}

#[test]
fn start_makes_a_readable_home_private() {
    let place = Place::new();
    fs::create_dir_all(place.home()).unwrap();
    fs::set_permissions(place.home(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.home().join("run")).unwrap();
    fs::write(place.home().join("run/lock"), "").unwrap();
    let said = place.call(&["up", "--detach", "--port", "0"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("had mode 0755, so other users could read it"), "{said:?}");
    assert_eq!((mode(&place.home()), mode(&place.home().join("run/lock"))), (0o700, 0o600));
    assert_eq!(place.call(&["down"]).code, 0);
}

#[test]
fn doctor_finds_unusable_agents_sessions_and_keys() {
    let place = Place::new();
    fs::create_dir_all(place.home().join("data")).unwrap();
    let roster = place.home().join("data/agent-roster.jsonl");
    fs::write(&roster, "{\"id\":\"main\"}\n{\"id\":\"clerk\"}\n").unwrap();
    let daemon = ForegroundDaemon::start(&place);
    place.ok(&["chat", "--session", "agent:clerk:cli:local:dm:x", "!say hello"]);
    daemon.stop();
    fs::write(&roster, "{\"id\":\"main\"}\n{\"id\":\"clerk\",\"backend\":\"lost\"}\n").unwrap();
    fs::write(place.home().join("keys/vault.key"), format!("{}\n", "0".repeat(64))).unwrap();
    let said = place.call(&["doctor"]);
    assert_eq!(said.code, 2, "{said:?}");
    for words in [
        "FAIL roster: agent `clerk` needs the backend `lost`",
        "warn sessions: 1 open session can run no turns, the first is `agent:clerk:cli:local:dm:x`",
        "FAIL vault: the vault's key",
    ] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
}
