//! Additional directories of a client (`additionalDirectories`): the rules of the workspace hold in each, and no path
//! leads from one into another.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use tribune_config::{Config, Sandbox};
use tribune_testkit::{TestDaemon, assert_sound, config};

use super::workspaces::run;
use super::{Editor, code, load};
use crate::approvals::{home, write};
use crate::trifecta::page;

/// A project `app`, and next to it the folders `lib` and `docs`.
struct Project(TempDir);

impl Project {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("app/a.txt", "needle in the app"),
            ("lib/a.txt", "needle in the lib"),
            ("lib/src/b.txt", "deep needle"),
            ("lib/.env", "hidden-words"),
            ("docs/a.txt", "needle in the docs"),
        ] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(root)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.at(name).to_str().unwrap().to_owned()
    }

    fn says(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    fn wanted(&self, additional: &[&str]) -> Value {
        let additional: Vec<String> = additional.iter().map(|name| self.name(name)).collect();
        json!({ "cwd": self.name("app"), "mcpServers": [], "additionalDirectories": additional })
    }
}

fn config_with_hidden_files() -> Config {
    let mut config = config();
    config.workspaces.hide = vec![".env".to_owned()];
    config
}

async fn opened(editor: &mut Editor, wanted: Value) -> String {
    let opened = editor.call("session/new", wanted).await;
    opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
}

async fn approving(editor: &mut Editor, session: &str) {
    editor.call("session/set_mode", json!({ "sessionId": session, "modeId": "approve-all" })).await;
}

fn call(tool: &str, input: Value) -> String {
    format!("!call {tool} {input}")
}

async fn listed(editor: &mut Editor, session: &str) -> Value {
    let list = editor.call("session/list", json!({})).await;
    let sessions = list["result"]["sessions"].as_array().unwrap().clone();
    sessions.into_iter().find(|one| one["sessionId"] == session).unwrap()
}

