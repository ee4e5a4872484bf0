//! Full and failing disks: a clear error, no acknowledgement without durability, and a way to continue.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tribune_client::{RpcClient, RpcIncoming};
use tribune_testkit::turn_params;

use crate::daemon_process::BOUND;
use crate::fixture::{CliOutput, Place, in_own_mounts, workspace};
use crate::turn_crash::start_with;

/// Builds a library that makes syncs fail while the second file exists, or writes if that file says `ENOSPC`. A program gets it by `LD_PRELOAD`, with the
/// file's name in `FAIL_SYNCS_WHILE`.
pub(crate) fn failing_disk(place: &Place) -> (PathBuf, PathBuf) {
    let (shim, flag) = (place.path("failing_disk.so"), place.path("failing"));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&shim)
        .arg(workspace().join("e2e/failing_disk.c"))
        .arg("-ldl")
        .status();
    assert!(built.expect("cc compiles the failing disk").success());
    (shim, flag)
}

#[test]
fn a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room() {
    let place = Place::new();
    let script = r#"
        mkdir "$PLACE/disk"
        mount -t tmpfs -o size=3m tmpfs "$PLACE/disk"
        export TRIBUNE_HOME="$PLACE/disk/home"
        code() { local c=0; "$@" || c=$?; echo "exit $c"; }
        write() { (seq -f "note %g of many, long enough to fill the disk" 100000 2>/dev/null || true) | "$TRIBUNE" ledger note --lines; }
        code write > "$PLACE/acks"
        tail -n 1 "$PLACE/acks"
        echo "-- full"
        code "$TRIBUNE" ledger note "no room"
        code "$TRIBUNE" ledger verify | grep -E 'integrity|exit'
        code "$TRIBUNE" ledger rebuild --check
        echo "-- room again"
        mount -o remount,size=64m "$PLACE/disk"
        code "$TRIBUNE" ledger note "room again" | tail -n 1
        code "$TRIBUNE" ledger verify | grep -E 'integrity|exit'
        code "$TRIBUNE" ledger rebuild --check
        "$TRIBUNE" ledger tail -n 100000 --json > "$PLACE/log"
        "#;
    let said = in_own_mounts(script, &place);
    let errors: Vec<&str> = said.err.lines().filter(|line| line.starts_with("error")).collect();
    assert!(
        !errors.is_empty()
            && errors.iter().all(|line| line
                .ends_with("is full, nothing of this was acknowledged: free some space and start again")),
        "{said:?}"
    );

    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let acks = read("acks");
    let acks: Vec<&str> = acks.lines().filter(|line| !line.starts_with("exit")).collect();
    assert!(acks.len() > 1000, "{} notes fit on 3 MB", acks.len());
    let log: Vec<serde_json::Value> =
        read("log").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for ack in &acks {
        let (index, cid) = ack.split_once(' ').unwrap();
        assert_eq!(log[index.parse::<usize>().unwrap()]["entry"]["cid"], cid);
    }
    let all = log.len();
    assert_eq!(log[all - 1]["entry"]["payload"]["text"], "room again");
    // Records that were in the write-ahead log and had no space in the ledger are applied when there is space,
    // acknowledged or not. Until then `verify` reports them.
    let posted = said.out.split(" entries").next().and_then(|text| text.rsplit(' ').next()).unwrap();
    let posted: usize = posted.parse().unwrap();
    assert!(posted < all, "{posted} of {all}");
    let is_reported = said.err.contains(" records are in the write-ahead log and not in the ledger yet: ");
    assert!(
        is_reported || posted > acks.len(),
        "{posted} of {all}, {} acknowledged: {}",
        acks.len(),
        said.err
    );
    let expected = format!(
        "exit 1\n-- full\nexit 1\nintegrity: sound, {posted} entries are what was recorded\nexit 0\n\
         views: sound, they match all {posted} entries\nexit 0\n-- room again\nexit 0\n\
         integrity: sound, {all} entries are what was recorded\nexit 0\n\
         views: sound, they match all {all} entries\nexit 0\n"
    );
    assert_eq!(said.out, expected);
}

