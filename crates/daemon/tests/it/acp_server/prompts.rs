//! Prompts: one at a time, cancelled at any moment, large, and side by side.

use serde_json::{Value, json};

use super::{Editor, code, house, load, path, text_of};
use crate::approvals::write;

#[tokio::test]
async fn a_prompt_streams_and_ends_with_its_reason() {
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let ended = editor.prompt(&session, "!think hm\n!say one\n!say two").await;
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    let updates = editor.updates(&session);
    assert_eq!(text_of(&updates, "agent_message_chunk"), "one\ntwo");
    assert_eq!(text_of(&updates, "agent_thought_chunk"), "hm");
    assert_eq!(text_of(&updates, "user_message_chunk"), "", "whoever said it knows it");
    let kinds: Vec<&str> = updates.iter().filter_map(|update| update["sessionUpdate"].as_str()).collect();
    assert!(
        kinds.contains(&"available_commands_update") && kinds.contains(&"session_info_update"),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn a_failed_turn_is_an_error_with_its_sentence() {
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let failed = editor.prompt(&session, "!say half\n!fail overloaded Come back later.").await;
    assert_eq!(code(&failed), -32603);
    assert!(failed["error"]["message"].as_str().unwrap().contains("Come back later."), "{failed}");
    assert_eq!(editor.prompt(&session, "!say again").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn a_prompt_while_a_prompt_runs_is_refused() {
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let first = editor.say(&session, "/play slow").await;
    editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    assert_eq!(code(&editor.prompt(&session, "!say me too").await), -32600);
    editor.tell("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(editor.answer(first).await["result"]["stopReason"], "cancelled");
    assert_eq!(editor.prompt(&session, "!say now").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn cancel_idle_changes_nothing() {
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    editor.tell("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(editor.prompt(&session, "!say fine").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn cancel_in_flight_ends_the_prompt_as_cancelled() {
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    // At once, before anyone can know whether the turn began.
    let prompt = editor.say(&session, "/play slow").await;
    editor.tell("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
    // And in the middle, by the request's own id.
    let prompt = editor.say(&session, "/play slow").await;
    editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    editor.tell("$/cancel_request", json!({ "requestId": prompt })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn a_prompt_that_waits_in_line_is_taken_back() {
    let (daemon, folder) = house().await;
    let cwd = path(&folder);
    let (mut one, mut two) = (Editor::ready(&daemon).await, Editor::ready(&daemon).await);
    let session = one.session(&cwd).await;
    two.call("session/resume", load(&session, &cwd)).await;
    let running = one.say(&session, "/play slow").await;
    two.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    let by_session = two.say(&session, "!say never").await;
    two.tell("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(two.answer(by_session).await["result"]["stopReason"], "cancelled");
    let by_request = two.say(&session, "!say never").await;
    two.tell("$/cancel_request", json!({ "requestId": by_request })).await;
    assert_eq!(two.answer(by_request).await["result"]["stopReason"], "cancelled");
    assert!(!one.heard.iter().any(|message| message["id"] == running), "the other's turn goes on");
    one.tell("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(one.answer(running).await["result"]["stopReason"], "cancelled");
    assert_eq!(two.prompt(&session, "!say last").await["result"]["stopReason"], "end_turn");
    let mut later = Editor::ready(&daemon).await;
    later.call("session/load", load(&session, &cwd)).await;
    let said = text_of(&later.updates(&session), "user_message_chunk");
    assert_eq!(said, "/play slow!say last", "what was taken back was never said");
}

#[tokio::test]
async fn an_id_that_is_in_use_is_refused_and_stays_in_use() {
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let prompt = editor.say(&session, "/play slow").await;
    editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    editor.send(&json!({ "jsonrpc": "2.0", "id": prompt, "method": "session/list", "params": {} })).await;
    assert_eq!(code(&editor.answer(prompt).await), -32600);
    editor.tell("$/cancel_request", json!({ "requestId": prompt })).await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn cancel_during_permission_takes_the_questions_back() {
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let script = "!together\n!  call write {\"path\":\"a\",\"content\":\"1\"}\n!  call write {\"path\":\"b\",\"content\":\"2\"}\n!end";
    let prompt = editor.say(&session, script).await;
    let (one, two) = (editor.asked().await, editor.asked().await);
    editor.tell("session/cancel", json!({ "sessionId": session })).await;
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
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let (one, two) = (editor.session(&path(&folder)).await, editor.session(&path(&folder)).await);
    let waiting = editor.say(&one, &write("one.txt", "1")).await;
    let question = editor.asked().await;
    assert_eq!(question["params"]["sessionId"], one.as_str());
    // The other goes on meanwhile.
    assert_eq!(editor.prompt(&two, "!say second").await["result"]["stopReason"], "end_turn");
    assert_eq!(text_of(&editor.updates(&two), "agent_message_chunk"), "second");
    editor.choose(&question, "allow_once").await;
    assert_eq!(editor.answer(waiting).await["result"]["stopReason"], "end_turn");
    assert!(text_of(&editor.updates(&one), "agent_message_chunk").contains("one.txt"));
}

#[tokio::test]
async fn five_megabytes_are_a_prompt() {
    let (daemon, folder) = house().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let long = "x".repeat(5 << 20);
    let blocks = json!([{ "type": "text", "text": "look" }, { "type": "resource", "resource": { "uri": "file:///big", "text": long } }]);
    let ended = editor.call("session/prompt", json!({ "sessionId": session, "prompt": blocks })).await;
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    let answer = editor.call("session/load", load(&session, &path(&folder))).await;
    assert!(answer["result"].is_object(), "{answer}");
    let said: Vec<Value> = editor.updates(&session);
    let big = said.iter().find(|update| update["content"]["resource"]["uri"] == "file:///big").unwrap();
    assert_eq!(big["content"]["resource"]["text"].as_str().unwrap().len(), 5 << 20);
}

#[tokio::test]
async fn the_house_answers_its_own_commands() {
    let (daemon, folder) = house().await;
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
        let said = text_of(&editor.updates(&session), "agent_message_chunk");
        assert!(said.contains(expected), "{command}: {said}");
    }
    // What only begins like one is the agent's to answer.
    assert_eq!(editor.prompt(&session, "/agents please").await["result"]["stopReason"], "end_turn");
    assert!(text_of(&editor.updates(&session), "agent_message_chunk").contains("no model"));
}
