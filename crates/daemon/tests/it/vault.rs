//! The vault: words are encrypted under a key and erased for good, and the lifecycle of the sessions they belong to.

use std::sync::Arc;

use rusqlite::Connection;
use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_daemon::daemon::Daemon;
use tribune_ledger::{Draft, EntryQuality};
use tribune_storage::clock::{Clock, SystemClock};
use tribune_storage::home::Home;
use tribune_storage::store::Store;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, output_text, run_turn, turn_params};

use crate::fixture::{ManualClock, draft};
use crate::raw_clients::{assert_healthy, events_until, is_done, within};

const KEY: &str = "agent:main:cli:local:dm:operator";
const STANDING: &str = "agent:main:standing:local:dm:main";

fn about(key: &str) -> Value {
    json!({ "session_key": key })
}

async fn history(client: &mut RpcClient, key: &str) -> Vec<Value> {
    let history = client.call("session.history", &about(key)).await.unwrap();
    history["messages"].as_array().unwrap().clone()
}

/// The vault of a home without a daemon, opened with its own key.
pub(crate) fn vault(home: &Home) -> Connection {
    #[expect(clippy::disallowed_methods, reason = "the test reads the database directly")]
    let connection = Connection::open(home.root().join("vault.db")).unwrap();
    let key = std::fs::read_to_string(home.keys().join("vault.key")).unwrap();
    connection.execute_batch(&format!("PRAGMA key = \"x'{}'\";", key.trim())).unwrap();
    connection
}