#[test]
fn a_disk_whose_syncs_fail_stops_the_store_until_it_is_opened_again() {
    let place = Place::new();
    let (shim, flag) = failing_disk(&place);
    place.ok(&["ledger", "note", "before"]);

    let mut command = place.command(&["ledger", "note", "--lines"]);
    command.env("LD_PRELOAD", &shim).env("FAIL_SYNCS_WHILE", &flag);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(stdin, "while the disk is well").unwrap();
    let last = answers.next().unwrap().unwrap();
    assert!(last.starts_with("2 "), "{last}");

    std::fs::write(&flag, "").unwrap();
    writeln!(stdin, "while the disk is failing").unwrap();
    assert!(answers.next().is_none(), "nothing is acknowledged that was not synced");
    // The input is still open: the command must not wait for more.
    let said = crate::fixture::cli_output(child.wait_with_output().unwrap());
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains(
            "failed (disk I/O error), nothing of this was acknowledged: check the disk and start again"
        ),
        "{}",
        said.err
    );
    drop(stdin);

    let still_failing = place
        .command(&["ledger", "note", "x"])
        .env("LD_PRELOAD", &shim)
        .env("FAIL_SYNCS_WHILE", &flag)
        .output()
        .unwrap();
    assert_eq!(still_failing.status.code(), Some(1));
    std::fs::remove_file(&flag).unwrap();
    assert!(place.ok(&["ledger", "verify"]).starts_with("integrity: sound"));
    let next = place.ok(&["ledger", "note", "after"]);
    assert!(
        next.starts_with("3 ") || next.starts_with("4 "),
        "the entry that was not acknowledged may have survived: {next}"
    );
    assert!(place.ok(&["ledger", "verify"]).starts_with("integrity: sound"));
    place.ok(&["ledger", "rebuild", "--check"]);
}

/// The session whose turn the disk interrupts, and the one that notices it.
const HELD: &str = "agent:main:rpc:local:dm:held";
const WRITING: &str = "agent:main:rpc:local:dm:writing";

/// How each turn is kept open.
const SCRIPTS: [&str; 3] = [
    "!say so far so good\n!hang",
    "!say so far so good\n!deaf\n!say never",
    "!say so far so good\n!call read {\"path\":\".\"}\n!wait 600000ms\n!say never",
];

async fn connect(address: &str, token: &str) -> RpcClient {
    RpcClient::connect(address, Some(token)).await.unwrap()
}

/// Waits until a turn has begun.
async fn until_begun(client: &mut RpcClient) {
    let mut has_begun = false;
    while !has_begun {
        let next = tokio::time::timeout(BOUND, client.next()).await.expect("the turn begins").unwrap();
        let RpcIncoming::Notification(event) = next else { continue };
        has_begun = event.params["event"]["type"] == "turn_started";
    }
}

/// The answer to a request, or the end of a subscription (0), whatever comes before it.
async fn outcome_of(client: &mut RpcClient, request: u64) -> Result<Value, String> {
    loop {
        let next = tokio::time::timeout(BOUND, client.next()).await;
        match next.unwrap_or_else(|_| panic!("request {request} is not answered")).unwrap() {
            RpcIncoming::Response(id, answer) if id == request => {
                return answer.map_err(|error| error.code().unwrap_or_default().to_owned());
            }
            RpcIncoming::Notification(ended) if request == 0 && ended.method == "session.ended" => {
                let code = ended.params["error"]["data"]["code"].as_str();
                return code.map_or(Ok(Value::Null), |code| Err(code.to_owned()));
            }
            RpcIncoming::Response(..) | RpcIncoming::Notification(_) => {}
        }
    }
}

