//! The memory of the daemon for clients that request much and read nothing. Both ends are in this process, and other
//! tests would change its memory, so these tests have their own binary and run one at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step ends its test")]

#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../it/raw_clients.rs"]
mod raw_clients;

use std::time::Duration;

use serde_json::json;
use tokio::sync::Mutex;
use tribune_client::RpcClient;
use tribune_daemon::daemon::DaemonOverrides;
use tribune_gateway::Timeouts;
use tribune_testkit::{TempHome, TestDaemon, config};

use crate::raw_clients::{RawMessage, RawSocket, assert_healthy, flood, start_with, wait_for_status};

const KEY: &str = "agent:main:test:local:dm:hostile";

static SERIAL: Mutex<()> = Mutex::const_new(());

/// Resident memory of this process, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A hundred subscribers of 8 MiB of events that read nothing.
#[tokio::test(flavor = "multi_thread")]
async fn unread_events_are_not_held_in_memory() {
    let _serial = SERIAL.lock().await;
    // No client is disconnected while the memory is measured.
    let timeouts = Timeouts { slow_reader: Duration::from_secs(600), ..Timeouts::default() };
    let extras = DaemonOverrides { timeouts, ..DaemonOverrides::default() };
    let daemon = start_with(TempHome::new(), &config(), extras).await;
    let mut operator = daemon.operator().await;
    drop(flood(&daemon, &mut operator, KEY).await);
    assert_healthy(&daemon).await;
    let before = resident_kib();
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut raw = RawSocket::operator(&daemon).await;
        let params = json!({ "session_key": KEY, "after": 0 });
        let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": "session.events", "params": params });
        // Reads one frame, so that the rest is being sent.
        assert!(matches!(raw.request(&asked.to_string()).await, RawMessage::Text(_)));
        slow.push(raw);
    }
    for _ in 0..3 {
        assert_healthy(&daemon).await;
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 200 << 10, "{grown} KiB more for 800 MiB of unread events");
    // The connection of the health check may still be closing.
    wait_for_status(&mut operator, "all of them are still connected", |status| status["connections"] == 101)
        .await;
}

/// The number of open WebSockets.
const SOCKETS: usize = 2_000;

/// The number of rounds after the first, which allocates what stays.
const ROUNDS: usize = 9;

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_idle_sockets_use_little_memory() {
    let _serial = SERIAL.lock().await;
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    // Both ends of every socket are in this process.
    let needed = 2 * SOCKETS as u64 + 500;
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(needed);
        limit.maximum = limit.maximum.map(|maximum| maximum.max(needed));
        setrlimit(Resource::Nofile, limit).unwrap();
    }
    let daemon = TestDaemon::start().await;
    let mut operator = daemon.operator().await;
    assert_healthy(&daemon).await;
    let before = resident_kib();
    let cost = open_and_close(&daemon, &mut operator).await.saturating_sub(before);
    assert!(cost < 128 << 10, "{cost} KiB for {SOCKETS} idle sockets");
    let mut last = resident_kib();
    let mut grown = Vec::new();
    for _ in 0..ROUNDS {
        open_and_close(&daemon, &mut operator).await;
        let now = resident_kib();
        grown.push(now.saturating_sub(last));
        last = now;
    }
    grown.sort_unstable();
    // A round in which other threads did the work enlarges the allocator's pool once. A leak shows in every round.
    let usual = grown[ROUNDS / 2];
    println!("{cost} KiB for {SOCKETS} sockets; left behind by each round: {grown:?} KiB");
    assert!(usual < cost / 16, "most rounds of {cost} KiB leave {usual} KiB behind: {grown:?}");
    drop(operator);
    daemon.stop().await;
}

/// Opens all sockets, sends one message on each, and closes them. Returns the resident memory while they are open.
async fn open_and_close(daemon: &TestDaemon, operator: &mut RpcClient) -> u64 {
    let mut sockets = Vec::with_capacity(SOCKETS);
    for _ in 0..SOCKETS {
        sockets.push(RawSocket::operator(daemon).await);
    }
    for socket in &mut sockets {
        let RawMessage::Text(answer) =
            socket.request(r#"{"jsonrpc":"2.0","id":1,"method":"auth.whoami"}"#).await
        else {
            panic!("an idle socket stays open")
        };
        assert_eq!(answer["result"]["principal"], "operator");
    }
    let status = operator.call("daemon.status", &json!({})).await.unwrap();
    assert_eq!(status["connections"], json!(SOCKETS + 1));
    assert_healthy(daemon).await;
    let during = resident_kib();
    drop(sockets);
    wait_for_status(operator, "all have disconnected", |status| status["connections"] == 1).await;
    assert_healthy(daemon).await;
    wait_for_status(operator, "only the operator is connected", |status| status["connections"] == 1).await;
    during
}
