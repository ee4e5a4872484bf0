//! Requests that try to evade the allowlist: none of them opens a connection, and the ledger records each.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tribune_ledger::EntryQuality;

use super::{Server, Setup, connect, get, hello};

/// One allowlist entry of each kind, at a server on loopback whose port replaces `PORT`.
const PLACES: &str = "deny: ['evil.api.example'], agents: { main: [ \
    { host: 'api.example', port: PORT, private: true }, \
    { host: 'web.example', port: PORT, scheme: 'http', methods: ['GET'], paths: ['/v1/'], private: true }, \
    { host: 'evil.api.example', port: PORT, private: true } ] }";

async fn setup(server: &Server) -> Setup {
    let setup = Setup::open(&PLACES.replace("PORT", &server.port().to_string())).await;
    for name in ["api.example", "web.example", "evil.api.example", "other.example"] {
        setup.network.name(name, &["127.0.0.1"]);
    }
    setup
}

/// Asserts that no name was resolved, no connection was opened, and every refusal is in the ledger.
async fn assert_no_connection(setup: Setup, server: &Server, refusals: usize) {
    assert_eq!((setup.network.connected_addresses().len(), server.received().as_str()), (0, ""));
    assert_eq!(setup.network.resolved.lock().unwrap().len(), 0);
    let entries = setup.entries();
    let denied = |(quality, payload): &&(EntryQuality, Value)| match quality {
        EntryQuality::PolicyVerdict => payload["decision"] == "deny",
        _ => payload["event"] == "refused",
    };
    assert_eq!(entries.iter().filter(denied).count(), refusals);
    assert_eq!(entries.len(), refusals);
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unlisted_destinations_are_refused() {
    let server = Server::echo().await;
    let setup = setup(&server).await;
    let port = server.port();
    let places = [
        format!("other.example:{port}"),
        "api.example:443".to_owned(),
        format!("www.api.example:{port}"),
        format!("evil.api.example:{port}"),
        format!("api.example.evil.example:{port}"),
        format!("localhost:{port}"),
        format!("web.example:{port}"),
    ];
    for place in &places {
        assert_eq!(setup.refused(connect(place)).await, (403, "denied".to_owned()), "{place}");
    }
    let urls = [
        format!("http://api.example:{port}/"),
        format!("http://other.example:{port}/v1/"),
        format!("http://web.example:{port}/v2/"),
        format!("http://web.example:{port}/v1/../v2/"),
        format!("http://web.example:{port}/v1/%2e%2e/v2"),
        format!("http://web.example:{port}/v1"),
        "http://web.example/v1/".to_owned(),
    ];
    for url in &urls {
        assert_eq!(setup.refused(get(url)).await, (403, "denied".to_owned()), "{url}");
    }
    let post = format!("POST http://web.example:{port}/v1/ HTTP/1.1\r\nhost: web.example:{port}\r\n\r\n");
    assert_eq!(setup.refused(post).await, (403, "denied".to_owned()));
    assert_no_connection(setup, &server, places.len() + urls.len() + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_refused_in_every_notation() {
    let server = Server::echo().await;
    let setup = setup(&server).await;
    let port = server.port();
    let spellings = [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.1",
        "127.0.1",
        "0",
        "127.0.0.1.",
        "①②⑦.0.0.1",
        "127。0。0。1",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[::]",
        "169.254.169.254",
        "10.0.0.1",
        "[fd00:ec2::254]",
        "93.184.216.34",
        "0xa9fea9fe",
        "2852039166",
    ];
    for host in spellings {
        assert_eq!(
            setup.refused(connect(&format!("{host}:{port}"))).await,
            (403, "denied".to_owned()),
            "{host}"
        );
    }
    let written = ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "169.254.169.254"];
    for host in written {
        let answer = setup.refused(get(&format!("http://{host}:{port}/v1/"))).await;
        assert_eq!(answer, (403, "denied".to_owned()), "{host}");
    }
    assert_no_connection(setup, &server, spellings.len() + written.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_requests_are_refused() {
    let server = Server::echo().await;
    let setup = setup(&server).await;
    let port = server.port();
    let at = format!("api.example:{port}");
    let web = format!("web.example:{port}");
    let post = |headers: &str| format!("POST http://{web}/v1/ HTTP/1.1\r\nhost: {web}\r\n{headers}\r\n\r\n");
    let bad = [
        // Two lengths.
        (400, "two_lengths", post("content-length: 1\r\ncontent-length: 2")),
        (400, "two_lengths", post("content-length: 1\r\ncontent-length: 1")),
        (400, "two_lengths", post("content-length: 4\r\ntransfer-encoding: chunked")),
        (400, "two_lengths", post("transfer-encoding: chunked\r\ntransfer-encoding: identity")),
        (400, "two_lengths", post("transfer-encoding: chunked, gzip")),
        // Lines that parsers read differently.
        (400, "bad_request", post("x: 1\r\n folded: 2")),
        (400, "bad_request", post("content-length : 4")),
        (400, "bad_request", post("x: 1\nhost: evil.example")),
        (400, "bad_request", post("x: 1\rhost: evil.example")),
        (400, "bad_request", post("x: \u{0}")),
        (400, "bad_request", format!("GET http://{web}/v1/ HTTP/1.1\nhost: {web}\n\n")),
        (
            400,
            "bad_request",
            format!("GET http://{web}/v1/ HTTP/1.1\r\nhost: {web}\r\nhost: evil.example\r\n\r\n"),
        ),
        (400, "bad_request", format!("GET http://{web}/v1/ x HTTP/1.1\r\nhost: {web}\r\n\r\n")),
        (400, "bad_request", format!("CONNECT {at} HTTP/1.1 \r\nhost: {at}\r\n\r\n")),
        (400, "bad_request", format!("CONNECT {at} HTTP/1.1\r\n\r\n")),
        (400, "bad_request", "\u{16}\u{3}\u{1}\n\n".to_owned()),
        (400, "bad_request", "GET".to_owned()),
        // A host that differs from the target.
        (400, "host_mismatch", format!("CONNECT {at} HTTP/1.1\r\nhost: evil.example:{port}\r\n\r\n")),
        (400, "host_mismatch", format!("GET http://{web}/v1/ HTTP/1.1\r\nhost: evil.example\r\n\r\n")),
        // Bytes after CONNECT.
        (400, "two_lengths", format!("CONNECT {at} HTTP/1.1\r\nhost: {at}\r\ncontent-length: 4\r\n\r\nbody")),
        (
            400,
            "two_lengths",
            format!("CONNECT {at} HTTP/1.1\r\nhost: {at}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        (400, "early_bytes", format!("{}GET / HTTP/1.1\r\n\r\n", connect(&at))),
        // Invalid targets.
        (400, "bad_authority", connect("api.example")),
        (400, "bad_authority", connect("user@api.example:443")),
        (400, "bad_authority", connect("api.example:443:443")),
        (400, "bad_authority", connect("api.example%2e:443")),
        (400, "bad_authority", connect("[fe80::1%25lo]:443")),
        (400, "bad_authority", connect("api.example:0")),
        (400, "bad_authority", format!("CONNECT http://{at}/ HTTP/1.1\r\nhost: {at}\r\n\r\n")),
        (400, "bad_authority", "GET / HTTP/1.1\r\nhost: api.example\r\n\r\n".to_owned()),
        (400, "bad_authority", "OPTIONS * HTTP/1.1\r\nhost: api.example\r\n\r\n".to_owned()),
        (400, "bad_authority", get("ftp://web.example/v1/")),
        (400, "bad_authority", get(&format!("http://u:p@web.example:{port}/v1/"))),
        (400, "bad_authority", get(&format!("http://web.example:{port}\\@evil.example/v1/"))),
        (400, "bad_authority", get(&format!("http://web.example:{port}#@evil.example/v1/"))),
        (400, "use_connect", get("https://api.example/")),
        // Too large.
        (
            431,
            "head_too_large",
            format!("GET http://{web}/v1/ HTTP/1.1\r\nhost: {web}\r\nx: {}\r\n\r\n", "y".repeat(20_000)),
        ),
        (
            431,
            "head_too_large",
            format!("GET http://{web}/{} HTTP/1.1\r\nhost: {web}\r\n\r\n", "y".repeat(20_000)),
        ),
        (431, "head_too_large", post(&vec!["x: y"; 200].join("\r\n"))),
        (431, "head_too_large", "x".repeat(40_000)),
    ];
    for (status, code, request) in &bad {
        let mut stream = setup.connect().await;
        let _ = stream.write_all(request.as_bytes()).await;
        // Ends the request that is incomplete.
        let _ = stream.shutdown().await;
        let (found, error) = super::parse(&super::rest_of(&mut stream).await);
        assert_eq!(
            (found, error["code"].as_str()),
            (*status, Some(*code)),
            "{}",
            &request[..request.len().min(200)]
        );
    }
    assert_no_connection(setup, &server, bad.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_for_another_host_is_not_forwarded() {
    let server = Server::echo().await;
    let setup = setup(&server).await;
    let place = format!("api.example:{}", server.port());
    let openings = [
        hello(Some("evil.example")),
        hello(Some("api.example.evil.example")),
        hello(Some("www.api.example")),
        hello(Some("api.example.")),
        hello(None),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"SSH-2.0-x".to_vec(),
        vec![0; 100],
    ];
    for bytes in &openings {
        let mut tunnel = setup.tunnel(&place).await;
        tunnel.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = tunnel.read_to_end(&mut answer).await;
        // A fatal TLS alert, so that the client knows.
        assert_eq!(answer, [21, 3, 1, 0, 2, 2, 112], "{bytes:02x?}");
    }
    for end in setup.ended(openings.len()).await {
        assert_eq!(
            end,
            json!({ "event": "ended", "outcome": "refused", "code": "wrong_tls", "sent": 0, "received": 0 })
        );
    }
    assert_eq!(server.received(), "");
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_second_request_is_not_forwarded() {
    let server = Server::http("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let setup = setup(&server).await;
    let web = format!("web.example:{}", server.port());
    let first = get(&format!("http://{web}/v1/"));
    let second = get(&format!("http://{web}/admin"));
    let answer = setup.exchange(format!("{first}{second}")).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    let inside =
        format!("POST http://{web}/v1/ HTTP/1.1\r\nhost: {web}\r\ncontent-length: 3\r\n\r\nabc{second}");
    assert_eq!(setup.refused(inside).await.0, 403, "POST is not listed");
    setup.ended(1).await;
    assert!(!server.received().contains("admin"), "{}", server.received());
    setup.close().await;
}
