//! Clients that disconnect before their request is answered. The request is done or not done, never partly: the count
//! of open sessions equals the ledger, and later words are kept.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tribune_client::RpcClient;
use tribune_testkit::{TestDaemon, assert_sound, config, output_text, run_turn};

use crate::raw_clients::{PseudoRandom, wait_for_status, within};

const SESSIONS: u64 = 6;
const CLIENTS: u64 = 8;
const REQUESTS: u64 = 60;

fn key(session: u64) -> String {
    format!("agent:main:test:local:dm:hung-up-{session}")
}

/// Sends a request and disconnects after a varying delay.
async fn send_and_disconnect(address: &str, token: &str, path: &str, body: &str, yields: u64) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
}

/// The requests about a session.
fn request(what: u64, key: &str) -> (String, String) {
    match what {
        0 => ("POST /v1/sessions".to_owned(), json!({ "session_key": key }).to_string()),
        1 => (format!("POST /v1/sessions/{key}/close"), String::new()),
        _ => (format!("DELETE /v1/sessions/{key}/content"), String::new()),
    }
}

/// The number of open sessions in the ledger.
async fn open_in_ledger(client: &mut RpcClient) -> usize {
    let page = client.call("session.list", &json!({ "limit": 1000 })).await.unwrap();
    let sessions = page["sessions"].as_array().unwrap();
    sessions.iter().filter(|session| session["state"] != "closed").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnect_during_a_session_request_leaves_no_partial_change() {
    let daemon = TestDaemon::start().await;
    let mut hanging = JoinSet::new();
    for client in 0..CLIENTS {
        let (address, token) = (daemon.address(), daemon.token());
        hanging.spawn(async move {
            let mut random = PseudoRandom::new(client + 1);
            for _ in 0..REQUESTS {
                let (path, body) = request(random.roll(3), &key(random.roll(SESSIONS)));
                let yields = random.roll(400);
                send_and_disconnect(&address, &token, &path, &body, yields).await;
            }
        });
    }
    within("all have disconnected", hanging.join_all()).await;

    let mut client = daemon.operator().await;
    wait_for_status(&mut client, "only this connection is left", |status| status["connections"] == 1).await;
    within("all requests have finished", async {
        while daemon.daemon.sessions().under_way() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let open = open_in_ledger(&mut client).await;
    wait_for_status(&mut client, "the count equals the ledger", |status| status["sessions_open"] == open)
        .await;
    for session in 0..SESSIONS {
        client.call("session.init", &json!({ "session_key": key(session) })).await.unwrap();
    }
    let status = client.call("daemon.status", &json!({})).await.unwrap();
    assert_eq!(status["sessions_open"], json!(SESSIONS + 1), "and the standing session");

    let mut sent = BTreeMap::new();
    for session in 0..SESSIONS {
        let words = format!("kept in {session}");
        let (events, _) = run_turn(&mut client, &key(session), &format!("!say {words}")).await.unwrap();
        assert_eq!(output_text(&events), words);
        sent.insert(session, words);
    }
    drop(client);
    let home = daemon.stop().await;
    assert_sound(&home.home);

    let daemon = TestDaemon::start_at(home, &config()).await;
    assert_eq!(daemon.daemon.recovered(), &Default::default(), "nothing was left unfinished");
    let mut client = daemon.operator().await;
    for (session, words) in sent {
        let history = client.call("session.history", &json!({ "session_key": key(session) })).await.unwrap();
        let messages = history["messages"].as_array().unwrap();
        assert_eq!(messages.last().unwrap()["content"][0]["text"], Value::from(words), "{messages:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_session_opens_stay_within_the_limit() {
    let mut limited = config();
    limited.sessions.max_open = 4;
    let daemon = TestDaemon::start_at(Default::default(), &limited).await;
    let mut opening = JoinSet::new();
    for n in 0..32 {
        let mut client = daemon.operator().await;
        let asked = json!({ "session_key": format!("agent:main:test:local:dm:at-once-{n}") });
        opening.spawn(async move {
            client.call("session.init", &asked).await.map_err(|error| error.code().unwrap().to_owned())
        });
    }
    let answers = opening.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3, "one is the standing session");
    assert!(answers.iter().flat_map(|answer| answer.as_ref().err()).all(|code| code == "too_many_sessions"));
    let mut client = daemon.operator().await;
    assert_eq!(open_in_ledger(&mut client).await, 4);
}
