//! The lifecycle of a daemon: created, started, queried, stopped.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use insta::{Settings, assert_snapshot};
use rustix::process::Signal;
use serde_json::{Value, json};
use tribune_client::RpcIncoming;
use tribune_storage::home::Home;
use tribune_testkit::{assert_sound, turn_params};

use crate::command_output;
use crate::daemon_process::{BOUND, Detached, ForegroundDaemon, operator};
use crate::fixture::{Place, binary, cli_output};

fn settings(place: &Place) -> Settings {
    let mut settings = command_output::settings(place);
    settings.add_filter(r"127\.0\.0\.1:\d+", "[ADDRESS]");
    settings.add_filter(r#"(pid |"pid":)\d+"#, "$1[PID]");
    // Connections that have just ended may still be counted.
    settings.add_filter(r#"(connections  |"connections":)\d+"#, "$1[COUNT]");
    settings.add_filter(r"tribune \d+\.\d+\.\d+", "tribune [VERSION]");
    settings.add_filter(r#""version":"\d+\.\d+\.\d+""#, r#""version":"[VERSION]""#);
    settings
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn up_says_where_it_is_and_what_comes_next() {
    let place = Place::new();
    let daemon = ForegroundDaemon::start(&place);
    settings(&place).bind(|| assert_snapshot!("up", daemon.greeting));
    runtime().block_on(async {
        let mut client = operator(&place).await;
        let who = client.call("auth.whoami", &json!({})).await.unwrap();
        assert_eq!(who["principal"], "operator");
    });
    for made in ["constitution.md", "mandates/default.md", "agents/main/workspace/welcome.txt"] {
        assert!(place.home().join(made).is_file(), "{made}");
    }
    assert!(!place.home().join("config.json5").exists(), "settings are written by init alone");

    daemon.signal(Signal::TERM);
    let (code, said) = daemon.ended();
    assert_eq!(code, Some(0));
    let stopping =
        "stopping: waiting up to 10 s for running turns; press Ctrl-C again to end them now".to_owned();
    assert_eq!(said, [stopping, "stopped".to_owned()]);
    assert_sound(&Home::at(place.home()));
}

#[test]
fn up_prints_one_line_of_json() {
    let place = Place::new();
    let daemon = ForegroundDaemon::start_with(place.command(&["up", "--port", "0", "--json"]), "{");
    settings(&place).bind(|| assert_snapshot!("json_up", daemon.greeting));
    settings(&place).bind(|| assert_snapshot!("json_status", place.ok(&["status", "--json"])));
    daemon.signal(Signal::INT);
    assert_eq!(daemon.ended(), (Some(0), Vec::new()));
}

#[test]
fn the_usual_home_needs_no_naming() {
    let place = Place::new();
    let mut command = place.command(&["up", "--port", "0"]);
    command.env_remove("TRIBUNE_HOME").env("HOME", place.folder.path());
    let daemon = ForegroundDaemon::start_with(command, "stop with");
    assert!(
        daemon.greeting.contains("next:\n  tribune chat\n  tribune status\n  tribune demo\n"),
        "{daemon:?}"
    );
    daemon.stop();
}

#[test]
fn second_daemon_is_refused_with_the_first_ones_address() {
    let place = Place::new();
    let daemon = ForegroundDaemon::start(&place);
    for args in [&["up", "--port", "0"][..], &["up", "--port", "0", "--detach"]] {
        let error = place.refused(args);
        assert!(error.contains(&format!("a daemon (pid {}) already runs in ", daemon.pid())), "{error}");
        assert!(error.ends_with("`tribune status` shows it, `tribune down` stops it"), "{error}");
    }
    // The same home alone is a reason to refuse.
    fs::remove_file(place.home().join("run/daemon.json")).unwrap();
    let error = place.refused(&["up", "--port", "0"]);
    assert!(error.contains(&format!("is held by another process (pid {})", daemon.pid())), "{error}");
    daemon.stop();
}

#[test]
fn a_hint_is_about_the_home_that_was_named() {
    let place = Place::new();
    let path = place.home().display().to_string();
    let named = |args: &[&str]| {
        let mut command = place.command(args);
        command.env_remove("TRIBUNE_HOME").arg("--home").arg(place.home());
        cli_output(command.output().unwrap())
    };
    let none = named(&["status"]);
    assert!(none.err.ends_with(&format!("start one with `tribune up --home {path}`\n")), "{none:?}");
    let daemon = ForegroundDaemon::start(&place);
    let second = named(&["up", "--port", "0"]);
    let hints = format!("`tribune status --home {path}` shows it, `tribune down --home {path}` stops it\n");
    assert!(second.err.ends_with(&hints), "{second:?}");
    let lost = named(&["sessions", "show", "agent:main:x:y:dm:z"]);
    assert!(lost.err.contains(&format!("`tribune sessions list --home {path}`")), "{lost:?}");
    place.ok(&["chat", "hello", "--session", "agent:main:cli:local:dm:hints"]);
    let forgotten = named(&["sessions", "forget", "agent:main:cli:local:dm:hints", "--yes"]);
    assert!(forgotten.out.contains(&format!("`tribune ledger verify --home {path}`")), "{forgotten:?}");
    daemon.stop();
}

#[test]
fn a_port_that_is_taken_is_explained() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for args in [&["up", "--port", &port][..], &["up", "--port", &port, "--detach"]] {
        let error = place.refused(args);
        assert!(error.contains(&format!("error: 127.0.0.1:{port} is taken by another program")), "{error}");
        assert!(error.ends_with("choose another port with --port or gateway.address"), "{error}");
    }
    assert_eq!(place.call(&["status"]).code, 69);
}

#[test]
fn sigterm_lets_a_turn_end() {
    let place = Place::new();
    let daemon = ForegroundDaemon::start(&place);
    let (events, result) = runtime().block_on(async {
        let mut client = operator(&place).await;
        let key = client.call("session.init", &json!({})).await.unwrap()["session_key"].clone();
        let asked = turn_params(key.as_str().unwrap(), "!say begun\n!wait 300ms\n!say done");
        let id = client.send("turn.run", &asked).await.unwrap();
        let mut events = Vec::new();
        loop {
            match tokio::time::timeout(BOUND, client.next()).await.unwrap().unwrap() {
                RpcIncoming::Notification(said) => {
                    if events.is_empty() {
                        daemon.signal(Signal::TERM);
                    }
                    events.push(said.params["event"].clone());
                }
                RpcIncoming::Response(of, answer) if of == id => return (events, answer.unwrap()),
                RpcIncoming::Response(..) => {}
            }
        }
    });
    assert_eq!(result["stop_reason"], "end_turn");
    assert!(tribune_testkit::output_text(&events).contains("done"), "{events:?}");
    let (code, said) = daemon.ended();
    assert_eq!((code, said.last().map(String::as_str)), (Some(0), Some("stopped")));
    assert_sound(&Home::at(place.home()));
}

/// Starts a turn that does not end by itself; returns its answer after `told` has run.
async fn hanging_turn(place: &Place, told: impl FnOnce()) -> Value {
    let mut client = operator(place).await;
    let key = client.call("session.init", &json!({})).await.unwrap()["session_key"].clone();
    let id = client.send("turn.run", &turn_params(key.as_str().unwrap(), "!say begun\n!hang")).await.unwrap();
    let mut told = Some(told);
    loop {
        match tokio::time::timeout(BOUND, client.next()).await.unwrap().unwrap() {
            RpcIncoming::Notification(_) => {
                if let Some(told) = told.take() {
                    told();
                }
            }
            RpcIncoming::Response(of, answer) if of == id => return answer.unwrap(),
            RpcIncoming::Response(..) => {}
        }
    }
}

#[test]
fn a_second_signal_ends_turns_at_once() {
    let place = Place::new();
    // Longer than the test may take.
    write_config(&place, "{ gateway: { drainSeconds: 600 } }");
    let daemon = ForegroundDaemon::start(&place);
    let result = runtime().block_on(hanging_turn(&place, || {
        daemon.signal(Signal::INT);
        daemon.hears("stopping: waiting up to 600 s");
        daemon.signal(Signal::INT);
    }));
    assert_eq!(result["stop_reason"], "cancelled");
    assert_eq!(daemon.ended(), (Some(0), vec!["stopped; 1 turn was ended early".to_owned()]));
}

#[test]
fn down_now_ends_turns_at_once() {
    let place = Place::new();
    write_config(&place, "{ gateway: { drainSeconds: 600 } }");
    let daemon = ForegroundDaemon::start(&place);
    let pid = daemon.pid();
    let mut down = None;
    let result = runtime().block_on(hanging_turn(&place, || {
        down = Some(place.command(&["down", "--now"]).stdout(std::process::Stdio::piped()).spawn().unwrap());
    }));
    assert_eq!(result["stop_reason"], "cancelled");
    let down = cli_output(down.unwrap().wait_with_output().unwrap());
    assert_eq!((down.code, down.out), (0, format!("stopped (pid {pid})\n")));
    assert_eq!(daemon.ended().0, Some(0));
}

fn write_config(place: &Place, text: &str) {
    fs::create_dir_all(place.home()).unwrap();
    fs::write(place.home().join("config.json5"), text).unwrap();
}

#[test]
fn settings_are_judged_before_anything_starts() {
    let place = Place::new();
    write_config(&place, "{\n  gateway: { adress: \"127.0.0.1:1\" },\n}\n");
    for args in [&["up"][..], &["up", "--detach"]] {
        let error = place.refused(args);
        assert!(error.contains("config.json5:2:14: unknown key `gateway.adress`"), "{error}");
    }
    let found: Vec<_> = fs::read_dir(place.home()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(found, ["config.json5"]);
}

#[test]
fn init_makes_what_is_missing_and_nothing_else() {
    let place = Place::new();
    let first = place.ok(&["init"]);
    let law = place.home().join("constitution.md");
    fs::write(&law, "# Ours\n").unwrap();
    fs::remove_file(place.home().join("board.md")).unwrap();
    let second = place.ok(&["init"]);
    let third = place.ok(&["init", "--json"]);
    settings(&place).bind(|| {
        assert_snapshot!("init_first", first);
        assert_snapshot!("init_second", second);
        assert_snapshot!("json_init", third);
    });
    assert_eq!(fs::read_to_string(&law).unwrap(), "# Ours\n");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place.home()), mode(&law.with_file_name("config.json5"))), (0o700, 0o600));
    // The daemon reads what it wrote.
    let said = place.call(&["doctor", "--json"]);
    let findings: Value = serde_json::from_str(&said.out).unwrap();
    let verdict = |name: &str| {
        findings.as_array().unwrap().iter().find(|finding| finding["name"] == name).unwrap()["verdict"]
            .clone()
    };
    assert_eq!(
        (verdict("config"), verdict("law"), verdict("roster")),
        ("ok".into(), "ok".into(), "ok".into())
    );
}

#[test]
fn in_the_background_and_back() {
    let place = Place::new();
    let _detached = Detached(&place);
    let greeting = place.ok(&["up", "--detach", "--port", "0"]);
    let status = place.ok(&["status"]);
    let down = place.ok(&["down"]);
    let (gone, again) = (place.call(&["status"]), place.call(&["down", "--json"]));
    assert_eq!((gone.code, again.code), (69, 69));
    settings(&place).bind(|| {
        assert_snapshot!("up_detached", greeting);
        assert_snapshot!("status", status);
        assert_snapshot!("down", down);
        assert_snapshot!("status_gone", gone.err);
        assert_snapshot!("json_down_gone", again.err);
    });
    let out = place.home().join("logs/gateway/daemon.out");
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&out).unwrap().ends_with("stopped\n"));
    // Again in the same home.
    let second = place.ok(&["up", "--detach", "--port", "0", "--json"]);
    let second: Value = serde_json::from_str(&second).unwrap();
    assert_eq!(second["rehearsal_agents"], json!(["main"]));
    place.ok(&["down"]);
    assert_sound(&Home::at(place.home()));
}

