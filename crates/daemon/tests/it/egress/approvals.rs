//! Connections that wait for an approval, and those that the law, a freeze or the end of a session ends.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tribune_egress::SocketLimits;
use tribune_storage::store::Reader;
use tribune_testkit::{run_turn, turn_params};

use super::{EgressOptions, KEY, Server, Setup, connect, decide, established, get, hello, once};

const ASKS: &str = "unlisted: 'ask'";

/// A daemon for which `new.example` is an unlisted server on loopback.
async fn setup(plan: EgressOptions) -> (Setup, Server) {
    let server = Server::echo().await;
    let setup = Setup::with(plan).await;
    setup.network.name("new.example", &["93.184.216.34"]);
    setup.network.route("93.184.216.34:443", server.address);
    (setup, server)
}

fn asks() -> EgressOptions {
    EgressOptions { egress: ASKS.to_owned(), ..EgressOptions::default() }
}

async fn assert_tunnel_opens(setup: &Setup, tunnel: &mut tokio::net::UnixStream, name: &str) {
    established(tunnel).await;
    let words = hello(Some(name));
    tunnel.write_all(&words).await.unwrap();
    let mut back = vec![0; words.len()];
    tunnel.read_exact(&mut back).await.unwrap_or_else(|error| panic!("{error}: {:?}", setup.entries()));
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_connection_continues_after_approval() {
    let (setup, _server) = setup(asks()).await;
    let mut tunnel = setup.connect().await;
    tunnel.write_all(connect("new.example:443").as_bytes()).await.unwrap();
    let card = decide(&setup, once()).await;
    assert_eq!((&card["tool"], &card["session_key"]), (&json!("egress"), &json!(KEY)), "{card}");
    let mut operator = setup.daemon.operator().await;
    let whole = operator.call("approval.show", &json!({ "id": card["id"] })).await.unwrap();
    assert!(whole.to_string().contains("https://new.example:443"), "{whole}");
    assert_tunnel_opens(&setup, &mut tunnel, "new.example").await;
    drop(tunnel);
    setup.ended(1).await;
    let decisions: Vec<Value> =
        setup.entries().iter().map(|(_, content)| content["decision"].clone()).collect();
    assert_eq!(decisions, [json!("ask"), Value::Null, json!("allow"), Value::Null]);
    // The decision was for one connection.
    let mut again = setup.connect().await;
    again.write_all(connect("new.example:443").as_bytes()).await.unwrap();
    decide(&setup, json!({ "decision": "deny", "reason": "not today" })).await;
    let (status, error) = super::parse(&super::rest_of(&mut again).await);
    assert_eq!((status, &error["code"]), (403, &json!("denied")));
    assert!(error["message"].as_str().unwrap().contains("not today"), "{error}");
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_connections_of_a_session_make_one_card() {
    let (setup, _server) = setup(asks()).await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = setup.connect().await;
        stream.write_all(connect("new.example:443").as_bytes()).await.unwrap();
        streams.push(stream);
    }
    // Each was judged, and one was asked about; the others wait for the same decision.
    setup.judged(8).await;
    decide(&setup, json!({ "decision": "deny", "reason": "none of them" })).await;
    for stream in &mut streams {
        let (status, error) = super::parse(&super::rest_of(stream).await);
        assert_eq!((status, &error["code"]), (403, &json!("denied")));
        assert!(error["message"].as_str().unwrap().contains("none of them"), "{error}");
    }
    crate::approvals::pending(&mut setup.daemon.operator().await, 0).await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_allowed_for_a_session_is_not_requested_again() {
    let (setup, _server) = setup(asks()).await;
    let mut tunnel = setup.connect().await;
    tunnel.write_all(connect("new.example:443").as_bytes()).await.unwrap();
    decide(&setup, json!({ "decision": "allow_session" })).await;
    assert_tunnel_opens(&setup, &mut tunnel, "new.example").await;
    let mut again = setup.connect().await;
    again.write_all(connect("new.example:443").as_bytes()).await.unwrap();
    assert_tunnel_opens(&setup, &mut again, "new.example").await;
    // Another port is another destination, and so is a plain HTTP request.
    for other in [connect("new.example:8443"), get("http://new.example/")] {
        let mut other_stream = setup.connect().await;
        other_stream.write_all(other.as_bytes()).await.unwrap();
        decide(&setup, json!({ "decision": "deny" })).await;
        assert_eq!(super::parse(&super::rest_of(&mut other_stream).await).0, 403);
    }
    drop((tunnel, again));
    setup.ended(2).await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn approval_cannot_allow_an_internal_address() {
    let (setup, server) = setup(asks()).await;
    setup.network.name("in.example", &["127.0.0.1"]);
    let mut tunnel = setup.connect().await;
    let place = format!("in.example:{}", server.port());
    tunnel.write_all(connect(&place).as_bytes()).await.unwrap();
    decide(&setup, once()).await;
    let (status, error) = super::parse(&super::rest_of(&mut tunnel).await);
    assert_eq!((status, &error["code"]), (403, &json!("address_refused")));
    // A connection to an address requires no approval: it is refused.
    assert_eq!(setup.refused(connect("93.184.216.34:443")).await, (403, "denied".to_owned()));
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_connections_time_out_and_abandoned_requests_are_withdrawn() {
    let limits = SocketLimits { ask: Duration::from_millis(50), ..SocketLimits::default() };
    let (setup, _server) = setup(EgressOptions { limits, ..asks() }).await;
    assert_eq!(setup.refused(connect("new.example:443")).await, (403, "undecided".to_owned()));
    let mut operator = setup.daemon.operator().await;
    crate::approvals::pending(&mut operator, 0).await;
    setup.close().await;

    // A program that disconnects withdraws its request.
    let setup = Setup::with(asks()).await;
    let mut operator = setup.daemon.operator().await;
    let mut tunnel = setup.connect().await;
    tunnel.write_all(connect("new.example:443").as_bytes()).await.unwrap();
    crate::approvals::pending(&mut operator, 1).await;
    drop(tunnel);
    crate::approvals::pending(&mut operator, 0).await;
    // So does a program that does not wait for the response.
    let mut tunnel = setup.connect().await;
    tunnel.write_all(connect("new.example:443").as_bytes()).await.unwrap();
    crate::approvals::pending(&mut operator, 1).await;
    tunnel.write_all(b"early").await.unwrap();
    crate::approvals::pending(&mut operator, 0).await;
    assert_eq!(setup.network.connected_addresses(), [""; 0]);
    setup.close().await;
}

/// The pending approvals, over REST.
async fn over_rest(setup: &Setup) -> Value {
    let mut stream = tokio::net::TcpStream::connect(setup.daemon.address()).await.unwrap();
    let request = format!(
        "GET /v1/approvals HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
        setup.daemon.address(),
        setup.daemon.token()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let page: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    page["approvals"][0].clone()
}

/// The approver sees until when a decision is useful, over every API and in the ledger.
#[tokio::test(flavor = "multi_thread")]
async fn request_states_how_long_its_connection_waits() {
    let setup = Setup::with(asks()).await;
    let mut operator = setup.daemon.operator().await;
    let mut tunnel = setup.connect().await;
    tunnel.write_all(connect("new.example:443").as_bytes()).await.unwrap();
    let listed = crate::approvals::pending(&mut operator, 1).await.remove(0);
    let shown = operator.call("approval.show", &json!({ "id": listed["id"] })).await.unwrap();
    let rest = over_rest(&setup).await;
    let requested = setup
        .entries()
        .into_iter()
        .map(|(_, content)| content)
        .find(|content| content["event"] == "requested");
    let recorded = requested.unwrap()["expires_at"].clone();
    for deadline in [&listed["expires_at"], &shown["expires_at"], &rest["expires_at"], &recorded] {
        let time_of = |text: &Value| tribune_storage::clock::parse_time(text.as_str().unwrap()).unwrap();
        let (asked, ends) = (time_of(&listed["created_at"]), time_of(deadline));
        assert!(asked < ends && ends <= asked.plus(SocketLimits::default().ask), "{deadline}: {listed:#}");
    }
    drop(tunnel);
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_request_ends_with_its_daemon() {
    let setup = Setup::with(asks()).await;
    let mut operator = setup.daemon.operator().await;
    let mut tunnel = setup.connect().await;
    tunnel.write_all(connect("new.example:443").as_bytes()).await.unwrap();
    crate::approvals::pending(&mut operator, 1).await;
    // As after a kill: only the files that are on disk now.
    let copy = super::socket_dir::copy_of(&setup.daemon.home);
    drop(setup.close().await);
    let setup = Setup::on(copy, &asks()).await;
    let mut operator = setup.daemon.operator().await;
    crate::approvals::pending(&mut operator, 0).await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_labels_of_a_connection_apply_during_the_turn() {
    let server = Server::echo().await;
    let plan = EgressOptions {
        egress: "agents: { main: [{ host: 'a.example' }] }".to_owned(),
        ..EgressOptions::default()
    };
    let setup = Setup::with(plan).await;
    setup.network.name("a.example", &["93.184.216.34"]);
    setup.network.route("93.184.216.34:443", server.address);
    // The running turn writes the history of the session; the connection does not wait for it.
    let mut operator = setup.daemon.operator().await;
    let running = operator
        .send("turn.run", &turn_params(KEY, "!wait 2000ms\n!call read {\"path\":\"x\"}\n!say over"))
        .await
        .unwrap();
    let mut tunnel = setup.tunnel("a.example:443").await;
    assert_tunnel_echoes(&mut tunnel).await;
    let (_, content) = crate::approvals::ended(&mut operator, running).await;
    assert_eq!(content, "over");
    let row = Reader::open(&setup.daemon.home.home).unwrap().session(KEY).unwrap().unwrap();
    assert_eq!(row.labels.trust.as_str(), "untrusted");
    // The session has read private files and untrusted input: from now on every connection requires an approval,
    // listed or not.
    assert!(row.labels.private);
    drop(tunnel);
    let mut tunnel = setup.connect().await;
    tunnel.write_all(connect("a.example:443").as_bytes()).await.unwrap();
    let card = decide(&setup, json!({ "decision": "deny" })).await;
    assert!(card["rules"].to_string().contains("trust.trifecta"), "{card}");
    setup.close().await;
}

async fn assert_tunnel_echoes(tunnel: &mut tokio::net::UnixStream) {
    let words = hello(Some("a.example"));
    tunnel.write_all(&words).await.unwrap();
    tunnel.read_exact(&mut vec![0; words.len()]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn global_freeze_ends_tunnels_and_refuses_new_ones() {
    let server = Server::echo().await;
    let setup = Setup::open("agents: { main: [{ host: 'a.example' }] }").await;
    setup.network.name("a.example", &["93.184.216.34"]);
    setup.network.route("93.184.216.34:443", server.address);
    let mut tunnel = setup.tunnel("a.example:443").await;
    assert_tunnel_echoes(&mut tunnel).await;
    let mut operator = setup.daemon.operator().await;
    operator.call("gate.stop_all", &json!({})).await.unwrap();
    assert_eq!(super::rest_of(&mut tunnel).await, "");
    assert_eq!(setup.ended(1).await[0]["outcome"], "stopped");
    let answer = setup.exchange(connect("a.example:443")).await;
    assert!(answer.contains("kernel.frozen"), "{answer}");
    operator.call("gate.resume", &json!({})).await.unwrap();
    drop(setup.tunnel("a.example:443").await);
    setup.ended(2).await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_egress_is_called_only_by_the_daemon() {
    let setup = Setup::with(asks()).await;
    let mut operator = setup.daemon.operator().await;
    let call = "!call egress {\"url\":\"https://new.example:443\",\"method\":\"CONNECT\",\"action\":\"listed\"}\n!say $result";
    let (events, _) = run_turn(&mut operator, KEY, call).await.unwrap();
    let content = tribune_testkit::output_text(&events);
    assert!(content.contains("there is no tool `egress`"), "{content}");
    // A closed session has no egress.
    operator.call("session.close", &json!({ "session_key": KEY })).await.unwrap();
    assert_eq!(setup.refused(connect("new.example:443")).await, (403, "no_session".to_owned()));
    setup.close().await;
}
