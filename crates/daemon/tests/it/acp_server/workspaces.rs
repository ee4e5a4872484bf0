//! The folder of a client: what an agent can do there, and what it cannot.

use serde_json::json;
use tribune_testkit::{TestDaemon, assert_sound, config};

use super::{Editor, code, load, path, setup, text_of};
use crate::approvals::home;

pub(super) async fn run(editor: &mut Editor, session: &str, script: &str) -> String {
    editor.updates(session);
    let ended = editor.prompt(session, &format!("{script}\n!say $result")).await;
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    text_of(&editor.updates(session), "agent_message_chunk")
}

#[tokio::test]
async fn agent_works_only_in_the_folder_of_its_session() {
    let home = home();
    for (name, file) in [("envrc", ".envrc"), ("hook", ".git/hooks/pre-commit")] {
        let scene =
            format!("# Writes what programs obey\ncall write {}\n", json!({ "path": file, "content": "x" }));
        home.write(&format!("scenes/{name}.scene"), &scene);
    }
    let (daemon, folder) = (TestDaemon::start_at(home, &config()).await, tempfile::tempdir().unwrap());
    let cwd = path(&folder);
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/a.txt"), "in the project").unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "not for agents").unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("way-out")).unwrap();
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "approve-all" })).await;
    assert!(
        run(&mut editor, &session, "!call read {\"path\":\"src/a.txt\"}").await.contains("in the project")
    );
    for way in ["way-out/secret", "../secret", "/etc/hostname", "src/../../secret"] {
        let read = run(&mut editor, &session, &format!("!call read {}", json!({ "path": way }))).await;
        assert!(!read.contains("not for agents") && !read.contains("1:"), "{way}: {read}");
        run(&mut editor, &session, &format!("!call write {}", json!({ "path": way, "content": "x" }))).await;
    }
    assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "not for agents");
    // Autorun files still require an approval.
    for trap in ["envrc", "hook"] {
        let prompt = editor.send_prompt(&session, &format!("/play {trap}")).await;
        let question = editor.permission_request().await;
        editor.choose(&question, "deny").await;
        assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn", "{trap}");
    }
    assert!(!folder.path().join(".envrc").exists() && !folder.path().join(".git").exists());
    // The chosen folder stays in use when its name leads elsewhere later.
    let moved = folder.path().with_extension("moved");
    std::fs::rename(folder.path(), &moved).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path()).unwrap();
    let output = run(&mut editor, &session, "!call read {\"path\":\"secret\"}").await;
    assert!(output.contains("cannot be opened"), "{output}");
    std::fs::remove_file(folder.path()).unwrap();
    std::fs::rename(&moved, folder.path()).unwrap();
    // The agent's own workspace is another folder.
    let own = editor.session("/workspace").await;
    assert!(!run(&mut editor, &own, "!call read {\"path\":\"src/a.txt\"}").await.contains("in the project"));
    drop(editor);
    let home = daemon.stop().await;
    assert_sound(&home.home);
}

/// A folder whose whole content is autorun files: a write there requires an approval, as it does from a folder above.
#[tokio::test]
async fn l1_writes_in_an_autorun_folder_require_approval() {
    let (home, project) = (home(), tempfile::tempdir().unwrap());
    let root = project.path().canonicalize().unwrap();
    let cases = [
        ("vscode", ".vscode", "tasks.json", true),
        ("hooks", ".git/hooks", "pre-commit", true),
        ("git", ".git", "config", true),
        ("cargo", ".cargo", "config.toml", true),
        ("cached", ".cargo", "registry.txt", false),
        ("plain", "src", "tasks.json", false),
        ("kept-apart", ".claude/worktrees/one", "main.rs", false),
        ("additional", ".vscode", "launch.json", true),
    ];
    for (name, folder, file, _) in cases {
        std::fs::create_dir_all(root.join(folder)).unwrap();
        let at = if name == "additional" { root.join(folder).join(file) } else { file.into() };
        let call = json!({ "path": at, "content": "x" });
        home.write(&format!("scenes/{name}.scene"), &format!("# Writes a file\ncall write {call}\n"));
    }
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut editor = Editor::ready(&daemon).await;
    for (name, folder, file, is_asked) in cases {
        let cwd = if name == "additional" { root.join("src") } else { root.join(folder) };
        let additional = if name == "additional" { vec![root.join(folder)] } else { Vec::new() };
        let wanted = json!({ "cwd": cwd, "mcpServers": [], "additionalDirectories": additional });
        let opened = editor.call("session/new", wanted).await;
        let session = opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
        editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "approve-all" })).await;
        let prompt = editor.send_prompt(&session, &format!("/play {name}")).await;
        if is_asked {
            let question = editor.permission_request().await;
            editor.choose(&question, "deny").await;
        }
        assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn", "{name}");
        assert_eq!(root.join(folder).join(file).exists(), !is_asked, "{name}");
    }
    drop(editor);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test]
