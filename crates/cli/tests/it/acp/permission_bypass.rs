//! Agents that try to bypass permission requests, each in one way: permission for one call and another executed, ids
//! used again, one permission for many calls, updates outside of a turn, one file under many names.

use serde_json::{Value, json};

use super::ungoverned::is_ungoverned;
use super::{ASK, FREE, FinishedTurn, KEY, Rig, Setting, run, until};
use crate::sandboxed_commands::{mark, sleeping};

/// Denies reads in this folder.
const SECRETS: &str = r#"
    @id("free") permit(principal, action in Tribune::Action::"side_effect", resource);
    @id("secrets") forbid(principal, action == Tribune::Action::"read", resource) when { context has path && context.path like "secrets/*" };
"#;

/// Commands are allowed; file changes need an approval.
const ASK_CHANGES: &str = r#"
    @id("free") permit(principal, action in Tribune::Action::"side_effect", resource);
    @id("ask") forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit"], resource) unless { context.approved };
"#;

fn told(id: &str, status: &str, more: Value) -> Value {
    let mut update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": status });
    merge(&mut update, more);
    json!({ "update": update })
}

fn begun(id: &str, status: &str, more: Value) -> Value {
    let mut told = told(id, status, more);
    told["update"]["sessionUpdate"] = json!("tool_call");
    told
}

fn merge(into: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!() };
    into.as_object_mut().unwrap().extend(more);
}

fn asked(id: &str, command: &str) -> Value {
    let mut ask = run(id, command);
    ask.as_object_mut().unwrap().remove("do");
    ask
}

/// A permission request for a file change.
fn changes(id: &str, path: &str) -> Value {
    let mut ask = edit(path);
    ask["toolCallId"] = json!(id);
    json!({ "ask": ask })
}

fn edit(path: &str) -> Value {
    let file = format!("/workspace/{path}");
    let diff = json!({ "type": "diff", "path": file, "newText": "x" });
    json!({ "kind": "edit", "title": format!("Edit {path}"), "content": [diff], "locations": [{ "path": file }] })
}

