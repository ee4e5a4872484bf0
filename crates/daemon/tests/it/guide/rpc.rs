//! Runs an example of Tribune RPC.

use std::collections::HashMap;
use std::time::Duration;

use ed25519_dalek::{Signer as _, SigningKey};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use tribune_gateway::challenge_text;

use super::coverage::Coverage;
use super::fences::Fence;
use super::in_process_daemon::InProcessDaemon;
use super::pattern::{Names, fill, matches};

/// How long a frame may take; one example waits until a connection was idle for five seconds.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Secrets of the keys in the guide: 32 times the same byte.
const SECRETS: [u8; 2] = [1, 2];

#[derive(Debug)]
enum Step {
    Send {
        times: usize,
        frame: String,
    },
    Expect {
        times: usize,
        frame: String,
    },
    /// Frames that are not shown.
    Anything,
    /// An event outside of the connection, such as a stop of the daemon.
    DaemonEvent(String),
}

fn steps(fence: &Fence) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in fence.text.lines() {
        let times = |text: &str| match text.strip_prefix('×').and_then(|rest| rest.split_once(' ')) {
            Some((times, frame)) => (times.parse().unwrap(), frame.to_owned()),
            None => (1, text.to_owned()),
        };
        if let Some(sent) = line.strip_prefix("→ ") {
            let (times, frame) = times(sent);
            steps.push(Step::Send { times, frame });
        } else if line == "← …" {
            steps.push(Step::Anything);
        } else if let Some(answer) = line.strip_prefix("← ") {
            let (times, frame) = times(answer);
            steps.push(Step::Expect { times, frame });
        } else if line.starts_with('<') {
            steps.push(Step::DaemonEvent(line.to_owned()));
        } else {
            match steps.last_mut() {
                Some(Step::Send { frame, .. } | Step::Expect { frame, .. }) => frame.push_str(line.trim()),
                other => panic!("{}: {line} continues {other:?}", fence.place),
            }
        }
    }
    steps
}

/// What the daemon sent.
#[derive(Debug)]
enum Received {
    Frame(Value),
    Closed(String),
}

struct Connection<'a> {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    names: &'a mut Names,
    coverage: &'a mut Coverage,
    asked: HashMap<String, String>,
    /// Responses that arrived before they were needed: their id identifies them, not their position.
    answers: Vec<Value>,
    /// Notifications that arrived before a response, since the last request.
    passed: Vec<Value>,
}

/// Runs the example on its own connection.
pub(super) fn play(fence: &Fence, daemon: &mut InProcessDaemon, coverage: &mut Coverage) {
    let names = &mut daemon.names();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let path = if fence.has("/") { "/" } else { "/rpc" };
    let mut request = format!("ws://{}{path}", daemon.address()).into_client_request().unwrap();
    if fence.has("operator") {
        let token = format!("Bearer {}", names["<token>"].as_str().unwrap());
        request.headers_mut().insert("authorization", token.parse().unwrap());
    }
    let connecting = tokio_tungstenite::connect_async(request);
    let (socket, _) = runtime.block_on(connecting).unwrap_or_else(|error| panic!("{}: {error}", fence.place));
    let mut connection = Connection {
        socket,
        names,
        coverage,
        asked: HashMap::new(),
        answers: Vec::new(),
        passed: Vec::new(),
    };
    let mut skipping = false;
    for step in steps(fence) {
        match step {
            Step::Send { times, frame } => {
                for _ in 0..times {
                    runtime.block_on(connection.send(&frame));
                }
            }
            Step::Expect { times, frame } => {
                for _ in 0..times {
                    let place = format!("{}: {frame}", fence.place);
                    runtime.block_on(connection.expect(&frame, &place, std::mem::take(&mut skipping)));
                }
            }
            Step::Anything => skipping = true,
            Step::DaemonEvent(what) => match what.as_str() {
                "<the daemon is told to stop>" => daemon.stop(),
                "<the daemon is killed and starts again>" => {
                    daemon.kill();
                    connection.names.extend(daemon.names());
                }
                "<the daemon starts again>" => {
                    daemon.open_again();
                    connection.names.extend(daemon.names());
                }
                other => apply_file_event(daemon, other)
                    .unwrap_or_else(|| panic!("{}: unknown step {other}", fence.place)),
            },
        }
    }
}

