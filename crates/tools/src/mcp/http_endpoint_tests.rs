//! Requests to the endpoint from clients that follow MCP and from clients that do not.

use http_body_util::StreamBody;
use hyper::body::Frame;
use tribune_runtime::ToolOutcome;

use super::*;

const HERE: &str = "127.0.0.1:4100";

/// An endpoint for one server with one tool.
fn endpoint() -> (McpEndpoint, Arc<McpCallChannel>) {
    let tool = ExposedTool {
        name: "add".to_owned(),
        called: "mcp__probe__add".to_owned(),
        description: "Adds.".to_owned(),
        input_schema: json!({ "type": "object" }),
    };
    let channel = Arc::new(McpCallChannel::default());
    let offer: Offer = Box::new(move |server| (server == "probe").then(|| vec![tool.clone()]));
    (McpEndpoint { offer, channel: Arc::clone(&channel) }, channel)
}

fn request<B>(method: &str, path: &str, body: B) -> Request<B> {
    let builder = Request::builder().method(method).uri(path).header(HOST, HERE);
    builder.header(CONTENT_TYPE, "application/json").body(body).unwrap()
}

/// The status, and what stands in the answer.
async fn sent<B>(endpoint: &McpEndpoint, request: Request<B>) -> (u16, Value)
where
    B: Body + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (head, body) = endpoint.answer(request).await.into_parts();
    let body = http_socket::read_body(body, 1 << 20).await.unwrap();
    (head.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
}

/// What is answered to a message.
async fn said(endpoint: &McpEndpoint, message: &Value) -> (u16, Value) {
    sent(endpoint, request("POST", "/probe", Full::<Bytes>::from(message.to_string()))).await
}

async fn asked(endpoint: &McpEndpoint, method: &str, params: Value) -> Value {
    let message = json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params });
    let (status, answer) = said(endpoint, &message).await;
    assert_eq!((status, &answer["id"], &answer["jsonrpc"]), (200, &json!("q"), &json!("2.0")), "{answer}");
    answer
}

#[tokio::test]
async fn a_client_initializes_and_lists_the_tools() {
    let (endpoint, _) = endpoint();
    let hello =
        asked(&endpoint, "initialize", json!({ "protocolVersion": "2025-06-18", "capabilities": {} })).await;
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(hello["result"]["capabilities"], json!({ "tools": {} }));
    assert_eq!(hello["result"]["serverInfo"]["name"], "probe");
    let newer = asked(&endpoint, "initialize", json!({ "protocolVersion": "2099-01-01" })).await;
    assert_eq!(newer["result"]["protocolVersion"], VERSION);
    let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(said(&endpoint, &begun).await, (202, Value::Null));
    // A response, although nothing was requested.
    assert_eq!(
        said(&endpoint, &json!({ "jsonrpc": "2.0", "id": 1, "result": {} })).await,
        (202, Value::Null)
    );
    assert_eq!(asked(&endpoint, "ping", Value::Null).await["result"], json!({}));
    let listed = asked(&endpoint, "tools/list", json!({})).await;
    let tool = json!({ "name": "add", "description": "Adds.", "inputSchema": { "type": "object" } });
    assert_eq!(listed["result"], json!({ "tools": [tool] }));
    for method in ["resources/list", "prompts/list", "completion/complete", "logging/setLevel", "x", ""] {
        let refused = asked(&endpoint, method, json!({})).await;
        assert_eq!(refused["error"]["code"], METHOD_NOT_FOUND, "{method}");
    }
}

#[tokio::test]
async fn the_turn_answers_a_call() {
    let (endpoint, channel) = endpoint();
    let call = json!({ "name": "add", "arguments": { "a": 2 } });
    let nobody = asked(&endpoint, "tools/call", call.clone()).await["result"].clone();
    assert_eq!(nobody["isError"], true);
    assert!(nobody["content"][0]["text"].as_str().unwrap().contains("no turn is running"), "{nobody}");
    for (outcome, is_error) in [(ToolOutcome::good("5"), false), (ToolOutcome::error("denied: no"), true)] {
        let mut turn = channel.open();
        let played = async {
            let handed = turn.recv().await.unwrap();
            assert_eq!((handed.tool.as_str(), &handed.arguments), ("mcp__probe__add", &json!({ "a": 2 })));
            handed.result.send(outcome.clone()).unwrap();
        };
        let (answer, ()) = tokio::join!(asked(&endpoint, "tools/call", call.clone()), played);
        let content = json!([{ "type": "text", "text": outcome.content }]);
        assert_eq!(answer["result"], json!({ "content": content, "isError": is_error }));
    }
    // The turn ends, or is cancelled, while the call waits; after it no turn is running.
    let mut turn = channel.open();
    let ended = async {
        let handed = turn.recv().await.unwrap();
        drop((handed, turn));
    };
    let (answer, ()) = tokio::join!(asked(&endpoint, "tools/call", call.clone()), ended);
    assert_eq!(answer["result"]["isError"], true);
    assert!(
        answer["result"]["content"][0]["text"].as_str().unwrap().contains("the turn is over"),
        "{answer}"
    );
    assert_eq!(asked(&endpoint, "tools/call", call).await["result"]["isError"], true);
}

