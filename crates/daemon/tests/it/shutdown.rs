//! Messages of a daemon during shutdown.

use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tribune_daemon::daemon::{Daemon, StartError};
use tribune_testkit::{TempHome, TestDaemon, config, turn_params};

use crate::raw_clients::{body, events_until, http, within};

#[tokio::test(flavor = "multi_thread")]
async fn status_is_draining_and_new_work_is_refused_while_the_daemon_stops() {
    let mut patient = config();
    patient.gateway.drain = Duration::from_secs(600);
    let daemon = TestDaemon::start_at(TempHome::new(), &patient).await;
    let (address, token) = (daemon.address(), daemon.token());
    let mut client = daemon.operator().await;
    let key = "agent:main:cli:local:dm:stopping";
    client.call("session.init", &json!({ "session_key": key })).await.unwrap();
    client.send("turn.run", &turn_params(key, "!say still here\n!hang")).await.unwrap();
    events_until(&mut client, "the turn runs", |event| event["type"] == "text_delta").await;

    let TestDaemon { daemon, home } = daemon;
    let (hurry, hurried) = tokio::sync::oneshot::channel::<()>();
    let stopping = tokio::spawn(daemon.stop(async move { drop(hurried.await) }));
    let ask = async |method: &str, path: &str, body: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        http(&address, request.as_bytes()).await
    };
    let answer = within("the status is draining", async {
        loop {
            let answer = ask("GET", "/readyz", "").await;
            if answer.starts_with("HTTP/1.1 503") {
                return answer;
            }
        }
    })
    .await;
    assert_eq!(body(&answer), json!({ "ready": false, "waiting": ["gateway: draining"] }));
    for (path, what) in [
        ("/v1/sessions", json!({ "session_key": "agent:main:test:local:dm:too-late" })),
        ("/v1/ledger/notes", json!({ "entity": "x", "texts": ["too late"] })),
        ("/v1/agents", json!({ "agent_id": "late" })),
    ] {
        let answer = ask("POST", path, &what.to_string()).await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{path}: {answer}");
        assert_eq!(body(&answer)["error"]["code"], "draining", "{path}");
    }
    let shown = ask("GET", &format!("/v1/sessions/{key}"), "").await;
    assert_eq!(body(&shown)["state"], "running", "reads are still answered");

    hurry.send(()).unwrap();
    let drained = within("it stops after the second signal", stopping).await.unwrap();
    assert_eq!((drained.cancelled, drained.abandoned), (1, false));
    assert!(TcpStream::connect(&address).await.is_err(), "the port is closed");
    drop(home);
}

#[tokio::test(flavor = "multi_thread")]
async fn start_fails_when_standing_agents_exceed_the_session_limit() {
    let home = TempHome::new();
    home.write(
        "data/agent-roster.jsonl",
        "{\"id\":\"main\",\"standing\":true}\n{\"id\":\"other\",\"standing\":true}\n",
    );
    let mut narrow = config();
    narrow.sessions.max_open = 1;
    let clock = std::sync::Arc::new(tribune_storage::clock::SystemClock);
    let refused = Daemon::start(&home.home, &narrow, clock).await.unwrap_err();
    assert!(matches!(refused, StartError::TooManyStanding { standing: 2, max_open: 1 }), "{refused}");
    assert_eq!(
        refused.to_string(),
        "the roster has 2 standing agents, but sessions.maxOpen is 1: raise it in config.json5, or make fewer agents standing"
    );
}

#[test]
fn taken_port_error_names_openclaw_only_for_the_default_port() {
    let message = |address: &str| StartError::PortTaken(address.parse().unwrap()).to_string();
    assert!(message("127.0.0.1:18789").contains("OpenClaw"));
    assert!(!message("127.0.0.1:4000").contains("OpenClaw"));
}
