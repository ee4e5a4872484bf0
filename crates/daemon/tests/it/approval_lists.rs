//! The order of pending approvals, decisions and grants in lists, over RPC and REST.

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_testkit::{TestDaemon, config, turn_params};

use crate::approvals::{KEY, decide, ended, home, id, open, pending, write};
use crate::raw_clients::{body, http};

/// The number of items of each kind: too many to be in the right order by chance.
const MANY: usize = 6;

fn ids(rows: &Value) -> Vec<String> {
    rows.as_array().unwrap().iter().map(id).collect()
}

/// Requests permission to write a file of this name and decides. Returns the id of the approval.
async fn request_and_decide(
    talker: &mut RpcClient,
    approver: &mut RpcClient,
    name: &str,
    decision: &Value,
) -> String {
    let running = talker.send("turn.run", &turn_params(KEY, &write(name, "x"))).await.unwrap();
    let asked = id(&pending(approver, 1).await[0]);
    decide(approver, &asked, decision.clone()).await.unwrap();
    ended(talker, running).await;
    asked
}

async fn get(daemon: &TestDaemon, path: &str) -> Value {
    let (address, token) = (daemon.address(), daemon.token());
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    body(&http(&address, request.as_bytes()).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_are_listed_newest_first_before_and_after_a_restart() {
    let daemon = TestDaemon::start_at(home(), &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let mut newest_first = Vec::new();
    for n in 0..MANY {
        let decision = json!({ "decision": "allow_session" });
        let asked = request_and_decide(&mut talker, &mut operator, &format!("{n}.txt"), &decision).await;
        newest_first.insert(0, format!("g{asked}"));
    }
    let listed = operator.call("grant.list", &json!({})).await.unwrap();
    assert_eq!(ids(&listed["grants"]), newest_first);
    assert_eq!(ids(&get(&daemon, "/v1/grants").await["grants"]), newest_first);
    drop((talker, operator));

    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    let listed = operator.call("grant.list", &json!({})).await.unwrap();
    assert_eq!(ids(&listed["grants"]), newest_first);
    let decision = json!({ "decision": "allow_session" });
    let asked = request_and_decide(&mut talker, &mut operator, "last.txt", &decision).await;
    newest_first.insert(0, format!("g{asked}"));
    let revoked = newest_first.remove(MANY / 2);
    let left = operator.call("grant.revoke", &json!({ "id": revoked })).await.unwrap();
    assert_eq!(ids(&left["grants"]), newest_first);
    drop((talker, operator));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_approvals_are_listed_oldest_first_and_others_newest_first() {
    let daemon = TestDaemon::start_at(home(), &config()).await;
    let (mut talker, mut operator) = (daemon.operator().await, daemon.operator().await);
    open(&mut talker).await;
    let (mut denied, mut any) = (Vec::new(), Vec::new());
    for n in 0..2 * MANY {
        let decision = if n % 2 == 0 { "deny" } else { "allow_once" };
        let decision = json!({ "decision": decision });
        let asked = request_and_decide(&mut talker, &mut operator, &format!("{n}.txt"), &decision).await;
        any.insert(0, asked.clone());
        if n % 2 == 0 {
            denied.insert(0, asked);
        }
    }
    let (mut waiting, mut talkers) = (Vec::new(), Vec::new());
    for n in 0..MANY {
        let key = format!("agent:main:cli:local:dm:waits-{n}");
        let mut client = daemon.operator().await;
        client.call("session.init", &json!({ "session_key": key })).await.unwrap();
        client.send("turn.run", &turn_params(&key, &write("w.txt", "x"))).await.unwrap();
        let all = pending(&mut operator, n + 1).await;
        let newest = all.iter().map(id).find(|id| !waiting.contains(id)).unwrap();
        any.insert(0, newest.clone());
        waiting.push(newest);
        talkers.push(client);
    }
    for (state, expected) in [("pending", &waiting), ("denied", &denied), ("any", &any)] {
        let page = operator.call("approval.list", &json!({ "state": state, "limit": 2 })).await.unwrap();
        assert_eq!(ids(&page["approvals"]), expected[..2], "{state}");
        assert_eq!(&pages(&mut operator, state).await, expected, "{state}");
        assert_eq!(&rest_pages(&daemon, state).await, expected, "{state} over REST");
    }
    drop((talker, operator, talkers));
    daemon.stop().await;
}

/// Lists every item in a state, four per page.
async fn pages(client: &mut RpcClient, state: &str) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), Value::Null);
    loop {
        let params = json!({ "state": state, "limit": 4, "after": after });
        let page = client.call("approval.list", &params).await.unwrap();
        all.extend(ids(&page["approvals"]));
        after = page["next"].clone();
        if after.is_null() {
            return all;
        }
    }
}

async fn rest_pages(daemon: &TestDaemon, state: &str) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(daemon, &format!("/v1/approvals?state={state}&limit=4{after}")).await;
        all.extend(ids(&page["approvals"]));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return all,
        }
    }
}