#[test]
fn a_daemon_that_does_not_start_says_why() {
    let place = Place::new();
    place.ok(&["init"]);
    fs::write(place.home().join("data/agent-roster.jsonl"), "{\"id\":\"main\",\"mandat\":\"x\"}\n").unwrap();
    let direct = place.refused(&["up", "--port", "0"]);
    let detached = place.refused(&["up", "--port", "0", "--detach"]);
    assert!(direct.contains("agent-roster.jsonl:1: "), "{direct}");
    assert_eq!(direct, detached);
}

#[test]
fn up_reports_what_a_crash_left_behind() {
    let place = Place::new();
    let daemon = ForegroundDaemon::start(&place);
    runtime().block_on(async {
        let mut client = operator(&place).await;
        let key = client.call("session.init", &json!({})).await.unwrap()["session_key"].clone();
        client.send("turn.run", &turn_params(key.as_str().unwrap(), "!say begun\n!hang")).await.unwrap();
        let first = tokio::time::timeout(BOUND, client.next()).await.unwrap().unwrap();
        assert!(matches!(first, RpcIncoming::Notification(_)), "{first:?}");
    });
    daemon.signal(Signal::KILL);
    daemon.ended();
    assert!(place.home().join("run/daemon.json").exists(), "nobody cleaned up");
    assert_eq!(place.call(&["status"]).code, 69, "a stale address file is not taken for a daemon");
    let daemon = ForegroundDaemon::start(&place);
    settings(&place).bind(|| assert_snapshot!("up_recovered", daemon.greeting));
    assert!(place.ok(&["status"]).contains("1 turn and 0 calls were marked interrupted"));
    daemon.stop();
}

