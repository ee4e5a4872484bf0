//! What was approved is what runs: calls that wait for a person, and grants, in the daemon's default sandbox.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::{RpcClient, RpcIncoming};
use tribune_storage::home::Home;
use tribune_testkit::{assert_sound, turn_params};

use crate::fixture::Place;
use crate::turn_crash::start_with;

const KEY: &str = "agent:main:rpc:local:dm:op";
const ASK_WRITE: &str = r#"@id("ask-write") forbid(principal, action == Tribune::Action::"write", resource) unless { context.approved };"#;
const PERMIT_GIT: &str = r#"@id("tools")
permit(principal, action == Tribune::Action::"exec", resource)
when { context has parsed && context.parsed && context has programs && ["git", "cargo", "npm"].containsAll(context.programs) };"#;
const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"work\"}\n";

/// Lines that run a file of the workspace, and that file. What each of them runs was changed after it was approved.
const LINES: [(&str, &str); 15] = [
    ("sh /workspace/build.sh", "build.sh"),
    ("/workspace/build.sh", "build.sh"),
    ("timeout 60 ./build.sh", "build.sh"),
    ("env ./build.sh", "build.sh"),
    ("nice -n 5 ./build.sh", "build.sh"),
    ("cd sub && sh run.sh", "sub/run.sh"),
    (". ./build.sh", "build.sh"),
    ("sh < build.sh", "build.sh"),
    ("cat build.sh | sh", "build.sh"),
    ("sh -c './build.sh --fast'", "build.sh"),
    ("bash -lc 'sh build.sh'", "build.sh"),
    ("sh link.sh", "real.sh"),
    ("sh ./buil*.sh", "build.sh"),
    ("echo build.sh | xargs sh", "build.sh"),
    ("find . -name build.sh -exec sh {} +", "build.sh"),
];

/// A daemon whose agent needs an approval to run commands.
struct AskingAgent {
    place: Place,
    child: Child,
    talker: RpcClient,
    operator: RpcClient,
}

impl AskingAgent {
    async fn new() -> Self {
        Self::with_rule("notes.txt", "").await
    }

    async fn with_rule(rule: &str, text: &str) -> Self {
        Self::with_files(&[(rule, text)]).await
    }

