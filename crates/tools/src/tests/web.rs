//! `web_fetch` and `web_search` against local servers that try to be reached, or to lead elsewhere.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tribune_config::egress_rules::EgressMode;
use tribune_config::url::SearchEndpoint;
use tribune_records::outcome::{Access, Resource, ToolErrorCode};

use crate::Egress;

use crate::attacks::Fixture;

/// Answers every request, and records it.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn new(answer: impl Fn(&str, SocketAddr) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&asked), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                            return;
                        }
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let path = head.split(' ').nth(1).unwrap().to_owned();
                    kept.lock().unwrap().push(head);
                    let _ = stream.write_all(&answer(&path, address)).await;
                });
            }
        });
        Self { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn page(content_type: &str, body: &str) -> Vec<u8> {
    let bytes = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {bytes}\r\nset-cookie: a=b\r\nconnection: close\r\n\r\n{body}").into()
}

fn redirect(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nset-cookie: a=b\r\nconnection: close\r\n\r\n").into()
}

/// A fixture that can reach these places.
fn fixture(mode: EgressMode, allow: &[String], search: Option<SearchEndpoint>) -> Fixture {
    let allow = allow.iter().map(|entry| entry.parse().unwrap()).collect();
    Fixture::new().with(|tools| tools.with_web(Egress::new(mode, allow, Vec::new()), search))
}

fn fetch(url: &str) -> Value {
    json!({ "url": url })
}

#[tokio::test]
async fn a_page_is_returned_as_text_with_its_address() {
    let server = Server::new(|path, _| match path {
        "/page" => page("text/html; charset=utf-8", "<title>T</title><p>Hello <a href='/x'>you</a></p>"),
        "/plain?a=1" => page("TEXT/plain", "a <b>"),
        "/json" => page("application/problem+json", "{}"),
        _ => redirect("/page#part"),
    })
    .await;
    let fixture = fixture(EgressMode::Allowlist, &[server.address.to_string()], None);
    let done = fixture.done("web_fetch", fetch(&server.url("/page"))).await;
    assert_eq!(done.outcome.content, format!("[{} (text/html)]\nT\n\nHello you [/x]", server.url("/page")));
    assert_eq!(done.touched, [Access::Read(Resource::Url("127.0.0.1".to_owned()))]);
    assert_eq!(
        fixture.good("web_fetch", fetch(&server.url("/plain?a=1#x"))).await,
        format!("[{} (text/plain)]\na <b>", server.url("/plain?a=1"))
    );
    assert!(fixture.good("web_fetch", fetch(&server.url("/json"))).await.ends_with("\n{}"));
    let redirected = fixture.good("web_fetch", fetch(&server.url("/old"))).await;
    assert!(redirected.starts_with(&format!("[{} ", server.url("/page"))), "{redirected}");
    let cut = fixture.good("web_fetch", json!({"url": server.url("/plain?a=1"), "maxBytes": 3})).await;
    assert_eq!(cut, format!("[{} (text/plain, cut after 3 bytes)]\na <", server.url("/plain?a=1")));
    for head in server.asked.lock().unwrap().iter() {
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("get /") && head.contains("user-agent: tribune/"), "{head}");
        for header in ["cookie", "referer", "authorization", "accept-encoding"] {
            assert!(!head.contains(header), "{head}");
        }
    }
}

