//! What can be read from the memory of the daemon.

use std::io::{Read as _, Seek as _, SeekFrom};

use serde_json::json;
use tribune_client::RpcClient;
use tribune_testkit::run_turn;

use crate::fixture::Place;
use crate::turn_crash::start_with;

const KEY: &str = "agent:main:rpc:local:dm:op";

/// How often a text stands in the writable memory of a process. Needs root, because the daemon is not dumpable.
fn copies(pid: u32, text: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut bytes = Vec::new();
        // A mapping that is gone, or that the kernel keeps to itself.
        if memory.seek(SeekFrom::Start(start)).is_ok() {
            let _ = (&mut memory).take(end - start).read_to_end(&mut bytes);
        }
        found += bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count();
    }
    found
}

/// Words of a session that was forgotten are not in the daemon's memory any more, and no core dump is written of it.
#[tokio::test(flavor = "multi_thread")]
async fn l5_forgotten_words_leave_the_memory_of_the_daemon() {
    let place = Place::new();
    let (mut child, address, token) = start_with(&place, &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    // Put together here, so that it is nowhere else.
    let words = ["quince", "barometer", "ferry", &std::process::id().to_string()].join("-");
    let mut client = RpcClient::connect(&address, Some(&token)).await.unwrap();
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    for _ in 0..5 {
        run_turn(&mut client, KEY, &format!("!say I keep {words} in mind")).await.unwrap();
    }
    client.call("session.history", &json!({ "session_key": KEY })).await.ok();
    if rustix::process::geteuid().is_root() {
        assert!(copies(child.id(), &words) > 0, "they are known while the session is");
    }
    drop(client);
    place.ok(&["sessions", "close", KEY]);
    place.ok(&["sessions", "forget", KEY, "--yes"]);
    if rustix::process::geteuid().is_root() {
        let begun = std::time::Instant::now();
        // Connections and turns give back what they hold when their tasks end.
        while copies(child.id(), &words) > 0 && begun.elapsed() < std::time::Duration::from_secs(20) {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        assert_eq!(copies(child.id(), &words), 0);
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert!(child.wait().unwrap().success());
}
