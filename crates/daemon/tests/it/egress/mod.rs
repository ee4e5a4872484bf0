//! Egress: the session sockets with programs of a sandbox on one side, played by this process, and servers on loopback
//! on the other. What is forwarded, what is refused, and what the ledger records. Names and routes belong to the test,
//! so nothing leaves the machine.

mod address_scope;
mod allowed;
mod approvals;
mod denials;
mod model;
mod socket_dir;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tribune_config::Config;
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_egress::{Network, SessionSockets, SocketLimits, Unresolved};
use tribune_ledger::EntryQuality;
use tribune_records::ledger_payloads::{VerdictRecord, egress_entity};
use tribune_runtime::SessionKey;
use tribune_storage::clock::SystemClock;
use tribune_storage::store::EntryFilter;
use tribune_storage::store::Reader;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, run_turn};

/// A timeout for every wait, longer than any step takes on a busy machine. A test that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

const KEY: &str = "agent:main:cli:local:dm:op";
const MANDATE: &str = "---\ntools: egress, read\n---\n# For sandboxes\n";
const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"sandboxed\",\"standing\":false}\n\
                      {\"id\":\"bare\",\"backend\":\"rehearsal\",\"mandate\":\"default\",\"standing\":false}\n";

/// The address of the guide in error messages.
const GUIDE: &str = include_str!("../../../../../docs/guide/egress.md");

/// The names, routes and own addresses of a test.
#[derive(Debug, Default)]
struct FakeNetwork {
    /// The addresses of a name, answer by answer; the last one stays.
    names: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    /// The routes of public addresses: to servers on loopback.
    routes: Mutex<HashMap<SocketAddr, SocketAddr>>,
    own: Mutex<Vec<IpAddr>>,
    resolved: Mutex<Vec<String>>,
    connected_addresses: Mutex<Vec<SocketAddr>>,
}

impl FakeNetwork {
    fn name(&self, name: &str, answers: &[&str]) {
        let parse = |list: &&str| list.split_whitespace().map(|address| address.parse().unwrap()).collect();
        self.names.lock().unwrap().insert(name.to_owned(), answers.iter().map(parse).collect());
    }

    fn route(&self, from: &str, to: SocketAddr) {
        self.routes.lock().unwrap().insert(from.parse().unwrap(), to);
    }

    fn connected_addresses(&self) -> Vec<String> {
        self.connected_addresses.lock().unwrap().iter().map(ToString::to_string).collect()
    }
}

#[async_trait]
impl Network for FakeNetwork {
    async fn resolve(&self, host: &str, _port: u16) -> Result<Vec<IpAddr>, Unresolved> {
        self.resolved.lock().unwrap().push(host.to_owned());
        let mut names = self.names.lock().unwrap();
        let answers = names.get_mut(host).ok_or(Unresolved::Failed)?;
        match answers.len() {
            0 | 1 => answers.front().cloned().ok_or(Unresolved::Empty),
            _ => answers.pop_front().ok_or(Unresolved::Empty),
        }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.own.lock().unwrap().contains(&address)
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.connected_addresses.lock().unwrap().push(address);
        let route = self.routes.lock().unwrap().get(&address).copied();
        // An address without a route would leave the machine.
        let to = route.or(address.ip().is_loopback().then_some(address));
        TcpStream::connect(to.ok_or(io::ErrorKind::NetworkUnreachable)?).await
    }
}

/// A server on loopback that keeps what it receives.
#[derive(Debug, Clone)]
struct Server {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    /// Sends back what it receives.
    async fn echo() -> Self {
        Self::with(None).await
    }

    /// Answers each connection with this when the head and the announced body are there, and closes.
    async fn http(answer: &str) -> Self {
        Self::with(Some(answer.to_owned())).await
    }