#[tokio::test]
async fn agent_uses_additional_directories_by_absolute_path() {
    let (daemon, project) = (TestDaemon::start_at(home(), &config_with_hidden_files()).await, Project::new());
    let mut editor = Editor::connect(&daemon).await;
    let hello = editor.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} })).await;
    let offered = &hello["result"]["agentCapabilities"]["sessionCapabilities"]["additionalDirectories"];
    assert_eq!(*offered, json!({}));
    let session = opened(&mut editor, project.wanted(&["lib", "docs"])).await;
    let lib = project.name("lib");

    let read = call("read", json!({ "path": format!("{lib}/a.txt") }));
    assert!(run(&mut editor, &session, &read).await.contains("needle in the lib"));
    let own = call("read", json!({ "path": "a.txt" }));
    assert!(run(&mut editor, &session, &own).await.contains("needle in the app"));
    let list = run(&mut editor, &session, &call("read", json!({ "path": lib }))).await;
    assert!(list.contains("src/") && list.contains("a.txt"), "{list}");
    let found = run(&mut editor, &session, &call("search", json!({ "query": "needle", "path": lib }))).await;
    assert!(found.contains(&format!("{lib}/src/b.txt:1: deep needle")), "{found}");
    assert!(!found.contains("docs") && !found.contains("in the app") && !found.contains("hidden"), "{found}");

    // A write needs an approval, and the approver sees the path of the file.
    let prompt = editor.send_prompt(&session, &write(&format!("{lib}/made.txt"), "made")).await;
    let question = editor.permission_request().await;
    let shown = &question["params"]["toolCall"];
    assert_eq!(shown["locations"], json!([{ "path": format!("{lib}/made.txt") }]));
    assert!(!project.at("lib/made.txt").exists());
    editor.choose(&question, "allow_once").await;
    assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn");
    assert_eq!((project.says("lib/made.txt").as_str(), project.at("app/made.txt").exists()), ("made", false));
    approving(&mut editor, &session).await;
    let edit = json!({ "path": format!("{lib}/made.txt"), "old": "made", "new": "changed" });
    run(&mut editor, &session, &call("edit", edit)).await;
    assert_eq!(project.says("lib/made.txt"), "changed");

    // The verdict in the ledger names the directory, and labels carry its own name.
    let mut operator = daemon.operator().await;
    let tail = json!({ "entity_id": session, "limit": 100 });
    let entries = operator.call("ledger.tail", &tail).await.unwrap().to_string();
    assert!(entries.contains(&format!("\"file:{lib}/made.txt\"")), "{entries}");
    assert!(entries.contains(&format!("\"folder\":\"{lib}\"")), "{entries}");

    // Session lists and the status show the directories.
    let both = json!([project.name("lib"), project.name("docs")]);
    assert_eq!(listed(&mut editor, &session).await["additionalDirectories"], both);
    let status = operator.call("session.status", &json!({ "session_key": session })).await.unwrap();
    assert_eq!((&status["workspace"], &status["further_folders"]), (&json!(project.name("app")), &both));
    let plain = editor.session(&project.name("app")).await;
    assert!(listed(&mut editor, &plain).await.get("additionalDirectories").is_none());
    assert!(!run(&mut editor, &plain, &read).await.contains("needle"));
    drop((editor, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test]
async fn unusable_additional_directories_are_refused_with_a_reason() {
    let (daemon, project) = (TestDaemon::start_at(home(), &config()).await, Project::new());
    let mut editor = Editor::ready(&daemon).await;
    std::fs::create_dir_all(project.at("app/inner")).unwrap();
    symlink(project.at("app"), project.at("to-app-above")).unwrap();
    let tribune_home = daemon.home.home.root().to_str().unwrap().to_owned();
    let many: Vec<String> = (0..9).map(|n| project.name(&format!("many-{n}"))).collect();
    for folder in &many {
        std::fs::create_dir(folder).unwrap();
    }
    let all = |names: &[&str]| json!(names.iter().map(|name| project.name(name)).collect::<Vec<_>>());
    for (additional, why) in [
        (json!(["lib"]), "not absolute"),
        (json!([project.name("missing")]), "cannot be used"),
        (json!([project.name("lib/a.txt")]), "not a folder"),
        (json!([tribune_home]), "Tribune's own home"),
        (json!([format!("{tribune_home}/agents")]), "Tribune's own home"),
        (json!(["/"]), "Tribune's own home"),
        (json!(["/etc"]), "a system of its own"),
        (json!(["/usr/share"]), "a system of its own"),
        (all(&["lib", "lib/src"]), "in another one"),
        (all(&["app/inner"]), "session's own folder"),
        (all(&["."]), "session's own folder"),
        (json!(many), "at most 8"),
        (json!("lib"), "is a list"),
        (json!([7]), "a list of paths"),
    ] {
        let mut wanted = project.wanted(&[]);
        wanted["additionalDirectories"] = additional.clone();
        let refused = editor.call("session/new", wanted).await;
        assert_eq!(code(&refused), -32602, "{additional}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(why), "{additional}: {refused}");
    }
    // A directory that is named twice is used once, and the session's own folder is not an additional one.
    let session = opened(&mut editor, project.wanted(&["lib", "app", "lib/", "to-app-above"])).await;
    assert_eq!(listed(&mut editor, &session).await["additionalDirectories"], all(&["lib"]));
}

/// A call that can never run requires no approval, and its error names the directory.
#[tokio::test]
async fn hidden_file_is_refused_without_approval_and_the_error_names_its_directory() {
    let (daemon, project) = (TestDaemon::start_at(home(), &config_with_hidden_files()).await, Project::new());
    let mut editor = Editor::ready(&daemon).await;
    let session = opened(&mut editor, project.wanted(&["lib"])).await;
    let lib = project.name("lib");
    for path in
        [format!("{lib}/.env"), format!("{lib}/new/.ENV"), format!("{lib}/src/../.env/x"), ".env".to_owned()]
    {
        for (tool, input) in [
            ("write", json!({ "path": path, "content": "mine" })),
            ("edit", json!({ "path": path, "old": "hidden", "new": "mine" })),
        ] {
            let output = run(&mut editor, &session, &call(tool, input)).await;
            assert!(output.contains(&format!("`{path}` is hidden here")), "{tool} {path}: {output}");
        }
    }
    assert_eq!((project.says("lib/.env").as_str(), project.at("lib/new").exists()), ("hidden-words", false));

    let missing = format!("`{lib}/gone` in `{lib}`: read `{lib}` to see what there is");
    let out =
        format!("leads out of `{lib}`: name a path inside it, beginning with `{lib}/` and without `..`");
    for (tool, input, says) in [
        ("read", json!({ "path": format!("{lib}/gone") }), &missing),
        ("edit", json!({ "path": format!("{lib}/gone"), "old": "a", "new": "b" }), &missing),
        ("search", json!({ "path": format!("{lib}/gone"), "query": "a" }), &missing),
        ("read", json!({ "path": format!("{lib}/../x") }), &out),
        ("write", json!({ "path": format!("{lib}/../x"), "content": "" }), &out),
        ("read", json!({ "path": format!("{lib}/a.txt/b") }), &format!("read `{lib}` to see what there is")),
        (
            "edit",
            json!({ "path": format!("{lib}/src"), "old": "a", "new": "b" }),
            &format!("`{lib}/src` is not a file"),
        ),
        // In the workspace the error is unchanged.
        (
            "read",
            json!({ "path": "gone" }),
            &"there is no `gone` in the workspace: read `.` to see".to_owned(),
        ),
    ] {
        let output = run(&mut editor, &session, &call(tool, input.clone())).await;
        assert!(output.contains(says.as_str()), "{tool} {input}: {output}");
    }
    let mut operator = daemon.operator().await;
    let asked = operator.call("approval.list", &json!({ "state": "any" })).await.unwrap();
    assert_eq!(asked["approvals"], json!([]), "no approval was requested");
    std::fs::rename(project.at("lib"), project.at("moved")).unwrap();
    let output = run(&mut editor, &session, &call("read", json!({ "path": format!("{lib}/a.txt") }))).await;
    assert!(output.contains(&format!("`{lib}` cannot be opened")), "{output}");
    drop((editor, operator));
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test]
async fn no_path_leads_from_one_directory_into_another() {
    let (daemon, project) = (TestDaemon::start_at(home(), &config_with_hidden_files()).await, Project::new());
    let (app, lib) = (project.name("app"), project.name("lib"));
    for (to, link) in [
        ("../lib/a.txt", "app/relative"),
        (lib.as_str(), "app/absolute"),
        (app.as_str(), "lib/back"),
        ("../docs", "lib/away"),
        (&format!("{lib}/src/b.txt"), "app/.env"),
    ] {
        symlink(to, project.at(link)).unwrap();
    }
    let mut editor = Editor::ready(&daemon).await;
    let session = opened(&mut editor, project.wanted(&["lib"])).await;
    approving(&mut editor, &session).await;
    for path in [
        format!("{lib}/../app/a.txt"),
        format!("{lib}/../docs/a.txt"),
        format!("{lib}/back/a.txt"),
        format!("{lib}/away/a.txt"),
        format!("{lib}x/a.txt"),
        format!("/{lib}/a.txt"),
        format!("{app}/a.txt"),
        project.name("docs/a.txt"),
        "relative".to_owned(),
        "absolute/a.txt".to_owned(),
        "../lib/a.txt".to_owned(),
        "../docs/a.txt".to_owned(),
        // Hidden by its own name, and by a hidden link in another directory.
        format!("{lib}/.env"),
        format!("{lib}/src/../.env"),
        format!("{lib}/src/b.txt"),
    ] {
        let read = run(&mut editor, &session, &call("read", json!({ "path": path }))).await;
        assert!(!read.contains("needle") && !read.contains("hidden-words"), "{path}: {read}");
        let search = call("search", json!({ "query": "e", "path": path }));
        let found = run(&mut editor, &session, &search).await;
        assert!(!found.contains("needle") && !found.contains("hidden-words"), "{path}: {found}");
        run(&mut editor, &session, &call("write", json!({ "path": path, "content": "overwritten" }))).await;
        let edit = json!({ "path": path, "old": "needle", "new": "overwritten" });
        run(&mut editor, &session, &call("edit", edit)).await;
    }
    for file in ["app/a.txt", "lib/a.txt", "lib/src/b.txt", "lib/.env", "docs/a.txt"] {
        assert!(!project.says(file).contains("overwritten"), "{file}");
    }
    // The chosen folder stays in use when its name leads elsewhere later.
    std::fs::rename(project.at("lib"), project.at("moved")).unwrap();
    symlink(project.at("docs"), project.at("lib")).unwrap();
    let output = run(&mut editor, &session, &call("read", json!({ "path": format!("{lib}/a.txt") }))).await;
    assert!(output.contains("cannot be opened"), "{output}");
    run(&mut editor, &session, &call("write", json!({ "path": format!("{lib}/new"), "content": "x" }))).await;
    assert!(!project.at("docs/new").exists());
    assert!(
        run(&mut editor, &session, &call("read", json!({ "path": "a.txt" }))).await.contains("in the app")
    );
    drop(editor);
    assert_sound(&daemon.stop().await.home);
}

#[tokio::test]
async fn autorun_files_in_additional_directories_require_approval() {
    let (home, project) = (home(), Project::new());
    let lib = project.name("lib");
    let traps = [("envrc", ".envrc"), ("hook", ".git/hooks/pre-commit"), ("tasks", "src/.vscode/tasks.json")];
    for (name, file) in traps {
        let input = json!({ "path": format!("{lib}/{file}"), "content": "x" });
        home.write(
            &format!("scenes/{name}.scene"),
            &format!("# Writes what programs obey\ncall write {input}\n"),
        );
    }
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut editor = Editor::ready(&daemon).await;
    let session = opened(&mut editor, project.wanted(&["lib"])).await;
    approving(&mut editor, &session).await;
    for (name, file) in traps {
        let prompt = editor.send_prompt(&session, &format!("/play {name}")).await;
        let question = editor.permission_request().await;
        editor.choose(&question, "deny").await;
        assert_eq!(editor.answer(prompt).await["result"]["stopReason"], "end_turn", "{name}");
        assert!(!project.at("lib").join(file).exists(), "{file}");
    }
}

/// A grant covers the directory in which it was given: not another one, and not the session's own folder.
#[tokio::test]
async fn grant_covers_only_its_own_directory() {
    let (daemon, project) = (TestDaemon::start_at(home(), &config()).await, Project::new());
    let mut editor = Editor::ready(&daemon).await;
    let session = opened(&mut editor, project.wanted(&["lib", "docs"])).await;
    let in_lib = format!("{}/n.txt", project.name("lib"));
    let prompt = editor.send_prompt(&session, &write(&in_lib, "one")).await;
    let question = editor.permission_request().await;
    let hour = option(&question, "hour");
    editor.choose(&question, &hour).await;
    editor.answer(prompt).await;
    assert_eq!(editor.prompt(&session, &write(&in_lib, "two")).await["result"]["stopReason"], "end_turn");
    assert_eq!(project.says("lib/n.txt"), "two");
    for elsewhere in ["n.txt".to_owned(), format!("{}/n.txt", project.name("docs"))] {
        let prompt = editor.send_prompt(&session, &write(&elsewhere, "x")).await;
        let question = editor.permission_request().await;
        editor.choose(&question, "deny").await;
        editor.answer(prompt).await;
    }
    assert!(!project.at("app/n.txt").exists() && !project.at("docs/n.txt").exists());
    // The grant belongs to the directory, in every session that works there and under every name of the path.
    let there = editor.session(&project.name("lib")).await;
    assert_eq!(editor.prompt(&there, &write("n.txt", "three")).await["result"]["stopReason"], "end_turn");
    assert_eq!(project.says("lib/n.txt"), "three");
    drop(editor);
    assert_sound(&daemon.stop().await.home);
}

/// A command reaches all directories of its session, so a grant for it covers sessions with the same directories.
#[tokio::test]
async fn grant_for_a_command_covers_only_its_set_of_directories() {
    let (home, project) = (home(), Project::new());
    let config = Config { sandbox: Sandbox::Off, ..config() };
    let daemon = TestDaemon::start_at(home, &config).await;
    let mut editor = Editor::ready(&daemon).await;
    let line = format!("{}\n!say $result", call("exec", json!({ "command": "echo it-ran" })));
    let session = opened(&mut editor, project.wanted(&["lib"])).await;
    let prompt = editor.send_prompt(&session, &line).await;
    let question = editor.permission_request().await;
    let hour = option(&question, "hour");
    editor.choose(&question, &hour).await;
    editor.answer(prompt).await;
    let same = opened(&mut editor, project.wanted(&["lib"])).await;
    assert_eq!(editor.prompt(&same, &line).await["result"]["stopReason"], "end_turn");
    for additional in [&[][..], &["docs"], &["lib", "docs"]] {
        let other = opened(&mut editor, project.wanted(additional)).await;
        let prompt = editor.send_prompt(&other, &line).await;
        let question = editor.permission_request().await;
        editor.choose(&question, "deny").await;
        editor.answer(prompt).await;
    }
}

fn option(question: &Value, word: &str) -> String {
    let options = question["params"]["options"].as_array().unwrap();
    let found = options.iter().find(|option| option["name"].as_str().unwrap().contains(word));
    found.unwrap_or_else(|| panic!("{options:?}"))["optionId"].as_str().unwrap().to_owned()
}

/// The file that a write replaces is part of the approval, as it is in the workspace.
#[tokio::test]
async fn l8_file_changed_after_approval_requires_a_new_approval() {
    let (daemon, project) = (TestDaemon::start_at(home(), &config()).await, Project::new());
    let mut editor = Editor::ready(&daemon).await;
    let session = opened(&mut editor, project.wanted(&["lib"])).await;
    let prompt =
        editor.send_prompt(&session, &write(&format!("{}/a.txt", project.name("lib")), "agent")).await;
    let question = editor.permission_request().await;
    std::fs::write(project.at("lib/a.txt"), "by someone else").unwrap();
    editor.choose(&question, "allow_once").await;
    let again = editor.permission_request().await;
    assert_eq!(project.says("lib/a.txt"), "by someone else");
    editor.choose(&again, "deny").await;
    editor.answer(prompt).await;
    assert_eq!(project.says("lib/a.txt"), "by someone else");
}

/// A file that an agent wrote after untrusted input is untrusted for every later reader of the directory.
#[tokio::test]
async fn labels_follow_files_in_additional_directories() {
    let (home, project, page) = (home(), Project::new(), page().await);
    home.write("mandates/dev.md", "---\ntools: read, write, web_fetch\n---\n");
    let mut config = config();
    config.egress.allow = vec![page.parse().unwrap()];
    let daemon = TestDaemon::start_at(home, &config).await;
    let (mut editor, mut operator) = (Editor::ready(&daemon).await, daemon.operator().await);
    let lib = project.name("lib");
    let trust = async |operator: &mut tribune_client::RpcClient, session: &str| {
        let status = operator.call("session.status", &json!({ "session_key": session })).await.unwrap();
        status["trust"].as_str().unwrap().to_owned()
    };
    // One session writes to the directory as an additional one, the next has it as its workspace; and the reverse.
    let beside = opened(&mut editor, project.wanted(&["lib"])).await;
    approving(&mut editor, &beside).await;
    run(&mut editor, &beside, &call("web_fetch", json!({ "url": format!("http://{page}/") }))).await;
    run(
        &mut editor,
        &beside,
        &call("write", json!({ "path": format!("{lib}/from-beside"), "content": "x" })),
    )
    .await;
    assert_eq!(trust(&mut operator, &beside).await, "untrusted");
    let inside = editor.session(&lib).await;
    run(&mut editor, &inside, &call("read", json!({ "path": "a.txt" }))).await;
    let before = trust(&mut operator, &inside).await;
    assert_ne!(before, "untrusted");
    run(&mut editor, &inside, &call("read", json!({ "path": "from-beside" }))).await;
    assert_eq!(trust(&mut operator, &inside).await, "untrusted");
    approving(&mut editor, &inside).await;
    run(&mut editor, &inside, &call("write", json!({ "path": "from-inside", "content": "x" }))).await;
    let next = opened(&mut editor, project.wanted(&["lib"])).await;
    run(&mut editor, &next, &call("read", json!({ "path": format!("{lib}/a.txt") }))).await;
    assert_eq!(trust(&mut operator, &next).await, before);
    run(&mut editor, &next, &call("read", json!({ "path": format!("{lib}/from-inside") }))).await;
    assert_eq!(trust(&mut operator, &next).await, "untrusted");
}

#[tokio::test]
async fn additional_directories_are_terms_of_the_session() {
    let (daemon, project) = (TestDaemon::start_at(home(), &config()).await, Project::new());
    let mut editor = Editor::ready(&daemon).await;
    let session = opened(&mut editor, project.wanted(&["lib"])).await;
    let in_lib = call("read", json!({ "path": format!("{}/a.txt", project.name("lib")) }));
    let in_docs = call("read", json!({ "path": format!("{}/a.txt", project.name("docs")) }));
    run(&mut editor, &session, &in_lib).await;

    // While a turn runs the session keeps its directories, as it does for a client that names none.
    let prompt = editor.send_prompt(&session, &write("w.txt", "one")).await;
    let question = editor.permission_request().await;
    let mut other = Editor::ready(&daemon).await;
    for additional in [&[][..], &["docs"]] {
        let mut wanted = project.wanted(additional);
        wanted["sessionId"] = session.clone().into();
        let refused = other.call("session/load", wanted).await;
        assert_eq!(code(&refused), -32602, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("a turn is running"), "{refused}");
    }
    assert!(other.call("session/load", load(&session, "/workspace")).await["result"].is_object());
    editor.choose(&question, "allow_once").await;
    editor.answer(prompt).await;
    drop((editor, other));

    // The directories survive a restart.
    let home = daemon.stop().await;
    let daemon = TestDaemon::start_at(home, &config()).await;
    let mut editor = Editor::ready(&daemon).await;
    assert_eq!(listed(&mut editor, &session).await["additionalDirectories"], json!([project.name("lib")]));
    let mut operator = daemon.operator().await;
    let (events, _) = tribune_testkit::run_turn(&mut operator, &session, &in_lib).await.unwrap();
    assert!(json!(events).to_string().contains("needle in the lib"), "{events:?}");

    // The list of a client that resumes the session replaces all directories.
    let mut wanted = project.wanted(&["lib"]);
    wanted["sessionId"] = session.clone().into();
    assert!(editor.call("session/load", wanted.clone()).await["result"].is_object());
    assert!(run(&mut editor, &session, &in_lib).await.contains("in the lib"));
    wanted["additionalDirectories"] = json!([project.name("docs")]);
    assert!(editor.call("session/resume", wanted.clone()).await["result"].is_object());
    assert!(run(&mut editor, &session, &in_docs).await.contains("in the docs"));
    assert!(!run(&mut editor, &session, &in_lib).await.contains("in the lib"));
    assert!(editor.call("session/load", load(&session, &project.name("app"))).await["result"].is_object());
    assert!(!run(&mut editor, &session, &in_docs).await.contains("in the docs"));
    assert!(listed(&mut editor, &session).await.get("additionalDirectories").is_none());

    // Over RPC the directories stay, except those that overlap with a workspace that is chosen there.
    let session = opened(&mut editor, project.wanted(&["lib", "docs"])).await;
    for (workspace, left) in [("app", &["lib", "docs"][..]), ("lib/src", &["docs"])] {
        let init = json!({ "session_key": session, "workspace": project.name(workspace) });
        operator.call("session.init", &init).await.unwrap();
        let status = operator.call("session.status", &json!({ "session_key": session })).await.unwrap();
        let left: Vec<String> = left.iter().map(|name| project.name(name)).collect();
        assert_eq!(status["further_folders"], json!(left), "{workspace}");
    }
    drop((editor, operator));
    assert_sound(&daemon.stop().await.home);
}