fn end_of(child: Child) -> CliOutput {
    let (sender, ended) = std::sync::mpsc::channel();
    let pid = Pid::from_child(&child);
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = ended.recv_timeout(BOUND).unwrap_or_else(|_| {
        kill_process(pid, Signal::KILL).unwrap();
        panic!("the command did not end")
    });
    crate::fixture::cli_output(output.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn open_turns_end_with_storage_when_the_disk_fails() {
    for fault in ["EIO", "ENOSPC"] {
        for script in SCRIPTS {
            disk_fails_in_turn(fault, script).await;
        }
    }
}

async fn disk_fails_in_turn(fault: &str, script: &str) {
    let place = Place::new();
    let (shim, flag) = failing_disk(&place);
    let variables = [("LD_PRELOAD", shim.to_str().unwrap()), ("FAIL_SYNCS_WHILE", flag.to_str().unwrap())];
    let (mut daemon, address, token) = start_with(&place, &variables);
    let mut client = connect(&address, &token).await;
    let mut follower = connect(&address, &token).await;
    for key in [HELD, WRITING] {
        client.call("session.init", &json!({ "session_key": key })).await.unwrap();
    }
    follower.call("session.events", &json!({ "session_key": HELD })).await.unwrap();
    let turn = client.send("turn.run", &turn_params(HELD, script)).await.unwrap();
    until_begun(&mut client).await;
    until_begun(&mut follower).await;
    // A turn behind it, which has not begun.
    let queued = client.send("turn.run", &turn_params(HELD, "!say never")).await.unwrap();
    let mut chat = place.command(&["chat", "--session", "agent:main:cli:local:dm:talk", script]);
    let chat = chat.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut talk = connect(&address, &token).await;
    let of_talk = json!({ "session_key": "agent:main:cli:local:dm:talk" });
    while talk.call("session.status", &of_talk).await.map_or(true, |info| info["state"] != "running") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    std::fs::write(&flag, fault).unwrap();
    // The daemon notices when something is written.
    let mut other = connect(&address, &token).await;
    let noticed = other.send("turn.run", &turn_params(WRITING, "!say this is not written")).await.unwrap();
    assert_eq!(outcome_of(&mut other, noticed).await, Err("storage".to_owned()), "{fault} {script}");
    for request in [turn, queued] {
        let answer = outcome_of(&mut client, request).await;
        assert_eq!(answer, Err("storage".to_owned()), "{fault} {script}");
    }
    assert_eq!(outcome_of(&mut follower, 0).await, Err("storage".to_owned()), "{fault} {script}");
    let of_held = json!({ "session_key": HELD });
    let mut asks = connect(&address, &token).await;
    let status = asks.call("session.status", &of_held).await.unwrap();
    assert_eq!(status["state"], "failed", "{fault} {script} {status}");
    assert!(status["failure"].as_str().unwrap().contains("disk"), "{status}");
    let cancelled = asks.call("session.cancel", &of_held).await.unwrap_err();
    assert_eq!(cancelled.code(), Some("storage"), "{fault} {script} {cancelled}");
    let page = asks.call("session.events", &json!({ "session_key": HELD, "follow": false })).await.unwrap();
    assert_eq!(page["events"][0]["type"], "turn_started", "what was recorded can be read");
    let said = end_of(chat);
    assert_eq!(said.code, 1, "{fault} {script}: {said:?}");
    assert!(said.err.contains("disk"), "{said:?}");

    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    daemon.wait().unwrap();
    std::fs::remove_file(&flag).unwrap();
    let (mut daemon, address, token) = start_with(&place, &[]);
    let mut asks = connect(&address, &token).await;
    let status = asks.call("session.status", &of_held).await.unwrap();
    assert_eq!((&status["state"], &status["failure"]), (&json!("idle"), &Value::Null), "{status}");
    let turns = asks.call("session.turns", &of_held).await.unwrap();
    assert_eq!(turns["turns"][0]["stop_reason"], "interrupted", "{turns}");
    let again = asks.send("turn.run", &turn_params(HELD, "!say again")).await.unwrap();
    assert_eq!(outcome_of(&mut asks, again).await.unwrap()["stop_reason"], "end_turn");
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    assert!(daemon.wait().unwrap().success());
    assert!(place.ok(&["ledger", "verify"]).starts_with("integrity: sound"));
}
