//! Raw clients: bounded waits, hand-made HTTP and WebSocket frames, and a health check of the daemon.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tribune_client::{Notification, RpcClient, RpcIncoming};
use tribune_config::Config;
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_storage::clock::SystemClock;
use tribune_testkit::{TempHome, TestDaemon, output_text, run_turn, turn_params};

/// A timeout for every wait, longer than any step here takes; a wait that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => panic!("timed out: {what}"),
    }
}

pub(crate) async fn start_with(home: TempHome, config: &Config, extras: DaemonOverrides) -> TestDaemon {
    let daemon = Daemon::start_with(&home.home, config, Arc::new(SystemClock), extras).await.unwrap();
    TestDaemon { daemon, home }
}

/// Asserts that the daemon is ready, accepts a new client, and runs a turn for it.
pub(crate) async fn assert_healthy(daemon: &TestDaemon) {
    within("a healthy daemon runs a turn", async {
        let mut client = daemon.operator().await;
        let key = "agent:main:test:local:dm:health";
        client.call("session.init", &json!({ "session_key": key })).await.unwrap();
        let (events, result) = run_turn(&mut client, key, "!say all is well").await.unwrap();
        assert_eq!(
            (output_text(&events).as_str(), &result["stop_reason"]),
            ("all is well", &json!("end_turn"))
        );
        let status = client.call("daemon.status", &json!({})).await.unwrap();
        assert_eq!((&status["ready"], &status["waiting"]), (&json!(true), &json!([])));
        client.close().await;
    })
    .await;
}

/// Requests the status of the daemon until `good` accepts it.
pub(crate) async fn wait_for_status(
    client: &mut RpcClient,
    what: &str,
    good: impl Fn(&Value) -> bool,
) -> Value {
    within(what, async {
        loop {
            let status = client.call("daemon.status", &json!({})).await.unwrap();
            if good(&status) {
                return status;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Waits for a notification of a session that satisfies `wanted`; returns all up to it.
pub(crate) async fn events_until(
    client: &mut RpcClient,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    within(what, async {
        let mut events = Vec::new();
        loop {
            if let RpcIncoming::Notification(Notification { params, .. }) = client.next().await.unwrap() {
                let found = wanted(&params["event"]);
                events.push(params["event"].clone());
                if found {
                    return events;
                }
            }
        }
    })
    .await
}

pub(crate) fn is_done(event: &Value) -> bool {
    event["type"] == "done"
}

/// Sends bytes to the daemon and reads the response until the connection closes.
pub(crate) async fn http(address: &str, request: &[u8]) -> String {
    within("an HTTP response", async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The daemon may close the connection before all bytes are sent.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    })
    .await
}

/// The body of a response, as JSON.
pub(crate) fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {answer:?}"));
    serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {answer:?}"))
}

/// A WebSocket with hand-made frames.
#[derive(Debug)]
pub(crate) struct RawSocket {
    pub(crate) stream: TcpStream,
}

/// A message from the daemon.
#[derive(Debug, PartialEq)]
pub(crate) enum RawMessage {
    Text(Value),
    Close(u16, String),
    /// The connection closed without a close frame.
    Gone,
}

pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;

impl RawSocket {
    pub(crate) async fn connect(daemon: &TestDaemon, token: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(daemon.address()).await.unwrap();
        let authorization =
            token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "GET /rpc HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{authorization}\r\n",
            daemon.address()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        Self { stream }
    }

    pub(crate) async fn operator(daemon: &TestDaemon) -> Self {
        Self::connect(daemon, Some(&daemon.token())).await
    }

    pub(crate) async fn send(&mut self, kind: u8, payload: &[u8]) {
        let mut frame = vec![kind];
        match payload.len() {
            len @ 0..126 => frame.push(0x80 | len as u8),
            len @ 126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                frame.push(0x80 | 127);
                frame.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        // A mask of zeros leaves the payload unchanged.
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(payload);
        // The daemon may close the connection before it read everything.
        let _ = self.stream.write_all(&frame).await;
    }

    pub(crate) async fn text(&mut self, text: &str) {
        self.send(TEXT, text.as_bytes()).await;
    }

    /// The next message from the daemon, without pings.
    pub(crate) async fn next(&mut self) -> RawMessage {
        within("a message from the daemon", async {
            loop {
                match self.frame().await {
                    None => return RawMessage::Gone,
                    Some((0x1, payload)) => {
                        return RawMessage::Text(serde_json::from_slice(&payload).unwrap());
                    }
                    Some((0x8, payload)) => {
                        let code = payload.first_chunk::<2>().map_or(0, |code| u16::from_be_bytes(*code));
                        let reason =
                            String::from_utf8(payload.get(2..).unwrap_or_default().to_vec()).unwrap();
                        return RawMessage::Close(code, reason);
                    }
                    Some((0x9 | 0xA, _)) => {}
                    Some((kind, _)) => panic!("a frame of kind {kind}"),
                }
            }
        })
        .await
    }

    pub(crate) async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let kind = self.stream.read_u8().await.ok()?;
        let len = match self.stream.read_u8().await.ok()? {
            126 => u64::from(self.stream.read_u16().await.ok()?),
            127 => self.stream.read_u64().await.ok()?,
            len => u64::from(len),
        };
        let mut payload = vec![0; usize::try_from(len).unwrap()];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((kind & 0x0F, payload))
    }

    /// Sends one request and returns the next message.
    pub(crate) async fn request(&mut self, text: &str) -> RawMessage {
        self.text(text).await;
        self.next().await
    }
}

/// Pseudorandom numbers, the same in every run.
#[derive(Debug)]
pub(crate) struct PseudoRandom(u64);

impl PseudoRandom {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number from 0 to `sides` - 1.
    pub(crate) const fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Opens a connection with a turn of about 8 MiB of events that the client does not read. The turn itself completes.
pub(crate) async fn flood(daemon: &TestDaemon, operator: &mut RpcClient, key: &str) -> RawSocket {
    operator.call("session.init", &json!({ "session_key": key })).await.unwrap();
    let mut raw = RawSocket::operator(daemon).await;
    let params = turn_params(key, "!flood 2000 4096\n!say the end");
    raw.text(&json!({ "jsonrpc": "2.0", "id": 1, "method": "turn.run", "params": params }).to_string()).await;
    within("the turn of a client that does not read ends", async {
        let asked = json!({ "session_key": key });
        while operator.call("session.turns", &asked).await.unwrap()["turns"][0]["stop_reason"].is_null() {}
    })
    .await;
    raw
}
