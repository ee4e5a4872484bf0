//! Each agent with an MCP server from its editor: the model orders a call of one of its tools, and Tribune executes it
//! or not.

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tribune_testkit::FakeUpstream;

use super::{Agent, SECRET, programs};
use crate::editors::EditorHome;
use crate::editors::mcp_servers::Bench;

const MANDATE: &str = "---\ntools: read, write, mcp\n---\n# For work\n";

/// Allowed without an approval.
const FREE: &str = r#"@id("free") permit(principal, action == Tribune::Action::"mcp", resource);"#;

/// Denied for everyone.
const NONE: &str = r#"@id("none") @reason("no servers today") forbid(principal, action == Tribune::Action::"mcp", resource);"#;

impl Agent {
    /// The agent's name for a tool of the server `probe`.
    fn tool(self, name: &str) -> String {
        match self {
            Self::Claude | Self::ClaudeCode => format!("mcp__probe__{name}"),
            Self::Codex => format!("mcp__probe/{name}"),
            Self::Gemini => format!("mcp_probe_{name}"),
            Self::Opencode => format!("probe_{name}"),
        }
    }

    /// Whether it requests permission for such a call. Otherwise the call itself is the request.
    const fn asks_first(self) -> bool {
        match self {
            Self::Claude | Self::ClaudeCode | Self::Codex => true,
            Self::Gemini | Self::Opencode => false,
        }
    }
}

/// A bench with an editor and one of the agents, with a session that has a server.
struct ServerBench {
    agent: Agent,
    bench: Bench,
    session: String,
    model: FakeUpstream,
    _runtime: Runtime,
}

impl ServerBench {
    fn new(agent: Agent, law: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let model = runtime.block_on(FakeUpstream::start());
        model.act_as_model();
        let (kind, behind) = agent.provider();
        let config = format!(
            "{{ gateway: {{ address: '127.0.0.1:0' }}, canary: {{ every: 'off', untried: ['{}'] }}, models: {{ providers: {{ fake: {{ \
               kind: '{kind}', baseUrl: '{}{behind}', local: true, startupValidation: 'off', \
               models: {{ 'fake-model': {{ contextWindow: 200000, maxOutputTokens: 32000 }} }} }} }} }} }}",
            agent.profile(),
            model.base_url()
        );
        let roster = json!({
            "id": "main", "backend": agent.backend(), "profile": agent.profile(), "model": "fake:fake-model", "mandate": "work",
        });
        let desk = EditorHome::new();
        std::fs::create_dir_all(desk.place.home().join("programs")).unwrap();
        let program = programs().join(agent.program());
        std::os::unix::fs::symlink(program, desk.place.home().join("programs").join(agent.program()))
            .unwrap();
        let files = [
            ("config.json5", config.as_str()),
            ("mandates/work.md", MANDATE),
            ("policy/law.cedar", law),
            ("data/agent-roster.jsonl", &format!("{roster}\n")),
        ];
        let mut bench = Bench::at(desk, &files);
        let session = bench.open(&json!([bench.server("well")]));
        Self { agent, bench, session, model, _runtime: runtime }
    }

    /// Makes the model order a call of the server's tool that writes a file.
    fn writes(&mut self, path: &str) -> String {
        let input = json!({ "path": path, "text": "made" });
        let words = format!("[[call {} {input}]]", self.agent.tool("write"));
        self.bench.say(&self.session, &words)
    }

    fn has(&self, path: &str) -> bool {
        self.bench.desk.project().join(path).exists()
    }

    /// The verdicts about calls: the tool, the stage and the decision.
    fn verdicts(&self) -> Vec<(String, String, String)> {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let entries = self.bench.entries(&self.session);
        let judged = entries
            .iter()
            .filter(|entry| entry["facts"]["stage"].is_string() && entry["facts"]["stage"] != "offer");
        judged
            .map(|entry| {
                (word(&entry["facts"]["tool"]), word(&entry["facts"]["stage"]), word(&entry["decision"]))
            })
            .collect()
    }

