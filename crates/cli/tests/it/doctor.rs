//! The findings of `tribune doctor`, and that it changes nothing.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use insta::{Settings, assert_snapshot};
use serde_json::Value;

use crate::command_output;
use crate::daemon_process::ForegroundDaemon;
use crate::fixture::Place;

fn settings(place: &Place) -> Settings {
    let mut settings = command_output::settings(place);
    settings.add_filter(r"127\.0\.0\.1:\d+", "[ADDRESS]");
    settings.add_filter(r"pid \d+", "pid [PID]");
    settings.add_filter(r"versions: .*", "versions: [VERSIONS]");
    settings.add_filter(r"\d+\.\d [KMG]iB", "[SIZE]");
    settings.add_filter(r"(ok  |warn) descriptors: .*", "[DESCRIPTORS]");
    settings
}

/// Uses a free port, because other programs may use the default one.
fn any_port(place: &Place) {
    fs::create_dir_all(place.home()).unwrap();
    fs::set_permissions(place.home(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(place.home().join("config.json5"), "{ gateway: { address: \"127.0.0.1:0\" } }").unwrap();
}

#[test]
fn a_fresh_home_is_fine() {
    let place = Place::new();
    any_port(&place);
    settings(&place).bind(|| assert_snapshot!("doctor_fresh", place.ok(&["doctor"])));
    let found: Vec<_> = fs::read_dir(place.home()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(found, ["config.json5"], "reading creates nothing");
}

#[test]
fn a_running_home_is_fine() {
    let place = Place::new();
    let daemon = ForegroundDaemon::start(&place);
    settings(&place).bind(|| assert_snapshot!("doctor_running", place.ok(&["doctor"])));
    daemon.stop();
}

#[test]
fn what_is_broken_fails_with_what_to_do() {
    let place = Place::new();
    let home = place.home();
    place.ok(&["init"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    fs::write(home.join("config.json5"), format!("{{ gateway: {{ address: \"{address}\" }} }}")).unwrap();
    place.ok(&["ledger", "note", "x"]);
    fs::set_permissions(home.join("keys/ledger.key"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(home.join("tribune.db"), "not a database, and long enough to be looked at").unwrap();
    fs::write(home.join("vault.db"), "x").unwrap();
    fs::write(
        home.join("data/agent-roster.jsonl"),
        "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"king\"}\n",
    )
    .unwrap();
    fs::create_dir(home.join("scenes")).unwrap();
    fs::write(home.join("scenes/greet.scene"), "# Greets\nsya hello\n").unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    let said = place.call(&["doctor"]);
    assert_eq!(said.code, 2, "{said:?}");
    settings(&place).bind(|| assert_snapshot!("doctor_broken", said.out));

    fs::write(home.join("config.json5"), "{ gateway: 7 }").unwrap();
    fs::write(home.join("mandates/default.md"), "no mandate at all").unwrap();
    let said = place.call(&["doctor", "--json"]);
    assert_eq!(said.code, 2, "{said:?}");
    let findings: Value = serde_json::from_str(&said.out).unwrap();
    let failing = |name: &str| {
        let finding = findings.as_array().unwrap().iter().find(|finding| finding["name"] == name).unwrap();
        assert_eq!(finding["verdict"], "fail", "{finding}");
        finding["message"].as_str().unwrap().to_owned()
    };
    assert!(failing("config").contains("config.json5:1:"), "{findings}");
    assert!(failing("law").contains("the mandate `default`: line 1: "), "{findings}");
}

#[test]
fn missing_home_warns_and_a_file_fails() {
    let place = Place::new();
    let said = place.call(&["doctor"]);
    assert!(said.out.contains("warn home: "), "{said:?}");
    assert!(!place.home().exists());
    fs::write(place.home(), "").unwrap();
    let said = place.call(&["doctor"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.out.contains("is a file, not a folder"), "{said:?}");
    assert_eq!(said.out.lines().count(), 2, "one cause is reported once: {said:?}");
}
