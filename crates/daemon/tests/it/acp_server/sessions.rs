//! Sessions: loaded with their history, listed, shared, closed.

use serde_json::{Value, json};
use tribune_testkit::{TestDaemon, config};

use super::{Editor, code, load, path, setup, text_of};
use crate::approvals::write;

/// The members of an update that a reader of the conversation sees.
fn line(update: &Value) -> Option<(String, String)> {
    let kind = update["sessionUpdate"].as_str()?;
    let text = match kind {
        "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => &update["content"]["text"],
        "tool_call" => &update["title"],
        "tool_call_update" => &update["status"],
        _ => return None,
    };
    Some((kind.to_owned(), text.as_str()?.to_owned()))
}

/// The conversation as a reader sees it; chunks of one text are joined.
fn lines(updates: &[Value]) -> Vec<String> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for (kind, text) in updates.iter().filter_map(line) {
        match lines.last_mut() {
            Some((before, joined)) if *before == kind && kind.ends_with("_chunk") => joined.push_str(&text),
            _ => lines.push((kind, text)),
        }
    }
    lines.into_iter().map(|(kind, text)| format!("{kind}: {text}")).collect()
}

#[tokio::test]
async fn load_replays_every_update_once_and_in_order() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    editor.prompt(&session, "!think hm\n!say first").await;
    let prompt = editor.send_prompt(&session, &write("a.txt", "one")).await;
    let question = editor.permission_request().await;
    editor.choose(&question, "allow_once").await;
    editor.answer(prompt).await;
    let conversation = [
        "user_message_chunk: !think hm\n!say first",
        "agent_thought_chunk: hm",
        "agent_message_chunk: first",
        "user_message_chunk: !call write {\"path\":\"a.txt\",\"content\":\"one\"}\n!say $result",
        "tool_call: write a.txt",
        "tool_call_update: in_progress",
        "tool_call_update: completed",
    ];
    // For the client that has it open, for another client, and after a restart.
    editor.updates(&session);
    assert!(editor.call("session/load", load(&session, &cwd)).await["result"].is_object());
    let replayed = lines(&editor.updates(&session));
    assert_eq!(replayed[..conversation.len()], conversation);
    assert_eq!(replayed.len(), conversation.len() + 1, "and the last message: {replayed:?}");
    assert_eq!(editor.prompt(&session, "!say third").await["result"]["stopReason"], "end_turn");
    let live = lines(&editor.updates(&session));
    assert_eq!(live, ["agent_message_chunk: third"], "sent once, by one");
    editor.close().await;
    let home = daemon.stop().await;
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut editor = Editor::ready(&daemon).await;
    assert!(editor.call("session/load", load(&session, &cwd)).await["result"].is_object());
    let again = lines(&editor.updates(&session));
    assert_eq!(again[..replayed.len()], replayed);
    assert_eq!(again[replayed.len()..], ["user_message_chunk: !say third", "agent_message_chunk: third"]);
    assert_eq!(editor.prompt(&session, "!say fourth").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn reconnected_client_loads_what_it_missed() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    editor.send_prompt(&session, "!say before\n!wait 300ms\n!say after").await;
    editor.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    editor.close().await;
    let mut again = Editor::ready(&daemon).await;
    assert!(again.call("session/load", load(&session, &cwd)).await["result"].is_object());
    let mut joined = text_of(&again.updates(&session), "agent_message_chunk");
    while !joined.contains("after") {
        again.next_message().await;
        joined.push_str(&text_of(&again.updates(&session), "agent_message_chunk"));
    }
    assert_eq!(joined, "before\nafter");
    assert_eq!(again.prompt(&session, "!say on").await["result"]["stopReason"], "end_turn");
}

#[tokio::test]
async fn loading_a_session_keeps_the_response_of_its_running_prompt() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    for method in ["session/load", "session/resume"] {
        let session = editor.session(&cwd).await;
        let prompt = editor.send_prompt(&session, "!say one\n!wait 500ms\n!say two").await;
        let is_said = |message: &Value| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
        let first = editor.until(is_said).await["params"]["update"]["content"]["text"].take();
        assert!(editor.call(method, load(&session, &cwd)).await["result"].is_object());
        assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn", "{method}");
        // Everything before the end was sent before it, and once; a load also replays the beginning.
        let joined =
            first.as_str().unwrap().to_owned() + &text_of(&editor.updates(&session), "agent_message_chunk");
        match method {
            "session/load" => {
                assert!(joined.len() > "one\ntwo".len() && joined.ends_with("one\ntwo"), "{joined}")
            }
            _ => assert_eq!(joined, "one\ntwo"),
        }
    }
}