fn count(home: &Home, query: &str) -> u64 {
    vault(home).query_row(query, [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn forgetting_erases_the_words_and_the_ledger_still_verifies() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    for key in [KEY, STANDING] {
        client.call("session.init", &about(key)).await.unwrap();
        run_turn(&mut client, key, "!say unforgettable\n!call read {\"path\":\"x\"}").await.unwrap();
    }
    let transcript = daemon.home.home.root().join(format!("agents/main/sessions/{KEY}.jsonl"));
    assert!(std::fs::read_to_string(&transcript).unwrap().contains("unforgettable"));
    let before = history(&mut client, KEY).await;
    assert!(before.iter().all(|message| !message["content"].is_null()));
    let last_seq = client.call("session.status", &about(KEY)).await.unwrap()["last_seq"].as_u64().unwrap();

    let forgotten = client.call("session.forget", &about(KEY)).await.unwrap();
    let entry = client.call("ledger.entry", &json!({ "entry": forgotten["cid"] })).await.unwrap();
    assert_eq!(entry["entry"]["payload"], json!({ "event": "forgotten", "by": "operator" }));
    assert!(!transcript.exists());
    let after = history(&mut client, KEY).await;
    assert_eq!(after.len(), before.len(), "the number of events stays");
    for (before, after) in before.iter().zip(&after) {
        let mut shredded = before.clone();
        shredded["content"] = Value::Null;
        assert_eq!(*after, shredded);
    }
    let gone =
        client.call("session.events", &json!({ "session_key": KEY, "after": 0, "follow": false })).await;
    assert_eq!(gone.unwrap_err().code(), Some("expired"));
    assert!(
        history(&mut client, STANDING).await.iter().all(|message| !message["content"].is_null()),
        "others stay"
    );

    // After a reopen the numbers continue, and new words are kept.
    let reopened = client.call("session.init", &about(KEY)).await.unwrap();
    assert_eq!((&reopened["turns"], &reopened["last_seq"]), (&json!(1), &json!(last_seq)));
    let (events, _) = run_turn(&mut client, KEY, "!say a new life").await.unwrap();
    assert_eq!(events[0]["seq"], last_seq + 1);
    let now = history(&mut client, KEY).await;
    assert!(now[before.len()..].iter().all(|message| !message["content"].is_null()));
    assert!(now[..before.len()].iter().all(|message| message["content"].is_null()));
    // Forgetting twice has the same result.
    client.call("session.forget", &about(KEY)).await.unwrap();
    client.call("session.forget", &about(KEY)).await.unwrap();
    assert_eq!(
        client.call("session.forget", &about("agent:main:cli:local:dm:none")).await.unwrap_err().code(),
        Some("not_found")
    );
    drop(client);

    let home = daemon.stop().await;
    assert_sound(&home.home);
    assert_eq!(count(&home.home, "SELECT count(*) FROM sessions WHERE key IS NULL"), 1);
    assert_eq!(count(&home.home, "SELECT count(*) FROM sessions WHERE key IS NOT NULL"), 1);
    let theirs = "session = (SELECT session FROM sessions WHERE key IS NULL)";
    assert_eq!(count(&home.home, &format!("SELECT count(*) FROM contents WHERE {theirs}")), 0);
    let events =
        "SELECT count(*) FROM events WHERE place >> 32 = (SELECT session FROM sessions WHERE key IS NULL)";
    assert_eq!(count(&home.home, events), 0);
    assert!(count(&home.home, "SELECT count(*) FROM events") > 0, "the words of the other session are kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_session_is_ended_before_it_is_forgotten() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &about(KEY)).await.unwrap();
    client.send("turn.run", &turn_params(KEY, "!say soon forgotten\n!hang")).await.unwrap();
    events_until(&mut client, "it runs", |event| event["type"] == "text_delta").await;
    let mut other = daemon.operator().await;
    within("forgetting ends the turn", other.call("session.forget", &about(KEY))).await.unwrap();
    let status = other.call("session.status", &about(KEY)).await.unwrap();
    assert_eq!((&status["state"], &status["closed_for"]), (&json!("closed"), &json!("requested")));
    assert!(history(&mut other, KEY).await.iter().all(|message| message["content"].is_null()));
    drop((client, other));
    assert_sound(&daemon.stop().await.home);
}

/// A client opens and uses the session repeatedly while it is being forgotten: kept words can be read, and forgotten
/// words cannot.
#[tokio::test(flavor = "multi_thread")]
async fn forgetting_a_session_in_use_is_complete() {
    let daemon = TestDaemon::start().await;
    let mut user = daemon.operator().await;
    let mut operator = daemon.operator().await;
    let using = tokio::spawn(async move {
        for n in 0..40 {
            user.call("session.init", &about(KEY)).await.unwrap();
            match run_turn(&mut user, KEY, &format!("!say words {n}")).await {
                Ok(_) => {}
                Err(error) => assert_eq!(error.code(), Some("session_closed"), "{error}"),
            }
        }
    });
    while !using.is_finished() {
        match operator.call("session.forget", &about(KEY)).await {
            Ok(_) => {}
            Err(error) => assert!(
                matches!(error.code(), Some("not_found" | "running" | "busy" | "conflict")),
                "{error}"
            ),
        }
    }
    using.await.unwrap();
    operator.call("session.init", &about(KEY)).await.unwrap();
    let status = operator.call("daemon.status", &json!({})).await.unwrap();
    assert_eq!(status["sessions_open"], 2, "after every reopen");
    let (events, _) = run_turn(&mut operator, KEY, "!say last words").await.unwrap();
    assert_eq!(output_text(&events), "last words");
    let messages = history(&mut operator, KEY).await;
    let shredded = messages.iter().take_while(|message| message["content"].is_null()).count();
    assert!(messages[shredded..].iter().all(|message| !message["content"].is_null()), "{messages:?}");
    assert!(messages.len() - shredded >= 2);
    drop(operator);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_forgetting_is_completed_at_the_next_start() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &about(KEY)).await.unwrap();
    run_turn(&mut client, KEY, "!say soon forgotten").await.unwrap();
    client.call("session.close", &about(KEY)).await.unwrap();
    drop(client);
    let home = daemon.stop().await;
    // The intent is on disk, and the daemon was killed.
    let store = Store::open(&home.home, &SystemClock).unwrap();
    let payload = json!({ "event": "forgetting", "by": "operator" }).as_object().unwrap().clone();
    let intent = Draft { quality: EntryQuality::SessionLifecycle, payload, ..draft(KEY, 0) };
    store.writer().unwrap().append_all(&[intent]).await.unwrap();
    store.close();
    assert!(count(&home.home, "SELECT count(*) FROM contents") > 0);

    let daemon = TestDaemon::start_at(home, &config()).await;
    assert_eq!(daemon.daemon.recovered().forgets, 1);
    let mut client = daemon.operator().await;
    assert!(history(&mut client, KEY).await.iter().all(|message| message["content"].is_null()));
    assert!(!daemon.home.home.root().join(format!("agents/main/sessions/{KEY}.jsonl")).exists());
    drop(client);
    let home = daemon.stop().await;
    assert_eq!(count(&home.home, "SELECT count(*) FROM contents"), 0);
    assert_sound(&home.home);
    let daemon = TestDaemon::start_at(home, &config()).await;
    assert_eq!(daemon.daemon.recovered().forgets, 0, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_forgetting_is_completed_before_the_session_reopens() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &about(KEY)).await.unwrap();
    run_turn(&mut client, KEY, "!say to be forgotten").await.unwrap();
    client.call("session.close", &about(KEY)).await.unwrap();
    // A path that cannot be removed as a file stops the forgetting midway.
    let transcript = daemon.home.home.root().join(format!("agents/main/sessions/{KEY}.jsonl"));
    std::fs::remove_file(&transcript).unwrap();
    std::fs::create_dir_all(transcript.join("in the way")).unwrap();
    for method in ["session.forget", "session.init", "session.forget"] {
        let refused = client.call(method, &about(KEY)).await.unwrap_err();
        assert_eq!(refused.code(), Some("storage"), "{method}: {refused}");
    }
    std::fs::remove_dir_all(&transcript).unwrap();
    client.call("session.init", &about(KEY)).await.unwrap();
    run_turn(&mut client, KEY, "!say said afterwards").await.unwrap();
    drop(client);
    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    assert_eq!(daemon.daemon.recovered().forgets, 0);
    let mut client = daemon.operator().await;
    let messages = history(&mut client, KEY).await;
    let kept: Vec<bool> = messages.iter().map(|message| !message["content"].is_null()).collect();
    assert_eq!(kept, [false, false, true, true], "{messages:?}");
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn vault_opens_only_with_its_key() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &about(KEY)).await.unwrap();
    run_turn(&mut client, KEY, "!say behind the door").await.unwrap();
    drop(client);
    let home = daemon.stop().await;
    let root = home.home.root();
    let database = std::fs::read(root.join("vault.db")).unwrap();
    assert!(!database.starts_with(b"SQLite format 3"), "it is not a plain database");
    for word in [&b"CREATE TABLE"[..], b"behind the door", b"contents"] {
        assert!(memchr::memmem::find(&database, word).is_none(), "{}", String::from_utf8_lossy(word));
    }
    use std::os::unix::fs::PermissionsExt as _;
    for file in ["vault.db", "keys/vault.key", "run/token"] {
        let mode = std::fs::metadata(root.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file}");
    }

    let key = root.join("keys/vault.key");
    let right = std::fs::read_to_string(&key).unwrap();
    let refused =
        async || Daemon::start(&home.home, &config(), Arc::new(SystemClock)).await.unwrap_err().to_string();
    for (content, words) in [
        (Some(format!("{}\n", "0".repeat(64))), "it does not open the vault, unless the vault is damaged"),
        (Some("not a key\n".to_owned()), "it does not hold 64 hex digits"),
        (None, "it is missing, and the vault opens with nothing else"),
    ] {
        match &content {
            Some(content) => std::fs::write(&key, content).unwrap(),
            None => std::fs::remove_file(&key).unwrap(),
        }
        let message = refused().await;
        assert!(message.contains(words) && message.contains("vault.key"), "{content:?}: {message}");
        assert!(!message.contains(right.trim()), "{message}");
        assert!(
            std::fs::read(root.join("vault.db")).unwrap() == database,
            "{content:?}: nothing was changed"
        );
        assert_eq!(key.exists(), content.is_some(), "no key is created");
    }
    std::fs::write(&key, right).unwrap();
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut client = daemon.operator().await;
    assert!(history(&mut client, KEY).await.iter().all(|message| !message["content"].is_null()));
}

#[tokio::test(flavor = "multi_thread")]
async fn domain_sessions_expire_and_persistent_ones_stay() {
    let (home, clock) = (TempHome::new(), Arc::new(ManualClock::at(1_800_000_000)));
    let daemon = Daemon::start(&home.home, &config(), Arc::clone(&clock) as Arc<dyn Clock>).await.unwrap();
    let daemon = TestDaemon { daemon, home };
    let mut client = daemon.operator().await;
    let (lasting, running) = ("agent:main:cli:local:dm:lasting", "agent:main:cli:local:dm:running");
    for (key, mode) in [(KEY, "domain"), (lasting, "persistent"), (running, "domain")] {
        client.call("session.init", &json!({ "session_key": key, "mode": mode })).await.unwrap();
    }
    run_turn(&mut client, KEY, "!say hello").await.unwrap();
    client.send("turn.run", &turn_params(running, "!say still at it\n!hang")).await.unwrap();
    events_until(&mut client, "it runs", |event| event["type"] == "text_delta").await;
    let minute = |minutes: i64| clock.set(1_800_000_000 + 60 * minutes);
    minute(30);
    assert_eq!(daemon.daemon.sessions().sweep_once().await.unwrap(), 0, "not before its time");
    minute(31);
    assert_eq!(daemon.daemon.sessions().sweep_once().await.unwrap(), 1);
    let mut states = Vec::new();
    for key in [KEY, lasting, running, STANDING] {
        let status = client.call("session.status", &about(key)).await.unwrap();
        states.push((status["state"].clone(), status["closed_for"].clone()));
    }
    assert_eq!(
        states,
        [
            (json!("closed"), json!("evicted")),
            (json!("idle"), Value::Null),
            (json!("running"), Value::Null),
            (json!("idle"), Value::Null)
        ]
    );
    assert_eq!(
        client.call("turn.run", &turn_params(KEY, "hello?")).await.unwrap_err().code(),
        Some("session_closed")
    );
    // A turn is activity: its end counts.
    client.call("session.cancel", &about(running)).await.unwrap();
    events_until(&mut client, "it ends", is_done).await;
    assert_eq!(daemon.daemon.sessions().sweep_once().await.unwrap(), 0);
    assert_eq!(client.call("session.init", &about(KEY)).await.unwrap()["turns"], 1, "it can be opened again");
    drop(client);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_oneshot_is_closed_when_its_turn_is_over() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    for round in 1..=10 {
        client.call("session.init", &json!({ "session_key": KEY, "mode": "oneshot" })).await.unwrap();
        let (events, _) = run_turn(&mut client, KEY, "!say once").await.unwrap();
        assert_eq!(output_text(&events), "once");
        let status = client.call("session.status", &about(KEY)).await.unwrap();
        assert_eq!(
            (&status["state"], &status["closed_for"], &status["mode"], &status["turns"]),
            (&json!("closed"), &json!("finished"), &json!("oneshot"), &json!(round))
        );
        assert_eq!(
            client.call("turn.run", &turn_params(KEY, "twice?")).await.unwrap_err().code(),
            Some("session_closed")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_session_keeps_its_mode_unless_another_is_requested() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    let found = client.call("session.init", &about(STANDING)).await.unwrap();
    assert_eq!(found["mode"], "persistent", "reading a standing session does not make it expire");
    assert_eq!(client.call("session.init", &about(KEY)).await.unwrap()["mode"], "domain");
    run_turn(&mut client, KEY, "!say loaded").await.unwrap();
    let changed =
        client.call("session.init", &json!({ "session_key": KEY, "mode": "oneshot" })).await.unwrap();
    assert_eq!(changed["mode"], "oneshot");
    run_turn(&mut client, KEY, "!say the last").await.unwrap();
    assert_eq!(client.call("session.status", &about(KEY)).await.unwrap()["state"], "closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_survive_a_restart_and_standing_ones_open_before_the_port() {
    let daemon = TestDaemon::start().await;
    assert_eq!(daemon.daemon.standing(), 1);
    let mut client = daemon.operator().await;
    let first = client.call("session.status", &about(STANDING)).await.unwrap();
    assert_eq!(
        (&first["state"], &first["mode"], &first["turns"]),
        (&json!("idle"), &json!("persistent"), &json!(0))
    );
    client.call("session.init", &json!({ "session_key": KEY, "mode": "persistent" })).await.unwrap();
    let (events, _) = run_turn(&mut client, KEY, "!say before").await.unwrap();
    let last = events.last().unwrap()["seq"].as_u64().unwrap();
    let before = (
        client.call("session.status", &about(KEY)).await.unwrap(),
        history(&mut client, KEY).await,
        client.call("session.turns", &about(KEY)).await.unwrap(),
    );
    drop(client);
    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    let mut client = daemon.operator().await;
    let status = client.call("daemon.status", &json!({})).await.unwrap();
    assert_eq!((&status["sessions_open"], &status["recovered_turns"]), (&json!(2), &json!(0)));
    assert_eq!(
        client.call("session.status", &about(STANDING)).await.unwrap()["session_id"],
        first["session_id"]
    );
    let after = (
        client.call("session.status", &about(KEY)).await.unwrap(),
        history(&mut client, KEY).await,
        client.call("session.turns", &about(KEY)).await.unwrap(),
    );
    assert_eq!(after, before);
    client.call("session.events", &json!({ "session_key": KEY, "after": 0 })).await.unwrap();
    assert_eq!(events_until(&mut client, "the old events", is_done).await, events);
    let mut other = daemon.operator().await;
    let (second, _) = run_turn(&mut other, KEY, "!say after").await.unwrap();
    assert_eq!(second[0]["seq"], last + 1);
    assert_eq!(events_until(&mut client, "the new ones", is_done).await, second);
    assert_healthy(&daemon).await;
    drop((client, other));
    assert_sound(&daemon.stop().await.home);
}
