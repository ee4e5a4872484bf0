//! Many sessions and many clients at once: order is kept, no event is lost, and no client sees events of another.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tribune_client::{RpcClient, RpcIncoming};
use tribune_testkit::{TestDaemon, assert_sound, output_text, turn_params};

use crate::raw_clients::{PseudoRandom, is_done, within};

const CONNECTIONS: usize = 20;
const SESSIONS: usize = 50;
const TURNS: usize = 3;

/// Concurrent requests of one connection; the daemon accepts 64.
const AT_ONCE: usize = 60;

fn seq(event: &Value) -> u64 {
    event["seq"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_sessions_with_interleaved_turns_keep_order() {
    let daemon = TestDaemon::start().await;
    let mut work = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let client = daemon.operator().await;
        work.spawn(within("all turns of a connection end", drive(client, connection)));
    }
    let mut ended = 0;
    while let Some(turns) = work.join_next().await {
        ended += turns.unwrap();
    }
    assert_eq!(ended, CONNECTIONS * SESSIONS * TURNS);
    let mut client = daemon.operator().await;
    let status = client.call("daemon.status", &json!({})).await.unwrap();
    assert_eq!(status["sessions_open"], CONNECTIONS * SESSIONS + 1, "and the standing session");
    drop(client);
    let home = daemon.stop().await;
    // Per session: opened; per turn: started, three verdicts, completed.
    assert!(assert_sound(&home.home) > (CONNECTIONS * SESSIONS * (1 + 5 * TURNS)) as u64);
}

/// Runs the turns of one connection's sessions, interleaved, and checks every message.
async fn drive(mut client: RpcClient, connection: usize) -> usize {
    let key = |session: usize| format!("agent:main:scale:local:dm:c{connection}s{session}");
    for session in 0..SESSIONS {
        client.call("session.init", &json!({ "session_key": key(session) })).await.unwrap();
    }
    let mut plan = (0..TURNS).flat_map(|turn| (0..SESSIONS).map(move |session| (session, turn)));
    let mut asked = HashMap::new();
    let mut events: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut results: HashMap<(usize, usize), Value> = HashMap::new();
    loop {
        while asked.len() < AT_ONCE
            && let Some((session, turn)) = plan.next()
        {
            let script = format!("!say {} begins {turn}\n!say {} ends {turn}", key(session), key(session));
            let id = client.send("turn.run", &turn_params(&key(session), &script)).await.unwrap();
            asked.insert(id, (session, turn));
        }
        if asked.is_empty() {
            break;
        }
        match client.next().await.unwrap() {
            RpcIncoming::Notification(notification) => {
                let session = notification.params["session_key"].as_str().unwrap().to_owned();
                events.entry(session).or_default().push(notification.params["event"].clone());
            }
            RpcIncoming::Response(id, answer) => {
                results.insert(asked.remove(&id).unwrap(), answer.unwrap());
            }
        }
    }
    for session in 0..SESSIONS {
        let key = key(session);
        let events = &events[&key];
        let seqs: Vec<u64> = events.iter().map(seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{key}");
        let turns: Vec<&[Value]> = events.split_inclusive(is_done).collect();
        assert_eq!(turns.len(), TURNS, "{key}");
        for (n, events) in turns.into_iter().enumerate() {
            assert_eq!(output_text(events), format!("{key} begins {n}\n{key} ends {n}"));
            let result = &results[&(session, n)];
            assert_eq!(result["turn"], events[0]["turn"], "{key}");
            assert_eq!(result["first_seq"], events[0]["seq"], "{key}");
            assert_eq!(result["last_seq"], events[events.len() - 1]["seq"], "{key}");
        }
        let status = client.call("session.status", &json!({ "session_key": key })).await.unwrap();
        assert_eq!((&status["turns"], &status["last_seq"]), (&json!(TURNS), &json!(seqs.len())), "{key}");
    }
    results.len()
}

const FOLLOWED: usize = 10;
const FOLLOWERS: usize = 5;
const FOLLOWED_TURNS: usize = 6;

/// Twenty words with pauses, so that a client can disconnect in the middle.
const SLOW: &str = "!repeat 20\n!say one more\n!wait 3ms\n!end";

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_drop_and_resume_see_every_event_exactly_once() {
    let daemon = TestDaemon::start().await;
    let (address, token) = (daemon.address(), daemon.token());
    let key = |session: usize| format!("agent:main:scale:local:dm:followed-{session}");
    let mut operator = daemon.operator().await;
    for session in 0..FOLLOWED {
        operator.call("session.init", &json!({ "session_key": key(session) })).await.unwrap();
    }
    let mut drivers = JoinSet::new();
    let mut followers = JoinSet::new();
    for session in 0..FOLLOWED {
        let (mut client, key) = (daemon.operator().await, key(session));
        for n in 0..FOLLOWERS {
            let random = PseudoRandom::new((session * FOLLOWERS + n + 1) as u64);
            let work = follow(address.clone(), token.clone(), key.clone(), random);
            followers.spawn(within("a follower sees the end of the last turn", async move {
                (session, work.await)
            }));
        }
        drivers.spawn(async move {
            for _ in 0..FOLLOWED_TURNS {
                client.call("turn.run", &turn_params(&key, SLOW)).await.unwrap();
            }
        });
    }
    within("all turns end", drivers.join_all()).await;
    let mut drops = 0;
    let seen = followers.join_all().await;
    assert_eq!(seen.len(), FOLLOWED * FOLLOWERS);
    for session in 0..FOLLOWED {
        let fresh = everything(&mut operator, &key(session)).await;
        let seqs: Vec<u64> = fresh.iter().map(seq).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
        assert_eq!(fresh.iter().filter(|event| is_done(event)).count(), FOLLOWED_TURNS);
        for (_, (followed, dropped)) in seen.iter().filter(|(of, _)| *of == session) {
            assert!(*followed == fresh, "a follower of session {session} saw other events");
            drops += dropped;
        }
    }
    assert!(drops > FOLLOWED * FOLLOWERS, "clients disconnected: {drops}");
    drop(operator);
    assert_sound(&daemon.stop().await.home);
}

/// Follows a session to the end of its last turn and disconnects again and again. Returns the events and the number of
/// disconnects.
async fn follow(
    address: String,
    token: String,
    key: String,
    mut random: PseudoRandom,
) -> (Vec<Value>, usize) {
    let mut seen: Vec<Value> = Vec::new();
    let mut drops = 0;
    loop {
        let mut client = RpcClient::connect(&address, Some(&token)).await.unwrap();
        let after = seen.last().map_or(0, seq);
        client.call("session.events", &json!({ "session_key": key, "after": after })).await.unwrap();
        for _ in 0..=random.roll(60) {
            let RpcIncoming::Notification(notification) = client.next().await.unwrap() else {
                panic!("a response without a request")
            };
            assert_eq!(
                (notification.method.as_str(), &notification.params["session_key"]),
                ("session.event", &json!(key))
            );
            seen.push(notification.params["event"].clone());
            if seen.iter().filter(|event| is_done(event)).count() == FOLLOWED_TURNS {
                return (seen, drops);
            }
        }
        // Half of them without a close frame.
        if random.roll(2) == 0 {
            client.close().await
        } else {
            drop(client)
        }
        drops += 1;
    }
}

/// All events of a session, page by page.
async fn everything(client: &mut RpcClient, key: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        let after = events.last().map_or(0, seq);
        let asked = json!({ "session_key": key, "after": after, "follow": false, "limit": 100 });
        let page = client.call("session.events", &asked).await.unwrap();
        events.extend(page["events"].as_array().unwrap().iter().cloned());
        if page["last_seq"] == events.last().map_or(0, seq) {
            return events;
        }
    }
}

/// A client that catches up reads stored events.
#[tokio::test(flavor = "multi_thread")]
async fn l2_entry_is_on_disk_before_it_is_announced() {
    const KEY: &str = "agent:main:scale:local:dm:told";
    let daemon = TestDaemon::start().await;
    let mut driver = daemon.operator().await;
    driver.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    driver.call("turn.run", &turn_params(KEY, "!say the first")).await.unwrap();
    let driving = tokio::spawn(async move {
        for _ in 0..30 {
            let script = "!call read {\"path\":\"x\"}\n!call exec {}\n!call read {\"path\":\"y\"}";
            driver.call("turn.run", &turn_params(KEY, script)).await.unwrap();
            driver.take_notifications();
        }
    });
    let mut client = daemon.operator().await;
    let reader = tribune_storage::store::Reader::open(&daemon.home.home).unwrap();
    let mut announced = 0;
    while !driving.is_finished() {
        // From the first event, which is not in memory any more.
        let asked = json!({ "session_key": KEY, "after": 0, "follow": false });
        let page = client.call("session.events", &asked).await.unwrap();
        // Read the write-ahead log first and the database second: a record that leaves the first is in the second.
        let wal = std::fs::read(daemon.home.home.root().join("daybook")).unwrap();
        reader.refresh().unwrap();
        let events = page["events"].as_array().unwrap();
        for event in events.iter().skip(announced) {
            if let Some(cid) = event["entry"]["cid"].as_str() {
                let in_wal = || wal.windows(cid.len()).any(|window| window == cid.as_bytes());
                let in_log = reader.find(&cid.parse().unwrap()).unwrap().is_some();
                assert!(in_log || in_wal(), "not on disk: {event}");
            }
        }
        announced = announced.max(events.len());
    }
    driving.await.unwrap();
    assert!(announced > 100, "{announced}");
}
