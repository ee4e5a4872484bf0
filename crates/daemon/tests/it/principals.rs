//! The principal decides the permissions, and no request raises them.

use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use tribune_client::{ClientError, RpcClient};
use tribune_config::Anonymous;
use tribune_gateway::{METHODS, challenge_text};
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, run_turn, turn_params};

use crate::raw_clients::{assert_healthy, events_until, is_done, within};

const MAIN: &str = "agent:main:test:local:dm:operator";

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn public(key: &SigningKey) -> String {
    format!("ed25519:{}", hex(key.verifying_key().as_bytes()))
}

async fn challenge(client: &mut RpcClient) -> (String, String) {
    let challenge = client.call("auth.challenge", &json!({})).await.unwrap();
    (challenge["audience"].as_str().unwrap().to_owned(), challenge["nonce"].as_str().unwrap().to_owned())
}

async fn prove(client: &mut RpcClient, public_key: &str, signature: &[u8]) -> Result<Value, ClientError> {
    let proof = json!({ "public_key": public_key, "signature": hex(signature) });
    client.call("auth.agent", &proof).await
}

/// The guest token of the home.
pub(crate) fn guest_token(daemon: &TestDaemon) -> Option<String> {
    let path = daemon.home.home.root().join("run/guest-token");
    std::fs::read_to_string(path).ok().map(|token| token.trim().to_owned())
}

/// Proves `key` on a connection; returns its principal.
pub(crate) async fn prove_key(client: &mut RpcClient, key: &SigningKey) -> Result<Value, ClientError> {
    let challenge = client.call("auth.challenge", &json!({})).await?;
    let word = |name: &str| challenge[name].as_str().unwrap();
    let text = challenge_text(word("audience"), word("nonce"), &public(key));
    prove(client, &public(key), &key.sign(text.as_bytes()).to_bytes()).await
}

/// Connects with the guest token and proves `key`; returns the connection and its principal.
pub(crate) async fn agent(daemon: &TestDaemon, key: &SigningKey) -> (RpcClient, Value) {
    let mut client = RpcClient::connect(&daemon.address(), guest_token(daemon).as_deref()).await.unwrap();
    let who = prove_key(&mut client, key).await.unwrap();
    (client, who)
}

fn code(result: Result<Value, ClientError>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.code().unwrap_or_else(|| panic!("{error}")).to_owned(),
    }
}

