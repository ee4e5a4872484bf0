use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use super::*;

/// A time limit for events that must happen; no test waits for it to pass.
const LONG: Duration = Duration::from_secs(60);

/// The server end of a client.
struct FakeServer {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
}

impl FakeServer {
    /// The next message of the client.
    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(LONG, self.lines.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    async fn say(&mut self, line: &str) {
        self.out.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn answer(&mut self, asked: &Value, result: Value) {
        self.say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string()).await;
    }
}

fn pair() -> (Client, FakeServer) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(ours);
    let (lines, out) = tokio::io::split(theirs);
    (Client::new(write, read), FakeServer { lines: BufReader::new(lines).lines(), out })
}

fn wanted() -> ServerSpec {
    ServerSpec::read(&json!({ "name": "probe", "command": "probe" })).unwrap()
}

async fn greet(client: &Client) -> Result<Listing, Fault> {
    tokio::time::timeout(LONG, client.greet(&wanted(), &Redactor::new())).await.unwrap()
}

async fn call(client: &Client) -> Result<Value, Fault> {
    client.call("add", &json!({ "a": 1 }), LONG).await
}

/// A call without a response.
async fn unanswered_call(client: &Client) -> Result<Value, Fault> {
    client.call("add", &json!({ "a": 1 }), Duration::from_millis(5)).await
}

fn hello() -> Value {
    json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "p" } })
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

#[tokio::test]
async fn a_server_is_initialized_and_its_tools_are_listed_page_by_page() {
    let (client, mut server) = pair();
    let serving = async {
        let asked = server.receive().await;
        assert_eq!(
            (&asked["method"], &asked["params"]["protocolVersion"]),
            (&json!("initialize"), &json!(VERSION))
        );
        server.answer(&asked, hello()).await;
        let told = server.receive().await;
        assert_eq!((&told["method"], &told["id"]), (&json!("notifications/initialized"), &Value::Null));
        let first = server.receive().await;
        assert_eq!((&first["method"], &first["params"]), (&json!("tools/list"), &json!({})));
        server.answer(&first, json!({ "tools": [tool("a")], "nextCursor": "2" })).await;
        let second = server.receive().await;
        assert_eq!(second["params"], json!({ "cursor": "2" }));
        server.answer(&second, json!({ "tools": [tool("b")] })).await;
        server
    };
    let (listing, mut server) = tokio::join!(greet(&client), serving);
    let names: Vec<String> = listing.unwrap().tools.into_iter().map(|tool| tool.spec.name).collect();
    assert_eq!(names, ["mcp__probe__a", "mcp__probe__b"]);
    let serving = async {
        let asked = server.receive().await;
        assert_eq!(asked["params"], json!({ "name": "add", "arguments": { "a": 1 } }));
        server.answer(&asked, json!({ "content": [] })).await;
    };
    assert_eq!(tokio::join!(call(&client), serving).0, Ok(json!({ "content": [] })));
}

#[tokio::test]
async fn l6_endless_pages_are_cut_off() {
    let (client, mut server) = pair();
    let serving = async {
        let asked = server.receive().await;
        server.answer(&asked, hello()).await;
        server.receive().await;
        for _ in 0..MAX_PAGES {
            let asked = server.receive().await;
            server.answer(&asked, json!({ "tools": [tool("a")], "nextCursor": "again" })).await;
        }
    };
    let listing = tokio::join!(greet(&client), serving).0.unwrap();
    assert_eq!((listing.tools.len(), listing.left_out), (1, MAX_PAGES - 1));
}

#[tokio::test]
async fn l6_an_invalid_initialize_result_is_refused() {
    for (greeting, expected) in [
        (json!({ "protocolVersion": "2031-01-01" }), "version"),
        (json!("hello"), "version"),
        (Value::Null, "version"),
    ] {
        let (client, mut server) = pair();
        let serving = async {
            let asked = server.receive().await;
            server.answer(&asked, greeting).await;
        };
        let Err(Fault::Nonsense(why)) = tokio::join!(greet(&client), serving).0 else { panic!("{expected}") };
        assert!(why.contains(expected), "{why}");
    }
    // The client does not list the tools of a server without the capability.
    let (client, mut server) = pair();
    let serving = async {
        let asked = server.receive().await;
        server.answer(&asked, json!({ "protocolVersion": VERSION, "capabilities": {} })).await;
    };
    assert_eq!(tokio::join!(greet(&client), serving).0.unwrap().tools.len(), 0);
}

