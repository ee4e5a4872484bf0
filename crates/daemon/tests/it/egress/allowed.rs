//! Allowed connections: what is forwarded, how it looks at the server, and what the ledger records.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tribune_ledger::EntryQuality;
use tribune_storage::store::Reader;

use super::{KEY, Server, Setup, connect, get, hello};

#[tokio::test(flavor = "multi_thread")]
async fn allowed_host_is_reached_and_every_step_recorded() {
    let server = Server::echo().await;
    let setup = Setup::open("agents: { main: [{ host: 'api.example.com' }] }").await;
    setup.network.name("api.example.com", &["93.184.216.34"]);
    setup.network.route("93.184.216.34:443", server.address);
    // As programs write it: upper case, and the dot of the DNS root.
    let mut tunnel = setup.tunnel("API.Example.com.:443").await;
    let words = hello(Some("api.example.com"));
    for piece in words.chunks(7) {
        tunnel.write_all(piece).await.unwrap();
        tunnel.flush().await.unwrap();
    }
    let mut back = vec![0; words.len()];
    tunnel.read_exact(&mut back).await.unwrap();
    assert_eq!(back, words);
    tunnel.shutdown().await.unwrap();
    assert_eq!(tunnel.read(&mut back).await.unwrap(), 0);
    let bytes = words.len();
    assert_eq!(
        setup.ended(1).await,
        [json!({ "event": "ended", "outcome": "done", "sent": bytes, "received": bytes })]
    );
    assert_eq!(setup.network.connected_addresses(), ["93.184.216.34:443"]);
    assert_eq!(*setup.network.resolved.lock().unwrap(), ["api.example.com"]);

    let entries = setup.entries();
    let (quality, verdict) = &entries[0];
    assert_eq!(*quality, EntryQuality::PolicyVerdict);
    assert_eq!((&verdict["decision"], &verdict["waivedBy"]), (&json!("allow"), &json!("egress.listed")));
    assert_eq!(
        verdict["facts"]["args"],
        json!({ "host": "api.example.com", "port": 443, "scheme": "https", "method": "CONNECT", "action": "listed" })
    );
    assert_eq!(entries.len(), 2);
    // The response is untrusted, and the session has that label.
    let row = Reader::open(&setup.daemon.home.home).unwrap().session(KEY).unwrap().unwrap();
    assert_eq!((row.labels.trust.as_str(), row.labels.private), ("untrusted", false));
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn loopback_server_is_reached_only_when_listed_as_loopback() {
    let server = Server::echo().await;
    let port = server.port();
    let setup = Setup::open(&format!(
        "agents: {{ main: [{{ host: '127.0.0.1', port: {port} }}, {{ host: 'dev.example', port: {port}, scheme: 'tcp', private: true }}] }}"
    ))
    .await;
    setup.network.name("dev.example", &["127.0.0.1"]);
    // TLS to an address names no host.
    let mut tunnel = setup.tunnel(&format!("127.0.0.1:{port}")).await;
    tunnel.write_all(&hello(None)).await.unwrap();
    let mut back = vec![0; hello(None).len()];
    tunnel.read_exact(&mut back).await.unwrap();
    drop(tunnel);
    // An entry for any connection kind accepts every kind.
    let mut tunnel = setup.tunnel(&format!("dev.example:{port}")).await;
    tunnel.write_all(b"SSH-2.0-x").await.unwrap();
    let mut back = [0; 9];
    tunnel.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"SSH-2.0-x");
    drop(tunnel);
    setup.ended(2).await;
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_request_is_rewritten_for_its_server() {
    let server = Server::http(
        "HTTP/1.1 201 Created\r\nConnection: keep-alive\r\nX-Own: yes\r\nContent-Length: 5\r\n\r\nhello",
    )
    .await;
    let port = server.port();
    let setup = Setup::open(&format!(
        "agents: {{ main: [{{ host: 'api.example', port: {port}, scheme: 'http', methods: ['GET', 'POST'], paths: ['/v1/'], private: true }}] }}"
    ))
    .await;
    setup.network.name("api.example", &["127.0.0.1"]);
    let answer = setup
        .exchange(format!(
            "GET http://API.example:{port}/v1/x?q=1 HTTP/1.1\r\nHost: api.example:{port}\r\nProxy-Authorization: Basic eA==\r\n\
             Proxy-Connection: keep-alive\r\nConnection: x-hop, upgrade\r\nX-Hop: 1\r\nUpgrade: websocket\r\nX-Kept: 2\r\n\r\n"
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n") && answer.ends_with("hello"), "{answer}");
    let lower = answer.to_lowercase();
    assert!(
        lower.contains("x-own: yes") && lower.contains("connection: close") && !lower.contains("keep-alive"),
        "{answer}"
    );
    let heard = server.received();
    assert!(heard.starts_with("GET /v1/x?q=1 HTTP/1.1\r\n"), "{heard}");
    let lower = heard.to_lowercase();
    assert!(
        lower.contains(&format!("host: api.example:{port}\r\n")) && lower.contains("x-kept: 2"),
        "{heard}"
    );
    for gone in ["proxy-", "x-hop", "upgrade", "connection"] {
        assert!(!lower.contains(gone), "{gone}: {heard}");
    }

    let head = format!("POST http://api.example:{port}/v1/y HTTP/1.1\r\nHost: api.example:{port}\r\n");
    setup.exchange(format!("{head}Content-Length: 4\r\n\r\nbody")).await;
    setup.exchange(format!("{head}Transfer-Encoding: chunked\r\n\r\n4;a=b\r\nmore\r\n0\r\n\r\n")).await;
    let heard = server.received();
    assert!(
        heard.contains("\r\n\r\nbody") && heard.contains("4\r\nmore\r\n0\r\n\r\n") && !heard.contains("a=b"),
        "{heard}"
    );
    let ended = setup.ended(3).await;
    assert!(
        ended.iter().all(|end| end["outcome"] == "done" && end["received"].as_u64() > Some(50)),
        "{ended:?}"
    );
    let verdict = &setup.entries()[0].1;
    assert_eq!(
        verdict["facts"]["args"],
        json!({ "host": "api.example", "port": port, "scheme": "http", "method": "GET", "action": "listed" })
    );
    assert!(!verdict.to_string().contains("q=1"), "the query is private: {verdict}");
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn allowlist_of_one_agent_applies_to_no_other() {
    let setup = Setup::open("agents: { bare: [{ host: 'api.example' }] }").await;
    assert_eq!(setup.refused(connect("api.example:443")).await, (403, "denied".to_owned()));
    // An allowlist has no effect without a mandate.
    const OTHER: &str = "agent:bare:cli:local:dm:op";
    setup.begin(OTHER).await;
    let sockets = setup.daemon.daemon.socket_service().open(&super::key(OTHER)).unwrap();
    let mut stream = tokio::net::UnixStream::connect(sockets.egress()).await.unwrap();
    stream.write_all(connect("api.example:443").as_bytes()).await.unwrap();
    let answer = super::rest_of(&mut stream).await;
    assert!(
        answer.contains("mandate.not_listed") && answer.contains("`egress` is not in the mandate"),
        "{answer}"
    );
    assert_eq!(setup.network.connected_addresses(), [""; 0]);
    drop(sockets);
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_server_is_reported() {
    let setup =
        Setup::open("agents: { main: [{ host: 'a.example', scheme: 'http' }, { host: 'b.example' }] }").await;
    setup.network.name("a.example", &["93.184.216.34"]);
    assert_eq!(setup.refused(get("http://a.example/")).await, (502, "unreachable".to_owned()));
    assert_eq!(
        setup.ended(1).await[0],
        json!({ "event": "ended", "outcome": "failed", "code": "unreachable", "sent": 0, "received": 0 })
    );
    assert_eq!(setup.refused(connect("b.example:443")).await, (502, "unresolved".to_owned()));
    setup.ended(2).await;
    setup.close().await;
}
