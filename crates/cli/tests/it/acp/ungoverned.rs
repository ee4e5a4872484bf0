//! An agent that acts without permission: it is detected, reported, recorded, and not run again.

use serde_json::{Value, json};
use tribune_ledger::EntryQuality;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;

use super::{ASK, FREE, FinishedTurn, Rig, Setting, unasked, until, write};
use crate::sandboxed_commands::{mark, sleeping};

pub(super) fn is_ungoverned(played: &FinishedTurn) -> bool {
    let events = played.of_type("ungoverned");
    events.len() == 1 && played.stop == "error" && played.error().0 == "ungoverned"
}

/// Whether the ledger records it.
fn is_on_record(home: &Home) -> bool {
    let reader = Reader::open(home).unwrap();
    let mut entries = (0..).map_while(|index| reader.entry(index).unwrap());
    entries.any(|stored| {
        stored.entry.quality == EntryQuality::Note
            && stored.entry.payload.contains("\"event\":\"ungoverned\"")
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_call_without_permission_ends_the_turn_and_marks_the_agent() {
    let done = |act: Value| json!([{ "do": { "run": "echo x > b.txt" } }, act, { "say": "and on" }]);
    let mut defiant = write("w", "a.txt", "x");
    defiant["defiant"] = json!(true);
    let cases = [
        ("unasked", ASK, done(unasked("completed", "edit", json!({ "path": "/workspace/b.txt" })))),
        (
            "never told how it ended",
            ASK,
            done(unasked("in_progress", "edit", json!({ "path": "/workspace/b.txt" }))),
        ),
        ("a tool of its own", FREE, done(unasked("completed", "other", json!({})))),
        ("without a word of what it read", FREE, done(unasked("completed", "read", json!({})))),
    ];
    for (what, law, acts) in cases {
        let mut rig = Rig::new(Setting { law, ..Setting::default() }).await;
        let played = rig.plays(acts).await;
        assert!(is_ungoverned(&played), "{what}: {played:#?}");
        let refused = rig.plays(json!([{ "say": "me again" }])).await;
        assert_eq!((refused.error().0.as_str(), refused.text.as_str()), ("ungoverned", ""), "{what}");
        let place = rig.end();
        assert!(is_on_record(&Home::at(place.home())), "{what}");
    }
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let later = unasked("in_progress", "edit", json!({ "path": "/workspace/b.txt" }));
    let before = rig.plays(json!([{ "afterwards": later["update"] }])).await;
    let after = rig.plays(json!([{ "say": "good morning" }])).await;
    let is_noticed = is_ungoverned(&before) || is_ungoverned(&after);
    assert!(is_noticed && after.text.is_empty(), "at work between turns: {before:#?} {after:#?}");
    rig.end();
    // Reported at its start and at its end, with no request in between.
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let (told, done) = (
        unasked("pending", "edit", json!({})),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "u", "status": "completed" }),
    );
    let before = rig.plays(json!([{ "afterwards": told["update"] }, { "afterwards": done }])).await;
    let after = rig.plays(json!([{ "say": "good morning" }])).await;
    let is_noticed = is_ungoverned(&before) || is_ungoverned(&after);
    assert!(is_noticed && after.text.is_empty(), "told and done between turns: {before:#?} {after:#?}");
    rig.end();
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let running = rig.begins(json!([defiant])).await;
    let waiting = Rig::waiting(&mut operator).await;
    Rig::decide(&mut operator, &waiting[0], "deny").await;
    let played = rig.ended(running).await;
    assert!(is_ungoverned(&played), "refused and done all the same: {played:#?}");
    rig.end();
}

/// Calls that need no approval may be reported afterwards; so may thoughts and failed calls.
#[tokio::test(flavor = "multi_thread")]
async fn call_that_needs_no_permission_may_be_reported_late() {
    let mut rig = Rig::new(Setting { law: FREE, ..Setting::default() }).await;
    let mut think = unasked("completed", "think", json!({}));
    think["update"]["toolCallId"] = json!("t");
    let mut failed = unasked("failed", "other", json!({}));
    failed["update"]["toolCallId"] = json!("f");
    let read = unasked("completed", "read", json!({ "file_path": "/workspace/notes.txt" }));
    let played = rig.plays(json!([think, failed, read, { "say": "done" }])).await;
    assert_eq!((played.stop.as_str(), played.text.as_str()), ("end_turn", "done"), "{played:#?}");
    let calls = played.of_type("tool_call");
    assert_eq!(calls.iter().map(|call| &call["name"]).collect::<Vec<_>>(), ["cli.on_its_own", "read"]);
    assert_eq!(calls[1]["input"], json!({ "path": "notes.txt" }));
    rig.end();
}

/// The final report of a call is compared with its permission, and a reused id is another call.
#[tokio::test(flavor = "multi_thread")]
async fn l1_reported_call_must_match_its_permission() {
    let ask = |command: &str| json!({ "ask": { "toolCallId": "t", "title": command, "kind": "execute", "rawInput": { "command": command } } });
    let told = |kind: &str, fields: Value| {
        let mut update = json!({ "sessionUpdate": kind, "toolCallId": "t", "title": "t" });
        update.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({ "update": update })
    };
    let law = r#"
        @id("free") permit(principal, action in Tribune::Action::"side_effect", resource);
        @id("not-there") forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit"], resource)
        when { context has path && context.path like "no/*" };
    "#;
    let diff = |path: &str| json!([{ "type": "diff", "path": format!("/workspace/{path}"), "newText": "x" }]);
    let edit = |status: &str| json!({ "kind": "edit", "status": status, "content": diff("no/a") });
    let asked = |path: &str| json!({ "ask": { "toolCallId": "t", "title": "Write", "kind": "edit", "content": diff(path) } });
    for (what, acts) in [
        (
            "asked for a command, told of an edit",
            json!([ask("ls"), told("tool_call_update", edit("completed"))]),
        ),
        (
            "asked for one file, told of another",
            json!([
                asked("yes"),
                told("tool_call_update", json!({ "content": diff("no/a"), "status": "completed" }))
            ]),
        ),
        (
            "an id that is used again",
            json!([
                ask("ls"),
                told("tool_call_update", json!({ "status": "completed" })),
                told("tool_call", edit("completed"))
            ]),
        ),
        (
            "refused, failed, and done all the same",
            json!([
                asked("no/a"),
                told("tool_call_update", json!({ "status": "failed" })),
                told("tool_call_update", json!({ "status": "completed" }))
            ]),
        ),
        ("an end that nobody knows", json!([told("tool_call", edit("done"))])),
        ("begun, and gone", json!([told("tool_call", edit("in_progress")), { "exit": 0 }])),
    ] {
        let mut rig = Rig::new(Setting { law, ..Setting::default() }).await;
        let mut acts = acts;
        acts.as_array_mut().unwrap().push(json!({ "say": "and on" }));
        let played = rig.plays(acts).await;
        assert!(is_ungoverned(&played), "{what}: {played:#?}");
        rig.end();
    }
    // The executed call matches its request.
    let mut rig = Rig::new(Setting { law, ..Setting::default() }).await;
    let played = rig
        .plays(
            json!([ask("ls"), told("tool_call_update", json!({ "status": "completed" })), { "say": "done" }]),
        )
        .await;
    assert_eq!((played.text.as_str(), played.stop.as_str()), ("[yes]done", "end_turn"), "{played:#?}");
    rig.end();
}

/// The error names the call without permission, whatever title the agent gave it, first or last.
#[tokio::test(flavor = "multi_thread")]
async fn l1_error_names_exactly_the_unpermitted_call() {
    let law = r#"
        @id("free") permit(principal, action in Tribune::Action::"side_effect", resource);
        @id("not-touch") forbid(principal, action == Tribune::Action::"exec", resource)
        when { context has programs && context.programs.contains("touch") };
        @id("not-there") forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit"], resource)
        when { context has path && context.path like "no/*" };
    "#;
    let ask = |command: &str| json!({ "ask": { "toolCallId": "t", "title": command, "kind": "execute", "rawInput": { "command": command } } });
    let told = |title: &str, command: &str, status: &str| {
        json!({ "update": { "sessionUpdate": "tool_call_update", "toolCallId": "t", "title": title, "kind": "execute",
                            "status": status, "rawInput": { "command": command } } })
    };
    let file = |path: &str| json!({ "type": "diff", "path": format!("/workspace/{path}"), "newText": "x" });
    let files = json!({ "update": { "sessionUpdate": "tool_call", "toolCallId": "f", "title": "Write yes.txt", "kind": "edit",
                                    "status": "completed", "content": [file("yes.txt"), file("no/b.txt")] } });
    for (what, acts, named) in [
        // Two requests under one id: permission for the first, none for the second, which is reported as done.
        (
            "asked",
            json!([ask("ls"), ask("touch b"), told("ls", "touch b", "completed")]),
            "`touch b` was executed without permission",
        ),
        // Permission for one command, and another one is reported as done under its id.
        (
            "unasked",
            json!([ask("ls"), told("ls", "touch c", "completed")]),
            "`touch c` was executed without asking: ",
        ),
        // The title changes to something else.
        (
            "renamed",
            json!([told("touch d", "touch d", "in_progress"), told("List files", "touch d", "completed")]),
            "`touch d` was executed without asking: ",
        ),
        ("one file of two", json!([files]), "`write no/b.txt` was executed without asking: "),
    ] {
        let place = Rig::set_up(Setting { law, ..Setting::default() });
        std::fs::write(place.home().join("policy/law.json5"), "{}").unwrap();
        let mut rig = Rig::on(place, &[]).await;
        let played = rig.plays(acts).await;
        assert!(is_ungoverned(&played), "{what}: {played:#?}");
        let told = played.of_type("ungoverned")[0]["what"].as_str().unwrap();
        assert!(told.starts_with(named), "{what}: {told}");
        rig.end();
    }
}

/// A permission is valid for one request, not for every repetition.
#[tokio::test(flavor = "multi_thread")]
async fn l2_repeated_request_is_judged_again() {
    let mut rig = Rig::new(Setting { law: FREE, ..Setting::default() }).await;
    let ask = json!({ "ask": { "toolCallId": "t", "title": "ls", "kind": "execute", "rawInput": { "command": "ls" } } });
    let acts: Vec<Value> = std::iter::repeat_n(ask, 6).collect();
    let played = rig.plays(json!(acts)).await;
    assert_eq!(played.text, "[yes]".repeat(6), "{played:#?}");
    assert_eq!(played.of_type("tool_call").len(), 6, "each is on record: {played:#?}");
    rig.end();
}

/// `stop-all` also ends processes that an agent left running.
#[tokio::test(flavor = "multi_thread")]
async fn l8_stop_all_ends_what_agents_left_running() {
    let mut rig = Rig::new(Setting::default()).await;
    let mark = mark();
    let played = rig.plays(json!([{ "child": mark }])).await;
    assert_eq!(played.stop, "end_turn", "{played:#?}");
    assert_eq!(sleeping(&mark).len(), 1);
    rig.place.ok(&["stop-all"]);
    until("nothing of the agent is left", || sleeping(&mark).is_empty()).await;
    rig.end();
}