#[test]
fn notes_and_key_changes_go_through_the_daemon() {
    use std::io::Write as _;
    let place = Place::new();
    let daemon = ForegroundDaemon::start(&place);
    let note = place.ok(&["ledger", "note", "beside the daemon", "--tag", "demo"]);
    let index = note.split(' ').next().unwrap();
    let shown = place.ok(&["ledger", "show", index, "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["entry"]["payload"]["text"], "beside the daemon");
    assert_eq!((&shown["entry"]["actor"], &shown["entry"]["tags"]), (&"operator".into(), &json!(["demo"])));

    // A second note follows from the first, or from the named parent.
    let second: Value = serde_json::from_str(&place.ok(&["ledger", "note", "two", "--json"])).unwrap();
    let parent = |name: &str| -> Value {
        let shown = place.ok(&["ledger", "show", name, "--json"]);
        serde_json::from_str::<Value>(&shown).unwrap()["entry"]["parents"].clone()
    };
    assert_eq!(parent(second["cid"].as_str().unwrap()), json!([shown["entry"]["cid"]]));
    let third: Value =
        serde_json::from_str(&place.ok(&["ledger", "note", "three", "--parent", "0", "--json"])).unwrap();
    assert_ne!(parent(third["cid"].as_str().unwrap()), json!([second["cid"]]));
    assert_eq!(place.call(&["ledger", "note", "x", "--entity", "agent:main:rpc"]).code, 64);
    assert_eq!(place.call(&["ledger", "note", &"x".repeat(9000)]).code, 64);

    let mut command = place.command(&["ledger", "note", "--lines", "--entity", "feed"]);
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for n in 0..250 {
        writeln!(stdin, "line {n}").unwrap();
    }
    drop(stdin);
    let answers = cli_output(child.wait_with_output().unwrap());
    assert_eq!((answers.code, answers.out.lines().count()), (0, 250));
    let tail = place.ok(&["ledger", "tail", "--entity", "feed", "-n", "250", "--json"]);
    for (n, (line, answer)) in tail.lines().zip(answers.out.lines()).enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["entry"]["payload"]["text"], format!("line {n}"));
        assert_eq!(answer, format!("{} {}", line["index"], line["entry"]["cid"].as_str().unwrap()));
    }

    let old = place.ok(&["keys", "show"]);
    let rotated = place.ok(&["keys", "rotate"]);
    assert_ne!(old, place.ok(&["keys", "show"]));
    settings(&place).bind(|| assert_snapshot!("keys_rotate_beside_daemon", rotated));
    // The daemon continues with the new key.
    place.ok(&["ledger", "note", "under the new key"]);
    let held = place.refused(&["ledger", "rebuild"]);
    assert!(held.contains(&format!("is held by another process (pid {})", daemon.pid())), "{held}");
    daemon.stop();
    assert_sound(&Home::at(place.home()));
    place.ok(&["ledger", "note", "without a daemon"]);
}

#[test]
fn a_home_elsewhere_leaves_this_one_alone() {
    let place = Place::new();
    let (mine, elsewhere) = (place.path("mine"), place.path("else where"));
    fs::create_dir(&mine).unwrap();
    let call = |args: &[&str]| {
        let mut command = std::process::Command::new(binary());
        command.args(args).arg("--home").arg(&elsewhere).env_remove("TRIBUNE_HOME").env("HOME", &mine);
        cli_output(command.current_dir(&mine).output().unwrap())
    };
    let ok = |args: &[&str]| {
        let said = call(args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        said.out
    };
    // Any result is fine: another program may use its port here.
    call(&["doctor"]);
    assert!(!elsewhere.exists(), "reading creates nothing");
    ok(&["init"]);
    let greeting = ok(&["up", "--detach", "--port", "0"]);
    let named = format!("  tribune status --home '{}'\n", elsewhere.display());
    assert!(greeting.contains(&named), "{greeting}");
    ok(&["ledger", "note", "x"]);
    ok(&["status"]);
    ok(&["keys", "rotate"]);
    ok(&["down"]);
    call(&["doctor"]);
    assert_eq!(fs::read_dir(&mine).unwrap().count(), 0);
}