    /// With these files in its home.
    async fn with_files(files: &[(&str, &str)]) -> Self {
        let place = Place::new();
        let built_in = [
            ("mandates/work.md", "---\ntools: exec, write\n---\n# For work\n"),
            ("data/agent-roster.jsonl", ROSTER),
        ];
        for (file, text) in built_in.iter().chain(files) {
            let path = place.home().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir(place.path("tmp")).unwrap();
        let (child, address, token) = start_with(&place, &[("TMPDIR", place.path("tmp").to_str().unwrap())]);
        let mut talker = RpcClient::connect(&address, Some(&token)).await.unwrap();
        talker.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
        let operator = RpcClient::connect(&address, Some(&token)).await.unwrap();
        let agent = Self { place, child, talker, operator };
        agent.reset();
        agent
    }

    fn inside(&self, name: &str) -> PathBuf {
        self.place.home().join("agents/main/workspace").join(name)
    }

    /// Makes the workspace as it is before each line.
    fn reset(&self) {
        let _ = std::fs::remove_dir_all(self.inside(""));
        std::fs::create_dir_all(self.inside("sub")).unwrap();
        for name in ["build.sh", "real.sh", "sub/run.sh"] {
            self.write(name, "#!/bin/sh\necho harmless > /workspace/out\n");
        }
        symlink("/workspace/real.sh", self.inside("link.sh")).unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.inside(name), text).unwrap();
        std::fs::set_permissions(self.inside(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn out(&self) -> Option<String> {
        std::fs::read_to_string(self.inside("out")).ok()
    }

    async fn start(&mut self, line: &str) -> u64 {
        self.start_call("exec", json!({ "command": line })).await
    }

    async fn start_call(&mut self, tool: &str, input: Value) -> u64 {
        self.start_text(&format!("!call {tool} {input}\n!say $result")).await
    }

    async fn start_text(&mut self, text: &str) -> u64 {
        self.talker.send("turn.run", &turn_params(KEY, text)).await.unwrap()
    }

    /// The approval that waits, but not `before`; `None` if none does.
    async fn asked(&mut self, before: Option<&Value>) -> Option<Value> {
        let page = self.operator.call("approval.list", &json!({})).await.unwrap();
        let first = page["approvals"].as_array().unwrap().first().cloned();
        first.filter(|first| before.is_none_or(|before| before["id"] != first["id"]))
    }

    async fn wait_for_approval(&mut self, before: Option<&Value>) -> Value {
        for _ in 0..2_000 {
            if let Some(asked) = self.asked(before).await {
                return asked;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("nobody was asked");
    }

    async fn decide(&mut self, asked: &Value, decision: &str) -> Result<Value, tribune_client::ClientError> {
        self.decide_with(asked, json!({ "decision": decision })).await
    }

    async fn decide_with(
        &mut self,
        asked: &Value,
        mut decision: Value,
    ) -> Result<Value, tribune_client::ClientError> {
        decision["id"] = asked["id"].clone();
        self.operator.call("approval.decide", &decision).await
    }

    /// Waits until the turn is over, or the call waits again: then it returns the new approval.
    async fn over_or_asked(&mut self, turn: u64, before: &Value) -> Option<Value> {
        for _ in 0..2_000 {
            if let Some(asked) = self.asked(Some(before)).await {
                return Some(asked);
            }
            let next = tokio::time::timeout(Duration::from_millis(5), self.talker.next()).await;
            if matches!(&next, Ok(Ok(RpcIncoming::Response(of, _))) if *of == turn) {
                return None;
            }
        }
        panic!("the turn does not end");
    }

    async fn end_turn(&mut self, turn: u64) {
        while !matches!(self.talker.next().await.unwrap(), RpcIncoming::Response(of, _) if of == turn) {}
    }

    fn end(mut self) {
        drop((self.talker, self.operator));
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        assert_sound(&Home::at(self.place.home()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_file_changed_after_approval_never_runs() {
    let mut agent = AskingAgent::new().await;
    let mut ran = Vec::new();
    for (line, file) in LINES {
        // The line does run the file, as long as nothing changes.
        agent.reset();
        let turn = agent.start(line).await;
        let asked = agent.wait_for_approval(None).await;
        agent.decide(&asked, "allow_once").await.unwrap();
        assert_eq!(agent.over_or_asked(turn, &asked).await, None, "{line}");
        assert_eq!(agent.out().as_deref(), Some("harmless\n"), "{line}");

        agent.reset();
        let turn = agent.start(line).await;
        let asked = agent.wait_for_approval(None).await;
        agent.write(file, "#!/bin/sh\necho changed! > /workspace/out\n");
        agent.decide(&asked, "allow_once").await.unwrap();
        let again = agent.over_or_asked(turn, &asked).await;
        if agent.out().is_some() {
            ran.push(line);
        }
        if let Some(again) = again {
            assert_eq!(again["instead_of"], asked["id"], "{line}");
            let changed: Vec<&str> =
                again["changed"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert!(changed.contains(&format!("file {file}").as_str()), "{line}: {changed:?}");
            agent.decide(&again, "deny").await.unwrap();
            agent.end_turn(turn).await;
        }
    }
    assert_eq!(ran, Vec::<&str>::new(), "these ran what was not approved");
    agent.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_session_grant_never_runs_a_rewritten_file() {
    let mut agent = AskingAgent::new().await;
    let mut ran = Vec::new();
    for (line, file) in LINES {
        agent.reset();
        let turn = agent.start(line).await;
        let asked = agent.wait_for_approval(None).await;
        let granted = agent.decide(&asked, "allow_session").await;
        let open = asked["not_bound"].as_array().map_or(0, Vec::len);
        match granted {
            Ok(_) => assert_eq!(open, 0, "{line}: {asked}"),
            Err(refused) => {
                assert_eq!(refused.code(), Some("invalid_params"), "{line}: {refused}");
                assert!(open > 0, "{line}: {refused}");
                agent.decide(&asked, "allow_once").await.unwrap();
            }
        }
        assert_eq!(agent.over_or_asked(turn, &asked).await, None, "{line}");
        assert_eq!(agent.out().as_deref(), Some("harmless\n"), "{line}");
        // The agent rewrites the file, and runs the line again.
        std::fs::remove_file(agent.inside("out")).unwrap();
        agent.write(file, "#!/bin/sh\necho changed! > /workspace/out\n");
        let turn = agent.start(line).await;
        match agent.over_or_asked(turn, &asked).await {
            Some(asked) => {
                agent.decide(&asked, "deny").await.unwrap();
                agent.end_turn(turn).await;
            }
            None => ran.push(line),
        }
        assert_eq!(agent.out(), None, "{line}");
    }
    assert_eq!(ran, Vec::<&str>::new(), "these ran unasked");
    agent.end();
}

/// No grant for a folder covers a file in it that programs of this machine run or load by its name.
#[tokio::test(flavor = "multi_thread")]
async fn l8_a_folder_grant_covers_no_autorun_name() {
    // Calls of scenes, because what the owner types is the owner's and needs no question about autorun files.
    let traps = ["src/.envrc", "src/.git/hooks/pre-commit", "src/.vscode/tasks.json", "src/deep/.idea/x.xml"];
    let scene = |path: &str, content: &str| {
        format!("# Writes a file\ncall write {}\nsay $result\n", json!({ "path": path, "content": content }))
    };
    let scenes: Vec<(String, String)> = traps
        .iter()
        .enumerate()
        .map(|(n, path)| (format!("scenes/trap{n}.scene"), scene(path, "x")))
        .chain([("scenes/envrc.scene".to_owned(), scene("src/.envrc", "2"))])
        .collect();
    let mut files: Vec<(&str, &str)> = scenes.iter().map(|(name, text)| (&**name, &**text)).collect();
    files.push(("policy/ask.cedar", ASK_WRITE));
    let mut agent = AskingAgent::with_files(&files).await;
    let write = |path: &str, content: &str| json!({ "path": path, "content": content });
    let turn = agent.start_call("write", write("src/a.txt", "1")).await;
    let first = agent.wait_for_approval(None).await;
    agent.decide_with(&first, json!({ "decision": "allow_pattern", "pattern": "src/**" })).await.unwrap();
    agent.end_turn(turn).await;
    let turn = agent.start_call("write", write("src/b.txt", "2")).await;
    assert_eq!(agent.over_or_asked(turn, &first).await, None, "the grant covers what is no autorun file");
    let mut unasked = Vec::new();
    for (n, path) in traps.into_iter().enumerate() {
        let turn = agent.start_text(&format!("/play trap{n}")).await;
        match agent.over_or_asked(turn, &first).await {
            None => unasked.push(path),
            Some(asked) => {
                assert!(asked["rules"].to_string().contains("path.obeyed"), "{asked}");
                let wide = json!({ "decision": "allow_pattern", "pattern": "src/**" });
                assert_eq!(agent.decide_with(&asked, wide).await.unwrap_err().code(), Some("invalid_params"));
                agent.decide(&asked, "deny").await.unwrap();
                agent.end_turn(turn).await;
                assert!(!agent.inside(path).exists(), "{path}");
            }
        }
    }
    assert_eq!(unasked, Vec::<&str>::new());
    // Its exact path, given to a question that named it, is a grant.
    let turn = agent.start_text("/play envrc").await;
    let asked = agent.wait_for_approval(None).await;
    agent.decide(&asked, "allow_session").await.unwrap();
    agent.end_turn(turn).await;
    let turn = agent.start_text("/play trap0").await;
    assert_eq!(agent.over_or_asked(turn, &asked).await, None);
    assert_eq!(std::fs::read_to_string(agent.inside("src/.envrc")).unwrap(), "x");
    agent.end();
}

/// A rule that permits a program permits no subcommand of it that starts others, wherever it stands.
#[tokio::test(flavor = "multi_thread")]
async fn l3_a_permit_holds_behind_global_options() {
    let mut agent = AskingAgent::with_rule("policy/permit.cedar", PERMIT_GIT).await;
    let turn = agent.start("git --no-pager -C . status").await;
    assert_eq!(agent.over_or_asked(turn, &Value::Null).await, None, "the permit answers a plain line");
    let mut unasked = Vec::new();
    for line in ["git -C . bisect run ./x", "cargo -q run", "npm --silent exec x", "git clone -u ./x y"] {
        let turn = agent.start(line).await;
        match agent.over_or_asked(turn, &Value::Null).await {
            None => unasked.push(line),
            Some(asked) => {
                agent.decide(&asked, "deny").await.unwrap();
                agent.end_turn(turn).await;
            }
        }
    }
    assert_eq!(unasked, Vec::<&str>::new());
    agent.end();
}