    /// Whether the agent sent its own permission requests.
    fn asked_first(&self) -> bool {
        self.bench.entries(&self.session).iter().any(|entry| entry["said_hash"].is_string())
    }

    /// Whether the model got this text.
    fn model_heard(&self, words: &str) -> bool {
        self.model.requests().iter().any(|request| request.text().contains(words))
    }

    /// The tools that all requests offered to the model.
    fn offered(&self) -> String {
        let tools = self
            .model
            .requests()
            .iter()
            .map(|request| request.json()["tools"].to_string())
            .collect::<Vec<_>>();
        tools.join("\n")
    }
}

fn decided(all: &[(&str, &str)]) -> Vec<(String, String, String)> {
    all.iter().map(|(stage, how)| ("mcp".to_owned(), (*stage).to_owned(), (*how).to_owned())).collect()
}

/// The law allows it: Tribune executes the call, and the model gets the result.
fn is_let(agent: Agent) {
    let mut served = ServerBench::new(agent, FREE);
    let told = served.writes("made.txt");
    assert!(served.has("made.txt"), "{told}\n{}", served.offered());
    assert_eq!(served.verdicts(), decided(&[("call", "allow")]), "{told}\n{}", served.bench.lines());
    assert!(served.model_heard("written"), "{told}");
    assert_eq!(served.asked_first(), agent.asks_first(), "{told}\n{}", served.bench.lines());
    assert!(!served.model_heard(SECRET));
    assert_eq!(served.bench.questions(), [] as [&str; 0]);
}

/// The law forbids it: the server gets no call, and the agent continues.
fn is_refused(agent: Agent) {
    let mut served = ServerBench::new(agent, NONE);
    let told = served.writes("made.txt");
    assert!(!served.has("made.txt"), "{told}");
    assert_eq!(served.verdicts(), decided(&[("call", "deny")]), "{told}\n{}", served.bench.lines());
    let after = served.bench.say(&served.session.clone(), "hello");
    assert!(after.contains(tribune_testkit::upstream::model::GREETING), "{after}");
}

/// A person is asked once, about exactly this call.
fn is_asked_about(agent: Agent) {
    for (option, is_made) in [("allow_once", true), ("deny", false)] {
        let mut served = ServerBench::new(agent, "");
        served.bench.answers(option);
        let told = served.writes("made.txt");
        assert_eq!(served.has("made.txt"), is_made, "{option}: {told}");
        assert_eq!(served.bench.questions(), ["probe: write"], "{option}: {told}\n{}", served.bench.lines());
        let after: &[(&str, &str)] =
            if is_made { &[("call", "ask"), ("dispatch", "allow")] } else { &[("call", "ask")] };
        assert_eq!(served.verdicts(), decided(after), "{option}: {told}");
    }
}

/// Gemini CLI starts no servers in a folder that it does not trust: it gets none, and the session reports it.
#[test]
fn gemini_has_no_servers() {
    let mut served = ServerBench::new(Agent::Gemini, FREE);
    let told = served.writes("made.txt");
    assert!(served.bench.heard("this agent takes no MCP servers from Tribune; left out: `probe`"), "{told}");
    assert!(served.model_heard("not found in registry"), "{told}");
    assert_eq!(served.verdicts(), []);
    assert!(!served.has("made.txt"));
}

macro_rules! matrix {
    ($($name:ident: $agent:expr),+ $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn l1_mcp_tool_is_called_by_tribune() {
                is_let($agent);
            }

            #[test]
            fn l1_mcp_tool_is_not_called_without_permission() {
                is_refused($agent);
            }

            #[test]
            fn l2_waits_for_a_person_before_a_servers_tool_is_called() {
                is_asked_about($agent);
            }
        }
    )+};
}

matrix! {
    claude: Agent::Claude,
    claude_code: Agent::ClaudeCode,
    codex: Agent::Codex,
    opencode: Agent::Opencode,
}
