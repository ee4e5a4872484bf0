//! Commands that Tribune runs for a CLI agent (`terminal/*`): through the gate, each in its own sandbox, with labels
//! that follow the output, and none left running however the turn ends.

use serde_json::{Value, json};
use tribune_ledger::EntryQuality;
use tribune_records::ledger_payloads::{CallOutcome, ToolResultRecord};
use tribune_storage::home::Home;
use tribune_storage::store::Reader;

use super::{ASK, FinishedTurn, Rig, Setting, below, run, until};
use crate::sandboxed_commands::{mark, sleeping};

const OFFERED: &str = ", capabilities: { terminal: true }";

/// Waits for a pending approval that is not one of these.
async fn next_question(operator: &mut tribune_client::RpcClient, before: &[&Value]) -> Value {
    loop {
        let waiting = Rig::waiting(operator).await;
        if let Some(new) = waiting.iter().find(|one| !before.contains(&&one["id"])) {
            return new.clone();
        }
    }
}

/// The calls that Tribune executed: each id, with its outcome.
fn ran(played: &FinishedTurn) -> Vec<(String, String)> {
    let word = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
    let results = played.of_type("tool_result");
    let came = |call: &&Value| {
        let of_call: Vec<_> = results.iter().filter(|result| result["id"] == call["id"]).collect();
        assert_eq!(of_call.len(), 1, "a call has one outcome: {played:#?}");
        (word(call, "id"), word(of_call[0], "content"))
    };
    played.of_type("tool_call").iter().map(came).collect()
}

/// The error results of executed commands in the ledger.
fn ended(played: &FinishedTurn) -> Vec<String> {
    let entries = played.of_type("ledger_append").into_iter().map(|event| &event["entry"]["payload"]);
    let results = entries.filter(|payload| {
        let is_callback = payload["call_id"].as_str().is_some_and(|id| id.starts_with("tribune-callback"));
        is_callback && payload["outcome"].is_string()
    });
    let told = played.of_type("tool_result");
    results
        .map(|payload| {
            let event = told.iter().find(|event| event["id"] == payload["call_id"]).unwrap();
            let errors = (&payload["is_error"], &event["is_error"]);
            assert_eq!(errors, (&json!(true), &json!(true)), "{payload:#} {event:#}");
            payload["outcome"].as_str().unwrap().to_owned()
        })
        .collect()
}

/// The verdicts about executed calls.
fn judged(played: &FinishedTurn) -> Vec<&Value> {
    let verdicts = played.of_type("policy_gate").into_iter().map(|event| &event["entry"]["payload"]);
    verdicts.filter(|verdict| verdict["facts"]["stage"] == "call").collect()
}

/// A daemon whose law asks about commands.
async fn asking() -> Rig {
    let place = Rig::set_up(Setting { law: ASK, profile: OFFERED, ..Setting::default() });
    std::fs::write(place.home().join("policy/law.json5"), "{}").unwrap();
    Rig::on(place, &[]).await
}

fn create(command: &str) -> Value {
    json!({ "create": { "command": command } })
}