#[tokio::test]
async fn l6_an_endless_line_ends_its_server_and_not_the_daemon() {
    let (client, mut server) = pair();
    let flooding = async {
        server.receive().await;
        let flood = vec![b'x'; 1 << 16];
        for _ in 0..(50 << 20) / flood.len() {
            // The client stops reading on the way, and its half of this pipe stays open.
            let written = tokio::select! {
                () = client.over.cancelled() => break,
                written = server.out.write_all(&flood) => written,
            };
            if written.is_err() {
                break;
            }
        }
    };
    let (answer, ()) = tokio::join!(call(&client), flooding);
    assert_eq!(answer, Err(Fault::Ended("it sent a line that is too long".to_owned())));
    assert_eq!(call(&client).await, answer, "and no later call reaches the server");
}

#[tokio::test]
async fn l6_a_bounded_number_of_invalid_messages_is_ignored() {
    let (client, mut server) = pair();
    let serving = async {
        let asked = server.receive().await;
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for junk in ["log: started", "", "[]", "7", "null", "{}", r#"{"id":null}"#, "{\"a\":", &deep] {
            server.say(junk).await;
        }
        // Responses to no request, with ids of every kind; and a second response.
        for id in [json!(0), json!(99), json!(-1), json!(1.5), json!("1"), json!([]), json!(u64::MAX)] {
            server.say(&json!({ "jsonrpc": "2.0", "id": id, "result": "wrong" }).to_string()).await;
        }
        server.say(&json!({ "jsonrpc": "2.0", "method": "notifications/progress" }).to_string()).await;
        server.answer(&asked, json!("right")).await;
        server.answer(&asked, json!("twice")).await;
        server
    };
    let (answer, mut server) = tokio::join!(call(&client), serving);
    assert_eq!(answer, Ok(json!("right")));
    let serving = async {
        let asked = server.receive().await;
        server
            .say(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "message": "no" } }).to_string())
            .await;
        server
    };
    let (answer, mut server) = tokio::join!(call(&client), serving);
    assert_eq!(answer, Err(Fault::Refused("no".to_owned())));
    let flooding = async {
        for _ in 0..=MAX_JUNK {
            server.say("junk").await;
        }
        server
    };
    let (answer, _server) = tokio::join!(call(&client), flooding);
    assert_eq!(answer, Err(Fault::Ended("it sent too much that is not MCP".to_owned())));
}

#[tokio::test]
async fn l6_output_that_is_not_utf8_ends_the_server() {
    let (client, mut server) = pair();
    let serving = async { server.out.write_all(b"\xff\xfe\n").await.unwrap() };
    let Err(Fault::Ended(why)) = tokio::join!(call(&client), serving).0 else { panic!() };
    assert!(why.contains("not UTF-8"), "{why}");
}

#[tokio::test]
async fn the_end_of_a_server_fails_its_open_calls() {
    let (client, mut server) = pair();
    let serving = async move {
        server.receive().await;
        drop(server);
    };
    let answer = tokio::join!(call(&client), serving).0;
    assert_eq!(answer, Err(Fault::Ended("it closed its output".to_owned())));
    client.over.cancelled().await;
}

#[tokio::test]
async fn an_unanswered_call_times_out_and_is_cancelled() {
    let (client, mut server) = pair();
    assert_eq!(unanswered_call(&client).await, Err(Fault::TimedOut));
    let asked = server.receive().await;
    let told = server.receive().await;
    assert_eq!(told["method"], "notifications/cancelled");
    assert_eq!(told["params"]["requestId"], asked["id"]);
    // A late response belongs to no request, and the next call gets its own.
    server.answer(&asked, json!("late")).await;
    let serving = async {
        let asked = server.receive().await;
        server.answer(&asked, json!("new")).await;
    };
    assert_eq!(tokio::join!(call(&client), serving).0, Ok(json!("new")));
}

#[tokio::test]
async fn l6_a_server_that_does_not_read_times_out_like_one_that_does_not_answer() {
    let (ours, _theirs) = tokio::io::duplex(16);
    let (read, write) = tokio::io::split(ours);
    let client = Client::new(write, read);
    for _ in 0..2 * MAX_UNWRITTEN {
        assert_eq!(unanswered_call(&client).await, Err(Fault::TimedOut));
    }
}

#[tokio::test]
async fn a_server_may_ping_and_nothing_else() {
    let (_client, mut server) = pair();
    for (method, id) in [("ping", json!("x")), ("roots/list", json!(1)), ("sampling/createMessage", json!(2))]
    {
        server.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method }).to_string()).await;
        let reply = server.receive().await;
        assert_eq!(reply["id"], id);
        match method {
            "ping" => assert_eq!(reply["result"], json!({})),
            _ => assert_eq!(reply["error"]["code"], -32601),
        }
    }
}