/// Changes or awaits a file of the home: `<FILE now says: TEXT>`, and `<FILE is there>`.
fn apply_file_event(daemon: &InProcessDaemon, what: &str) -> Option<()> {
    let what = what.strip_prefix('<')?.strip_suffix('>')?;
    if let Some((file, text)) = what.split_once(" now says: ") {
        daemon.home.write(file, text);
        return Some(());
    }
    let file = daemon.home.home.root().join(what.strip_suffix(" is there")?);
    let since = std::time::Instant::now();
    while !file.exists() {
        assert!(since.elapsed() < TIMEOUT, "{what}: timed out");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(())
}

impl Connection<'_> {
    async fn send(&mut self, frame: &str) {
        let message = match frame {
            "<a binary frame>" => Message::binary(vec![1, 2, 3]),
            "<a text frame that is not UTF-8>" => {
                Message::Frame(Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true))
            }
            _ => Message::text(self.request(frame)),
        };
        self.passed.clear();
        self.socket.send(message).await.unwrap();
    }

    /// A request with all values that only this run knows.
    fn request(&mut self, frame: &str) -> String {
        let text = fill(frame, self.names);
        let Ok(mut request) = serde_json::from_str::<Value>(&text) else { return text };
        if let (Some(id), Some(method)) = (request.get("id"), request["method"].as_str()) {
            self.asked.insert(id.to_string(), method.to_owned());
        }
        if request["params"]["signature"] == "<signature>" {
            request["params"]["signature"] = self.signature(&request).into();
        }
        request.to_string()
    }

    fn signature(&self, request: &Value) -> String {
        let public_key = request["params"]["public_key"].as_str().unwrap();
        let name = |name: &str| self.names[name].as_str().unwrap();
        let text = challenge_text(name("<audience>"), name("<nonce>"), public_key);
        let key = SECRETS.map(|byte| SigningKey::from_bytes(&[byte; 32]));
        let key =
            key.iter().find(|key| public_key == format!("ed25519:{}", hex(key.verifying_key().as_bytes())));
        hex(&key.expect("the guide's keys are 32 times one byte").sign(text.as_bytes()).to_bytes())
    }

    async fn expect(&mut self, expected: &str, place: &str, skipping: bool) {
        let wanted: Option<Value> = serde_json::from_str(expected).ok();
        let is_answer = |frame: &Value| frame.get("id").is_some();
        let wants_answer = wanted.as_ref().is_some_and(is_answer);
        if let Some(wanted) = wanted.as_ref().filter(|_| skipping) {
            let kept = if wants_answer { &mut self.answers } else { &mut self.passed };
            let mut names = self.names.clone();
            let found = kept.iter().position(|frame| {
                names = self.names.clone();
                matches(wanted, frame, &mut names).is_ok()
            });
            if let Some(at) = found {
                // Earlier notifications are dropped: the example skipped them.
                let frame =
                    if wants_answer { kept.remove(at) } else { kept.drain(..=at).next_back().unwrap() };
                *self.names = names;
                self.coverage.record_expected(wanted, &frame, &self.asked);
                return;
            }
        }
        loop {
            let heard = self.receive(place).await;
            let fits = match &heard {
                Received::Closed(close) if close == expected => Ok(()),
                Received::Closed(_) => Err("the connection was closed".to_owned()),
                Received::Frame(_) if expected.starts_with("<close") => Err("a frame arrived".to_owned()),
                Received::Frame(frame) => {
                    let expected: Value =
                        serde_json::from_str(expected).unwrap_or_else(|error| panic!("{place}: {error}"));
                    let mut trial = self.names.clone();
                    matches(&expected, frame, &mut trial).map(|()| {
                        *self.names = trial;
                        self.coverage.record_expected(&expected, frame, &self.asked);
                    })
                }
            };
            match fits {
                Ok(()) => return,
                Err(_) if skipping && matches!(heard, Received::Frame(_)) => {
                    let Received::Frame(frame) = heard else { continue };
                    if is_answer(&frame) {
                        self.answers.push(frame);
                    } else if wants_answer {
                        self.passed.push(frame);
                    }
                }
                Err(why) => panic!("{place}: {why}: {heard:?}"),
            }
        }
    }

    async fn receive(&mut self, place: &str) -> Received {
        loop {
            let next = tokio::time::timeout(TIMEOUT, self.socket.next()).await;
            match next.unwrap_or_else(|_| panic!("{place}: no message arrived")) {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    self.coverage.record_frame(&frame);
                    return Received::Frame(frame);
                }
                Some(Ok(Message::Close(Some(close)))) => {
                    return Received::Closed(format!("<close {} {}>", u16::from(close.code), close.reason));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Received::Closed(error.to_string()),
                None => return Received::Closed("without a close frame".to_owned()),
            }
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
