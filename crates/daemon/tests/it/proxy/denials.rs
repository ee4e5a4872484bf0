//! Requests that the proxy refuses: other paths, other callers, other models, and more than the limits.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tribune_testkit::upstream::{ModelOutput, UpstreamReply};

use super::{SECRET, Setup, error, message};

#[tokio::test(flavor = "multi_thread")]
async fn unlisted_paths_are_not_forwarded() {
    use std::io::{Read as _, Write as _};
    let setup = Setup::open().await;
    let forbidden = |answer: &str| answer.starts_with("HTTP/1.1 403") && answer.contains("permission_error");
    for line in [
        "GET /v1/proxy/fake/v1/files",
        "DELETE /v1/proxy/fake/v1/models/m",
        "POST /v1/proxy/fake/v1/messages/batches",
        "GET /v1/proxy/fake/v1/models/../../admin",
        "GET /v1/proxy/fake/v1/models/%2e%2e%2fadmin",
        "GET /v1/proxy/fake//v1/models",
        "GET /v1/proxy/fake/v1/models?limit=1&x=/../admin",
        "GET /v1/proxy/fake/v1/models?key=stolen",
        "POST /v1/proxy/chat/v1/responses/resp_1",
        "GET /v1/proxy/chat/v1/organization/api_keys",
        "GET /v1/proxy/off/models",
    ] {
        let mut stream = std::net::TcpStream::connect(setup.daemon.address()).unwrap();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}",
            setup.daemon.address(),
            setup.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(forbidden(&answer), "{line}: {answer}");
    }
    for path in ["nobody/v1/messages", "../v1/status", "%66ake/v1/messages"] {
        let got = setup.request(Method::POST, path).bearer_auth(&setup.token).send().await.unwrap();
        assert!([404, 405].contains(&got.status().as_u16()), "{path}: {}", got.status());
    }
    let (status, content) = error(setup.post("dark/v1/chat/completions", &message("m")).await).await;
    assert_eq!((status, &content["code"]), (503, &json!("no_key")));
    assert_eq!(
        content["message"],
        "Missing DARK_API_KEY: set it in the environment of the daemon to use dark"
    );
    assert_eq!(setup.upstream.connections(), 0, "no request was sent");
    let content = setup.close("fake").await;
    assert_eq!(content, vec![json!({ "event": "refused", "by": "operator", "provider": "fake" }); 8]);
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_requires_the_operator_or_a_proxy_token() {
    let setup = Setup::open().await;
    let mut operator = setup.daemon.operator().await;
    let approver = operator.call("approver.add", &json!({ "id": "ada" })).await.unwrap();
    for (token, status, kind) in [
        ("", 401, "authentication_error"),
        ("trb_wrong", 401, "authentication_error"),
        ("trbp_wrong", 401, "authentication_error"),
        (SECRET, 401, "authentication_error"),
        (approver["token"].as_str().unwrap(), 403, "permission_error"),
    ] {
        for header in ["authorization", "x-api-key"] {
            let value = if header == "authorization" { format!("Bearer {token}") } else { token.to_owned() };
            let asked = setup.request(Method::POST, "fake/v1/messages").header(header, value);
            let (got, content) = error(asked.body(message("m").to_string()).send().await.unwrap()).await;
            assert_eq!((got, content["type"].as_str()), (status, Some(kind)), "{header}: {token}");
        }
    }
    let asked = setup.request(Method::POST, "fake/v1/messages").body(message("m").to_string());
    assert_eq!(error(asked.send().await.unwrap()).await.0, 401);
    // A proxy token authenticates on the proxy only.
    let pass = setup.pass("main").await;
    let status = setup.http.get(format!("http://{}/v1/status", setup.daemon.address())).bearer_auth(&pass);
    assert_eq!(status.send().await.unwrap().status(), 401);
    for (params, code) in [
        (json!({ "agent_id": "mute" }), "invalid_params"),
        (json!({ "agent_id": "nobody" }), "unknown_agent"),
        (json!({}), "invalid_params"),
        (json!({ "agent_id": "main", "minutes": 0 }), "invalid_params"),
        (json!({ "agent_id": "main", "minutes": 1441 }), "invalid_params"),
    ] {
        assert_eq!(operator.call("proxy.pass", &params).await.unwrap_err().code(), Some(code), "{params}");
    }
    assert_eq!(setup.upstream.connections(), 0, "no request was sent");
    drop(operator);
    assert!(setup.close("fake").await.is_empty(), "an unauthenticated caller leaves no ledger entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_can_only_request_completions_of_its_own_model() {
    let setup = Setup::open().await;
    let pass = setup.pass("main").await;
    let with = |more: Value| {
        let mut body = message("m");
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (path, body) in [
        ("fake/v1/messages", message("other")),
        ("fake/v1/messages", message("M")),
        ("chat/v1/chat/completions", message("m")),
        (
            "fake/v1/messages",
            with(json!({ "mcp_servers": [{ "type": "url", "url": "https://evil.example" }] })),
        ),
        (
            "fake/v1/messages",
            with(json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] })),
        ),
        (
            "fake/v1/messages",
            with(
                json!({ "messages": [{ "role": "user", "content": [{ "type": "image", "source": { "type": "url", "url": "https://evil.example/?q=1" } }] }] }),
            ),
        ),
    ] {
        let (status, content) = error(setup.post_as(&pass, path, &body).await).await;
        assert_eq!((status, content["type"].as_str()), (403, Some("permission_error")), "{path} {body}");
    }
    for twice in [r#"{"model":"m","model":"other"}"#, r#"{"model":"m","Model":"other"}"#] {
        let asked = setup.request(Method::POST, "fake/v1/messages").bearer_auth(&pass).body(twice);
        assert_eq!(error(asked.send().await.unwrap()).await.0, 400, "{twice}");
    }
    let list = setup.request(Method::GET, "fake/v1/models").bearer_auth(&pass);
    assert_eq!(list.send().await.unwrap().status(), 403);
    assert_eq!(setup.upstream.connections(), 0, "no request was sent");

    setup.upstream.reply(ModelOutput::new().text("hello").anthropic());
    let got = setup.post_as(&pass, "fake/v1/messages", &message("m")).await;
    assert_eq!(got.bytes().await.unwrap(), ModelOutput::new().text("hello").anthropic().bytes());
    setup.ended("fake", 1).await;
    let content = setup.close("fake").await;
    let by: Vec<_> = content.iter().filter_map(|content| content["by"].as_str()).collect();
    assert_eq!(by, ["main"; 7]);
    assert_eq!(content.iter().filter(|content| content["event"] == "refused").count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_body_is_refused_before_the_provider_is_called() {
    let setup = Setup::open().await;
    let huge = json!({ "model": "m", "messages": ["x".repeat(9 << 20)] });
    let sent = setup.request(Method::POST, "fake/v1/messages").bearer_auth(&setup.token);
    // The daemon may close the connection before all bytes are sent; in both cases the provider is not called.
    if let Ok(got) = sent.body(huge.to_string()).send().await {
        assert_eq!(error(got).await.1["type"], "request_too_large");
    }
    assert_eq!(setup.upstream.connections(), 0);
    setup.close("fake").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_at_their_request_limit_do_not_block_the_operator() {
    let setup = Setup::open().await;
    let pass = setup.pass("main").await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..32 {
        setup.upstream.reply(UpstreamReply::silence());
        let asked = setup.request(Method::POST, "fake/v1/messages").bearer_auth(&pass);
        waiting.spawn(asked.body(message("m").to_string()).send());
    }
    while setup.upstream.requests().len() < 32 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (status, content) = error(setup.post_as(&pass, "fake/v1/messages", &message("m")).await).await;
    assert_eq!((status, &content["code"]), (429, &json!("busy")));
    setup.upstream.reply(ModelOutput::new().text("hello").anthropic());
    assert_eq!(setup.post("fake/v1/messages", &message("m")).await.status(), 200);
    drop(waiting);
    setup.ended("fake", 33).await;
    setup.upstream.reply(ModelOutput::new().text("hello").anthropic());
    assert_eq!(
        setup.post_as(&pass, "fake/v1/messages", &message("m")).await.status(),
        200,
        "there is room again"
    );
    setup.close("fake").await;
}

/// A header can turn on at the provider what the body of an agent's request may not ask for.
#[tokio::test(flavor = "multi_thread")]
async fn agent_headers_beyond_the_list_are_not_forwarded() {
    let setup = Setup::open().await;
    let pass = setup.pass("main").await;
    for token in [&pass, &setup.token] {
        setup.upstream.reply(ModelOutput::new().text("hi").anthropic());
        let asked = setup
            .request(Method::POST, "fake/v1/messages")
            .bearer_auth(token)
            .header("anthropic-beta", "mcp-client-2025-04-04, interleaved-thinking-2025-05-14")
            .header("anthropic-beta", "code-execution-2025-05-22")
            .header("openai-beta", "the notes say hello")
            .body(message("m").to_string());
        assert_eq!(asked.send().await.unwrap().status(), 200);
    }
    let seen = setup.upstream.requests();
    let sent = |at: usize, name: &str| seen[at].header(name).map(str::to_owned);
    assert_eq!(sent(0, "anthropic-beta").as_deref(), Some("interleaved-thinking-2025-05-14"));
    assert_eq!(sent(0, "openai-beta"), None);
    assert_eq!(
        sent(1, "openai-beta").as_deref(),
        Some("the notes say hello"),
        "the operator's own are unchanged"
    );
}