/// The denials of a turn, as its agent received them.
fn results(events: &[Value]) -> Vec<&str> {
    let results = events.iter().filter(|event| event["type"] == "tool_result");
    results.map(|event| event["content"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn unregistered_caller_has_only_the_default_mandate() {
    let daemon = TestDaemon::start().await;
    let mut operator = daemon.operator().await;
    operator.call("session.init", &json!({ "session_key": MAIN })).await.unwrap();
    run_turn(&mut operator, MAIN, "!say nobody else's business").await.unwrap();
    let (mut unregistered, who) = agent(&daemon, &key(1)).await;
    let id = who["agent_id"].as_str().unwrap().to_owned();
    assert_eq!(who, json!({ "principal": "stranger", "agent_id": id, "mandate": "default" }));
    let suffix = id.strip_prefix("stranger").and_then(|rest| rest.strip_prefix('-'));
    assert!(suffix.is_some_and(|suffix| suffix.len() == 24), "{id}");
    let (_, again) = agent(&daemon, &key(1)).await;
    assert_eq!(again, who, "the same key is the same caller");
    let own = format!("agent:{id}:rpc:local:dm:{id}");
    let opened = unregistered.call("session.init", &json!({})).await.unwrap();
    assert_eq!((&opened["session_key"], &opened["mandate"]), (&json!(own), &json!("default")));

    // Every method with valid parameters, about the caller's own session.
    let about = |session: &str| json!({ "session_key": session });
    let asked: Vec<(&str, Value, &str)> = vec![
        ("agent.add", json!({ "agent_id": "mole", "pubkey": public(&key(1)) }), "forbidden"),
        ("agent.list", json!({}), "forbidden"),
        ("agent.show", json!({ "agent_id": id }), "forbidden"),
        ("agent.test", json!({ "agent_id": "main" }), "forbidden"),
        ("approval.list", json!({}), "forbidden"),
        ("approval.show", json!({ "id": "00000000" }), "forbidden"),
        ("approval.decide", json!({ "id": "00000000", "decision": "allow_once" }), "forbidden"),
        ("approver.add", json!({ "id": "mole" }), "forbidden"),
        ("approver.list", json!({}), "forbidden"),
        ("approver.remove", json!({ "id": "mole" }), "forbidden"),
        ("gate.stop_all", json!({}), "forbidden"),
        ("gate.resume", json!({}), "forbidden"),
        ("grant.list", json!({}), "forbidden"),
        ("grant.revoke", json!({ "id": "g00000000" }), "forbidden"),
        ("auth.whoami", json!({}), "ok"),
        ("daemon.status", json!({}), "forbidden"),
        ("keys.rotate", json!({}), "forbidden"),
        ("ledger.checkpoint", json!({}), "forbidden"),
        ("ledger.entry", json!({ "entry": "0" }), "forbidden"),
        ("ledger.note", json!({ "texts": ["x"], "entity": "note" }), "forbidden"),
        ("ledger.prove", json!({ "entry": "0" }), "forbidden"),
        ("ledger.tail", json!({ "entity_id": own }), "forbidden"),
        ("provider.list", json!({}), "forbidden"),
        ("provider.test", json!({ "target": "ollama" }), "forbidden"),
        ("proxy.pass", json!({}), "forbidden"),
        (
            "run.open",
            json!({ "command": ["true"], "folder": "/usr/share", "net": ["example.org"] }),
            "forbidden",
        ),
        ("run.started", json!({ "id": "a", "limited_by": "x", "landlock_abi": 1 }), "forbidden"),
        ("run.ended", json!({ "id": "a", "outcome": "exited" }), "forbidden"),
        ("workspace.diff", json!({ "id": "a" }), "forbidden"),
        ("workspace.discard", json!({ "id": "a" }), "forbidden"),
        ("workspace.land", json!({ "id": "a", "all": true }), "forbidden"),
        ("workspace.list", json!({}), "forbidden"),
        ("session.cancel", about(&own), "ok"),
        ("session.events", json!({ "session_key": own, "after": 0, "follow": false }), "ok"),
        ("session.history", about(&own), "ok"),
        ("session.init", about(&own), "ok"),
        ("session.list", json!({}), "ok"),
        ("session.status", about(&own), "ok"),
        ("session.turns", about(&own), "ok"),
        ("session.unfollow", json!({ "subscription": 1 }), "not_found"),
        ("turn.run", turn_params(&own, "hello"), "ok"),
        ("session.forget", about(&own), "forbidden"),
        ("session.close", about(&own), "ok"),
        ("auth.challenge", json!({}), "ok"),
        ("auth.daemon", json!({ "nonce": "00".repeat(32), "token_hint": "0" }), "unauthorized"),
        ("auth.token", json!({ "token": "trb_0" }), "unauthorized"),
        (
            "auth.agent",
            json!({ "public_key": public(&key(1)), "signature": "00".repeat(64) }),
            "unauthorized",
        ),
    ];
    let mut covered: Vec<&str> = asked.iter().map(|(method, ..)| *method).collect();
    covered.sort_unstable();
    assert_eq!(covered, METHODS, "every method is covered");
    for (method, params, expected) in &asked {
        assert_eq!(code(unregistered.call(method, params).await), *expected, "{method}");
    }
    assert_eq!(
        unregistered.call("auth.whoami", &json!({})).await.unwrap(),
        who,
        "a failed proof changes nothing"
    );

    // Every method about another caller's session.
    for method in METHODS.iter().filter(|method| method.starts_with("session.") || **method == "turn.run") {
        let params = match *method {
            "turn.run" => turn_params(MAIN, "!say it is me"),
            "session.list" => json!({ "agent_id": "main" }),
            "session.unfollow" => continue,
            _ => about(MAIN),
        };
        let refused = unregistered.call(method, &params).await.unwrap_err();
        assert_eq!(refused.code(), Some("forbidden"), "{method}: {refused}");
        assert!(!refused.to_string().contains("nobody else"), "{refused}");
    }
    let own_only = unregistered.call("session.list", &json!({})).await.unwrap();
    assert!(own_only["sessions"].as_array().unwrap().iter().all(|session| session["agent_id"] == id));
    for (params, expected) in [
        (json!({ "agent_id": "main" }), "forbidden"),
        (json!({ "session_key": "agent:main:rpc:local:dm:x" }), "forbidden"),
        (json!({ "session_key": own, "agent_id": "main" }), "invalid_params"),
        (json!({ "mandate": "all" }), "invalid_params"),
        (json!({ "tools": ["exec"] }), "invalid_params"),
        (json!({ "principal": "operator" }), "invalid_params"),
        (json!({ "backend": "other" }), "invalid_params"),
        (json!({ "opened_by": "operator" }), "invalid_params"),
    ] {
        assert_eq!(code(unregistered.call("session.init", &params).await), expected, "{params}");
    }
    let mut run = turn_params(&own, "x");
    run["mandate"] = json!("all");
    assert_eq!(code(unregistered.call("turn.run", &run).await), "invalid_params");
    // REST is for the operator.
    let rest = RpcClient::connect(&daemon.address(), Some(&hex(&[1; 32]))).await.unwrap_err();
    assert!(matches!(rest, ClientError::Rejected(_)), "{rest}");

    let untouched = operator.call("session.status", &about(MAIN)).await.unwrap();
    assert_eq!((&untouched["turns"], &untouched["state"]), (&json!(1), &json!("idle")));
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_call_of_an_unregistered_caller_is_recorded() {
    let daemon = TestDaemon::start().await;
    let (mut unregistered, who) = agent(&daemon, &key(2)).await;
    let own = unregistered.call("session.init", &json!({})).await.unwrap()["session_key"]
        .as_str()
        .unwrap()
        .to_owned();
    let script = "!call exec {\"command\":\"id\"}\n!call write {\"path\":\"x\",\"text\":\"y\"}\n!call web_fetch {\"url\":\"http://x\"}\n!call search {\"query\":\"x\"}";
    let (events, _) = run_turn(&mut unregistered, &own, script).await.unwrap();
    let tool_results = results(&events);
    assert_eq!(tool_results.len(), 4);
    assert!(
        tool_results[..3].iter().all(|result| result.starts_with("denied (mandate.not_listed): `")),
        "{tool_results:?}"
    );
    assert!(!tool_results[3].starts_with("denied"), "{tool_results:?}");

    let mut operator = daemon.operator().await;
    let tail = operator.call("ledger.tail", &json!({ "entity_id": own, "limit": 1000 })).await.unwrap();
    let of = |quality: &str| -> Vec<(String, String)> {
        let entries = tail["entries"].as_array().unwrap().iter().map(|entry| &entry["entry"]);
        let found = entries.filter(|entry| entry["quality"] == quality);
        let word = |entry: &Value, name: &str| entry["payload"][name].as_str().unwrap_or_default().to_owned();
        let second = if quality == "policy_verdict" { "decision" } else { "outcome" };
        found.map(|entry| (word(entry, "tool"), word(entry, second))).collect()
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    assert_eq!(
        of("policy_verdict"),
        pairs(&[
            ("read", "allow"),
            ("search", "allow"),
            ("send_message", "allow"),
            ("exec", "deny"),
            ("write", "deny"),
            ("web_fetch", "deny"),
            ("search", "allow"),
        ])
    );
    assert_eq!(
        of("tool_result"),
        pairs(&[("exec", "denied"), ("write", "denied"), ("web_fetch", "denied"), ("search", "ran")])
    );
    let board = daemon.home.read("board.md");
    let id = who["agent_id"].as_str().unwrap();
    assert!(!board.contains(id) && !board.contains("denied"), "{board}");
    drop((operator, unregistered));
    assert_sound(&daemon.stop().await.home);
}

fn roster(extra: &str) -> TempHome {
    let home = TempHome::new();
    home.write("data/agent-roster.jsonl", &format!("{{\"id\":\"main\",\"standing\":true}}\n{extra}\n"));
    home.write("mandates/reader.md", "---\ntools: read\n---\nYou read.\n");
    home
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_agent_must_prove_its_key_and_gets_its_mandate() {
    let scout = key(3);
    let line = format!("{{\"id\":\"scout\",\"mandate\":\"reader\",\"pubkey\":\"{}\"}}", public(&scout));
    let daemon = TestDaemon::start_at(roster(&line), &config()).await;
    let other_daemon = TestDaemon::start().await;
    let sign = |key: &SigningKey, audience: &str, nonce: &str, claimed: &str| {
        key.sign(challenge_text(audience, nonce, claimed).as_bytes()).to_bytes()
    };

    // A signature needs a challenge.
    let mut client = RpcClient::connect(&daemon.address(), None).await.unwrap();
    let unasked = prove(&mut client, &public(&scout), &[0; 64]).await.unwrap_err();
    assert_eq!(unasked.to_string(), "ask for a challenge first: auth.challenge");

    // Each proof has one fault.
    let (audience, nonce) = challenge(&mut client).await;
    let mut flipped = sign(&scout, &audience, &nonce, &public(&scout));
    flipped[10] ^= 1;
    let other_nonce = {
        let mut other = RpcClient::connect(&daemon.address(), None).await.unwrap();
        challenge(&mut other).await.1
    };
    let foreign = {
        let mut other = RpcClient::connect(&other_daemon.address(), None).await.unwrap();
        challenge(&mut other).await.0
    };
    assert_ne!(foreign, audience);
    // The identity point: with R the identity and S zero, a careless check accepts every text.
    let mut identity = [0_u8; 32];
    identity[0] = 1;
    let mut nothing = [0_u8; 64];
    nothing[0] = 1;
    let identity = format!("ed25519:{}", hex(&identity));
    type Forge<'a> = Box<dyn Fn(&str) -> [u8; 64] + 'a>;
    let attempts: Vec<(&str, String, Forge<'_>)> = vec![
        ("a flipped bit", public(&scout), Box::new(move |_| flipped)),
        (
            "another nonce",
            public(&scout),
            Box::new(|_| sign(&scout, &audience, &other_nonce, &public(&scout))),
        ),
        ("another daemon", public(&scout), Box::new(|nonce| sign(&scout, &foreign, nonce, &public(&scout)))),
        ("another's key", public(&scout), Box::new(|nonce| sign(&key(4), &audience, nonce, &public(&scout)))),
    ];
    for (what, claimed, signature) in attempts {
        // Each proof on its own connection: five wrong attempts close one.
        let mut client = RpcClient::connect(&daemon.address(), None).await.unwrap();
        let (_, nonce) = challenge(&mut client).await;
        let refused = prove(&mut client, &claimed, &signature(&nonce)).await.unwrap_err();
        assert_ne!(code(client.call("session.init", &json!({ "agent_id": "scout" })).await), "ok", "{what}");
        assert_eq!(
            (refused.code(), refused.to_string().split(':').next().unwrap().to_owned()),
            (Some("unauthorized"), "the signature does not prove this key".to_owned()),
            "{what}"
        );
    }
    let mut client = RpcClient::connect(&daemon.address(), None).await.unwrap();
    challenge(&mut client).await;
    let refused = prove(&mut client, &identity, &nothing).await.unwrap_err();
    assert_eq!(refused.code(), Some("invalid_params"), "the key is invalid: {refused}");
    // A nonce is valid for one attempt, correct or not.
    let mut client = RpcClient::connect(&daemon.address(), None).await.unwrap();
    let (audience, nonce) = challenge(&mut client).await;
    prove(&mut client, &public(&scout), &[0; 64]).await.unwrap_err();
    let late = sign(&scout, &audience, &nonce, &public(&scout));
    assert_eq!(code(prove(&mut client, &public(&scout), &late).await), "invalid_params");
    let (audience, nonce) = challenge(&mut client).await;
    let good = sign(&scout, &audience, &nonce, &public(&scout));
    let who = prove(&mut client, &public(&scout), &good).await.unwrap();
    assert_eq!(who, json!({ "principal": "agent", "agent_id": "scout", "mandate": "reader" }));
    assert_eq!(code(prove(&mut client, &public(&scout), &good).await), "invalid_params", "not twice");

    // The registered agent has its own mandate, which is narrower than the default one.
    let opened = client.call("session.init", &json!({})).await.unwrap();
    assert_eq!(opened["mandate"], "reader");
    let own = opened["session_key"].as_str().unwrap();
    let script = "!call read {\"path\":\"none.txt\"}\n!call search {\"query\":\"x\"}\n!call send_message {\"to\":\"main\",\"text\":\"x\"}";
    let (events, _) = run_turn(&mut client, own, script).await.unwrap();
    let tool_results = results(&events);
    assert!(!tool_results[0].starts_with("denied"), "{tool_results:?}");
    for (result, tool) in tool_results[1..].iter().zip(["search", "send_message"]) {
        assert!(
            result.starts_with(&format!(
                "denied (mandate.not_listed): `{tool}` is not in the mandate `reader`"
            )),
            "{tool_results:?}"
        );
    }
    assert!(
        !daemon.home.home.root().join("data/agent-mailbox.jsonl").exists(),
        "no mailbox message was sent"
    );
    assert_eq!(code(client.call("session.init", &json!({ "agent_id": "main" })).await), "forbidden");
    assert_eq!(code(client.call("daemon.status", &json!({})).await), "forbidden");
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_callers_are_refused_unless_configured() {
    let daemon = TestDaemon::start().await;
    let mut nobody = RpcClient::connect(&daemon.address(), None).await.unwrap();
    assert_eq!(code(nobody.call("session.init", &json!({})).await), "unauthorized");
    assert_eq!(code(nobody.call("auth.whoami", &json!({})).await), "unauthorized");

    let mut open = config();
    open.gateway.anonymous = Anonymous::DefaultMandate;
    let daemon = TestDaemon::start_at(TempHome::new(), &open).await;
    let mut nobody = RpcClient::connect(&daemon.address(), None).await.unwrap();
    let who = nobody.call("auth.whoami", &json!({})).await.unwrap();
    assert_eq!(who, json!({ "principal": "anonymous", "agent_id": "anonymous", "mandate": "default" }));
    let opened = nobody.call("session.init", &json!({})).await.unwrap();
    assert_eq!(opened["mandate"], "default");
    let (events, _) =
        run_turn(&mut nobody, opened["session_key"].as_str().unwrap(), "!call exec {}\n!say done")
            .await
            .unwrap();
    assert!(results(&events)[0].starts_with("denied"));
    for (method, params) in [
        ("session.init", json!({ "agent_id": "main" })),
        ("session.status", json!({ "session_key": "agent:main:standing:local:dm:main" })),
        ("daemon.status", json!({})),
        ("agent.add", json!({ "agent_id": "mole" })),
    ] {
        assert_eq!(code(nobody.call(method, &params).await), "forbidden", "{method}");
    }
    // A wrong token does not make the caller anonymous.
    assert!(RpcClient::connect(&daemon.address(), Some("trb_0")).await.is_err());
    // The roster cannot give an identity to anonymous callers by accident.
    let mut operator = daemon.operator().await;
    assert_eq!(code(operator.call("agent.add", &json!({ "agent_id": "anonymous" })).await), "invalid_params");
    assert_healthy(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_end_when_the_principal_changes() {
    let daemon = TestDaemon::start().await;
    let mut operator = daemon.operator().await;
    operator.call("session.init", &json!({ "session_key": MAIN })).await.unwrap();
    let mut turncoat = daemon.operator().await;
    turncoat.call("session.events", &json!({ "session_key": MAIN })).await.unwrap();
    run_turn(&mut operator, MAIN, "!say first").await.unwrap();
    events_until(&mut turncoat, "the operator sees the turn", is_done).await;
    let (audience, nonce) = challenge(&mut turncoat).await;
    let text = challenge_text(&audience, &nonce, &public(&key(5)));
    let proof = key(5).sign(text.as_bytes()).to_bytes();
    assert_eq!(prove(&mut turncoat, &public(&key(5)), &proof).await.unwrap()["principal"], "stranger");
    run_turn(&mut operator, MAIN, "!say second").await.unwrap();
    // The response follows everything that was sent before it.
    within("an answer", turncoat.call("auth.whoami", &json!({}))).await.unwrap();
    assert_eq!(turncoat.take_notifications(), []);
    assert_eq!(code(turncoat.call("session.events", &json!({ "session_key": MAIN })).await), "forbidden");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_gets_a_proxy_token_only_for_itself() {
    let home = TempHome::new();
    let line = |id: &str, seed: u8| {
        let line = json!({ "id": id, "backend": "native", "model": "moonshot:kimi-k1-128k", "mandate": "default",
                           "standing": false, "pubkey": public(&key(seed)) });
        format!("{line}\n")
    };
    home.write("data/agent-roster.jsonl", &(line("writer", 1) + &line("other", 2)));
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut writer, _) = agent(&daemon, &key(1)).await;
    for params in [json!({}), json!({ "agent_id": "writer" })] {
        let pass = writer.call("proxy.pass", &params).await.unwrap();
        assert_eq!((&pass["agent_id"], &pass["model"]), (&json!("writer"), &json!("moonshot:kimi-k1-128k")));
        assert!(pass["token"].as_str().unwrap().starts_with("trbp_"));
        // A proxy token authenticates on no other endpoint.
        assert_eq!(code(writer.call("auth.token", &json!({ "token": pass["token"] })).await), "unauthorized");
    }
    for params in [json!({ "agent_id": "other" }), json!({ "agent_id": "main" })] {
        assert_eq!(code(writer.call("proxy.pass", &params).await), "forbidden");
    }
    let mut operator = daemon.operator().await;
    let approver = operator.call("approver.add", &json!({ "id": "ada" })).await.unwrap();
    let mut approver = RpcClient::connect(&daemon.address(), approver["token"].as_str()).await.unwrap();
    assert_eq!(code(approver.call("proxy.pass", &json!({ "agent_id": "writer" })).await), "forbidden");
    drop((writer, operator, approver));
    daemon.stop().await;
}