async fn unusable_folder_is_refused_with_a_reason() {
    let (daemon, folder) = setup().await;
    let mut editor = Editor::ready(&daemon).await;
    let home = daemon.home.home.root().to_str().unwrap().to_owned();
    let missing = format!("{}/missing", path(&folder));
    for cwd in ["relative", "/definitely/not/there", &missing, &home, "/", "/proc/self/environ"] {
        let refused = editor.call("session/new", json!({ "cwd": cwd, "mcpServers": [] })).await;
        assert_eq!(code(&refused), -32602, "{cwd}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("`cwd`"), "{refused}");
    }
    let refused = editor.call("session/new", json!({ "cwd": path(&folder), "mcpServers": "x" })).await;
    assert_eq!(code(&refused), -32602);
    let list = editor.call("session/list", json!({})).await;
    assert!(
        list["result"]["sessions"].as_array().unwrap().iter().all(|session| session["cwd"] == "/workspace")
    );
}

#[tokio::test]
async fn labels_of_files_in_a_folder_hold_for_the_next_agent() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut operator = daemon.operator().await;
    operator.call("agent.add", &json!({ "agent_id": "scout", "mandate": "dev" })).await.unwrap();
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "approve-all" })).await;
    run(&mut editor, &session, "!call write {\"path\":\"notes.txt\",\"content\":\"n\"}").await;
    let tail = json!({ "entity_id": session, "limit": 100 });
    let entries = operator.call("ledger.tail", &tail).await.unwrap().to_string();
    assert!(
        entries.contains(&format!("file:{cwd}/notes.txt")),
        "labels are stored under the folder's own name"
    );
    // The folder stays with the session, also for a client that resumes it without a folder.
    let loaded = editor.call("session/load", load(&session, &cwd)).await;
    assert!(loaded["result"].is_object(), "{loaded}");
    assert!(run(&mut editor, &session, "!call read {\"path\":\"notes.txt\"}").await.contains('n'));
}

#[tokio::test]
async fn session_keeps_its_folder_while_a_turn_runs() {
    let (daemon, folder) = setup().await;
    let (cwd, elsewhere) = (path(&folder), tempfile::tempdir().unwrap());
    let mut editor = Editor::ready(&daemon).await;
    let session = editor.session(&cwd).await;
    let prompt = editor.send_prompt(&session, &crate::approvals::write("a.txt", "one")).await;
    let mine = editor.permission_request().await;
    let mut other = Editor::ready(&daemon).await;
    for method in ["session/load", "session/resume"] {
        let refused = other.call(method, load(&session, &path(&elsewhere))).await;
        assert_eq!(code(&refused), -32602, "{method}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(&cwd), "{refused}");
    }
    assert!(!other.messages.iter().any(|message| message["method"] == "session/request_permission"));
    // A client that names no folder is shown the folder of the session.
    assert!(other.call("session/load", load(&session, "/workspace")).await["result"].is_object());
    let theirs = other.permission_request().await;
    assert_eq!(theirs["params"]["toolCall"]["locations"], mine["params"]["toolCall"]["locations"]);
    other.choose(&theirs, "allow_once").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "one");
    // The folder can be changed while no turn runs.
    assert!(other.call("session/load", load(&session, &path(&elsewhere))).await["result"].is_object());
}

#[tokio::test]
async fn mcp_servers_that_a_session_does_not_get_are_reported() {
    let (daemon, folder) = setup().await;
    let cwd = path(&folder);
    let mut editor = Editor::ready(&daemon).await;
    let server = json!({ "name": "context", "command": "/bin/x", "args": [], "env": [] });
    let wanted = json!({ "cwd": cwd, "mcpServers": [server] });
    let opened = editor.call("session/new", wanted.clone()).await;
    let session = opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned();
    assert_eq!(editor.prompt(&session, "!say on").await["result"]["stopReason"], "end_turn");
    let output = text_of(&editor.updates(&session), "agent_message_chunk");
    assert!(
        output.contains("The MCP server `context` is not there: denied")
            && output.contains("`mcp` is not in the mandate"),
        "{output}"
    );
    assert!(output.ends_with("on"), "{output}");
    // A client that resumes the session and requests the servers again is notified again, and no other client is.
    let mut again = wanted;
    again["sessionId"] = session.clone().into();
    assert!(editor.call("session/resume", again).await["result"].is_object());
    editor.until(|message| message.to_string().contains("The MCP server")).await;
    assert!(editor.call("session/resume", load(&session, &cwd)).await["result"].is_object());
    assert_eq!(editor.prompt(&session, "!say on").await["result"]["stopReason"], "end_turn");
    assert!(!text_of(&editor.updates(&session), "agent_message_chunk").contains("MCP"));
}