#[tokio::test]
async fn two_clients_on_one_session_see_the_same() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let (mut one, mut two) = (Editor::ready(&daemon).await, Editor::ready(&daemon).await);
    let session = one.session(&cwd).await;
    two.call("session/resume", load(&session, &cwd)).await;
    for n in 0..3 {
        let (speaker, listener) = if n % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
        assert_eq!(speaker.prompt(&session, &format!("!say {n}")).await["result"]["stopReason"], "end_turn");
        assert_eq!(lines(&speaker.updates(&session)), [format!("agent_message_chunk: {n}")]);
        let mut heard = Vec::new();
        while lines(&heard).len() < 2 {
            listener.next_message().await;
            heard.extend(listener.updates(&session));
        }
        assert_eq!(
            lines(&heard),
            [format!("user_message_chunk: !say {n}"), format!("agent_message_chunk: {n}")]
        );
    }
    // Each client may end a prompt of the other.
    let prompt = one.send_prompt(&session, "/play slow").await;
    two.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    two.notify("session/cancel", json!({ "sessionId": session })).await;
    assert_eq!(one.answer(prompt).await["result"]["stopReason"], "cancelled");
}

#[tokio::test]
async fn resume_replays_nothing() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    editor.prompt(&session, "!say before").await;
    let mut again = Editor::ready(&daemon).await;
    assert!(again.call("session/resume", load(&session, &cwd)).await["result"].is_object());
    assert_eq!(again.prompt(&session, "!say after").await["result"]["stopReason"], "end_turn");
    assert_eq!(lines(&again.updates(&session)), ["agent_message_chunk: after"]);
}

#[tokio::test]
async fn session_list_is_paged_with_titles_and_folders() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let mut opened = Vec::new();
    for n in 0..60 {
        let session = editor.session(&cwd).await;
        if n % 20 == 0 {
            editor.prompt(&session, &format!("!say the answer to {n}\n!say and more")).await;
        }
        opened.push(session);
    }
    let (mut listed, mut cursor) = (Vec::new(), Value::Null);
    let mut pages = 0;
    loop {
        let page =
            editor.call("session/list", json!({ "cwd": cwd, "cursor": cursor })).await["result"].take();
        listed.extend(page["sessions"].as_array().unwrap().clone());
        pages += 1;
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!(pages > 1 && listed.iter().all(|session| session["cwd"] == cwd.as_str()));
    let mut ids: Vec<&str> = listed.iter().filter_map(|session| session["sessionId"].as_str()).collect();
    ids.sort_unstable();
    opened.sort_unstable();
    assert_eq!(ids, opened);
    let titles = listed.iter().filter(|session| {
        session["title"].as_str().is_some_and(|title| title.starts_with("!say the answer"))
    });
    assert_eq!(titles.count(), 3);
    let elsewhere = editor.call("session/list", json!({ "cwd": "/nowhere" })).await;
    assert_eq!(elsewhere["result"]["sessions"], json!([]));
}

#[tokio::test]
async fn session_list_starts_with_the_latest_and_keeps_titles() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let (one, two, gone) =
        (editor.session(&cwd).await, editor.session(&cwd).await, editor.session(&cwd).await);
    editor.prompt(&one, "!say the first of one").await;
    editor.prompt(&gone, "!say not for long").await;
    // A session that was opened over RPC takes its title from its first prompt, too.
    let mut operator = daemon.operator().await;
    for n in 0..60 {
        tribune_testkit::run_turn(&mut operator, &two, &format!("!say {n} of two")).await.unwrap();
    }
    for n in 0..60 {
        editor.prompt(&one, &format!("!say {n} of one")).await;
    }
    assert!(editor.call("session/delete", json!({ "sessionId": gone })).await["result"].is_object());
    for _ in 0..2 {
        let listed = editor.call("session/list", json!({ "cwd": cwd })).await["result"]["sessions"].take();
        let listed: Vec<(&str, &str)> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|session| (session["sessionId"].as_str().unwrap(), session["title"].as_str().unwrap()))
            .collect();
        assert_eq!(listed, [(one.as_str(), "!say the first of one"), (two.as_str(), "!say 0 of two")]);
    }
}

#[tokio::test]
async fn agent_of_a_shared_session_cannot_be_changed() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut operator = daemon.operator().await;
    operator.call("agent.add", &json!({ "agent_id": "scout", "mandate": "dev" })).await.unwrap();
    let (mut editor, mut other) = (Editor::ready(&daemon).await, Editor::ready(&daemon).await);
    let session = editor.session(&cwd).await;
    other.call("session/resume", load(&session, &cwd)).await;
    let choose = json!({ "sessionId": session, "configId": "agent", "value": "scout" });
    let refused = editor.call("session/set_config_option", choose.clone()).await;
    assert_eq!((code(&refused), &refused["error"]["data"]["code"]), (-32600, &json!("busy")));
    assert_eq!(other.prompt(&session, "/agents").await["result"]["stopReason"], "end_turn");
    other.close().await;
    // The only client may choose; the daemon learns shortly that the other one is gone.
    for _ in 0..500 {
        let chosen = editor.call("session/set_config_option", choose.clone()).await;
        if chosen["result"].is_object() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the other client stays connected");
}

