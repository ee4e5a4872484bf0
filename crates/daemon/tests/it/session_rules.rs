//! Rules of sessions beyond a single turn.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::json;
use tokio::sync::Notify;
use tribune_client::{RpcClient, RpcIncoming};
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_runtime::{
    AgentRuntime, CloseReason, ErrorKind, EventStream, Handle, RuntimeError, SessionInput, SessionStatus,
    TurnInput,
};
use tribune_storage::clock::Clock;
use tribune_testkit::{TempHome, TestDaemon, config, output_text, run_turn, turn_params};

use crate::fixture::ManualClock;
use crate::raw_clients::within;

const KEY: &str = "agent:main:cli:local:dm:rules";

/// The responses to requests, in order of arrival.
async fn answers(client: &mut RpcClient, n: usize) -> Vec<(u64, Result<serde_json::Value, String>)> {
    let mut answers = Vec::new();
    while answers.len() < n {
        if let RpcIncoming::Response(id, answer) = client.next().await.unwrap() {
            answers.push((id, answer.map_err(|error| error.code().unwrap_or("none").to_owned())));
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_one_connection_run_in_request_order() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    for _ in 0..20 {
        let mut asked = Vec::new();
        for n in 0..6 {
            asked.push(client.send("turn.run", &turn_params(KEY, &format!("!say {n}"))).await.unwrap());
        }
        let ended: Vec<u64> = answers(&mut client, 6).await.into_iter().map(|(id, _)| id).collect();
        assert_eq!(ended, asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_ends_the_running_turn_and_refuses_queued_turns() {
    let daemon = TestDaemon::start().await;
    let (mut client, mut closer) = (daemon.operator().await, daemon.operator().await);
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    let running = client.send("turn.run", &turn_params(KEY, "!hang")).await.unwrap();
    let waiting = client.send("turn.run", &turn_params(KEY, "!hang")).await.unwrap();
    while !matches!(client.next().await.unwrap(), RpcIncoming::Notification(_)) {}
    let closed = closer.call("session.close", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!(closed["state"], "closed");
    let mut ended = answers(&mut client, 2).await;
    ended.sort_by_key(|(id, _)| *id);
    let [(first, cancelled), (second, refused)] = ended.try_into().unwrap();
    assert_eq!((first, second), (running, waiting));
    assert_eq!(cancelled.unwrap()["stop_reason"], "cancelled");
    assert_eq!(refused.unwrap_err(), "session_closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_keeps_its_mode_until_another_is_requested() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    let mut init = async |params| client.call("session.init", &params).await.unwrap()["mode"].clone();
    assert_eq!(init(json!({ "session_key": KEY })).await, "domain");
    assert_eq!(init(json!({ "session_key": KEY, "mode": "persistent" })).await, "persistent");
    assert_eq!(init(json!({ "session_key": KEY })).await, "persistent");
    let standing = "agent:main:standing:local:dm:main";
    assert_eq!(
        init(json!({ "session_key": standing })).await,
        "persistent",
        "a status request does not change it"
    );
    assert_eq!(init(json!({ "session_key": KEY, "mode": "oneshot" })).await, "oneshot");
    client.call("turn.run", &turn_params(KEY, "!say once")).await.unwrap();
    let status = async |client: &mut RpcClient| {
        client.call("session.status", &json!({ "session_key": KEY })).await.unwrap()["state"].clone()
    };
    // The response comes with the end of the turn; the session closes after it.
    while status(&mut client).await != "closed" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriber_of_a_closed_session_receives_its_own_later_turns() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    let about = json!({ "session_key": KEY });
    for round in 1..=3 {
        client.call("session.init", &about).await.unwrap();
        let followed = client.call("session.events", &about).await.unwrap()["subscription"].clone();
        client.call("session.close", &about).await.unwrap();
        // Immediately after: the subscription ends with its session, not when its task runs next.
        client.call("session.init", &about).await.unwrap();
        client.take_notifications();
        let (events, _) = run_turn(&mut client, KEY, "!say after the first").await.unwrap();
        assert_eq!(output_text(&events), "after the first", "round {round}");

        let again = client.call("session.events", &about).await.unwrap()["subscription"].clone();
        for subscription in [again, followed] {
            client.call("session.unfollow", &json!({ "subscription": subscription })).await.unwrap();
        }
        client.take_notifications();
        let (events, _) = run_turn(&mut client, KEY, "!say after the second").await.unwrap();
        assert_eq!(output_text(&events), "after the second", "round {round}");
    }
}

/// A backend that ends a session when it is told to, and reports the request.
#[derive(Debug)]
struct UnclosableBackend {
    asked: Notify,
    may_go: Notify,
}

#[async_trait::async_trait]
impl AgentRuntime for UnclosableBackend {
    async fn ensure_session(&self, input: SessionInput) -> Result<Handle, RuntimeError> {
        Ok(Handle { key: Arc::new(input.key), session_id: "clinging".into() })
    }

    fn run_turn(&self, _: &Handle, _: TurnInput) -> EventStream {
        futures_util::stream::empty().boxed()
    }

    async fn cancel(&self, _: &Handle) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn close(&self, _: &Handle, _: CloseReason) -> Result<(), RuntimeError> {
        self.asked.notify_one();
        self.may_go.notified().await;
        Ok(())
    }

    async fn status(&self, _: &Handle) -> Result<SessionStatus, RuntimeError> {
        Err(RuntimeError::new(ErrorKind::from_code("none"), "never requested"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_in_use_survives_the_idle_sweep() {
    let backend = Arc::new(UnclosableBackend { asked: Notify::new(), may_go: Notify::new() });
    let backends = vec![("clinging".to_owned(), Arc::clone(&backend) as Arc<dyn AgentRuntime>)];
    let home = TempHome::new();
    home.write("data/agent-roster.jsonl", "{\"id\":\"main\"}\n{\"id\":\"first\",\"backend\":\"clinging\"}\n");
    let clock = Arc::new(ManualClock::at(1_800_000_000));
    let extras = DaemonOverrides { backends, ..DaemonOverrides::default() };
    let given = Arc::clone(&clock) as Arc<dyn Clock>;
    let daemon = Daemon::start_with(&home.home, &config(), given, extras).await.unwrap();
    let daemon = TestDaemon { daemon, home };
    let mut client = daemon.operator().await;
    // The session that does not end is the first, by age and by name.
    for key in ["agent:first:cli:local:dm:x", KEY] {
        client.call("session.init", &json!({ "session_key": key })).await.unwrap();
    }
    clock.set(1_800_000_000 + 60 * 31);
    let sessions = daemon.daemon.sessions().clone();
    let sweeping = tokio::spawn(async move { sessions.sweep_once().await.unwrap() });
    within("the sweep reaches the session that does not end", backend.asked.notified()).await;
    run_turn(&mut client, KEY, "!say just now").await.unwrap();
    backend.may_go.notify_one();
    assert_eq!(sweeping.await.unwrap(), 1);
    let status = client.call("session.status", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!((&status["state"], &status["turns"]), (&json!("idle"), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_add_errors_have_distinct_codes() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    let mut add =
        async |params| client.call("agent.add", &params).await.unwrap_err().code().unwrap().to_owned();
    assert_eq!(add(json!({ "agent_id": "main" })).await, "conflict");
    assert_eq!(add(json!({ "agent_id": "a", "pubkey": "ed25519:nonsense" })).await, "invalid_params");
}
