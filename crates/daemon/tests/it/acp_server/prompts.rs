//! Prompts: one at a time, cancelled at any point, large, and concurrent.

use serde_json::{Value, json};

use super::{Editor, code, load, path, setup, text_of};
use crate::approvals::write;

#[tokio::test]
async fn prompt_streams_and_returns_its_stop_reason() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let ended = editor.prompt(&session, "!think hm\n!say one\n!say two").await;
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    let updates = editor.updates(&session);
    assert_eq!(text_of(&updates, "agent_message_chunk"), "one\ntwo");
    assert_eq!(text_of(&updates, "agent_thought_chunk"), "hm");
    assert_eq!(text_of(&updates, "user_message_chunk"), "", "the sender gets no echo");
    let kinds: Vec<&str> = updates.iter().filter_map(|update| update["sessionUpdate"].as_str()).collect();
    assert!(
        kinds.contains(&"available_commands_update") && kinds.contains(&"session_info_update"),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn failed_turn_returns_an_error_with_its_message() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let failed = editor.prompt(&session, "!say half\n!fail overloaded Come back later.").await;
    assert_eq!(code(&failed), -32603);
    assert!(failed["error"]["message"].as_str().unwrap().contains("Come back later."), "{failed}");
    assert_eq!(editor.prompt(&session, "!say again").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_prompt_while_a_prompt_runs_is_refused() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let first = editor.send_prompt(&session, "/play slow").await;
    editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    assert_eq!(code(&editor.prompt(&session, "!say me too").await), -32600);
    editor.notify("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(editor.answer(first).await["result"]["stopReason"], "cancelled");
    assert_eq!(editor.prompt(&session, "!say now").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn cancel_of_an_idle_session_changes_nothing() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    editor.notify("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(editor.prompt(&session, "!say fine").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn cancel_of_a_running_prompt_returns_cancelled() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    // Immediately, before it is known whether the turn began.
    let prompt = editor.send_prompt(&session, "/play slow").await;
    editor.notify("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
    // And in the middle, by the id of the request.
    let prompt = editor.send_prompt(&session, "/play slow").await;
    editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    editor.notify("$/cancel_request", json!({ "requestId": prompt })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn queued_prompt_can_be_cancelled() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let (mut one, mut two) = (Editor::ready(&daemon).await, Editor::ready(&daemon).await);
    let session = one.session(&cwd).await;
    two.call("session/resume", load(&session, &cwd)).await;
    let running = one.send_prompt(&session, "/play slow").await;
    two.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    let by_session = two.send_prompt(&session, "!say never").await;
    two.notify("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(two.answer(by_session).await["result"]["stopReason"], "cancelled");
    let by_request = two.send_prompt(&session, "!say never").await;
    two.notify("$/cancel_request", json!({ "requestId": by_request })).await;
    assert_eq!(two.answer(by_request).await["result"]["stopReason"], "cancelled");
    assert!(
        !one.messages.iter().any(|message| message["id"] == running),
        "the other session's turn continues"
    );
    one.notify("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(one.answer(running).await["result"]["stopReason"], "cancelled");
    assert_eq!(two.prompt(&session, "!say last").await["result"]["stopReason"], "end_turn");
    let mut later = Editor::ready(&daemon).await;
    later.call("session/load", load(&session, &cwd)).await;
    let received = text_of(&later.updates(&session), "user_message_chunk");
    assert_eq!(received, "/play slow!say last", "the cancelled prompt was never sent");
}

#[tokio::test]
async fn duplicate_request_id_is_refused_and_the_first_request_continues() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let prompt = editor.send_prompt(&session, "/play slow").await;
    editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    editor.send(&json!({ "jsonrpc": "2.0", "id": prompt, "method": "session/list", "params": {} })).await;
    assert_eq!(code(&editor.answer(prompt).await), -32600);
    editor.notify("$/cancel_request", json!({ "requestId": prompt })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn cancel_withdraws_pending_permission_requests() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let script = "!together\n!  call write {\"path\":\"a\",\"content\":\"1\"}\n!  call write {\"path\":\"b\",\"content\":\"2\"}\n!end";
    let prompt = editor.send_prompt(&session, script).await;
    let (one, two) = (editor.permission_request().await, editor.permission_request().await);
    editor.notify("session/cancel", json!({ "sessionId": session })).await;
    for question in [&one, &two] {
        let outcome = json!({ "outcome": { "outcome": "cancelled" } });
        editor.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": outcome })).await;
    }
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
    let mut operator = daemon.operator().await;
    let waiting = operator.call("approval.list", &json!({})).await.unwrap();
    assert_eq!(waiting["pending"], 0);
    assert!(!folder.path().join("a").exists() && !folder.path().join("b").exists());
    assert_eq!(editor.prompt(&session, "!say usable").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn two_sessions_interleave() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let (one, two) = (editor.session(&path(&folder)).await, editor.session(&path(&folder)).await);
    let waiting = editor.send_prompt(&one, &write("one.txt", "1")).await;
    let question = editor.permission_request().await;
    assert_eq!(question["params"]["sessionId"], one.as_str());
    // The other session continues.
    assert_eq!(editor.prompt(&two, "!say second").await["result"]["stopReason"], "end_turn");
    assert_eq!(text_of(&editor.updates(&two), "agent_message_chunk"), "second");
    editor.choose(&question, "allow_once").await;
    assert_eq!(editor.answer(waiting).await["result"]["stopReason"], "end_turn");
    assert!(text_of(&editor.updates(&one), "agent_message_chunk").contains("one.txt"));
}

#[tokio::test]
async fn prompt_of_five_megabytes_is_accepted() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let long = "x".repeat(5 << 20);
    let blocks = json!([{ "type": "text", "text": "look" }, { "type": "resource", "resource": { "uri": "file:///big", "text": long } }]);
    let ended = editor.call("session/prompt", json!({ "sessionId": session, "prompt": blocks })).await;
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    let answer = editor.call("session/load", load(&session, &path(&folder))).await;
    assert!(answer["result"].is_object(), "{answer}");
    let received: Vec<Value> = editor.updates(&session);
    let big = received.iter().find(|update| update["content"]["resource"]["uri"] == "file:///big").unwrap();
    assert_eq!(big["content"]["resource"]["text"].as_str().unwrap().len(), 5 << 20);
}

#[tokio::test]
async fn slash_tribune_is_answered_by_the_daemon() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    for (command, expected) in [
        ("/tribune", "- mode: enforce"),
        ("/tribune", "- gate: "),
        ("/clawos", "- denied here: nothing"),
        ("/agents", "`main`"),
        ("/approvals", "No call waits"),
        ("/spend", "No model"),
    ] {
        editor.updates(&session);
        assert_eq!(editor.prompt(&session, command).await["result"]["stopReason"], "end_turn");
        let received = text_of(&editor.updates(&session), "agent_message_chunk");
        assert!(received.contains(expected), "{command}: {received}");
    }
    // Text that only begins like a command goes to the agent.
    assert_eq!(editor.prompt(&session, "/agents please").await["result"]["stopReason"], "end_turn");
    assert!(text_of(&editor.updates(&session), "agent_message_chunk").contains("no model"));
}
