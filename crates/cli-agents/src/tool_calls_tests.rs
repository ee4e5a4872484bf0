use super::*;
use serde_json::json;

#[test]
fn a_request_without_a_path_is_merged_with_the_earlier_report() {
    let mut calls = ReportedCalls::default();
    let report = json!({ "toolCallId": "t", "kind": "read", "rawInput": { "filePath": "/workspace/a" } });
    calls.merge_update(&report, "line 1", UpdateKind::Begins).unwrap();
    let asked = json!({ "toolCallId": "t", "kind": "read", "rawInput": {} });
    let id = calls.merge_update(&asked, "line 2", UpdateKind::Continues).unwrap();
    let call = calls.get(&id).unwrap();
    assert_eq!(call.requested_calls("/workspace")[0].input, json!({ "path": "a" }));
    assert_eq!(call.line(), "line 2");
    assert_eq!(call.ids("t", 2), ["t", "t.2"]);
    assert_eq!(call.ids("t", 1), ["t.3"]);
    assert!(call.ids("böse id", 1)[0].starts_with("call-"));
    let long = "x".repeat(MAX_OWN_ID + 1);
    for nameless in [json!({ "kind": "read" }), json!({ "toolCallId": "" }), json!({ "toolCallId": long })] {
        assert_eq!(calls.merge_update(&nameless, "", UpdateKind::Begins), Err(UpdateError::NoUsableId));
    }
}

#[test]
fn every_kept_byte_counts() {
    let mut calls = ReportedCalls::default();
    // A field that replaces another takes no more room; an added one does.
    let long = "x".repeat(MAX_TOLD_BYTES / 4 - 100);
    let titled = |id: &str| json!({ "toolCallId": id, "title": "x" });
    for _ in 0..10 {
        calls.merge_update(&titled("x"), &long, UpdateKind::Continues).unwrap();
    }
    calls.merge_update(&titled("y"), &long, UpdateKind::Continues).unwrap();
    assert_eq!(calls.merge_update(&titled("z"), &long, UpdateKind::Continues), Err(UpdateError::TooMuch));
    // Lines with unknown fields are kept too.
    let mut calls = ReportedCalls::default();
    let unknown = |n: usize| {
        calls.merge_update(&json!({ "toolCallId": n.to_string(), "_x": 1 }), &long, UpdateKind::Continues)
    };
    let report: Vec<_> = (0..5).map(unknown).collect();
    assert_eq!(report[4], Err(UpdateError::TooMuch), "{report:?}");
    // So are permission requests.
    let mut calls = ReportedCalls::default();
    let id = calls.merge_update(&titled("x"), "", UpdateKind::Begins).unwrap();
    let ask = |n| PermissionAsk::new(n, Vec::new(), "", &long);
    let asked: Vec<_> = (0..5).map(|n| calls.add_ask(&id, ask(n))).collect();
    assert_eq!(asked[4], Err(UpdateError::TooMuch));
}

#[test]
fn a_file_is_written_under_the_permission_for_exactly_that() {
    let mut calls = ReportedCalls::default();
    let diff = json!({ "type": "diff", "path": "/workspace/a", "newText": "n" });
    let report = json!({ "toolCallId": "t", "kind": "edit", "content": [diff] });
    let id = calls.merge_update(&report, "", UpdateKind::Begins).unwrap();
    let wanted = calls.get(&id).unwrap().planned_calls("/workspace").remove(0);
    let mut ask = PermissionAsk::new(0, vec![wanted.clone()], "", "");
    ask.permitted.push(("t".to_owned(), wanted));
    calls.add_ask(&id, ask).unwrap();
    let other = normalize::file_write("/workspace/a", "m", "/workspace");
    assert_eq!(calls.take_write_permission(&other), None);
    let same = normalize::file_write("/workspace/a", "n", "/workspace");
    assert_eq!(calls.take_write_permission(&same).as_deref(), Some("t"));
    assert_eq!(calls.take_write_permission(&same), None, "once");
}
