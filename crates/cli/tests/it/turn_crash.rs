//! The daemon is killed during turns, repeatedly: everything that it acknowledged or showed is there, interrupted work
//! is marked, and it continues.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tribune_client::{RpcClient, RpcIncoming};
use tribune_daemon::daemon::DaemonInfo;
use tribune_storage::home::Home;
use tribune_testkit::{assert_sound, turn_params};

use crate::fixture::Place;

/// The number of kills, and the upper bound if they interrupt too little.
const KILLS: u64 = 50;
const MOST_KILLS: u64 = 4 * KILLS;

/// Acknowledged turns that the test needs.
const WORTH_KILLING: usize = 100;

/// Sessions that are busy when the daemon is killed.
const SESSIONS: u64 = 6;

/// How long the daemon may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// Turns of different lengths, with and without calls.
const SCRIPTS: [&str; 5] = [
    "!say one\n!say two",
    "!call read {\"path\":\".\"}\n!say $result",
    "!call exec {\"command\":\"true\"}\n!say $result",
    "!slowly 1ms a turn that takes its time and says many words one after the other until it is done with them",
    "!flood 200 64",
];

/// Messages of a session that are compared after each kill: one page.
const PAGE: usize = 1_000;

/// What a client saw of a session.
#[derive(Default)]
struct Seen {
    /// Inputs whose `turn_started` event was received, by the turn's CID.
    acknowledged: BTreeMap<String, String>,
    /// Those that were found in the session's history after a start.
    found: BTreeSet<String>,
    /// All events, by number.
    events: BTreeMap<u64, Value>,
}

#[test]
fn l2_killed_daemon_keeps_every_acknowledged_turn() {
    let mut roll = random();
    let place = Place::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    let (mut interrupted, mut recovered) = (0, 0);
    let acknowledged =
        |seen: &BTreeMap<String, Seen>| seen.values().map(|seen| seen.acknowledged.len()).sum::<usize>();
    // A busy machine does less between kills, so it is killed more often.
    while interrupted < KILLS || (acknowledged(&seen) <= WORTH_KILLING && interrupted < MOST_KILLS) {
        let kill = interrupted;
        let (mut child, address, token) = start(&place);
        recovered += runtime.block_on(check(&address, &token, &mut seen, kill));
        let after = Duration::from_micros(500 + roll(60_000));
        let scripts: Vec<&str> =
            (0..SESSIONS).map(|_| SCRIPTS[roll(SCRIPTS.len() as u64) as usize]).collect();
        let found = runtime.block_on(async {
            let mut clients = tokio::task::JoinSet::new();
            for (n, script) in scripts.into_iter().enumerate() {
                let key = format!("agent:main:rpc:local:dm:peer-{n}");
                clients.spawn(talk(
                    address.clone(),
                    token.clone(),
                    key,
                    format!("{script}\n!say kill {kill}"),
                ));
            }
            // Not a wait for an event: the kill must fall at a random time.
            tokio::time::sleep(after).await;
            child.kill().unwrap();
            child.wait().unwrap();
            clients.join_all().await
        });
        for (key, more) in found {
            let of = seen.entry(key).or_default();
            of.acknowledged.extend(more.acknowledged);
            of.events.extend(more.events);
        }
        interrupted += 1;
        if interrupted % 10 == 0 {
            // The state that the kill left, before the next start recovers.
            assert_sound(&Home::at(place.home()));
        }
    }
    let (mut child, address, token) = start(&place);
    recovered += runtime.block_on(check(&address, &token, &mut seen, interrupted));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_sound(&Home::at(place.home()));
    let acknowledged = acknowledged(&seen);
    let events: usize = seen.values().map(|seen| seen.events.len()).sum();
    println!(
        "{interrupted} kills, {acknowledged} acknowledged turns, {events} events seen, {recovered} turns interrupted"
    );
    assert!(acknowledged > WORTH_KILLING && recovered > 10, "the campaign must have work to lose");
}