    async fn with(answer: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), heard: Arc::default() };
        let heard = Arc::clone(&server.heard);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (heard, answer) = (Arc::clone(&heard), answer.clone());
                tokio::spawn(async move {
                    let mut own = Vec::new();
                    let mut piece = [0; 4096];
                    while let Ok(read @ 1..) = stream.read(&mut piece).await {
                        heard.lock().unwrap().extend_from_slice(&piece[..read]);
                        own.extend_from_slice(&piece[..read]);
                        let Some(answer) = &answer else {
                            if stream.write_all(&piece[..read]).await.is_err() {
                                return;
                            }
                            continue;
                        };
                        if is_whole(&own) {
                            let _ = stream.write_all(answer.as_bytes()).await;
                            return;
                        }
                    }
                });
            }
        });
        server
    }

    fn received(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }

    const fn port(&self) -> u16 {
        self.address.port()
    }
}

/// Whether a request is complete.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

struct Setup {
    daemon: TestDaemon,
    network: Arc<FakeNetwork>,
    sockets: SessionSockets,
}

/// The settings that differ between the daemons of these tests.
#[derive(Default)]
struct EgressOptions {
    /// Members of `egress`, in JSON5.
    egress: String,
    limits: SocketLimits,
    law: &'static str,
}

impl Setup {
    async fn open(egress: &str) -> Self {
        Self::with(EgressOptions { egress: egress.to_owned(), ..EgressOptions::default() }).await
    }

    async fn with(plan: EgressOptions) -> Self {
        let home = TempHome::new();
        home.write("mandates/sandboxed.md", MANDATE);
        home.write("data/agent-roster.jsonl", ROSTER);
        if !plan.law.is_empty() {
            home.write("policy/law.json5", plan.law);
        }
        let setup = Self::on(home, &plan).await;
        setup.begin(KEY).await;
        setup
    }

    /// Starts on an existing home.
    async fn on(home: TempHome, plan: &EgressOptions) -> Self {
        let text = format!("{{ egress: {{ {} }} }}", plan.egress);
        let egress = Config::parse("config.json5", &text).unwrap().egress;
        let fake = Arc::new(FakeNetwork::default());
        let network = Some(Arc::clone(&fake) as Arc<dyn Network>);
        let extras = DaemonOverrides { network, socket_limits: plan.limits, ..DaemonOverrides::default() };
        let config = Config { egress, ..config() };
        let daemon = Daemon::start_with(&home.home, &config, Arc::new(SystemClock), extras).await.unwrap();
        let sockets = daemon.socket_service().open(&key(KEY)).unwrap();
        Self { daemon: TestDaemon { daemon, home }, network: fake, sockets }
    }

    /// Opens a session and runs a turn in it.
    async fn begin(&self, key: &str) {
        let mut operator = self.daemon.operator().await;
        operator.call("session.init", &json!({ "session_key": key })).await.unwrap();
        run_turn(&mut operator, key, "!say hello").await.unwrap();
    }