#[tokio::test]
async fn closed_session_can_be_loaded_and_deleted_one_is_forgotten() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    editor.prompt(&session, "!say remember me").await;
    assert!(editor.call("session/close", json!({ "sessionId": session })).await["result"].is_object());
    let closed = editor.prompt(&session, "!say hello?").await;
    assert_eq!(code(&closed), -32002, "it is no longer open on this connection");
    assert!(
        editor.call("session/close", json!({ "sessionId": session })).await["result"].is_object(),
        "as often as wanted"
    );
    editor.call("session/load", load(&session, &cwd)).await;
    assert!(text_of(&editor.updates(&session), "agent_message_chunk").contains("remember me"));
    assert_eq!(editor.prompt(&session, "!say open again").await["result"]["stopReason"], "end_turn");
    assert!(editor.call("session/delete", json!({ "sessionId": session })).await["result"].is_object());
    editor.updates(&session);
    editor.call("session/load", load(&session, &cwd)).await;
    assert_eq!(text_of(&editor.updates(&session), "agent_message_chunk"), "");
}

#[tokio::test]
async fn prompt_reopens_a_closed_session() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&path(&folder)).await;
    editor.prompt(&session, "!say one").await;
    let mut operator = daemon.operator().await;
    operator.call("session.close", &json!({ "session_key": session })).await.unwrap();
    editor.updates(&session);
    assert_eq!(editor.prompt(&session, "!say two").await["result"]["stopReason"], "end_turn");
    assert_eq!(lines(&editor.updates(&session)), ["agent_message_chunk: two"]);
}

#[tokio::test]
async fn named_session_key_opens_that_session() {
    let (daemon, _folder) = setup().await;
    let key = "agent:main:cli:local:dm:op";
    let mut editor = Editor::connect_to(&daemon, None, Some(key)).await;
    editor.call("initialize", json!({ "protocolVersion": 1 })).await;
    assert_eq!(editor.session("/workspace").await, key);
    assert_ne!(editor.session("/workspace").await, key, "the first time only");
}

#[tokio::test]
async fn agent_can_be_chosen_until_the_first_prompt() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut operator = daemon.operator().await;
    operator.call("agent.add", &json!({ "agent_id": "scout", "mandate": "dev" })).await.unwrap();
    let mut editor = Editor::ready(&daemon).await;
    let opened = editor.call("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await["result"].take();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(opened["configOptions"][0]["currentValue"], "main");
    let choose = |agent: &str| json!({ "sessionId": session, "configId": "agent", "value": agent });
    let chosen = editor.call("session/set_config_option", choose("scout")).await;
    assert_eq!(chosen["result"]["configOptions"][0]["currentValue"], "scout");
    assert_eq!(editor.prompt(&session, "!say I am scout").await["result"]["stopReason"], "end_turn");
    assert_eq!(code(&editor.call("session/set_config_option", choose("main")).await), -32602);
    // The session id that the client knows leads to the session with the new agent.
    let mut again = Editor::ready(&daemon).await;
    again.call("session/load", load(&session, &cwd)).await;
    assert_eq!(text_of(&again.updates(&session), "agent_message_chunk"), "I am scout");
    let mut named = Editor::connect_to(&daemon, Some("scout"), None).await;
    named.call("initialize", json!({ "protocolVersion": 1 })).await;
    assert!(named.session(&cwd).await.starts_with("agent:scout:acp:"));
}

/// A close right behind a prompt ends it, however far the prompt has come, and the session stays closed.
#[tokio::test(flavor = "multi_thread")]
async fn close_right_behind_a_prompt_is_not_lost() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let mut operator = daemon.operator().await;
    for _ in 0..24 {
        let session = editor.session(&cwd).await;
        let prompt = editor.send_prompt(&session, "!say hello\n!hang").await;
        let closing = editor.request("session/close", json!({ "sessionId": session })).await;
        let closed = editor.answer(closing).await;
        assert!(closed["result"].is_object(), "{closed}");
        let ended = editor.answer(prompt).await;
        assert_eq!(ended["result"]["stopReason"], "cancelled", "{ended}");
        let status = operator.call("session.status", &json!({ "session_key": session })).await.unwrap();
        assert_eq!(status["state"], "closed", "{status}");
    }
}