async fn played(law: &str, acts: Value) -> FinishedTurn {
    let mut rig = Rig::new(Setting { law, ..Setting::default() }).await;
    let played = rig.plays(acts).await;
    rig.end();
    played
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_permission_covers_only_the_requested_call() {
    for (what, acts) in [
        ("another kind", json!([asked("t", "ls"), told("t", "completed", edit("made.txt"))])),
        (
            "a further file",
            json!([
                { "update": { "sessionUpdate": "tool_call", "toolCallId": "t", "kind": "read", "rawInput": { "path": "/workspace/notes.txt" } } },
                { "ask": { "toolCallId": "t", "kind": "read", "rawInput": { "path": "/workspace/notes.txt" } } },
                told("t", "completed", edit("made.txt")),
            ]),
        ),
        (
            "under the id of a call that is over",
            json!([
                begun(
                    "t",
                    "completed",
                    json!({ "kind": "read", "rawInput": { "path": "/workspace/notes.txt" } })
                ),
                begun("t", "completed", edit("made.txt")),
            ]),
        ),
        (
            "asked about again after its end",
            json!([
                asked("t", "ls"),
                told("t", "completed", json!({})),
                asked("t", "ls"),
                told("t", "completed", edit("made.txt"))
            ]),
        ),
        ("begun and gone", json!([begun("t", "in_progress", edit("made.txt")), { "exit": 0 }])),
        (
            "begun, and then no protocol",
            json!([begun("t", "in_progress", edit("made.txt")), { "raw": "{\"id\":4711,\"result\":1}" }, { "hang": true }]),
        ),
        ("with a status that nobody knows", json!([begun("t", "done", edit("made.txt"))])),
        (
            "as a thought",
            json!([begun(
                "t",
                "completed",
                json!({ "kind": "think", "rawInput": { "command": "rm -rf src" } })
            )]),
        ),
    ] {
        let played = played(ASK_CHANGES, acts).await;
        assert!(is_ungoverned(&played), "{what}: {played:#?}");
    }
}

/// An agent that announces a mode without permission requests is ended.
#[tokio::test(flavor = "multi_thread")]
async fn l1_agent_cannot_leave_its_permission_mode() {
    let mode =
        |mode: &str| json!({ "update": { "sessionUpdate": "current_mode_update", "currentModeId": mode } });
    let mut rig = Rig::new(Setting { profile: ", mode: 'asking'", ..Setting::default() }).await;
    let said = rig.plays(json!([mode("asking"), { "say": "good" }])).await;
    assert_eq!((said.stop.as_str(), said.text.as_str()), ("end_turn", "good"), "{said:#?}");
    let left = rig.plays(json!([mode("bypass"), { "say": "free" }])).await;
    assert!(is_ungoverned(&left) && left.text.is_empty(), "{left:#?}");
    rig.end();
}

/// A change of another file than the one that was allowed.
#[tokio::test(flavor = "multi_thread")]
async fn l1_permission_for_a_file_covers_no_other_file() {
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let running = rig.begins(json!([changes("t", "a.txt"), told("t", "completed", edit("b.txt"))])).await;
    let waiting = Rig::waiting(&mut operator).await;
    Rig::decide(&mut operator, &waiting[0], "allow_once").await;
    let played = rig.ended(running).await;
    assert!(is_ungoverned(&played), "{played:#?}");
    rig.end();
    // A refused call that is reported as failed, then as completed.
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let acts =
        json!([changes("t", "a.txt"), told("t", "failed", json!({})), told("t", "completed", json!({}))]);
    let running = rig.begins(acts).await;
    let waiting = Rig::waiting(&mut operator).await;
    Rig::decide(&mut operator, &waiting[0], "deny").await;
    let played = rig.ended(running).await;
    assert!(is_ungoverned(&played), "{played:#?}");
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_permission_is_used_once() {
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let running =
        rig.begins(json!([changes("t", "a.txt"), changes("t", "a.txt"), changes("t", "a.txt")])).await;
    let mut seen: Vec<Value> = Vec::new();
    // The third is not asked about: it is the action that was just denied.
    for decision in ["allow_once", "deny"] {
        let next = loop {
            let waiting = Rig::waiting(&mut operator).await;
            if !seen.contains(&waiting[0]["id"]) {
                break waiting[0].clone();
            }
        };
        seen.push(next["id"].clone());
        Rig::decide(&mut operator, &next, decision).await;
    }
    let played = rig.ended(running).await;
    assert_eq!(played.text, "[yes][no][no]", "{played:#?}");
    assert_eq!(played.of_type("tool_call").len(), 3, "each is on record: {played:#?}");
    rig.end();
}

/// A call that is reported as failed may still have had an effect.
#[tokio::test(flavor = "multi_thread")]
async fn l1_failed_call_counts_as_executed() {
    let acts = json!([begun("t", "in_progress", edit("made.txt")), told("t", "failed", json!({}))]);
    let played = played(ASK, acts).await;
    assert!(is_ungoverned(&played), "{played:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_update_after_the_turn_is_noticed() {
    for acts in [
        json!([{ "afterwards": begun("u", "pending", edit("b.txt"))["update"] }, { "afterwards": told("u", "completed", json!({}))["update"] }]),
        json!([
            { "afterwards": "later" }, { "afterwards": begun("u", "pending", edit("b.txt"))["update"] },
            { "afterwards": told("u", "completed", json!({}))["update"] },
        ]),
    ] {
        let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
        let before = rig.plays(acts).await;
        std::fs::write(rig.place.home().join("agents/coder/workspace/later"), "").unwrap();
        // It answers in order, so its updates have arrived by then.
        let during = rig.plays(json!([{ "say": "good morning" }])).await;
        let after = rig.plays(json!([{ "say": "good morning" }])).await;
        let is_noticed = [&before, &during, &after].into_iter().any(is_ungoverned);
        assert!(is_noticed && after.text.is_empty(), "{before:#?} {during:#?} {after:#?}");
        rig.end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_file_names_are_canonical() {
    let read = |path: &str| json!({ "ask": { "toolCallId": path, "name": "Read", "kind": "read", "rawInput": { "file_path": path } } });
    let mut rig = Rig::new(Setting { law: SECRETS, ..Setting::default() }).await;
    let workspace = rig.place.home().join("agents/coder/workspace");
    std::fs::create_dir(workspace.join("secrets")).unwrap();
    std::fs::write(workspace.join("secrets/key"), "hush").unwrap();
    std::os::unix::fs::symlink("secrets", workspace.join("open")).unwrap();
    std::fs::hard_link(workspace.join("secrets/key"), workspace.join("twin")).unwrap();
    let names = [
        "/workspace/secrets/key",
        "//workspace/secrets/key",
        "/workspace/./secrets//key",
        "/workspace/../workspace/secrets/key",
        "/proc/self/cwd/secrets/key",
        "/proc/self/root/workspace/secrets/key",
        "/workspace/open/key",
        "/workspace/twin",
        "/home/session/link/key",
        "open/../secrets/key",
        "../workspace/secrets/key",
    ];
    let acts: Vec<Value> = names.map(read).into_iter().chain([read("/workspace/notes.txt")]).collect();
    let played = rig.plays(json!(acts)).await;
    assert_eq!(played.text, format!("{}[yes]", "[no]".repeat(names.len())), "{played:#?}");
    rig.end();
}

/// The approver sees the whole call, and the decision is valid for that call only.
#[tokio::test(flavor = "multi_thread")]
async fn l2_approval_binds_the_exact_call() {
    let edits = |new: &str| {
        let raw = json!({ "file_path": "/workspace/notes.txt", "edits": [{ "old_string": "notes", "new_string": new }] });
        json!({ "ask": { "toolCallId": "e", "name": "MultiEdit", "kind": "edit", "rawInput": raw } })
    };
    let played = played(FREE, json!([edits("x")])).await;
    assert_eq!(played.text, "[no]", "an unshown call is a tool of its own: {played:#?}");
    let call = played.of_type("tool_call");
    assert_eq!(
        (&call[0]["name"], &call[0]["input"]["edits"][0]["new_string"]),
        (&json!("cli.MultiEdit"), &json!("x"))
    );
}

fn peak(rig: &Rig) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", rig.daemon())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Megabytes that a daemon may use while an agent sends as much as it can.
const MOST: u64 = 500;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_fill_the_memory() {
    let mut rig = Rig::new(Setting::default()).await;
    let flood = json!({ "flood": { "sessionUpdate": "tool_call_update" }, "times": 400, "bytes": 3 << 20 });
    let played = rig.plays(json!([flood, { "hang": true }])).await;
    assert_eq!(played.error().0, "agent_protocol", "{played:#?}");
    assert!(peak(&rig) < MOST, "{} MB", peak(&rig));
    rig.end();

    let profile = ", capabilities: { fs: { writeTextFile: true } }";
    let mut rig = Rig::new(Setting { law: ASK, profile, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let params = json!({ "path": "/workspace/a.txt" });
    let flood = json!({ "request": "fs/write_text_file", "params": params, "times": 1500, "bytes": 900_000 });
    let running = rig.begins(json!([flood, { "hang": true }])).await;
    rig.hangs().await;
    operator.call("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
    rig.ended(running).await;
    assert!(peak(&rig) < MOST, "{} MB", peak(&rig));
    rig.end();
}

/// One update that lists many files is stored once, and counts as one unknown call.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_fill_the_disk_with_one_line() {
    let nothing = r#"@id("nothing") forbid(principal, action, resource);"#;
    let diffs: Vec<Value> = (0..300)
        .map(|n| json!({ "type": "diff", "path": format!("/workspace/{n}"), "newText": "x".repeat(2000) }))
        .collect();
    let mut rig = Rig::new(Setting { law: nothing, ..Setting::default() }).await;
    let few: Vec<Value> = diffs[..40].to_vec();
    for (id, diffs, calls) in [("many", &diffs, 1), ("few", &few, 1)] {
        let update = begun(id, "failed", json!({ "kind": "edit", "name": "patch", "content": diffs }));
        let played = rig.plays(json!([update])).await;
        assert_eq!(played.of_type("tool_call").len(), calls, "{id}: {:#?}", played.of_type("tool_call"));
    }
    rig.end();
}

/// No file is written for an agent whose turn was cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn l8_nothing_is_done_for_it_after_a_cancel() {
    let profile = ", capabilities: { fs: { writeTextFile: true, readTextFile: true } }";
    let mut rig = Rig::new(Setting { profile, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let late = json!({ "path": "/workspace/late.txt", "content": "late" });
    let acts = json!([
        { "update": { "sessionUpdate": "hanging" } }, { "pause": true },
        { "fs": ["fs/write_text_file", late] }, { "fs": ["fs/read_text_file", { "path": "/workspace/notes.txt" }] },
    ]);
    let running = rig.begins(acts).await;
    rig.hangs().await;
    operator.call("session.cancel", &json!({ "session_key": KEY })).await.unwrap();
    let played = rig.ended(running).await;
    assert_eq!(played.stop, "cancelled", "{played:#?}");
    assert_eq!((rig.workspace("late.txt"), played.of_type("tool_call").len()), (None, 0), "{played:#?}");
    rig.end();
}

/// Processes that an agent left running end with `stop-all`, and the agent works again after `resume`.
#[tokio::test(flavor = "multi_thread")]
async fn l8_stop_all_ends_leftover_processes() {
    let mark = mark();
    let mut rig = Rig::new(Setting::default()).await;
    rig.plays(json!([{ "child": mark }])).await;
    assert_eq!(sleeping(&mark).len(), 1);
    let mut operator = rig.operator().await;
    operator.call("gate.stop_all", &json!({})).await.unwrap();
    until("nothing of it runs", || sleeping(&mark).is_empty()).await;
    operator.call("gate.resume", &json!({})).await.unwrap();
    let after = rig.plays(json!(["turns"])).await;
    assert_eq!(after.text, "turn 2", "{after:#?}");
    rig.end();
}

/// It does not see settings that lie in the workspace or were left in its home.
#[tokio::test(flavor = "multi_thread")]
async fn l1_planted_settings_are_hidden() {
    let mut rig = Rig::new(Setting {
        profile: ", system: { 'played/settings.json': { ask: true } }",
        ..Setting::default()
    })
    .await;
    let workspace = rig.place.home().join("agents/coder/workspace");
    std::fs::create_dir_all(workspace.join("sub/.played")).unwrap();
    std::fs::write(workspace.join("sub/.played/hooks"), "evil").unwrap();
    std::fs::write(workspace.join(".played"), "evil").unwrap();
    let look = "cat /workspace/.played /workspace/sub/.played/hooks ~/.settings ~/talks/extra 2>/dev/null; cat /etc/played/settings.json; \
                echo x > /etc/played/settings.json || echo held";
    let plant = "echo evil > ~/.settings; mkdir -p ~/talks; echo talk > ~/talks/extra";
    let first =
        rig.plays(json!([{ "do": { "run": look } }, { "do": { "run": plant } }, { "exit": 0 }])).await;
    assert!(!first.text.contains("evil") && first.text.contains("\"ask\": true"), "{first:#?}");
    assert!(first.text.contains("held"), "{first:#?}");
    let second = rig.plays(json!([{ "do": { "run": look } }])).await;
    assert!(!second.text.contains("evil") && second.text.contains("talk"), "{second:#?}");
    rig.end();
}

/// An allowed command can create autorun files. This cannot be prevented, so it is reported.
#[tokio::test(flavor = "multi_thread")]
async fn l3_autorun_files_left_by_a_command_are_reported() {
    let mut rig = Rig::new(Setting::default()).await;
    let quiet = rig.plays(json!([run("a", "touch plain.txt")])).await;
    assert_eq!(quiet.of_type("notice").len(), 0, "{quiet:#?}");
    let plant = "mkdir -p .vscode .git/hooks; touch .envrc .vscode/tasks.json .git/hooks/pre-commit";
    let played = rig.plays(json!([run("b", plant)])).await;
    let notices = played.of_type("notice");
    assert_eq!((notices.len(), &notices[0]["code"]), (1, &json!("obeyed_names")), "{played:#?}");
    let message = notices[0]["message"].as_str().unwrap();
    assert!(message.contains("`.envrc`, `.git/hooks/pre-commit`, `.vscode/tasks.json`"), "{message}");
    let notes = played.of_type("ledger_append");
    assert!(notes.iter().any(|note| note["entry"]["payload"]["event"] == "obeyed_names"), "{notes:#?}");
    let again = rig.plays(json!([run("c", "touch plain.txt")])).await;
    assert_eq!(again.of_type("notice").len(), 0, "it was told: {again:#?}");
    rig.end();
}