#[tokio::test]
async fn unlisted_addresses_are_not_reached() {
    let server = Server::new(|_, _| page("text/plain", "reached")).await;
    let port = server.address.port();
    let closed = Fixture::new();
    let public = fixture(EgressMode::Public, &[], None);
    let other = fixture(EgressMode::Allowlist, &[format!("127.0.0.1:{}", port ^ 1)], None);
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://LOCALHOST:{port}/"),
        format!("http://localhost.:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f000001:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://127.0.0.1.:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://0:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::]:{port}/"),
        format!("http://[::ffff:7f00:1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://[64:ff9b::7f00:1]:{port}/"),
        format!("http://[2002:7f00:1::]:{port}/"),
        format!("http://user@127.0.0.1:{port}/"),
        format!("http://example.org@127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}\\@example.org/"),
        format!("https://127.0.0.1:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        for fixture in [&closed, &public, &other] {
            let done = fixture.done("web_fetch", fetch(&url)).await;
            assert!(
                matches!(done.code, Some(ToolErrorCode::Refused | ToolErrorCode::InvalidInput)),
                "{url}: {:?} {}",
                done.code,
                done.outcome.content
            );
            assert_eq!(done.touched, [], "{url}");
        }
    }
    assert_eq!(server.asked(), 0);
    assert_eq!(
        other.refused("web_fetch", fetch(&server.url("/"))).await,
        format!(
            "`127.0.0.1:{port}` is not in `egress.allow` of this host, and nothing else may be reached: choose another source, or ask the operator"
        )
    );
    // A name of this machine is allowed once the operator lists it.
    let named = fixture(EgressMode::Allowlist, &[format!("localhost:{port}")], None);
    let done = named.done("web_fetch", fetch(&format!("http://localhost:{port}/"))).await;
    // Where `localhost` is both ::1 and 127.0.0.1 the client tries the other one.
    assert!(done.outcome.content.ends_with("reached"), "{}", done.outcome.content);
    assert_eq!(done.touched, [Access::Read(Resource::Url("localhost".to_owned()))]);
    assert!(named.done("web_fetch", fetch(&server.url("/"))).await.outcome.is_error);
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_address() {
    let inner = Server::new(|_, _| page("text/plain", "reached")).await;
    let to = inner.address;
    let server = Server::new(move |path, own| match path {
        "/inner" => redirect(&format!("http://{to}/")),
        "/name" => redirect(&format!("http://localhost:{}/", to.port())),
        "/decimal" => redirect(&format!("http://2130706433:{}/", to.port())),
        "/mapped" => redirect(&format!("http://[::ffff:127.0.0.1]:{}/", to.port())),
        "/scheme-less" => redirect(&format!("//{to}/")),
        "/user" => redirect(&format!("http://u:p@{own}/")),
        "/file" => redirect("file:///etc/passwd"),
        "/data" => redirect("data:text/plain,x"),
        "/metadata" => redirect("http://169.254.169.254/"),
        "/nowhere" => redirect("http://"),
        "/missing" => b"HTTP/1.1 301 Moved\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "/loop" => redirect("/loop"),
        path => match path.trim_start_matches("/hop").parse::<u32>() {
            Ok(0) => page("text/plain", "arrived"),
            Ok(n) => redirect(&format!("/hop{}", n - 1)),
            Err(_) => page("text/plain", "?"),
        },
    })
    .await;
    let fixture = fixture(EgressMode::Allowlist, &[server.address.to_string()], None);
    for path in [
        "/inner",
        "/name",
        "/decimal",
        "/mapped",
        "/scheme-less",
        "/user",
        "/file",
        "/data",
        "/metadata",
        "/nowhere",
        "/missing",
        "/loop",
        "/hop6",
    ] {
        let done = fixture.done("web_fetch", fetch(&server.url(path))).await;
        assert_eq!(done.code, Some(ToolErrorCode::Refused), "{path}: {}", done.outcome.content);
    }
    assert_eq!(inner.asked(), 0);
    assert!(fixture.good("web_fetch", fetch(&server.url("/hop5"))).await.ends_with("arrived"));
    assert_eq!(
        fixture.refused("web_fetch", fetch(&server.url("/loop"))).await,
        "there are more than 5 redirects: choose another source"
    );
}

#[tokio::test]
async fn a_redirect_to_another_place_takes_its_own_call() {
    let inner = Server::new(|_, _| page("text/plain", "reached")).await;
    let to = inner.url("/there");
    let leads = to.clone();
    let server = Server::new(move |_, _| redirect(&leads)).await;
    // Both may be reached, but the verdict was about one.
    let both = [server.address.to_string(), inner.address.to_string()];
    let fixture = fixture(EgressMode::Allowlist, &both, None);
    let told = fixture.refused("web_fetch", fetch(&server.url("/"))).await;
    assert_eq!(
        told,
        format!("`127.0.0.1` leads to another place, `{to}`: fetch that address if you need it")
    );
    assert_eq!(inner.asked(), 0);
    assert!(fixture.good("web_fetch", fetch(&to)).await.ends_with("reached"));
}

