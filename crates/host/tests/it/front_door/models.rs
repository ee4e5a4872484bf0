//! Models of the house in an editor: chosen for a session, and what is in their context.

use serde_json::{Value, json};
use tribune_testkit::upstream::Say;

use super::Editor;
use crate::models::{asked, home, models, start, upstream};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_picks_a_model_and_is_told_what_is_in_its_context() {
    let upstream = upstream().await;
    let daemon = start(home(), &models(&upstream, "")).await;
    let mut editor = Editor::ready(&daemon).await;
    let opened = editor.call("session/new", json!({ "cwd": "/workspace", "mcpServers": [] })).await;
    let session = opened["result"]["sessionId"].as_str().unwrap().to_owned();
    let option = &opened["result"]["configOptions"][1];
    assert_eq!((&option["id"], &option["currentValue"]), (&json!("model"), &json!("default")));
    let offered: Vec<&str> =
        option["options"].as_array().unwrap().iter().filter_map(|option| option["value"].as_str()).collect();
    assert_eq!(offered, ["default", "fake:m", "fake:small"]);
    let choose = json!({ "sessionId": session, "configId": "model", "value": "fake:small" });
    let chosen = editor.call("session/set_config_option", choose).await;
    assert_eq!(chosen["result"]["configOptions"][1]["currentValue"], "fake:small", "{chosen}");
    upstream
        .reply(Say::new().call("c1", "read", r#"{"path":"notes.txt"}"#).anthropic())
        .reply(Say::new().text("They say hello.").anthropic());
    let ended = editor.prompt(&session, "what do my notes say?").await["result"].take();
    assert_eq!(ended["stopReason"], "end_turn", "{ended}");
    assert!(asked(&upstream).iter().all(|request| request["model"] == "small"));
    let updates = editor.updates(&session);
    let used: Vec<&Value> =
        updates.iter().filter(|update| update["sessionUpdate"] == "usage_update").collect();
    assert!(used.iter().all(|update| update["size"] == 16_000), "{used:?}");
    let (last, all) = (used.last().unwrap()["used"].as_u64(), ended["usage"]["totalTokens"].as_u64());
    assert!(last > Some(0) && last < all, "the newest of two requests, and not both: {last:?} of {all:?}");
}
