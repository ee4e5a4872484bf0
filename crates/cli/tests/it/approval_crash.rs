//! The daemon is killed while calls wait for a person, while they are decided, and right after. An allowed call runs
//! once, or is marked as interrupted and does not run again. A call that was only waiting is never lost: it keeps
//! waiting, and runs once when it is allowed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_ledger::EntryQuality;
use tribune_records::ledger_payloads::{CallOutcome, ToolCallRecord, ToolResultRecord};
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_testkit::{assert_sound, turn_params};

use crate::fixture::Place;
use crate::turn_crash::{random, start};

const KILLS: u64 = 50;

const MANDATE: &str = "---\ntools: exec\n---\n# For work\n";
const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"work\"}\n";

/// When the daemon is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    /// Possibly before the call is parked.
    Asking,
    Parked,
    Deciding,
    Decided,
}

#[test]
fn l2_waiting_call_runs_at_most_once_across_crashes() {
    let mut roll = random();
    let place = Place::new();
    for (file, text) in [
        ("config.json5", "{ sandbox: \"off\" }"),
        ("mandates/work.md", MANDATE),
        ("data/agent-roster.jsonl", ROSTER),
    ] {
        let path = place.home().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut killed_at = BTreeMap::new();
    for round in 0..KILLS {
        let (mut child, address, token) = start(&place);
        let at = [At::Asking, At::Parked, At::Deciding, At::Decided][roll(4) as usize];
        let after = Duration::from_micros(roll(8_000));
        killed_at.insert(round, at);
        runtime.block_on(async {
            let mut client = RpcClient::connect(&address, Some(&token)).await.unwrap();
            let key = format!("agent:main:cli:local:dm:round-{round}");
            client.call("session.init", &json!({ "session_key": key, "mode": "persistent" })).await.unwrap();
            let command = format!("echo run-{round} >> log.txt");
            let script = format!("!call exec {}", json!({ "command": command }));
            client.send("turn.run", &turn_params(&key, &script)).await.unwrap();
            let mut approver = RpcClient::connect(&address, Some(&token)).await.unwrap();
            if at != At::Asking {
                let id = parked(&mut approver, &key).await;
                let params = json!({ "id": id, "decision": "allow_once" });
                match at {
                    At::Deciding => drop(approver.send("approval.decide", &params).await.unwrap()),
                    At::Decided => drop(approver.call("approval.decide", &params).await.unwrap()),
                    At::Asking | At::Parked => {}
                }
            }
            // Not a wait for an event: the kill must fall at a random time.
            tokio::time::sleep(after).await;
            child.kill().unwrap();
            child.wait().unwrap();
        });
        if round % 10 == 9 {
            // The state that the kill left, before the next start recovers.
            assert_sound(&Home::at(place.home()));
        }
    }
    // All waiting calls are allowed now; then no call is open.
    let (mut child, address, token) = start(&place);
    runtime.block_on(async {
        let mut approver = RpcClient::connect(&address, Some(&token)).await.unwrap();
        for id in waiting(&mut approver).await {
            approver.call("approval.decide", &json!({ "id": id, "decision": "allow_once" })).await.unwrap();
        }
        for _ in 0..3_000 {
            if outcomes(&place).values().all(Option::is_some) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("calls are left open: {:?}", outcomes(&place));
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_sound(&Home::at(place.home()));

    let log = std::fs::read_to_string(place.home().join("agents/main/workspace/log.txt")).unwrap();
    let (mut ran, mut interrupted) = (0, 0);
    let outcomes = outcomes(&place);
    for (round, at) in &killed_at {
        // Only a call that was killed before it was parked may have left nothing.
        assert!(*at == At::Asking || outcomes.contains_key(round), "round {round}, killed {at:?}, is lost");
    }
    for (round, outcome) in outcomes {
        let times = log.lines().filter(|line| *line == format!("run-{round}")).count();
        if killed_at[&round] == At::Parked {
            // It was not decided before the kill, so it had not started: it must run, once.
            assert_eq!(
                (outcome, times),
                (Some(CallOutcome::Ran), 1),
                "round {round}, killed while it waited"
            );
        }
        match outcome {
            Some(CallOutcome::Ran) => {
                ran += 1;
                assert_eq!(times, 1, "round {round} is said to have run");
            }
            Some(CallOutcome::Interrupted) => {
                interrupted += 1;
                assert!(times <= 1, "round {round} ran {times} times");
            }
            other => panic!("round {round} ended as {other:?}"),
        }
    }
    println!("{KILLS} kills, {ran} calls ran once, {interrupted} were interrupted");
    let parked = killed_at.values().filter(|at| **at == At::Parked).count();
    assert!(
        ran > 20 && parked > 5,
        "the campaign must have calls that run, and some that were parked: {parked}"
    );
}

/// The pending approvals.
async fn waiting(approver: &mut RpcClient) -> Vec<String> {
    let page = approver.call("approval.list", &json!({ "limit": 1000 })).await.unwrap();
    let ids = page["approvals"].as_array().unwrap().iter();
    ids.map(|approval| approval["id"].as_str().unwrap().to_owned()).collect()
}

/// The approval that a call of this session waits for.
async fn parked(approver: &mut RpcClient, key: &str) -> String {
    for _ in 0..5_000 {
        let page = approver.call("approval.list", &json!({ "limit": 1000 })).await.unwrap();
        let found = page["approvals"].as_array().unwrap().iter().find(|own| own["session_key"] == key);
        if let Some(id) = found.and_then(|own| own["id"].as_str()) {
            return id.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("the call of {key} was never parked");
}

/// The outcome of each round's call, from the ledger; `None` while it is open.
fn outcomes(place: &Place) -> BTreeMap<u64, Option<CallOutcome>> {
    let reader = Reader::open(&Home::at(place.home())).unwrap();
    let (mut rounds, mut outcomes) = (BTreeMap::new(), BTreeMap::new());
    for index in 0..reader.size().unwrap() {
        let Some(stored) = reader.entry(index).unwrap() else { continue };
        let payload: Value = serde_json::from_str(&stored.entry.payload).unwrap();
        match stored.entry.quality {
            EntryQuality::ToolCall => {
                let _: ToolCallRecord = serde_json::from_value(payload).unwrap();
                let round = stored.entry.entity_id.rsplit_once("round-").unwrap().1.parse().unwrap();
                rounds.insert(stored.entry.cid, round);
                outcomes.insert(round, None);
            }
            EntryQuality::ToolResult => {
                let record: ToolResultRecord = serde_json::from_value(payload).unwrap();
                let round = rounds[stored.entry.parent_cids().first().unwrap()];
                let before = outcomes.insert(round, Some(record.outcome));
                assert_eq!(before, Some(None), "round {round} has two results");
            }
            _ => {}
        }
    }
    outcomes
}