#[tokio::test]
async fn oversized_and_non_text_answers_are_refused() {
    let server = Server::new(|path, _| match path {
        "/huge" => page("text/plain", &"x".repeat(8 * 1024 * 1024)),
        "/endless-header" => {
            let mut head = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
            head.resize(4 * 1024 * 1024, b'y');
            head
        }
        "/many-headers" => {
            let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
            for n in 0..10_000 {
                head.extend_from_slice(format!("x{n}: y\r\n").as_bytes());
            }
            head.extend_from_slice(b"content-type: text/plain\r\n\r\nx");
            head
        }
        "/torn" => b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nx".to_vec(),
        "/noise" => b"\x00\xff".to_vec(),
        "/none" => b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx".to_vec(),
        "/gone" => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec(),
        "/broken" => b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_vec(),
        path => page(&path[1..], "x"),
    })
    .await;
    let fixture = fixture(EgressMode::Allowlist, &[server.address.to_string()], None);
    for (path, code) in [
        ("/image/png", ToolErrorCode::Refused),
        ("/image/svg+xml", ToolErrorCode::Refused),
        ("/application/octet-stream", ToolErrorCode::Refused),
        ("/none", ToolErrorCode::Refused),
        ("/endless-header", ToolErrorCode::Failed),
        ("/many-headers", ToolErrorCode::Failed),
        ("/torn", ToolErrorCode::Failed),
        ("/noise", ToolErrorCode::Failed),
        ("/gone", ToolErrorCode::NotFound),
        ("/broken", ToolErrorCode::Failed),
    ] {
        let done = fixture.done("web_fetch", fetch(&server.url(path))).await;
        assert_eq!(done.code, Some(code), "{path}: {}", done.outcome.content.get(..200).unwrap_or_default());
    }
    // The client does not fall back to plain HTTP for a server without TLS.
    let asked = server.asked();
    let plain = fixture.done("web_fetch", fetch(&server.url("/").replace("http:", "https:"))).await;
    assert_eq!(
        (plain.code, server.asked()),
        (Some(ToolErrorCode::Failed), asked),
        "{}",
        plain.outcome.content
    );
    let huge = fixture.good("web_fetch", fetch(&server.url("/huge"))).await;
    assert!(huge.contains("cut after 524288 bytes") && huge.ends_with("[cut: the answer was longer]"));
    for input in [json!({"url": "x"}), json!({"url": server.url("/"), "maxBytes": 0}), json!({})] {
        assert_eq!(fixture.done("web_fetch", input).await.code, Some(ToolErrorCode::InvalidInput));
    }
}

#[tokio::test]
async fn the_search_engine_is_queried() {
    let server = Server::new(|path, own| match path {
        "/elsewhere?q=x&format=json" => redirect(&format!("http://{own}/search?q=x")),
        "/html?q=x&format=json" => page("text/html", "<p>no"),
        "/odd?q=x&format=json" => page("application/json", "[1"),
        _ => page(
            "application/json",
            &json!({"query": "q", "results": [
                {"url": "https://example.org/a", "title": "A\n title", "content": "some\twords", "score": 1},
                {"url": "https://example.org/b", "title": null},
                {"url": "https://example.org/c", "title": "C"},
            ]})
            .to_string(),
        ),
    })
    .await;
    let endpoint = |path: &str| Some(server.url(path).parse().unwrap());
    let fixture = fixture(EgressMode::Allowlist, &[], endpoint("/search"));
    let done = fixture.done("web_search", json!({"query": "a b&c=d", "count": 2})).await;
    assert_eq!(
        done.outcome.content,
        "1. A title\n   https://example.org/a\n   some words\n2. \n   https://example.org/b\n"
    );
    assert_eq!(done.touched, [Access::Read(Resource::Url("127.0.0.1".to_owned()))]);
    assert!(
        server.asked.lock().unwrap()[0].starts_with("GET /search?q=a+b%26c%3Dd&format=json HTTP/1.1\r\n")
    );
    // Only the search may reach the engine's host.
    assert_eq!(fixture.done("web_fetch", fetch(&server.url("/"))).await.code, Some(ToolErrorCode::Refused));
    for (path, code) in [
        ("/elsewhere", ToolErrorCode::Refused),
        ("/html", ToolErrorCode::Refused),
        ("/odd", ToolErrorCode::Failed),
    ] {
        let fixture = self::fixture(EgressMode::Allowlist, &[], endpoint(path));
        assert_eq!(fixture.done("web_search", json!({"query": "x"})).await.code, Some(code), "{path}");
    }
    let none = Fixture::new().done("web_search", json!({"query": "x"})).await;
    assert_eq!(none.code, Some(ToolErrorCode::Unavailable));
    assert!(none.outcome.content.contains("`webSearch.endpoint`"));
    for input in [json!({"query": " "}), json!({"query": "x", "count": 0}), json!({"query": "x".repeat(600)})]
    {
        assert_eq!(fixture.done("web_search", input).await.code, Some(ToolErrorCode::InvalidInput));
    }
}
