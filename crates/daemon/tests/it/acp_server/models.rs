//! Configured models in an editor: selected for a session, and their context usage.

use serde_json::{Value, json};
use tribune_testkit::upstream::ModelOutput;

use super::Editor;
use crate::models::{asked, home, models, start, upstream};

#[tokio::test(flavor = "multi_thread")]
async fn client_selects_a_model_and_receives_its_context_usage() {
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
        .reply(ModelOutput::new().call("c1", "read", r#"{"path":"notes.txt"}"#).anthropic())
        .reply(ModelOutput::new().text("They say hello.").anthropic());
    let ended = editor.prompt(&session, "what do my notes say?").await["result"].take();
    assert_eq!(ended["stopReason"], "end_turn", "{ended}");
    assert!(asked(&upstream).iter().all(|request| request["model"] == "small"));
    let updates = editor.updates(&session);
    let used: Vec<&Value> =
        updates.iter().filter(|update| update["sessionUpdate"] == "usage_update").collect();
    assert!(used.iter().all(|update| update["size"] == 16_000), "{used:?}");
    let (last, all) = (used.last().unwrap()["used"].as_u64(), ended["usage"]["totalTokens"].as_u64());
    assert!(last > Some(0) && last < all, "the last of two requests, not both: {last:?} of {all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn model_is_told_once_about_additional_directories() {
    let upstream = upstream().await;
    let daemon = start(home(), &models(&upstream, "")).await;
    let mut editor = Editor::ready(&daemon).await;
    let additional = tempfile::tempdir().unwrap();
    let name = super::path(&additional);
    std::fs::write(additional.path().join("notes.txt"), "in the further folder").unwrap();
    let wanted = json!({ "cwd": "/workspace", "mcpServers": [], "additionalDirectories": [name] });
    let opened = editor.call("session/new", wanted).await;
    let session = opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
    let choose = json!({ "sessionId": session, "configId": "model", "value": "fake:m" });
    editor.call("session/set_config_option", choose).await;
    let path = json!({ "path": format!("{name}/notes.txt") }).to_string();
    upstream
        .reply(ModelOutput::new().call("c1", "read", &path).anthropic())
        .reply(ModelOutput::new().text("They say hello.").anthropic())
        .reply(ModelOutput::new().text("Again.").anthropic());
    for words in ["what do the notes say?", "and now?"] {
        assert_eq!(editor.prompt(&session, words).await["result"]["stopReason"], "end_turn");
    }
    let requests = asked(&upstream);
    let mentions = |request: &Value| request.to_string().matches(&format!("- `{name}`")).count();
    assert_eq!(requests.iter().map(mentions).collect::<Vec<_>>(), [1, 1, 1]);
    assert!(requests[1].to_string().contains("in the further folder"), "{}", requests[1]);
}
