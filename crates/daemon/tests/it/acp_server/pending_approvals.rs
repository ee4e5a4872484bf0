//! Permission requests that outlive their turn, their connection or their daemon.

use serde_json::{Value, json};
use tribune_testkit::{TestDaemon, config};

use super::{Editor, load, path, setup, text_of};
use crate::approvals::{decide, id, pending, write};

/// Closes the dialog of a permission request without a decision.
async fn dismiss(editor: &mut Editor, question: &Value) {
    let outcome = json!({ "outcome": { "outcome": "cancelled" } });
    editor.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome })).await;
}

fn is_completed(message: &Value) -> bool {
    message["params"]["update"]["status"] == "completed"
}

fn is_question(message: &Value) -> bool {
    message["method"] == "session/request_permission"
}

#[tokio::test]
async fn call_decided_after_a_restart_is_reported_and_not_requested_again() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    editor.send_prompt(&session, &write("a.txt", "one")).await;
    let before = editor.permission_request().await;
    editor.close().await;
    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    let mut editor = Editor::ready(&daemon).await;
    assert!(editor.call("session/load", load(&session, &cwd)).await["result"].is_object());
    let question = editor.permission_request().await;
    let call = question["params"]["toolCall"]["toolCallId"].clone();
    assert_eq!(call, before["params"]["toolCall"]["toolCallId"], "the call keeps its id");
    // Other turns run meanwhile, with calls of the same ids.
    let fetch = "!call web_fetch {\"url\":\"https://example.com/\"}";
    assert_eq!(editor.prompt(&session, fetch).await["result"]["stopReason"], "end_turn");
    editor.updates(&session);
    let mut operator = daemon.operator().await;
    let waiting = pending(&mut operator, 1).await;
    decide(&mut operator, &id(&waiting[0]), json!({ "decision": "allow_once" })).await.unwrap();
    let done = editor.until(is_completed).await;
    assert_eq!(done["params"]["update"]["toolCallId"], call);
    let gone = editor.until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(gone["params"]["requestId"], question["id"]);
    let updates = editor.updates(&session);
    let allowed = updates.iter().find(|update| update["_meta"]["tribune"]["decision"] == "allow").unwrap();
    assert_eq!(allowed["toolCallId"], call);
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "one");
    // No request is pending.
    let mut again = Editor::ready(&daemon).await;
    assert!(again.call("session/load", load(&session, &cwd)).await["result"].is_object());
    again.until(is_completed).await;
    assert_eq!(again.prompt(&session, "!say on").await["result"]["stopReason"], "end_turn");
    assert!(!again.messages.iter().any(is_question), "{:?}", again.messages);
}

#[tokio::test]
async fn subscribers_receive_a_decision_made_after_a_restart() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    editor.send_prompt(&session, &write("a.txt", "one")).await;
    editor.permission_request().await;
    editor.close().await;
    let daemon = TestDaemon::start_at(daemon.stop().await, &config()).await;
    let (mut follower, mut operator) = (daemon.operator().await, daemon.operator().await);
    follower.call("session.events", &json!({ "session_key": session, "after": 0 })).await.unwrap();
    let waiting = pending(&mut operator, 1).await;
    decide(&mut operator, &id(&waiting[0]), json!({ "decision": "deny" })).await.unwrap();
    let mut seen = Vec::new();
    while seen.last() != Some(&json!("approval_decided")) {
        match crate::raw_clients::within("the decision is sent", follower.next()).await.unwrap() {
            tribune_client::RpcIncoming::Notification(update) => {
                seen.push(update.params["event"]["type"].clone())
            }
            tribune_client::RpcIncoming::Response(..) => {}
        }
    }
}

#[tokio::test]
async fn resuming_client_receives_pending_requests_and_no_replay() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    editor.send_prompt(&session, &write("a.txt", "one")).await;
    let first = editor.permission_request().await;
    editor.close().await;
    let mut resumed = Editor::ready(&daemon).await;
    assert!(resumed.call("session/resume", load(&session, &cwd)).await["result"].is_object());
    let mut named = Editor::connect_to(&daemon, None, Some(&session)).await;
    named.call("initialize", json!({ "protocolVersion": 1 })).await;
    assert_eq!(named.session(&cwd).await, session);
    let (question, same) = (resumed.permission_request().await, named.permission_request().await);
    for asked in [&question, &same] {
        assert_eq!(asked["params"]["toolCall"], first["params"]["toolCall"]);
    }
    resumed.choose(&question, "allow_once").await;
    let done = resumed.until(is_completed).await;
    assert_eq!(done["params"]["update"]["toolCallId"], first["params"]["toolCall"]["toolCallId"]);
    let gone = named.until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(gone["params"]["requestId"], same["id"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "one");
    let updates = resumed.updates(&session);
    assert_eq!(text_of(&updates, "user_message_chunk"), "");
    assert!(!updates.iter().any(|update| update["sessionUpdate"] == "tool_call"), "{updates:?}");
}

#[tokio::test]
async fn dismissed_dialog_ends_only_the_turn_of_the_client_that_prompted() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let (mut editor, mut other) = (Editor::ready(&daemon).await, Editor::ready(&daemon).await);
    let session = editor.session(&cwd).await;
    other.call("session/resume", load(&session, &cwd)).await;
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let (mine, theirs) = (editor.permission_request().await, other.permission_request().await);
    dismiss(&mut other, &theirs).await;
    let notice =
        other.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_thought_chunk").await;
    assert!(notice.to_string().contains("tribune approvals allow"), "{notice}");
    dismiss(&mut editor, &mine).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
    assert!(!folder.path().join("a.txt").exists());
    let mut operator = daemon.operator().await;
    pending(&mut operator, 0).await;
}

#[tokio::test]
async fn reloading_a_session_withdraws_its_dialogs_and_requests_again() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    for method in ["session/load", "session/resume"] {
        let mut editor = Editor::ready(&daemon).await;
        let session = editor.session(&cwd).await;
        let prompt = editor.send_prompt(&session, &write("a.txt", method)).await;
        let before = editor.permission_request().await;
        let taken_up = editor.request(method, load(&session, &cwd)).await;
        let gone = editor.until(|message| message["method"] == "$/cancel_request").await;
        assert_eq!(gone["params"]["requestId"], before["id"], "{method}");
        let question = editor.permission_request().await;
        assert!(editor.answer(taken_up).await["result"].is_object());
        editor.choose(&before, "deny").await;
        editor.choose(&question, "allow_once").await;
        assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn", "{method}");
        assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), method);
    }
}

#[tokio::test]
async fn closing_a_session_withdraws_its_dialogs() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let question = editor.permission_request().await;
    let closing = editor.request("session/close", json!({ "sessionId": session })).await;
    let gone = editor.until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(gone["params"]["requestId"], question["id"]);
    assert!(editor.answer(closing).await["result"].is_object());
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
}
