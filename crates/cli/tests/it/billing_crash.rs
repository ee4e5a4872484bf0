//! The daemon is killed while models answer: each running request is billed in full and once, even if the next starts
//! are killed too.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tribune_client::RpcClient;
use tribune_daemon::daemon::DaemonInfo;
use tribune_records::spend::report::SpendGrouping;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_testkit::upstream::{FakeUpstream, ModelOutput};
use tribune_testkit::{assert_sound, turn_params};

use crate::disk_faults::failing_disk;
use crate::fixture::Place;
use crate::turn_crash::random;

/// Concurrent requests, through sessions and through the proxy.
const SESSIONS: u64 = 3;

/// Starts that are killed before or right after they finish.
const KILLED_STARTS: u64 = 12;

const KEY_ENV: &str = "FAKE_API_KEY";
const SECRET: &str = "fixture-key-77c0d1a90c";

fn spawn(place: &Place) -> Child {
    spawn_with(place, &[])
}

fn spawn_with(place: &Place, env: &[(&str, &Path)]) -> Child {
    let mut command = place.command(&["up", "--port", "0"]);
    command.envs(env.iter().copied());
    command.env(KEY_ENV, SECRET).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    command.spawn().unwrap()
}

/// A ready daemon, with its address and the operator's token.
fn serve(place: &Place) -> (Child, String, String) {
    serving(place, spawn(place))
}

fn serving(place: &Place, child: Child) -> (Child, String, String) {
    let home = Home::at(place.home());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(30) {
        if let Some(there) = DaemonInfo::read(&home).filter(|there| there.pid == child.id()) {
            let token = std::fs::read_to_string(home.root().join("run/token")).unwrap();
            return (child, there.address.to_string(), token.trim().to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the daemon did not start");
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Sets up a home whose agent uses a model of `upstream`.
fn set_up_model(place: &Place, upstream: &FakeUpstream) {
    let config = format!(
        "{{ spend: {{ perDay: {{ cost: 100 }}, prices: {{ 'fake:m': {{ input: 3, output: 15 }} }} }},
            models: {{ providers: {{ fake: {{ kind: 'anthropic', baseUrl: '{}', keyEnv: '{KEY_ENV}',
            startupValidation: 'off', models: {{ m: {{ contextWindow: 100000, maxOutputTokens: 1000 }} }} }} }} }} }}",
        upstream.base_url()
    );
    let roster = "{\"id\":\"main\",\"backend\":\"native\",\"model\":\"fake:m\",\"mandate\":\"default\",\"standing\":false}\n";
    for (file, text) in [("config.json5", config.as_str()), ("data/agent-roster.jsonl", roster)] {
        let path = place.home().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// A request through the proxy whose answer is not read.
async fn ask_the_proxy(address: &str, token: &str) -> TcpStream {
    let body = json!({ "model": "m", "max_tokens": 500, "stream": true, "messages": [] }).to_string();
    let head = format!(
        "POST /v1/proxy/fake/v1/messages HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut line = TcpStream::connect(address).await.unwrap();
    line.write_all((head + &body).as_bytes()).await.unwrap();
    line
}

#[test]
fn s9_killed_daemon_bills_each_answer_in_full_and_once() {
    let mut roll = random();
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let upstream = runtime.block_on(FakeUpstream::start());
    set_up_model(&place, &upstream);
    let (child, address, token) = serve(&place);
    runtime.block_on(async {
        let mut clients = Vec::new();
        for n in 0..SESSIONS {
            upstream.reply(ModelOutput::new().text("a long answer").anthropic().first(3).then_silence());
            let mut client = RpcClient::connect(&address, Some(&token)).await.unwrap();
            let key = format!("agent:main:cli:local:dm:peer-{n}");
            client.call("session.init", &json!({ "session_key": key, "mode": "persistent" })).await.unwrap();
            client.send("turn.run", &turn_params(&key, "hello")).await.unwrap();
            clients.push(client);
        }
        upstream.reply(ModelOutput::new().text("a long answer").anthropic().first(3).then_silence());
        let proxied = ask_the_proxy(&address, &token).await;
        for _ in 0..5_000 {
            if upstream.requests().len() as u64 == SESSIONS + 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(upstream.requests().len() as u64, SESSIONS + 1);
        kill(child);
        drop((proxied, clients));
    });
    let report =
        || Reader::open(&Home::at(place.home())).unwrap().spend_report(SpendGrouping::Agent, None).unwrap();
    assert_eq!(report().all.requests, 0, "nothing has ended yet");
    assert_sound(&Home::at(place.home()));

    for _ in 0..KILLED_STARTS {
        let child = spawn(&place);
        // Not a wait for an event: the kill must fall at a random time of the start.
        std::thread::sleep(Duration::from_micros(roll(120_000)));
        kill(child);
    }
    for _ in 0..2 {
        let (child, ..) = serve(&place);
        kill(child);
    }
    let report = report();
    let lines: Vec<(&str, u64, u64, u64)> = report
        .lines
        .iter()
        .map(|line| (line.name.as_str(), line.requests, line.output, line.estimated))
        .collect();
    assert_eq!(lines, [("(operator)", 1, 500, 1), ("main", SESSIONS, 1_000 * SESSIONS, SESSIONS)]);
    assert!(report.lines[1].input > 1_000 && report.all.cost.nanos() > 0, "{report:?}");
    assert_eq!(upstream.requests().len() as u64, SESSIONS + 1, "nobody is asked again");
    assert_sound(&Home::at(place.home()));
    let _inside = runtime.enter();
    drop(upstream);
}

#[test]
fn l2_no_model_request_while_the_disk_fails() {
    let place = Place::new();
    let (shim, flag) = failing_disk(&place);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let upstream = runtime.block_on(FakeUpstream::start());
    set_up_model(&place, &upstream);
    let child = spawn_with(&place, &[("LD_PRELOAD", &shim), ("FAIL_SYNCS_WHILE", &flag)]);
    let (child, address, token) = serving(&place, child);
    runtime.block_on(async {
        upstream
            .reply(ModelOutput::new().text("hello").anthropic())
            .reply(ModelOutput::new().text("unheard").anthropic());
        let mut client = RpcClient::connect(&address, Some(&token)).await.unwrap();
        let key = "agent:main:cli:local:dm:peer";
        client.call("session.init", &json!({ "session_key": key, "mode": "persistent" })).await.unwrap();
        client.call("turn.run", &turn_params(key, "hello")).await.unwrap();
        assert_eq!(upstream.requests().len(), 1);
        std::fs::write(&flag, "").unwrap();
        client.call("turn.run", &turn_params(key, "again")).await.unwrap_err();
        assert_eq!(upstream.requests().len(), 1, "its beginning is not on record");
        drop(client);
    });
    kill(child);
    std::fs::remove_file(&flag).unwrap();
    assert_sound(&Home::at(place.home()));
    let _inside = runtime.enter();
    drop(upstream);
}
