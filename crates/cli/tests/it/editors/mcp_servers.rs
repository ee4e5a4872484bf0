//! MCP servers from an editor, in the sandbox of the real binary: `e2e/mcp_server.py`, which misbehaves on request, and
//! one made with the official SDK.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tribune_testkit::upstream::FakeUpstream;

use super::stdio::{CANCEL, Editor};
use super::{EditorHome, assert_valid, node};
use crate::fixture::{Place, workspace};
use crate::in_process_daemon::PATIENCE;

const MANDATE: &str = "---\ntools: read, write, mcp\n---\n# For work\n";
const TOKEN: &str = "hush-hush-0451-hush";

/// A home whose agent may use MCP servers, and an editor.
pub(crate) struct Bench {
    pub(crate) desk: EditorHome,
    editor: Editor,
    next: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with(MANDATE)
    }

    fn with(mandate: &str) -> Self {
        Self::set_up(&[("mandates/work.md", mandate)])
    }

    /// With these files in the home.
    fn set_up(files: &[(&str, &str)]) -> Self {
        Self::at(EditorHome::new(), files)
    }

    pub(crate) fn at(desk: EditorHome, files: &[(&str, &str)]) -> Self {
        for (name, text) in files {
            let path = desk.place.home().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::copy(workspace().join("e2e/mcp_server.py"), desk.project().join("server.py")).unwrap();
        let mut bench = Self { editor: Editor::start(&desk, &[]), desk, next: 1 };
        bench.call("initialize", &json!({ "protocolVersion": 1 }));
        bench
    }

    /// Sets the editor's answer to permission requests.
    pub(crate) const fn answers(&mut self, option: &'static str) {
        self.editor.option = option;
    }

    /// Whether the editor got this text in any message.
    pub(crate) fn heard(&self, words: &str) -> bool {
        self.editor.lines.contains(words)
    }

    /// The lines of both sides, for failure messages.
    pub(crate) fn lines(&self) -> &str {
        &self.editor.lines
    }

    /// Makes the editor cancel the turn instead.
    pub(crate) const fn cancels(&mut self) {
        self.editor.option = CANCEL;
    }

    /// Questions that the editor was asked, by the title of their call.
    pub(crate) fn questions(&self) -> Vec<String> {
        questions(&self.editor.lines)
    }

    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        self.editor.call(self.next, method, params)
    }

    /// The test's own server, which has a mark in its command line.
    pub(crate) fn server(&self, mode: &str) -> Value {
        let env = json!([{ "name": "PROBE_TOKEN", "value": TOKEN }]);
        let args =
            [self.desk.project().join("server.py").display().to_string(), mode.to_owned(), self.mark()];
        json!({ "name": "probe", "command": "/usr/bin/python3", "args": args, "env": env })
    }

    fn mark(&self) -> String {
        format!("mark-{}", self.desk.place.folder.path().file_name().unwrap().to_string_lossy())
    }

    pub(crate) fn open(&mut self, servers: &Value) -> String {
        let opened = self.call("session/new", &json!({ "cwd": self.desk.project(), "mcpServers": servers }));
        opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned()
    }

    /// The agent's answer to a prompt.
    pub(crate) fn say(&mut self, session: &str, text: &str) -> String {
        let from = self.editor.lines.len();
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        let answer = self.call("session/prompt", &prompt);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer} {}", &self.editor.lines[from..]);
        let lines =
            self.editor.lines[from..].lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let updates = lines.map(|line| line["params"]["update"].clone());
        let chunks = updates.filter(|update| update["sessionUpdate"] == "agent_message_chunk");
        chunks.filter_map(|update| update["content"]["text"].as_str().map(str::to_owned)).collect()
    }

    /// Calls a tool of the server and returns its answer.
    fn use_tool(&mut self, session: &str, tool: &str, input: &Value) -> String {
        self.say(session, &format!("!call mcp__probe__{tool} {input}\n!say $result"))
    }

    /// The number of processes with the mark.
    fn running(&self) -> usize {
        let mark = self.mark();
        let marked = |entry: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            String::from_utf8_lossy(&text).contains(&mark).then_some(())
        };
        std::fs::read_dir("/proc").unwrap().filter_map(marked).count()
    }

    fn wait_until_gone(&self) {
        let begun = std::time::Instant::now();
        while self.running() > 0 {
            assert!(begun.elapsed() < PATIENCE, "{} are still running", self.running());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The payloads of an entity's entries, in order.
    pub(crate) fn entries(&self, entity: &str) -> Vec<Value> {
        let told = self.desk.place.ok(&["ledger", "tail", "--lines", "1000", "--entity", entity, "--json"]);
        let all = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.map(|entry| entry["entry"]["payload"].clone()).collect()
    }

    /// The file of the home, or the message to the editor, that holds a text.
    fn holds(&self, text: &str) -> Option<PathBuf> {
        fn look(folder: &Path, text: &[u8]) -> Option<PathBuf> {
            std::fs::read_dir(folder).unwrap().find_map(|entry| {
                let path = entry.unwrap().path();
                match path.symlink_metadata().ok()?.is_dir() {
                    true => look(&path, text),
                    false => {
                        let found = std::fs::read(&path).ok()?;
                        found.windows(text.len()).any(|part| part == text).then_some(path)
                    }
                }
            })
        }
        look(&self.desk.place.home(), text.as_bytes())
    }
}

/// Questions that the editor was asked, by the title of their call.
fn questions(lines: &str) -> Vec<String> {
    let asked = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let asked = asked.filter(|line| line["method"] == "session/request_permission");
    asked.map(|line| line["params"]["toolCall"]["title"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn server_runs_sandboxed_and_its_calls_pass_the_gate() {
    let mut bench = Bench::new();
    let session = bench.open(&json!([bench.server("well")]));
    assert_eq!(bench.use_tool(&session, "add", &json!({ "a": 2, "b": 3 })), "5");
    assert_eq!(questions(&bench.editor.lines), ["probe: add"]);
    std::fs::write(bench.desk.project().join("note.txt"), "hello").unwrap();
    assert_eq!(bench.use_tool(&session, "look", &json!({ "path": "note.txt" })), "/workspace: hello");
    // It sees only the project of this machine, and has no network access.
    let config = bench.desk.place.home().join("config.json5");
    let outside = bench.use_tool(&session, "look", &json!({ "path": config }));
    assert_eq!(outside, "/workspace: No such file or directory");
    let daemon = std::fs::read_to_string(bench.desk.place.home().join("run/daemon.json")).unwrap();
    let address: Value = serde_json::from_str(&daemon).unwrap();
    let port: u16 = address["address"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let reached = bench.use_tool(&session, "connect", &json!({ "host": "127.0.0.1", "port": port }));
    assert!(reached.contains("refused") || reached.contains("unreachable"), "{reached}");
    // It may change the files that its session may change.
    let written = bench.use_tool(&session, "write", &json!({ "path": "made.txt", "text": "made" }));
    assert_eq!(written, "written");
    assert_eq!(std::fs::read_to_string(bench.desk.project().join("made.txt")).unwrap(), "made");
    assert_eq!(bench.use_tool(&session, "twice", &json!({})), "first");
    assert_eq!(bench.use_tool(&session, "fail", &json!({})), "it cannot");
    assert_eq!(
        bench.use_tool(&session, "add", &json!({ "a": 1, "b": 1 })),
        "2",
        "and answers its own question"
    );

    let started = bench.entries(&format!("mcp:{session}"));
    assert_eq!(started[0]["waivedBy"], "mcp_server.operator", "{started:?}");
    assert_eq!(started[0]["facts"]["args"]["programs"], json!(["python3"]));
    assert_eq!(started[1]["event"], "server_started");
    assert_eq!((&started[1]["server"], &started[1]["tools"]), (&json!("probe"), &json!(9)));
    let own = bench.entries(&session);
    let calls: Vec<&Value> = own.iter().filter(|entry| entry["facts"]["tool"] == "mcp").collect();
    let call = calls.iter().find(|entry| entry["facts"]["stage"] == "call").unwrap();
    assert_eq!(
        (&call["facts"]["args"]["name"], &call["facts"]["args"]["action"]),
        (&json!("probe"), &json!("add"))
    );
    assert_eq!(call["decision"], "ask");
    // Its answers are untrusted.
    let shown = bench.desk.place.ok(&["sessions", "show", &session, "--json"]);
    assert!(shown.contains("untrusted"), "{shown}");
    assert!(assert_valid(&bench.desk.place, &bench.editor.lines) > 40);
}

#[test]
fn l5_server_secrets_stay_with_the_server() {
    let mut bench = Bench::new();
    let session = bench.open(&json!([bench.server("well")]));
    assert_eq!(
        bench.use_tool(&session, "variable", &json!({ "name": "PATH" })),
        "it is /usr/local/bin:/usr/bin:/bin"
    );
    let told = bench.use_tool(&session, "variable", &json!({ "name": "PROBE_TOKEN" }));
    assert!(told.starts_with("it is ") && !told.contains("not set") && !told.contains(TOKEN), "{told}");
    // The server prints it during its start.
    let failing = bench.open(&json!([bench.server("exits")]));
    let told = bench.say(&failing, "!say on");
    assert!(told.contains("ended with code 1") && told.contains("no licence for"), "{told}");
    assert!(!told.contains(TOKEN), "{told}");
    bench.desk.place.ok(&["down"]);
    assert_eq!(bench.holds(TOKEN), None);
    let heard = bench.editor.lines.lines().filter(|line| !line.contains("\"mcpServers\""));
    assert!(heard.clone().count() > 10 && heard.into_iter().all(|line| !line.contains(TOKEN)));
}

#[test]
fn a_call_that_is_denied_does_not_reach_its_server() {
    let mut bench = Bench::new();
    bench.editor.option = "deny";
    let session = bench.open(&json!([bench.server("well")]));
    let told = bench.use_tool(&session, "write", &json!({ "path": "made.txt", "text": "made" }));
    assert!(told.contains("denied"), "{told}");
    assert!(!bench.desk.project().join("made.txt").exists());
    // Without a writing tool in the mandate, the server cannot change files either.
    drop(bench);
    let mut bench = Bench::with("---\ntools: read, mcp\n---\n# For reading\n");
    let session = bench.open(&json!([bench.server("well")]));
    let told = bench.use_tool(&session, "write", &json!({ "path": "made.txt", "text": "made" }));
    assert_eq!(told, "Read-only file system");
}

#[test]
fn server_ends_with_its_session_and_all_its_processes() {
    let mut bench = Bench::new();
    let servers = json!([bench.server("well")]);
    let session = bench.open(&servers);
    assert!(bench.running() > 0);
    // It dies, and leaves a child in its sandbox.
    let told = bench.use_tool(&session, "leave", &json!({}));
    assert!(told.contains("`probe` is gone") && told.contains("do without"), "{told}");
    bench.wait_until_gone();
    let told = bench.say(&session, "!call mcp__probe__add {\"a\":1,\"b\":1}\n!say $result");
    assert!(told.contains("is gone"), "{told}");
    assert_eq!(bench.say(&session, "!say on"), "on", "the session can be used");
    // The client that loads the session again sends the servers again.
    let again = json!({ "sessionId": session, "cwd": bench.desk.project(), "mcpServers": servers });
    assert!(bench.call("session/resume", &again)["result"].is_object());
    assert_eq!(bench.use_tool(&session, "add", &json!({ "a": 2, "b": 3 })), "5");
    let before = bench.entries(&format!("mcp:{session}")).len();
    assert!(bench.call("session/load", &again)["result"].is_object());
    assert_eq!(bench.entries(&format!("mcp:{session}")).len(), before, "a running agent is not restarted");
    assert!(bench.running() > 0);
    bench.call("session/close", &json!({ "sessionId": session }));
    bench.wait_until_gone();
    // A line without an end does not end the daemon.
    let session = bench.open(&servers);
    let told = bench.use_tool(&session, "flood", &json!({}));
    assert!(told.contains("a line that is too long"), "{told}");
    bench.wait_until_gone();
    let session = bench.open(&servers);
    assert!(bench.running() > 0);
    bench.call("session/delete", &json!({ "sessionId": session }));
    bench.wait_until_gone();
    let session = bench.open(&servers);
    assert!(bench.running() > 0);
    bench.desk.place.ok(&["stop-all"]);
    bench.wait_until_gone();
    bench.desk.place.ok(&["resume"]);
    // They are restarted with the next prompt of the client that sent them.
    assert_eq!(bench.use_tool(&session, "add", &json!({ "a": 2, "b": 3 })), "5");
    assert!(bench.running() > 0);
    bench.desk.place.ok(&["down"]);
    assert_eq!(bench.running(), 0, "the daemon ends them too");
}

#[test]
fn l6_misbehaving_server_is_left_out() {
    let mut bench = Bench::new();
    for (mode, why) in [
        ("exits", "its program ended with code 1"),
        ("floods", "a line that is too long"),
        ("babbles", "not MCP"),
        ("silent", "it listed no tools within"),
    ] {
        let session = bench.open(&json!([bench.server(mode)]));
        let told = bench.say(&session, "!say on");
        assert!(
            told.starts_with("The MCP server `probe` is not there: ") && told.contains(why),
            "{mode}: {told}"
        );
        assert!(told.ends_with("on"), "{mode}: {told}");
        bench.wait_until_gone();
    }
    let session = bench.open(&json!([bench.server("asks")]));
    assert_eq!(bench.use_tool(&session, "add", &json!({ "a": 2, "b": 3 })), "5", "it gets no model of ours");
    let missing = json!({ "name": "gone", "command": "/nowhere/server", "args": [], "env": [] });
    let session = bench.open(&json!([missing]));
    let told = bench.say(&session, "!say on");
    assert!(told.contains("`gone` is not there: its program does not exist"), "{told}");
}

#[test]
fn an_agent_whose_mandate_has_no_servers_gets_none() {
    let mut bench = Bench::with("---\ntools: read, write\n---\n# For work\n");
    let session = bench.open(&json!([bench.server("well")]));
    assert_eq!(bench.running(), 0);
    let told = bench.say(&session, "!say on");
    assert!(
        told.contains("`probe` is not there: denied") && told.contains("`mcp` is not in the mandate"),
        "{told}"
    );
    let started = bench.entries(&format!("mcp:{session}"));
    assert_eq!((started.len(), &started[0]["decision"]), (1, &json!("deny")), "{started:?}");
    // The operator's rules apply too.
    drop(bench);
    let mut bench = Bench::new();
    let rule = "@id(\"no-python\") @reason(\"no interpreters\") forbid(principal, action == Tribune::Action::\"mcp_server\", resource) \
                when { context has programs && context.programs.contains(\"python3\") };";
    std::fs::write(bench.desk.place.home().join("policy/servers.cedar"), rule).unwrap();
    bench.desk.place.ok(&["down"]);
    bench.editor = Editor::start(&bench.desk, &[]);
    bench.call("initialize", &json!({ "protocolVersion": 1 }));
    let session = bench.open(&json!([bench.server("well")]));
    assert_eq!(bench.running(), 0);
    let told = bench.say(&session, "!say on");
    assert!(told.contains("no interpreters"), "{told}");
}

#[test]
fn agent_with_a_model_gets_and_calls_the_tools() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let upstream = runtime.block_on(FakeUpstream::start());
    upstream.act_as_model();
    let config = format!(
        "{{ gateway: {{ address: '127.0.0.1:0' }}, models: {{ providers: {{ fake: {{ kind: 'openai_compatible', \
         baseUrl: '{}/v1', local: true, startupValidation: 'off', \
         models: {{ m: {{ contextWindow: 200000, maxOutputTokens: 8000 }} }} }} }} }} }}",
        upstream.base_url()
    );
    let roster = "{\"id\":\"main\",\"backend\":\"native\",\"model\":\"fake:m\",\"mandate\":\"work\"}\n";
    let files =
        [("mandates/work.md", MANDATE), ("config.json5", &config), ("data/agent-roster.jsonl", roster)];
    let mut bench = Bench::set_up(&files);
    let session = bench.open(&json!([bench.server("well")]));
    let told = bench.say(&session, "[[call mcp__probe__add {\"a\": 20, \"b\": 22}]]");
    assert!(told.ends_with("It came to this: 42"), "{told}");
    assert_eq!(questions(&bench.editor.lines), ["probe: add"]);
    let asked = upstream.requests().into_iter().map(|request| request.json()).next_back().unwrap();
    let tools = asked["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]);
    let add =
        tools.clone().find(|tool| tool["name"] == "mcp__probe__add").unwrap_or_else(|| panic!("{asked}"));
    assert_eq!(add["parameters"]["properties"]["a"]["type"], "number");
    assert_eq!(tools.filter(|tool| tool["name"].as_str().unwrap().starts_with("mcp__")).count(), 9);
}

#[test]
fn server_made_with_the_official_sdk_works() {
    let mut bench = Bench::new();
    let source = "import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
const main = pathToFileURL(process.argv[2]);
const { McpServer } = await import(main);
const { StdioServerTransport } = await import(new URL('./stdio.js', main));
const { z } = await import(pathToFileURL(createRequire(main).resolve('zod')));
const server = new McpServer({ name: 'official', version: '1.0.0' });
const inputSchema = { a: z.number(), b: z.number() };
server.registerTool('multiply', { description: 'Multiplies', inputSchema }, async ({ a, b }) => ({
  content: [{ type: 'text', text: String(a * b) }],
}));
await server.connect(new StdioServerTransport());
";
    let script = bench.desk.project().join("official.mjs");
    std::fs::write(&script, source).unwrap();
    // It is part of one of the agents that are installed for other tests.
    let programs = std::env::var("TRIBUNE_E2E_AGENTS").expect("run scripts/test, or set TRIBUNE_E2E_AGENTS");
    let sdk = "claude/node_modules/@modelcontextprotocol/sdk/dist/esm/server/mcp.js";
    let args = [script, Path::new(&programs).join(sdk)];
    let session = bench.open(&json!([{ "name": "probe", "command": node(), "args": args, "env": [] }]));
    let told = bench.use_tool(&session, "multiply", &json!({ "a": 6, "b": 7 }));
    assert_eq!(told, "42", "{}", bench.editor.lines);
    let told = bench.use_tool(&session, "multiply", &json!({ "a": "six", "b": 7 }));
    assert!(told.to_lowercase().contains("invalid"), "{told}");
}

/// Decides about the next call that waits for a person, while the editor waits for its session.
fn decide_next(place: &Place, decision: &str) {
    let begun = std::time::Instant::now();
    let id = loop {
        let page: Value = serde_json::from_str(&place.ok(&["--json", "approvals", "list"])).unwrap();
        if let Some(id) = page["approvals"][0]["id"].as_str() {
            break id.to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "nothing waits for a decision");
        std::thread::sleep(Duration::from_millis(20));
    };
    place.ok(&["approvals", decision, &id]);
}

/// An agent that rewrites a server in the workspace does not get its variables at the next start.
#[test]
fn server_whose_code_changed_starts_only_after_a_person_allows() {
    let mut bench = Bench::new();
    let servers = json!([bench.server("well")]);
    let session = bench.open(&servers);
    assert_eq!(bench.use_tool(&session, "add", &json!({ "a": 2, "b": 3 })), "5");
    let again = json!({ "sessionId": session, "cwd": bench.desk.project(), "mcpServers": servers });
    let close = json!({ "sessionId": session });
    let code = bench.desk.project().join("server.py");
    for (change, decision) in [("# evil\n", Some("deny")), ("", Some("allow")), ("", None)] {
        bench.call("session/close", &close);
        bench.wait_until_gone();
        let text = std::fs::read_to_string(&code).unwrap();
        std::fs::write(&code, text + change).unwrap();
        let Bench { desk, editor, next } = &mut bench;
        *next += 1;
        let loaded = std::thread::scope(|scope| {
            if let Some(decision) = decision {
                scope.spawn(|| decide_next(&desk.place, decision));
            }
            editor.call(*next, "session/load", &again)
        });
        assert!(loaded["result"].is_object(), "{loaded}");
        if decision == Some("deny") {
            let told = bench.say(&session, "!say on");
            let why = "its code changed since it was last started (`server.py`)";
            assert!(told.contains("`probe` is not there") && told.contains(why), "{told}");
            assert_eq!(bench.running(), 0);
        } else {
            assert_eq!(bench.use_tool(&session, "add", &json!({ "a": 2, "b": 3 })), "5");
        }
    }
}