#[tokio::test]
async fn an_invalid_call_reaches_no_turn() {
    let (endpoint, channel) = endpoint();
    let turn = channel.open();
    for params in [
        json!({ "name": "subtract" }),
        json!({ "name": "mcp__probe__add" }),
        json!({ "name": 7 }),
        json!({}),
        json!([]),
        Value::Null,
        json!({ "name": "add", "arguments": [1] }),
        json!({ "name": "add", "arguments": "x" }),
    ] {
        let refused = asked(&endpoint, "tools/call", params.clone()).await;
        assert_eq!(refused["error"]["code"], INVALID_PARAMS, "{params}");
    }
    assert!(turn.is_empty());
}

#[tokio::test]
async fn l6_an_invalid_message_is_refused_and_reaches_no_turn() {
    let (endpoint, channel) = endpoint();
    let turn = channel.open();
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "add" } });
    for (body, code) in [
        (String::new(), PARSE_ERROR),
        ("{".to_owned(), PARSE_ERROR),
        ("\u{0}\u{ff}".to_owned(), PARSE_ERROR),
        (format!("{call}{call}"), PARSE_ERROR),
        (json!([call, call]).to_string(), INVALID_REQUEST),
        (json!([]).to_string(), INVALID_REQUEST),
        ("7".to_owned(), INVALID_REQUEST),
        (json!({ "id": 1, "method": "ping" }).to_string(), INVALID_REQUEST),
        (json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }).to_string(), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": 1, "method": 7 }).to_string(), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }).to_string(), INVALID_REQUEST),
        (json!({ "jsonrpc": "2.0", "id": [1], "method": "ping" }).to_string(), INVALID_REQUEST),
    ] {
        let (status, answer) =
            sent(&endpoint, request("POST", "/probe", Full::<Bytes>::from(body.clone()))).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{body}");
    }
    let (status, _) =
        sent(&endpoint, request("POST", "/probe", Full::<Bytes>::from(" ".repeat(MAX_BODY_BYTES + 1)))).await;
    assert_eq!(status, 413);
    let deep = "[".repeat(100_000);
    assert_eq!(sent(&endpoint, request("POST", "/probe", Full::<Bytes>::from(deep))).await.0, 400);
    for path in ["/", "/other", "/probe/", "/probe/add", "//probe", "/PROBE", "/%70robe", "/../probe"] {
        assert_eq!(
            sent(&endpoint, request("POST", path, Full::<Bytes>::from(call.to_string()))).await.0,
            404,
            "{path}"
        );
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "HEAD"] {
        let answer = endpoint.answer(request(method, "/probe", Full::<Bytes>::default())).await;
        assert_eq!(
            (answer.status().as_u16(), answer.headers()[ALLOW].to_str().unwrap()),
            (405, "POST"),
            "{method}"
        );
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json2", ""] {
        let mut form = request("POST", "/probe", Full::<Bytes>::from(call.to_string()));
        form.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        assert_eq!(sent(&endpoint, form).await.0, 415, "{kind}");
    }
    assert!(turn.is_empty());
}

#[tokio::test]
async fn l6_another_host_name_or_a_web_page_is_refused() {
    let (endpoint, channel) = endpoint();
    let turn = channel.open();
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "add" } });
    let with = |change: &dyn Fn(&mut HeaderMap)| {
        let mut request = request("POST", "/probe", Full::<Bytes>::from(call.to_string()));
        change(request.headers_mut());
        request
    };
    for host in ["evil.example", "127.0.0.1", "127.0.0.1:4000", "localhost.evil.example:4100", "[::1]:4100"] {
        let foreign = with(&|headers| drop(headers.insert(HOST, HeaderValue::from_static(host))));
        assert_eq!(sent(&endpoint, foreign).await.0, 403, "{host}");
    }
    assert_eq!(sent(&endpoint, with(&|headers| drop(headers.remove(HOST)))).await.0, 403);
    let twice = with(&|headers| assert!(headers.append(HOST, HeaderValue::from_static(HERE))));
    assert_eq!(sent(&endpoint, twice).await.0, 403);
    for origin in ["https://evil.example", "http://127.0.0.1:4100", "null"] {
        let page = with(&|headers| drop(headers.insert(ORIGIN, HeaderValue::from_static(origin))));
        assert_eq!(sent(&endpoint, page).await.0, 403, "{origin}");
    }
    assert!(turn.is_empty());
    let local = with(&|headers| drop(headers.insert(HOST, HeaderValue::from_static("LocalHost:4100"))));
    drop(turn);
    assert_eq!(sent(&endpoint, local).await.0, 200);
}

/// A request whose body never ends times out.
#[tokio::test(start_paused = true)]
async fn l9_a_message_that_does_not_arrive_times_out() {
    let (endpoint, _) = endpoint();
    let never = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
    assert_eq!(sent(&endpoint, request("POST", "/probe", never)).await.0, 408);
}
