//! Orphaned sessions: the backend or the mandate of their agent is gone. They can run no turn; they can still be
//! listed, closed and forgotten.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_daemon::daemon::DaemonOverrides;
use tribune_runtime::AgentRuntime;
use tribune_runtime::rehearsal::{RehearsalBackend, Scenes};
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, run_turn, turn_params};

use crate::raw_clients::start_with;

const WITHOUT_BACKEND: &str = "agent:homeless:cli:local:dm:operator";
const WITHOUT_MANDATE: &str = "agent:lawless:cli:local:dm:operator";

/// A daemon with a session of an agent without a backend, and one of an agent without a mandate.
async fn with_orphaned_sessions() -> TestDaemon {
    let home = TempHome::new();
    home.write(
        "data/agent-roster.jsonl",
        "{\"id\":\"main\"}\n{\"id\":\"homeless\",\"backend\":\"borrowed\"}\n{\"id\":\"lawless\",\"mandate\":\"lost\"}\n",
    );
    home.write("mandates/lost.md", "---\ntools: read\n---\nSay little.\n");
    let scenes = Scenes::builtin_and(&home.home.root().join("scenes")).unwrap();
    let borrowed: Arc<dyn AgentRuntime> = Arc::new(RehearsalBackend::new(scenes));
    let extras =
        DaemonOverrides { backends: vec![("borrowed".to_owned(), borrowed)], ..DaemonOverrides::default() };
    let daemon = start_with(home, &config(), extras).await;
    let mut client = daemon.operator().await;
    for key in [WITHOUT_BACKEND, WITHOUT_MANDATE] {
        client.call("session.init", &json!({ "session_key": key })).await.unwrap();
        run_turn(&mut client, key, "!say I was here").await.unwrap();
    }
    drop(client);
    let home = daemon.stop().await;
    std::fs::remove_file(home.home.root().join("mandates/lost.md")).unwrap();
    TestDaemon::start_at(home, &config()).await
}

async fn ask(client: &mut RpcClient, method: &str, key: &str) -> Value {
    let answer = client.call(method, &json!({ "session_key": key })).await;
    answer.unwrap_or_else(|error| panic!("{method} {key}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaned_sessions_can_be_listed_closed_and_forgotten() {
    let daemon = with_orphaned_sessions().await;
    let mut client = daemon.operator().await;
    for (key, code) in [(WITHOUT_BACKEND, "unknown_backend"), (WITHOUT_MANDATE, "no_mandate")] {
        let refused = client.call("turn.run", &turn_params(key, "hello?")).await.unwrap_err();
        assert_eq!(refused.code(), Some(code), "{key}: {refused}");
        let shown = ask(&mut client, "session.status", key).await;
        assert_eq!((&shown["state"], &shown["turns"]), (&json!("idle"), &json!(1)), "{key}");
        let asked = json!({ "session_key": key, "follow": false });
        let page = client.call("session.events", &asked).await.unwrap();
        assert_eq!(page["events"].as_array().unwrap().len(), shown["last_seq"].as_u64().unwrap() as usize);
        assert_eq!(ask(&mut client, "session.close", key).await["state"], "closed", "{key}");
        ask(&mut client, "session.forget", key).await;
        let history = ask(&mut client, "session.history", key).await;
        let messages = history["messages"].as_array().unwrap();
        assert!(messages.iter().all(|message| message["content"].is_null()), "{key}");
    }
    let status = client.call("daemon.status", &json!({})).await.unwrap();
    assert_eq!(status["sessions_open"], 0);
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_session_without_a_backend_can_be_forgotten() {
    let daemon = with_orphaned_sessions().await;
    let mut client = daemon.operator().await;
    ask(&mut client, "session.forget", WITHOUT_BACKEND).await;
    let status = client.call("daemon.status", &json!({})).await.unwrap();
    assert_eq!(status["sessions_open"], 1);
}
