//! Unauthenticated and unregistered callers in large numbers can disturb each other and no other caller.

use std::sync::Arc;

use ed25519_dalek::SigningKey;
use serde_json::json;
use tokio::net::TcpStream;
use tribune_client::RpcClient;
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_storage::clock::Clock;
use tribune_testkit::{TempHome, TestDaemon, config, run_turn};

use crate::fixture::ManualClock;
use crate::principals::{agent, public};
use crate::raw_clients::{RawMessage, RawSocket, assert_healthy, http, wait_for_status, within};

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

async fn is_up(daemon: &TestDaemon) -> bool {
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", daemon.address());
    http(&daemon.address(), request.as_bytes()).await.starts_with("HTTP/1.1 200 ")
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connections_do_not_block_the_operator() {
    let mut config = config();
    config.gateway.max_connections = 8;
    let daemon = TestDaemon::start_at(TempHome::new(), &config).await;
    let mut first = daemon.operator().await;
    let mut oldest = RawSocket::connect(&daemon, None).await;
    // Unregistered callers, silent WebSockets, and connections before their upgrade.
    let mut callers = Vec::new();
    let mut silent = Vec::new();
    let mut plain = Vec::new();
    for seed in 1..=12 {
        callers.push(agent(&daemon, &key(seed)).await.0);
        silent.push(RawSocket::connect(&daemon, None).await);
        plain.push(TcpStream::connect(daemon.address()).await.unwrap());
    }
    let words = "connection limit reached: unauthenticated connections are closed first";
    assert_eq!(oldest.next().await, RawMessage::Close(1013, words.to_owned()));
    assert!(is_up(&daemon).await);
    let mut second = daemon.operator().await;
    for seed in 1..=12 {
        callers.push(agent(&daemon, &key(seed)).await.0);
    }
    for operator in [&mut first, &mut second] {
        let status = operator.call("daemon.status", &json!({})).await.unwrap();
        assert_eq!(status["ready"], true);
    }
    assert_healthy(&daemon).await;
    wait_for_status(&mut first, "the limit is not exceeded", |status| {
        status["connections"].as_u64() <= Some(8)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_keep_half_of_the_slots_and_no_more() {
    let mut config = config();
    config.gateway.max_connections = 8;
    let daemon = TestDaemon::start_at(TempHome::new(), &config).await;
    let mut guests = Vec::new();
    for seed in 1..=12 {
        guests.push(agent(&daemon, &key(seed)).await.0);
    }
    // Connections that prove nothing take the slots of their own kind.
    let mut plain = Vec::new();
    for _ in 0..20 {
        plain.push(TcpStream::connect(daemon.address()).await.unwrap());
    }
    assert!(is_up(&daemon).await);
    let mut alive = 0;
    for guest in &mut guests {
        alive += usize::from(guest.call("auth.whoami", &json!({})).await.is_ok());
    }
    assert_eq!(alive, 4, "the newest guests keep their connections");
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_agents_leave_a_slot_for_the_operator() {
    let mut config = config();
    config.gateway.max_connections = 16;
    let home = TempHome::new();
    let line = format!("{{\"id\":\"main\"}}\n{{\"id\":\"writer\",\"pubkey\":\"{}\"}}\n", public(&key(7)));
    home.write("data/agent-roster.jsonl", &line);
    let daemon = TestDaemon::start_at(home, &config).await;
    let mut agents = Vec::new();
    for _ in 0..20 {
        agents.push(agent(&daemon, &key(7)).await.0);
    }
    assert_healthy(&daemon).await;
    let mut operator = daemon.operator().await;
    for _ in 0..20 {
        drop(TcpStream::connect(daemon.address()).await.unwrap());
    }
    assert_eq!(operator.call("daemon.status", &json!({})).await.unwrap()["ready"], true);
    // The earliest connections keep their slots.
    for known in &mut agents[..14] {
        known.call("auth.whoami", &json!({})).await.unwrap();
    }
}

/// The error code of a refused request.
async fn init(client: &mut RpcClient, params: serde_json::Value) -> Result<(), String> {
    match client.call("session.init", &params).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.code().unwrap().to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_unregistered_callers_do_not_block_the_operator() {
    let mut config = config();
    config.sessions.max_open = 16;
    let clock = Arc::new(ManualClock::at(1_800_000_000));
    let home = TempHome::new();
    let given = || Arc::clone(&clock) as Arc<dyn Clock>;
    let daemon = Daemon::start_with(&home.home, &config, given(), DaemonOverrides::default()).await.unwrap();
    let daemon = TestDaemon { daemon, home };
    let own = |id: &serde_json::Value, n: usize| {
        let id = id.as_str().unwrap();
        json!({ "session_key": format!("agent:{id}:rpc:local:dm:{n}") })
    };
    let (mut unregistered, who) = agent(&daemon, &key(1)).await;
    let mut lasting = own(&who["agent_id"], 0);
    lasting["mode"] = json!("persistent");
    assert_eq!(init(&mut unregistered, lasting).await, Err("forbidden".to_owned()));
    let mut opened = 0;
    for seed in 1..=6 {
        let (mut unregistered, who) = agent(&daemon, &key(seed)).await;
        for n in 0..4 {
            match init(&mut unregistered, own(&who["agent_id"], n)).await {
                Ok(()) => opened += 1,
                Err(code) => assert_eq!(code, "too_many_sessions"),
            }
        }
    }
    assert_eq!(opened, 8, "half of the sessions, two for each of four callers");
    // The limit holds after a restart, which restores the open sessions.
    let home = daemon.stop().await;
    let daemon = Daemon::start_with(&home.home, &config, given(), DaemonOverrides::default()).await.unwrap();
    let daemon = TestDaemon { daemon, home };
    let (mut late, who) = agent(&daemon, &key(20)).await;
    assert_eq!(init(&mut late, own(&who["agent_id"], 0)).await, Err("too_many_sessions".to_owned()));
    let mut operator = daemon.operator().await;
    for n in 0..7 {
        let asked = json!({ "session_key": format!("agent:main:test:local:dm:{n}"), "mode": "persistent" });
        assert_eq!(init(&mut operator, asked).await, Ok(()), "session {n} of the operator");
    }
    clock.set(1_800_000_000 + 60 * 31);
    let swept = within("a sweep", daemon.daemon.sessions().sweep_once()).await.unwrap();
    assert_eq!(swept, 8, "sessions of unregistered callers end, and those of the operator stay");
    assert_eq!(init(&mut late, own(&who["agent_id"], 0)).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_and_closing_sessions_leaves_the_board_unchanged() {
    let clock = Arc::new(ManualClock::at(1_800_000_000));
    let home = TempHome::new();
    let given = Arc::clone(&clock) as Arc<dyn Clock>;
    let daemon = Daemon::start_with(&home.home, &config(), given, DaemonOverrides::default()).await.unwrap();
    let daemon = TestDaemon { daemon, home };
    let before = daemon.home.read("board.md");
    assert_eq!(before.matches("main: checked in").count(), 1, "{before}");
    let (mut unregistered, who) = agent(&daemon, &key(1)).await;
    let own = format!("agent:{0}:rpc:local:dm:{0}", who["agent_id"].as_str().unwrap());
    let mut operator = daemon.operator().await;
    for _ in 0..5 {
        for (client, key) in
            [(&mut unregistered, own.as_str()), (&mut operator, "agent:main:test:local:dm:board")]
        {
            let about = json!({ "session_key": key });
            client.call("session.init", &about).await.unwrap();
            run_turn(client, key, "!say hello").await.unwrap();
            client.call("session.close", &about).await.unwrap();
        }
        turn_denied(&mut unregistered, &own).await;
    }
    assert_eq!(daemon.home.read("board.md"), before);
    clock.set(1_800_000_000 + 60 * 60);
    operator.call("session.init", &json!({ "agent_id": "main" })).await.unwrap();
    assert_eq!(daemon.home.read("board.md").matches("main: checked in").count(), 2, "once an hour");
}

/// Runs a turn of an unregistered caller with a call that its mandate does not allow.
async fn turn_denied(unregistered: &mut RpcClient, key: &str) {
    unregistered.call("session.init", &json!({ "session_key": key })).await.unwrap();
    let (events, _) = run_turn(unregistered, key, "!call exec {\"command\":[\"true\"]}").await.unwrap();
    assert!(
        events.iter().any(|event| event["type"] == "tool_result" && event["is_error"] == true),
        "{events:?}"
    );
    unregistered.call("session.close", &json!({ "session_key": key })).await.unwrap();
}