/// A command that prints a word and then runs forever, in two processes: one outside of the process group.
fn endless(mark: &str) -> Value {
    create(&format!("setsid sleep {mark} & echo started; sleep {mark}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_terminal_command_runs_sandboxed_and_is_shown() {
    let mut rig = Rig::new(Setting { profile: OFFERED, ..Setting::default() }).await;
    std::fs::create_dir(rig.place.home().join("agents/coder/workspace/sub")).unwrap();
    let command = "pwd; echo err >&2; env | cut -d= -f1 | sort | tr '\\n' ' '; echo made > made.txt; exit 3";
    let played = rig
        .plays(json!([
            { "create": { "command": "sh", "args": ["-c", command], "cwd": "/workspace/sub", "env": [], "outputByteLimit": 1000 } },
            { "terminal": ["wait_for_exit", "t"] },
            { "terminal": ["output", "t"] },
            { "terminal": ["release", "t"] },
            { "terminal": ["output", "t"] },
            { "terminal": ["release", "t"] },
        ]))
        .await;
    let text = played.text.replace("/workspace/sub\\nerr\\n", "err\\n/workspace/sub\\n");
    let exit = "{\"exitCode\": 3, \"signal\": null}";
    let output = "err\\n/workspace/sub\\nHOME LANG PATH PWD TERM ";
    let expected = format!(
        "[open][{exit}][{{\"exitStatus\": {exit}, \"output\": \"{output}\", \"truncated\": false}}][{{}}][{{\"code\": -32002, "
    );
    assert!(text.starts_with(&expected), "{text}");
    assert_eq!(text.matches("there is no terminal `term-").count(), 2, "{text}");
    assert_eq!(rig.workspace("sub/made.txt").as_deref(), Some("made\n"));
    let ran = ran(&played);
    assert_eq!((ran.len(), ran[0].0.as_str()), (1, "tribune-callback-1"));
    assert!(ran[0].1.starts_with("exit code 3\n[stdout]\n/workspace/sub\n"), "{ran:?}");
    let call = played.of_type("tool_call")[0];
    assert_eq!(call["input"], json!({ "command": command, "cwd": "sub" }));
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_what_the_law_denies_is_not_run_and_the_agent_is_told_why() {
    let mut rig = Rig::new(Setting { tools: "read, write", profile: OFFERED, ..Setting::default() }).await;
    let played = rig.plays(json!([create("echo x > made.txt")])).await;
    assert!(played.text.starts_with("[-32603 denied (mandate"), "{}", played.text);
    assert_eq!(rig.workspace("made.txt"), None);
    let verdicts = judged(&played);
    assert_eq!((verdicts.len(), &verdicts[0]["decision"]), (1, &json!("deny")), "it is on record");
    rig.end();

    // Without the capability, the method does not exist.
    let mut rig = Rig::new(Setting::default()).await;
    let played = rig.plays(json!([create("true"), { "terminal": ["output", "t"] }])).await;
    assert_eq!(played.text.matches("this is not offered here").count(), 2, "{}", played.text);
    assert_eq!(played.of_type("tool_call").len(), 0);
    rig.end();
}

/// There is one approval per command, however the agent announces it.
#[tokio::test(flavor = "multi_thread")]
async fn l2_a_person_is_asked_once_about_a_command() {
    let mut rig = asking().await;
    let mut operator = rig.operator().await;
    // Only the terminal request.
    let running =
        rig.begins(json!([create("echo one >> made.txt"), { "terminal": ["wait_for_exit", "t"] }])).await;
    let first = next_question(&mut operator, &[]).await;
    let card = operator.call("approval.show", &json!({ "id": first["id"] })).await.unwrap();
    assert_eq!(card["action"]["input"], json!({ "command": "echo one >> made.txt" }));
    assert_eq!(rig.workspace("made.txt"), None, "nothing runs before the answer");
    Rig::decide(&mut operator, &first, "allow_once").await;
    let played = rig.ended(running).await;
    assert_eq!(played.text, "[open][{\"exitCode\": 0, \"signal\": null}]", "{played:#?}");
    assert_eq!(rig.workspace("made.txt").as_deref(), Some("one\n"));

    // A permission request first, then reported as done.
    let command = "echo two >> made.txt";
    let mut ask = run("r1", command);
    ask.as_object_mut().unwrap().remove("do");
    let shows = |status: &str| {
        let content = [json!({ "type": "terminal", "terminalId": "$t" })];
        json!({ "update": { "sessionUpdate": "tool_call_update", "toolCallId": "r1", "status": status, "content": content } })
    };
    let acts = json!([
        ask, create(command), shows("in_progress"), { "terminal": ["wait_for_exit", "t"] }, shows("completed"),
        // The same again is another call.
        create(command),
    ]);
    let running = rig.begins(acts).await;
    let second = next_question(&mut operator, &[&first["id"]]).await;
    Rig::decide(&mut operator, &second, "allow_once").await;
    let third = next_question(&mut operator, &[&first["id"], &second["id"]]).await;
    assert_eq!(rig.workspace("made.txt").as_deref(), Some("one\ntwo\n"));
    Rig::decide(&mut operator, &third, "deny").await;
    let played = rig.ended(running).await;
    assert!(
        played.text.starts_with("[yes][open][{\"exitCode\": 0, \"signal\": null}][-32603 denied by operator"),
        "{played:#?}"
    );
    assert_eq!(rig.workspace("made.txt").as_deref(), Some("one\ntwo\n"));
    assert_eq!(played.of_type("ungoverned").len(), 0);
    let ids: Vec<String> = ran(&played).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["r1", "tribune-callback-1"]);

    // Announced without a permission request: the terminal request is the question.
    let told = json!({ "update": { "sessionUpdate": "tool_call", "toolCallId": "r2", "title": "Three", "kind": "execute",
                                   "status": "in_progress", "rawInput": { "command": "echo three" } } });
    let done = json!({ "update": { "sessionUpdate": "tool_call_update", "toolCallId": "r2", "status": "completed" } });
    let acts = json!([told, create("echo three"), { "terminal": ["wait_for_exit", "t"] }, done]);
    let running = rig.begins(acts).await;
    let fourth = next_question(&mut operator, &[&first["id"], &second["id"], &third["id"]]).await;
    Rig::decide(&mut operator, &fourth, "allow_once").await;
    let played = rig.ended(running).await;
    assert_eq!(
        (played.stop.as_str(), played.of_type("approval_requested").len()),
        ("end_turn", 1),
        "{played:#?}"
    );
    assert_eq!(ran(&played)[0].0, "r2");
    rig.end();
}

/// Output that was read from a running command changes the labels before the command ends.
#[tokio::test(flavor = "multi_thread")]
async fn l1_labels_sink_before_anything_is_seen_of_a_command() {
    let mut rig = Rig::new(Setting { profile: OFFERED, ..Setting::default() }).await;
    let write = |name: &str| super::write(name, &format!("{name}.txt"), "x");
    let command = "echo started; until [ -e go ]; do sleep 0.02; done; echo ended";
    let acts = json!([
        write("before"),
        create(command), { "until": ["t", "started"] }, { "terminal": ["output", "t"] },
        write("while"),
        { "do": { "write": ["/workspace/go", ""] } }, { "terminal": ["wait_for_exit", "t"] }, { "terminal": ["output", "t"] },
        write("after"),
    ]);
    let played = rig.plays(acts).await;
    assert!(played.text.contains("[{\"output\": \"started\\n\", \"truncated\": false}]"), "{}", played.text);
    assert!(played.text.contains("\"output\": \"started\\nended\\n\""), "{}", played.text);
    let labels: Vec<&Value> =
        judged(&played).into_iter().map(|verdict| &verdict["facts"]["labels"]).collect();
    let [before, _, meanwhile, after] = labels.as_slice() else { panic!("{labels:?}") };
    assert_eq!((&before["private"], &meanwhile["private"]), (&json!(false), &json!(true)), "while it runs");
    assert_eq!(meanwhile, after);
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_command_that_is_killed_or_released_leaves_nothing_running() {
    let mut rig = Rig::new(Setting { profile: OFFERED, ..Setting::default() }).await;
    for what in ["kill", "release"] {
        let mark = mark();
        let acts = json!([
            endless(&mark), { "until": ["t", "started"] }, { "terminal": [what, "t"] }, { "terminal": ["output", "t"] }, { "hang": true },
        ]);
        let running = rig.begins(acts).await;
        let before = rig.hangs().await;
        // The agent got the result after the command's end.
        assert_eq!(sleeping(&mark), [""; 0], "{what}");
        let mut operator = rig.operator().await;
        operator.call("session.cancel", &json!({ "session_key": super::KEY })).await.unwrap();
        let played = rig.ended(running).await.after(before);
        assert_eq!(played.stop, "cancelled");
        let text = &played.text;
        match what {
            "kill" => {
                assert!(
                    text.contains(
                    "[{}][{\"exitStatus\": {\"exitCode\": null, \"signal\": \"SIGKILL\"}, \"output\": \"started\\n\""
                ),
                "{text}"
                )
            }
            _ => assert!(text.contains("there is no terminal"), "{text}"),
        }
        let ran = ran(&played);
        assert!(
            ran[0].1.contains("were ended, because its agent requested it\n[stdout]\nstarted"),
            "{ran:?}"
        );
        assert_eq!(ended(&played), ["killed"], "{what}: {played:#?}");
    }
    let shown = rig.place.ok(&["sessions", "show", super::KEY]);
    let commands: Vec<&str> = shown.lines().filter(|line| line.starts_with("exec ")).collect();
    assert_eq!(commands.len(), 2, "{shown}");
    assert!(commands.iter().all(|line| line.contains("  killed  ")), "{shown}");
    rig.end();
}

/// However a turn ends, no process is left running, and every call has its outcome.
#[tokio::test(flavor = "multi_thread")]
async fn l2_end_of_a_turn_ends_its_commands() {
    let mut rig = Rig::new(Setting { profile: OFFERED, ..Setting::default() }).await;
    for how in ["done", "cancelled", "killed", "exits", "closed", "ungoverned"] {
        let mark = mark();
        let mut acts = vec![endless(&mark), json!({ "until": ["t", "started"] })];
        match how {
            "done" => {}
            "exits" => acts.push(json!({ "exit": 3 })),
            "ungoverned" => {
                acts.push(super::unasked("completed", "execute", json!({ "command": "ls", "args": ["x"] })))
            }
            _ => acts.push(json!({ "hang": true })),
        }
        let running = rig.begins(Value::Array(acts)).await;
        let mut before = Vec::new();
        if matches!(how, "cancelled" | "killed" | "closed") {
            before = rig.hangs().await;
            until("it runs", || sleeping(&mark).len() == 2).await;
        }
        let mut operator = rig.operator().await;
        let session = json!({ "session_key": super::KEY });
        match how {
            "cancelled" => drop(operator.call("session.cancel", &session).await.unwrap()),
            "closed" => drop(operator.call("session.close", &session).await.unwrap()),
            "killed" => {
                for pid in rig.agent_processes() {
                    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            _ => {}
        }
        let played = rig.ended(running).await.after(before);
        until(&format!("{how}: nothing runs"), || sleeping(&mark).is_empty()).await;
        let ran: Vec<_> =
            ran(&played).into_iter().filter(|(id, _)| id.starts_with("tribune-callback")).collect();
        assert_eq!(ran.len(), 1, "{how}: {played:#?}");
        if how == "done" {
            assert_eq!(played.stop, "end_turn");
            assert!(ran[0].1.contains("were ended, because its turn was over"), "{ran:?}");
        }
        assert_eq!(ended(&played), ["cancelled"], "{how}: {played:#?}");
        assert_eq!(played.of_type("ungoverned").len(), usize::from(how == "ungoverned"));
        if how == "closed" {
            rig.client.call("session.init", &session).await.unwrap();
        }
    }
    rig.end();
}

/// The daemon itself ends: its commands are gone, and the call is recorded as interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn l2_a_command_ends_with_its_daemon() {
    let mut rig = Rig::new(Setting { profile: OFFERED, ..Setting::default() }).await;
    let mark = mark();
    rig.begins(json!([endless(&mark), { "until": ["t", "started"] }, { "hang": true }])).await;
    rig.hangs().await;
    until("it runs", || sleeping(&mark).len() == 2).await;
    let mut rig = rig.killed().await;
    until("nothing runs", || sleeping(&mark).is_empty()).await;
    // A terminal id is not valid in the next process.
    let played = rig.plays(json!([{ "terminal": ["output", "term-1"] }, "turns"])).await;
    assert!(
        played.text.contains("there is no terminal `term-1`") && played.text.ends_with("turn 2"),
        "{}",
        played.text
    );
    let place = rig.end();
    let reader = Reader::open(&Home::at(place.home())).unwrap();
    let entries = (0..).map_while(|index| reader.entry(index).unwrap()).map(|stored| stored.entry);
    let results = entries.filter(|entry| entry.quality == EntryQuality::ToolResult);
    let results: Vec<ToolResultRecord> =
        results.map(|entry| serde_json::from_str(&entry.payload).unwrap()).collect();
    let results: Vec<_> = results.iter().map(|result| (result.call_id.as_str(), result.outcome)).collect();
    assert_eq!(results, [("tribune-callback-1", CallOutcome::Interrupted)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn l9_an_output_without_end_is_kept_within_bounds() {
    let mut rig = Rig::new(Setting { profile: OFFERED, ..Setting::default() }).await;
    let memory = |rig: &Rig| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", rig.daemon())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = memory(&rig);
    let acts = json!([
        { "create": { "command": "yes äöü | head -c 200000000; echo; printf '€nd'", "outputByteLimit": 9 }, "as": "few" },
        { "create": { "command": "yes 12345678 | head -c 200000000", "outputByteLimit": 1_000_000_000 }, "as": "many" },
        { "terminal": ["wait_for_exit", "few"] }, { "terminal": ["wait_for_exit", "many"] },
        { "terminal": ["output", "few"] }, { "terminal": ["output", "many"] },
    ]);
    let played = rig.plays(acts).await;
    let text = &played.text;
    // Nine bytes: a character that starts before them is dropped as a whole.
    let few = text.split("\"output\": \"").nth(1).unwrap();
    assert!(few.starts_with("\\u00f6\\n\\u20acnd\", \"truncated\": true}"), "{few}");
    let many = text.split("\"output\": \"").nth(2).unwrap().split('"').next().unwrap();
    let bytes = many.replace("\\n", "\n").len();
    assert!((250_000..=256 << 10).contains(&bytes), "{bytes}");
    let grown = memory(&rig).saturating_sub(before);
    assert!(grown < 200 << 10, "it grew by {grown} kB");
    rig.end();
}

/// Terminals are limited in number, and all of them end with their turn.
#[tokio::test(flavor = "multi_thread")]
async fn l9_terminals_without_end_are_refused() {
    let mut rig = Rig::new(Setting { profile: OFFERED, ..Setting::default() }).await;
    let mark = mark();
    let flood = json!({ "request": "terminal/create", "params": { "command": format!("sleep {mark}") }, "times": 200, "bytes": 1 });
    let played = rig.plays(json!([flood, create("true"), { "say": "done" }])).await;
    assert!(
        played.text.contains("16 terminals are open") && played.text.ends_with("done"),
        "{}",
        played.text
    );
    assert!(ran(&played).len() <= 16, "{}", ran(&played).len());
    until("nothing runs", || sleeping(&mark).is_empty()).await;
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_nothing_leads_out_of_the_workspace_or_past_the_law() {
    let mut rig = Rig::new(Setting { profile: OFFERED, ..Setting::default() }).await;
    let workspace = rig.place.home().join("agents/coder/workspace");
    std::os::unix::fs::symlink("/etc", workspace.join("out")).unwrap();
    let with = |more: Value| {
        let mut params = json!({ "command": "echo ran >> made.txt" });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "create": params })
    };
    let variable = |name: &str| json!({ "env": [{ "name": name, "value": "/workspace/evil.so" }] });
    let acts = json!([
        with(json!({ "cwd": "/etc" })),
        with(json!({ "cwd": "/workspace/../.." })),
        with(json!({ "cwd": "/workspace/out" })),
        with(json!({ "cwd": "/workspace/nowhere" })),
        with(json!({ "cwd": "/workspace/notes.txt" })),
        with(variable("LD_PRELOAD")),
        with(variable("PATH")),
        with(variable("A\u{0}B")),
        create("echo a\u{0}b"),
        with(json!({ "args": ["a\u{0}"] })),
        with(json!({ "args": { "x": 1 } })),
        create(""),
        create(&format!("echo {}", "x".repeat(40_000))),
    ]);
    let count = acts.as_array().unwrap().len();
    let played = rig.plays(acts).await;
    assert_eq!(played.text.matches("[-32").count(), count, "{}", played.text);
    assert!(!played.text.contains("[open]"), "{}", played.text);
    for why in
        ["`LD_PRELOAD`", "`PATH`", "NUL", "leads out of the workspace", "`args` is a list", "is a file"]
    {
        assert!(played.text.contains(why), "{why}: {}", played.text);
    }
    assert_eq!(rig.workspace("made.txt"), None);

    // A terminal belongs to its session.
    let other = "agent:coder:rpc:local:dm:other";
    rig.client.call("session.init", &json!({ "session_key": other })).await.unwrap();
    let mark = mark();
    let running = rig.begins(json!([endless(&mark), { "until": ["t", "started"] }, { "hang": true }])).await;
    rig.hangs().await;
    until("it runs", || sleeping(&mark).len() == 2).await;
    let names: Vec<Value> = (1..=9).map(|n| json!({ "terminal": ["kill", format!("term-{n}")] })).collect();
    let meddling = rig.begins_in(other, Value::Array(names)).await;
    let meddled = rig.ended(meddling).await;
    assert_eq!(meddled.text.matches("there is no terminal").count(), 9, "{}", meddled.text);
    assert_eq!(sleeping(&mark).len(), 2, "nobody else ends it");
    let mut operator = rig.operator().await;
    operator.call("session.cancel", &json!({ "session_key": super::KEY })).await.unwrap();
    rig.ended(running).await;
    until("nothing runs", || sleeping(&mark).is_empty()).await;
    assert_eq!(below(rig.daemon(), &mark), [0; 0]);
    rig.end();
}