/// An interrupted turn is in the transcript file as far as it came, and once however often the daemon starts.
#[tokio::test(flavor = "multi_thread")]
async fn s6_interrupted_turn_is_in_the_transcript_once() {
    let place = Place::new();
    let keys = ["agent:main:cli:local:dm:op", "agent:main:mail:local:dm:sender"];
    let kept = |key: &str| -> Vec<(String, String, String)> {
        let path = place.home().join(format!("agents/main/sessions/{key}.jsonl"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        let word = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.map(|line| (word(&line, "turn"), word(&line, "role"), word(&line, "text"))).collect()
    };
    let (mut child, address, token) = start(&place);
    let script = "!say as far as it came\n!call read {\"path\":\"x\"}\n!wait 600000ms\n!say never";
    let mut turns = Vec::new();
    for key in keys {
        let mut client = RpcClient::connect(&address, Some(&token)).await.unwrap();
        client.call("session.init", &json!({ "session_key": key })).await.unwrap();
        client.send("turn.run", &turn_params(key, script)).await.unwrap();
        loop {
            let RpcIncoming::Notification(said) = client.next().await.unwrap() else { continue };
            match said.params["event"]["type"].as_str() {
                Some("turn_started") => turns.push(said.params["event"]["turn"].as_str().unwrap().to_owned()),
                Some("tool_result") => break,
                _ => {}
            }
        }
        assert_eq!(kept(key), [], "nothing is written before its end");
    }
    for _ in 0..2 {
        child.kill().unwrap();
        child.wait().unwrap();
        child = start(&place).0;
        let line = |turn: &String, role: &str, text: &str| (turn.clone(), role.to_owned(), text.to_owned());
        assert_eq!(
            kept(keys[0]),
            [line(&turns[0], "user", script), line(&turns[0], "assistant", "as far as it came")]
        );
        // People on external channels get the answer when the turn is done, and their transcript keeps only what they
        // got.
        assert_eq!(kept(keys[1]), []);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_sound(&Home::at(place.home()));
}

/// A seeded random number generator that prints its seed. The closure returns a number below its argument.
pub(crate) fn random() -> impl FnMut(u64) -> u64 {
    let mut random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8) | 1;
    println!("seed {random}");
    move |below| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    }
}

pub(crate) fn start(place: &Place) -> (Child, String, String) {
    start_with(place, &[])
}

/// Starts a daemon with these variables.
#[expect(clippy::zombie_processes, reason = "the caller kills the child and waits for it")]
pub(crate) fn start_with(place: &Place, variables: &[(&str, &str)]) -> (Child, String, String) {
    let mut command = place.command(&["up", "--port", "0"]);
    command.envs(variables.iter().copied());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
    let home = Home::at(place.home());
    let started = Instant::now();
    loop {
        if let Some(there) = DaemonInfo::read(&home).filter(|there| there.pid == child.id()) {
            let token = std::fs::read_to_string(Path::new(home.root()).join("run/token")).unwrap();
            return (child, there.address.to_string(), token.trim().to_owned());
        }
        assert!(started.elapsed() < PATIENCE, "the daemon did not start");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs turns in one session until the daemon is gone.
async fn talk(address: String, token: String, key: String, text: String) -> (String, Seen) {
    let mut seen = Seen::default();
    let Ok(mut client) = RpcClient::connect(&address, Some(&token)).await else { return (key, seen) };
    if client.call("session.init", &json!({ "session_key": key, "mode": "persistent" })).await.is_err() {
        return (key, seen);
    }
    // Bounded by the kill, which comes within 100 ms.
    for _ in 0..10_000 {
        let Ok(id) = client.send("turn.run", &turn_params(&key, &text)).await else { break };
        loop {
            match client.next().await {
                Ok(RpcIncoming::Notification(said)) => {
                    let event = said.params["event"].clone();
                    if event["type"] == "turn_started" {
                        seen.acknowledged.insert(event["turn"].as_str().unwrap().to_owned(), text.clone());
                    }
                    assert!(
                        seen.events.insert(event["seq"].as_u64().unwrap(), event).is_none(),
                        "an event came twice"
                    );
                }
                Ok(RpcIncoming::Response(of, answer)) if of == id => {
                    answer.unwrap();
                    break;
                }
                Ok(RpcIncoming::Response(..)) => {}
                Err(_) => return (key, seen),
            }
        }
    }
    (key, seen)
}

/// Compares what clients saw with what is stored. Returns how many turns this start found interrupted.
async fn check(address: &str, token: &str, seen: &mut BTreeMap<String, Seen>, kill: u64) -> u64 {
    let mut client = RpcClient::connect(address, Some(token)).await.unwrap();
    let status = client.call("daemon.status", &json!({})).await.unwrap();
    for (key, seen) in seen {
        let Ok(info) = client.call("session.status", &json!({ "session_key": key })).await else {
            // Killed before the session was recorded; then nothing of it was acknowledged.
            assert!(seen.acknowledged.is_empty(), "kill {kill}: {key} is lost");
            continue;
        };
        assert_ne!(info["state"], "running", "kill {kill}: {key}");
        let turns =
            client.call("session.turns", &json!({ "session_key": key, "limit": 1000 })).await.unwrap();
        let turns = turns["turns"].as_array().unwrap();
        for turn in turns {
            assert!(turn["stop_reason"].is_string(), "kill {kill}: a turn without an end: {turn}");
        }
        inputs_are_there(&mut client, key, seen, kill).await;
        let events = all_events(&mut client, key).await;
        let numbers: Vec<u64> = events.keys().copied().collect();
        assert!(
            numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "kill {kill}: {key}: a gap in {numbers:?}"
        );
        for (seq, event) in &seen.events {
            if numbers.first().is_some_and(|first| seq >= first) {
                assert_eq!(
                    events.get(seq),
                    Some(event),
                    "kill {kill}: {key}: event {seq} is not what was shown"
                );
            }
        }
        let last = events.values().next_back();
        assert!(
            last.is_none_or(|last| last["type"] == "done"),
            "kill {kill}: {key}: the stream ends with {last:?}"
        );
    }
    status["recovered_turns"].as_u64().unwrap()
}

/// Asserts that each acknowledged input is in the history, unchanged. Older ones than a page were found there before.
async fn inputs_are_there(client: &mut RpcClient, key: &str, seen: &mut Seen, kill: u64) {
    let asked = json!({ "session_key": key, "limit": PAGE });
    let history = client.call("session.history", &asked).await.unwrap();
    let history = history["messages"].as_array().unwrap();
    for (turn, text) in &seen.acknowledged {
        match history.iter().find(|said| said["role"] == "user" && said["turn"] == **turn) {
            Some(input) => {
                assert_eq!(input["content"][0]["text"], **text, "kill {kill}");
                seen.found.insert(turn.clone());
            }
            None => assert!(
                history.len() == PAGE && seen.found.contains(turn),
                "kill {kill}: {key}: the input of {turn} is lost"
            ),
        }
    }
}

async fn all_events(client: &mut RpcClient, key: &str) -> BTreeMap<u64, Value> {
    let mut events = BTreeMap::new();
    let mut after = 0;
    for _ in 0..1_000 {
        let asked = json!({ "session_key": key, "after": after, "follow": false });
        let page = match client.call("session.events", &asked).await {
            Ok(page) => page,
            Err(error) if error.code() == Some("expired") => {
                after = oldest_kept(&error.to_string());
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for event in page["events"].as_array().unwrap() {
            after = event["seq"].as_u64().unwrap();
            events.insert(after, event.clone());
        }
        if after >= page["last_seq"].as_u64().unwrap() {
            break;
        }
    }
    events
}

/// The number in "events up to N are no longer kept".
fn oldest_kept(sentence: &str) -> u64 {
    sentence.split(' ').find_map(|word| word.parse().ok()).unwrap()
}
