//! Labels of files in a folder of the operator: they hold under every name of the folder and for every writer.

use serde_json::json;
use tribune_client::RpcClient;
use tribune_config::{Config, Sandbox};
use tribune_storage::home::Home;
use tribune_testkit::{TestDaemon, assert_sound, config};
use tribune_tools::workspaces::{Label, Workspaces};

use super::workspaces::run;
use super::{Editor, path};
use crate::approvals::home;
use crate::trifecta::page;

const RUN: &str = "agent:main:web:local:dm:run";

async fn trust(operator: &mut RpcClient, session: &str) -> String {
    let status = operator.call("session.status", &json!({ "session_key": session })).await.unwrap();
    status["trust"].as_str().unwrap().to_owned()
}

async fn approving(editor: &mut Editor, session: &str) {
    editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "approve-all" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_hold_in_a_folder_whose_name_the_redactor_changes() {
    let (home, page, folder) = (home(), page().await, tempfile::tempdir().unwrap());
    home.write("mandates/dev.md", "---\ntools: read, exec, web_fetch\n---\n");
    let mut config = Config { sandbox: Sandbox::Off, ..config() };
    config.egress.allow = vec![page.parse().unwrap()];
    // Built from pieces, so that a secret scanner does not report this file.
    let named = folder.path().join(format!("ghp{}{}", "_", "aB3dE5gH7j".repeat(4))).join("app");
    std::fs::create_dir_all(&named).unwrap();
    std::fs::write(named.join("a.txt"), "one").unwrap();
    let named = named.canonicalize().unwrap();
    let daemon = TestDaemon::start_at(home, &config).await;
    let (mut editor, mut operator) = (Editor::ready(&daemon).await, daemon.operator().await);
    let first = editor.session(named.to_str().unwrap()).await;
    approving(&mut editor, &first).await;
    run(&mut editor, &first, &format!("!call web_fetch {}", json!({ "url": format!("http://{page}/") })))
        .await;
    run(&mut editor, &first, "!call exec {\"command\":\"echo two > a.txt\"}").await;
    assert_eq!(std::fs::read_to_string(named.join("a.txt")).unwrap(), "two\n");
    // The command left its session's labels on the folder: on what it wrote, and on the folder around it.
    let second = editor.session(named.to_str().unwrap()).await;
    run(&mut editor, &second, "!call read {\"path\":\"a.txt\"}").await;
    assert_eq!(trust(&mut operator, &second).await, "untrusted");
    let around = editor.session(named.parent().unwrap().to_str().unwrap()).await;
    approving(&mut editor, &around).await;
    run(&mut editor, &around, "!call exec {\"command\":\"cat app/a.txt\"}").await;
    assert_eq!(trust(&mut operator, &around).await, "untrusted");
    drop((editor, operator));
    let home = daemon.stop().await;
    assert_sound(&home.home);
}

/// A workspace with a change of a sandbox, for the session [`RUN`].
fn changed(home: &Home, folder: &std::path::Path, id: &str, file: &str) {
    let label = Label {
        id: id.to_owned(),
        session: RUN.to_owned(),
        folder: folder.canonicalize().unwrap(),
        program: "sh".to_owned(),
        began: "2026-01-01T00:00:00Z".to_owned(),
    };
    let workspace = Workspaces::of(home).create(label).unwrap();
    std::fs::write(workspace.layers().upper().join(file), "from the network").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn landed_files_have_the_labels_of_their_run() {
    let (home, folder) = (home(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("mine.txt"), "mine").unwrap();
    let daemon = TestDaemon::start_at(home, &config()).await;
    let (mut editor, mut operator) = (Editor::ready(&daemon).await, daemon.operator().await);
    operator.call("session.init", &json!({ "session_key": RUN })).await.unwrap();
    changed(&daemon.home.home, folder.path(), "clean", "clean.txt");
    operator.call("workspace.land", &json!({ "id": "clean", "all": true })).await.unwrap();
    let governance = daemon.daemon.sessions().governance();
    let message = tribune_governance::turn::ExternalMessage {
        text: "from the network".to_owned(),
        trust: tribune_constitution::Trust::Untrusted,
    };
    governance.record_external_message(&RUN.parse().unwrap(), message).await.unwrap();
    changed(&daemon.home.home, folder.path(), "tainted", "landed.txt");
    operator.call("workspace.land", &json!({ "id": "tainted", "all": true })).await.unwrap();
    for (file, expected) in [("mine.txt", "verified"), ("clean.txt", "verified"), ("landed.txt", "untrusted")]
    {
        let reader = editor.session(&path(&folder)).await;
        run(&mut editor, &reader, &format!("!call read {}", json!({ "path": file }))).await;
        assert_eq!(trust(&mut operator, &reader).await, expected, "{file}");
    }
    // The ledger says so without the names.
    let history = json!({ "entity_id": format!("workspace:{RUN}"), "quality": "delivery" });
    let log = operator.call("ledger.tail", &history).await.unwrap().to_string();
    assert!(log.contains("labelled") && !log.contains("landed.txt"), "{log}");
    drop((editor, operator));
    let home = daemon.stop().await;
    assert_sound(&home.home);
}
