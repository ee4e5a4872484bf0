//! Additional directories of an editor's session, in the sandbox of the real binary: commands have them at the same
//! path, with hidden files hidden and autorun files protected.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::stdio::Editor;
use super::{EditorHome, assert_valid};

/// A home whose agent runs commands, and an editor whose session has an additional directory.
struct Bench {
    desk: EditorHome,
    editor: Editor,
    session: String,
    next: u64,
}

impl Bench {
    fn new() -> Self {
        let desk = EditorHome::new();
        for (name, text) in [
            ("config.json5", "{ gateway: { address: '127.0.0.1:0' }, workspaces: { hide: ['.env'] } }"),
            ("mandates/work.md", "---\ntools: read, exec\n---\n# For work\n"),
            ("policy/law.json5", "{ overrides: { exec: \"off\" } }"),
        ] {
            std::fs::write(desk.place.home().join(name), text).unwrap();
        }
        let lib = desk.place.path("lib");
        for (file, text) in [
            ("a.txt", "in the lib\n"),
            (".env", "hidden-words\n"),
            (".envrc", "obeyed\n"),
            ("hooks/pre-commit", "hook\n"),
            ("sub/b.txt", "deep\n"),
        ] {
            let path = lib.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir(desk.project().join(".git")).unwrap();
        symlink(lib.canonicalize().unwrap().join("hooks"), desk.project().join(".git/hooks")).unwrap();
        let editor = Editor::start(&desk, &[]);
        let mut bench = Self { desk, editor, session: String::new(), next: 1 };
        bench.call("initialize", &json!({ "protocolVersion": 1 }));
        bench.session = bench.open(&json!([bench.lib()]));
        bench
    }

    fn lib(&self) -> PathBuf {
        self.desk.place.path("lib").canonicalize().unwrap()
    }

    fn says(&self, name: &str) -> String {
        std::fs::read_to_string(self.lib().join(name)).unwrap_or_default()
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        self.editor.call(self.next, method, params)
    }

    fn open(&mut self, additional: &Value) -> String {
        let cwd = self.desk.project();
        let wanted = json!({ "cwd": cwd, "mcpServers": [], "additionalDirectories": additional });
        let opened = self.call("session/new", &wanted);
        opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
    }

    /// Runs a command and returns its result.
    fn exec(&mut self, session: &str, call: &Value) -> String {
        let from = self.editor.lines.len();
        let text = format!("!call exec {call}\n!say $result");
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        assert_eq!(self.call("session/prompt", &prompt)["result"]["stopReason"], "end_turn");
        let lines =
            self.editor.lines[from..].lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let updates = lines.map(|line| line["params"]["update"].clone());
        let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        chunks.filter_map(|update| update["content"]["text"].as_str().map(str::to_owned)).collect()
    }
}

#[test]
fn commands_get_additional_directories_with_protection() {
    let mut bench = Bench::new();
    let (session, lib) = (bench.session.clone(), bench.lib());
    let at = lib.display().to_string();
    let line = format!("pwd; cat {at}/a.txt {at}/.env; echo made > {at}/made.txt; ls /workspace");
    let ran = bench.exec(&session, &json!({ "command": line }));
    assert!(ran.contains("/workspace\nin the lib\n") && !ran.contains("hidden-words"), "{ran}");
    assert_eq!(bench.says("made.txt"), "made\n");
    for cwd in [at.clone(), format!("{at}/sub"), format!("{at}//sub/")] {
        let ran = bench.exec(&session, &json!({ "command": "pwd; cat b.txt", "cwd": cwd }));
        assert!(ran.contains(cwd.trim_end_matches('/').replace("//", "/").as_str()), "{cwd}: {ran}");
    }
    for cwd in [format!("{at}/.."), format!("{at}/../project"), format!("{at}x")] {
        let ran = bench.exec(&session, &json!({ "command": "echo it-ran", "cwd": cwd }));
        assert!(!ran.contains("exit code"), "{cwd}: {ran}");
    }
    // Autorun files cannot change: neither by name, nor through a link in the other folder.
    let line = "echo x > .envrc; echo x > hooks/pre-commit; echo x > hooks/new; rm -rf hooks .envrc; mv hooks h; echo done";
    let ran = bench.exec(&session, &json!({ "command": line, "cwd": at }));
    assert!(ran.contains("done"), "{ran}");
    assert_eq!([bench.says(".envrc"), bench.says("hooks/pre-commit")], ["obeyed\n", "hook\n"]);
    assert_eq!((bench.says("hooks/new").as_str(), bench.says(".env").as_str()), ("", "hidden-words\n"));

    // A session without the directory does not have it.
    let plain = bench.open(&json!([]));
    let ran =
        bench.exec(&plain, &json!({ "command": format!("cat {at}/a.txt; ls {at}; echo x > {at}/made.txt") }));
    assert!(!ran.contains("in the lib") && !ran.contains("sub"), "{ran}");
    assert_eq!(bench.says("made.txt"), "made\n");

    // A directory that became a link is not followed.
    let moved = bench.desk.place.path("moved");
    std::fs::rename(&lib, &moved).unwrap();
    symlink(bench.desk.place.home(), &lib).unwrap();
    for call in [json!({ "command": "echo it-ran" }), json!({ "command": "echo it-ran", "cwd": at })] {
        let ran = bench.exec(&session, &call);
        assert!(ran.contains("cannot be opened") && !ran.contains("exit code"), "{ran}");
    }
    std::fs::remove_file(&lib).unwrap();
    std::fs::rename(&moved, &lib).unwrap();
    assert!(bench.exec(&session, &json!({ "command": "echo it-ran" })).contains("exit code 0"));

    let shown = bench.desk.place.ok(&["sessions", "show", &session]);
    assert!(shown.contains("further folder") && shown.contains(&at), "{shown}");
    let list = bench.call("session/list", &json!({}));
    assert!(list.to_string().contains(&format!("\"additionalDirectories\":[\"{at}\"]")), "{list}");
    assert!(assert_valid(&bench.desk.place, &bench.editor.lines) > 0);
}