    async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.sockets.egress()).await.unwrap()
    }

    /// Sends these bytes and reads the response to its end.
    async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        // The proxy stops reading once it can decide.
        let _ = stream.write_all(bytes.as_ref()).await;
        rest_of(&mut stream).await
    }

    /// Sends these bytes and expects a refusal; returns its status and code.
    async fn refused(&self, bytes: impl AsRef<[u8]>) -> (u16, String) {
        let answer = self.exchange(bytes).await;
        let (status, error) = parse(&answer);
        assert!(error["message"].as_str().is_some_and(|text| text.len() > 10), "{answer}");
        let code = error["code"].as_str().unwrap().to_owned();
        assert!(
            GUIDE.contains(&format!("| `{code}` | {status} |")),
            "the guide does not know {status} {code}"
        );
        (status, code)
    }

    /// Opens a tunnel; returns it once it is established.
    async fn tunnel(&self, place: &str) -> UnixStream {
        let mut stream = self.connect().await;
        stream.write_all(connect(place).as_bytes()).await.unwrap();
        established(&mut stream).await;
        stream
    }

    /// The ledger entries about the connections of the session, in order.
    fn entries(&self) -> Vec<(EntryQuality, Value)> {
        entries(&self.daemon.home)
    }

    /// Waits until the ledger has the end of this many connections.
    async fn ended(&self, count: usize) -> Vec<Value> {
        let waiting = async {
            loop {
                let entries = self.entries().into_iter();
                let ended: Vec<Value> = entries
                    .map(|(_, payload)| payload)
                    .filter(|payload| payload["event"] == "ended")
                    .collect();
                if ended.len() >= count {
                    return ended;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect("the end is recorded")
    }

    /// Waits until the ledger has this many verdicts.
    async fn judged(&self, count: usize) {
        let is_verdict = |(quality, _): &(EntryQuality, Value)| *quality == EntryQuality::PolicyVerdict;
        let waiting = async {
            while self.entries().iter().filter(|entry| is_verdict(entry)).count() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect("the verdicts are recorded")
    }

    /// Stops the daemon and verifies its ledger.
    async fn close(self) -> TempHome {
        drop(self.sockets);
        let home = self.daemon.stop().await;
        assert_sound(&home.home);
        // L4: the law and the facts give the same verdicts again.
        let law = tribune_governance::policy_files::load(home.home.root(), &tribune_tools::NAMES).unwrap();
        for (_, payload) in
            entries(&home).into_iter().filter(|(quality, _)| *quality == EntryQuality::PolicyVerdict)
        {
            let record: VerdictRecord = serde_json::from_value(payload).unwrap();
            assert_eq!(law.decide(&record.facts), record.verdict);
        }
        home
    }
}

fn entries(home: &TempHome) -> Vec<(EntryQuality, Value)> {
    let reader = Reader::open(&home.home).unwrap();
    let filter = EntryFilter { entity_id: Some(egress_entity(KEY)), quality: None };
    let stored = reader.tail(&filter, 10_000).unwrap();
    stored
        .iter()
        .map(|stored| (stored.entry.quality, serde_json::from_str(&stored.entry.payload).unwrap()))
        .collect()
}

fn key(text: &str) -> SessionKey {
    text.parse().unwrap()
}

fn connect(place: &str) -> String {
    format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n")
}

fn get(url: &str) -> String {
    let host = url.split('/').nth(2).unwrap();
    format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

async fn rest_of(stream: &mut UnixStream) -> String {
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut answer))
        .await
        .expect("the end of the response");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status and the error of a refusal.
fn parse(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer:?}"));
    (status, body["error"].clone())
}

/// Reads the response that opens a tunnel.
async fn established(stream: &mut UnixStream) {
    const EXPECTED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";
    let mut answer = vec![0; EXPECTED.len()];
    tokio::time::timeout(TIMEOUT, stream.read_exact(&mut answer)).await.expect("a response").unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(EXPECTED));
}

/// A TLS ClientHello for a name, or for none.
fn hello(name: Option<&str>) -> Vec<u8> {
    let long = |content: &[u8]| [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat();
    let sni = |name: &str| {
        let list = long(&[&[0][..], &long(name.as_bytes())].concat());
        [&[0, 0][..], &long(&list)].concat()
    };
    let extensions = name.map(sni).unwrap_or_default();
    let body = [&[3, 3][..], &[7; 32], &[0], &long(&[0x13, 1]), &[1, 0], &long(&extensions)].concat();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &length[1..], &body].concat();
    [&[22, 3, 1][..], &long(&message)].concat()
}

/// Decides the only pending approval.
async fn decide(setup: &Setup, decision: Value) -> Value {
    let mut operator = setup.daemon.operator().await;
    let pending = crate::approvals::pending(&mut operator, 1).await;
    let id = crate::approvals::id(&pending[0]);
    crate::approvals::decide(&mut operator, &id, decision).await.unwrap();
    pending[0].clone()
}

fn once() -> Value {
    json!({ "decision": "allow_once" })
}
