//! The real CLI agents, in the versions of their profiles, in the real sandbox under the real daemon; only the model is
//! fake.
//!
//! The model executes orders in the user's message (`upstream::model`), so that each test determines the agent's calls.
//! Tests check files, the ledger, and the requests to the model, not what agents say.
//!
//! `scripts/test` installs the programs with `tribune agents install`; `TRIBUNE_E2E_AGENTS` names their folder.

mod autorun_files;
mod canary;
mod denied;
mod editor_permission;
mod limitations;
mod matrix;
mod mcp_servers;

use std::path::PathBuf;

use serde_json::{Value, json};
use tribune_constitution::DecisionStage;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::Verdicts;
use tribune_testkit::FakeUpstream;

use crate::acp::{Rig, below, until};
use crate::fixture::Place;

/// The daemon's provider key, which no sandbox may hold.
const SECRET: &str = "fixture-key-e2e-5f1c9e0b7a";

/// The content of a file that nobody may read.
const PLANTED: &str = "planted-words-7c1d";

/// One of the agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Agent {
    /// Through its ACP adapter.
    Claude,
    /// In its own stream-json protocol.
    ClaudeCode,
    Codex,
    Gemini,
    Opencode,
}

/// A call that the model orders.
#[derive(Debug, Clone, Copy)]
enum ModelOrder<'a> {
    Write(&'a str, &'a str),
    /// Replaces a word of a file.
    Edit(&'a str, &'a str, &'a str),
    Run(&'a str),
    Read(&'a str),
    Fetch(&'a str),
}

impl Agent {
    const fn profile(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
        }
    }

    const fn backend(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude_code",
            Self::Claude | Self::Codex | Self::Gemini | Self::Opencode => "acp",
        }
    }

    /// The folder of its program, which two agents share.
    const fn program(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
            Self::Claude | Self::Codex | Self::Gemini | Self::Opencode => self.profile(),
        }
    }

    /// The kind of its provider, and the suffix of its address.
    const fn provider(self) -> (&'static str, &'static str) {
        match self {
            Self::Claude | Self::ClaudeCode => ("anthropic", ""),
            Self::Codex => ("openai", "/v1"),
            Self::Gemini => ("gemini", ""),
            Self::Opencode => ("openai_compatible", "/v1"),
        }
    }

    /// The message that orders it, with the agent's own tool and argument names.
    fn order(self, order: ModelOrder<'_>) -> String {
        let file = |path: &str| format!("/workspace/{path}");
        let (tool, input) = match (self, order) {
            (Self::Claude | Self::ClaudeCode, ModelOrder::Write(path, text)) => {
                ("Write", json!({ "file_path": file(path), "content": text }))
            }
            (Self::Claude | Self::ClaudeCode, ModelOrder::Edit(path, old, new)) => {
                ("Edit", json!({ "file_path": file(path), "old_string": old, "new_string": new }))
            }
            (Self::Claude | Self::ClaudeCode, ModelOrder::Run(command)) => {
                ("Bash", json!({ "command": command, "description": "x" }))
            }
            (Self::Claude | Self::ClaudeCode, ModelOrder::Read(path)) => {
                ("Read", json!({ "file_path": file(path) }))
            }
            (Self::Claude | Self::ClaudeCode, ModelOrder::Fetch(url)) => {
                ("WebFetch", json!({ "url": url, "prompt": "x" }))
            }
            (Self::Codex, ModelOrder::Write(path, text)) => {
                let patch = format!("*** Begin Patch\n*** Add File: {path}\n+{text}\n*** End Patch");
                ("exec_command", json!({ "cmd": format!("apply_patch <<'EOF'\n{patch}\nEOF") }))
            }
            (Self::Codex, ModelOrder::Edit(path, old, new)) => {
                let patch =
                    format!("*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch");
                ("exec_command", json!({ "cmd": format!("apply_patch <<'EOF'\n{patch}\nEOF") }))
            }
            (Self::Codex, ModelOrder::Run(command)) => ("exec_command", escalated(command)),
            (Self::Codex, ModelOrder::Read(path)) => ("exec_command", escalated(&format!("cat {path}"))),
            (Self::Codex, ModelOrder::Fetch(url)) => ("exec_command", escalated(&format!("curl -sS {url}"))),
            (Self::Gemini, ModelOrder::Write(path, text)) => {
                ("write_file", json!({ "file_path": file(path), "content": text }))
            }
            (Self::Gemini, ModelOrder::Edit(path, old, new)) => (
                "replace",
                json!({ "file_path": file(path), "instruction": "x", "old_string": old, "new_string": new }),
            ),
            (Self::Gemini, ModelOrder::Run(command)) => ("run_shell_command", json!({ "command": command })),
            (Self::Gemini, ModelOrder::Read(path)) => ("read_file", json!({ "file_path": file(path) })),
            (Self::Gemini, ModelOrder::Fetch(url)) => ("web_fetch", json!({ "prompt": url })),
            (Self::Opencode, ModelOrder::Write(path, text)) => {
                ("write", json!({ "filePath": file(path), "content": text }))
            }
            (Self::Opencode, ModelOrder::Edit(path, old, new)) => {
                ("edit", json!({ "filePath": file(path), "oldString": old, "newString": new }))
            }
            (Self::Opencode, ModelOrder::Run(command)) => {
                ("bash", json!({ "command": command, "description": "x" }))
            }
            (Self::Opencode, ModelOrder::Read(path)) => ("read", json!({ "filePath": file(path) })),
            (Self::Opencode, ModelOrder::Fetch(url)) => ("webfetch", json!({ "url": url, "format": "text" })),
        };
        format!("[[call {tool} {input}]]")
    }
}

/// Codex requests permission only for calls outside of its own sandbox.
fn escalated(command: &str) -> Value {
    json!({ "cmd": command, "sandbox_permissions": "require_escalated", "justification": "it is needed" })
}

/// A daemon with one of the agents, and its model.
struct AgentDaemon {
    agent: Agent,
    rig: Rig,
    model: FakeUpstream,
}

impl AgentDaemon {
    /// Without canaries, which have their own test and would take half of the time.
    async fn open(agent: Agent, law: &str) -> Self {
        Self::with(agent, law, "off", &[]).await
    }

    /// With more files in its workspace.
    async fn planted(agent: Agent, law: &str, files: &[(&str, String)]) -> Self {
        Self::with(agent, law, "off", files).await
    }

    async fn tried(agent: Agent, law: &str) -> Self {
        Self::with(agent, law, "12h", &[]).await
    }

    async fn with(agent: Agent, law: &str, canary: &str, planted: &[(&str, String)]) -> Self {
        let model = FakeUpstream::start().await;
        model.act_as_model();
        let place = Place::new();
        let (kind, behind) = agent.provider();
        let config = format!(
            "{{ canary: {{ every: '{canary}' }}, models: {{ providers: {{ fake: {{ kind: '{kind}', baseUrl: '{}{behind}', keyEnv: 'E2E_API_KEY', startupValidation: 'off', \
               models: {{ 'fake-model': {{ contextWindow: 200000, maxOutputTokens: 32000 }} }} }} }} }} }}",
            model.base_url()
        );
        let roster = json!({
            "id": "coder", "backend": agent.backend(), "profile": agent.profile(), "model": "fake:fake-model", "mandate": "work",
        });
        for (file, text) in [
            ("config.json5", config.as_str()),
            ("mandates/work.md", "---\ntools: read, write, edit, exec, search, web_fetch\n---\n# For work\n"),
            ("policy/law.cedar", law),
            ("data/agent-roster.jsonl", &format!("{roster}\n")),
            ("agents/coder/workspace/notes.txt", "notes\n"),
            ("agents/coder/workspace/private.txt", PLANTED),
        ] {
            let path = place.home().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (file, text) in planted {
            let path = place.home().join("agents/coder/workspace").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::fs::create_dir_all(place.home().join("programs")).unwrap();
        let program = programs().join(agent.program());
        std::os::unix::fs::symlink(program, place.home().join("programs").join(agent.program())).unwrap();
        let rig = Rig::on(place, &[("E2E_API_KEY", SECRET)]).await;
        Self { agent, rig, model }
    }

    /// The message for these orders.
    fn orders(&self, orders: &[ModelOrder<'_>]) -> String {
        orders.iter().map(|order| self.agent.order(*order)).collect::<Vec<_>>().join(" ")
    }

    /// Makes the agent execute these calls in order.
    async fn does(&mut self, orders: &[ModelOrder<'_>]) -> crate::acp::FinishedTurn {
        let words = self.orders(orders);
        self.rig.hears(&words).await
    }

    /// The verdicts about calls in the ledger, with their tools.
    fn verdicts(&self) -> Vec<(String, String)> {
        let reader = Reader::open(&Home::at(self.rig.place.home())).unwrap();
        let judged = Verdicts::from(&reader, 0).map(|judged| judged.unwrap().record.unwrap());
        let tools = ["read", "write", "edit", "exec", "search", "web_fetch"];
        judged
            .filter(|record| {
                tools.contains(&record.tool.as_str()) && record.facts.stage == DecisionStage::Call
            })
            .map(|record| (record.tool, record.verdict.decision.as_str().to_owned()))
            .collect()
    }

    /// The agent's processes, as this machine sees them.
    fn processes(&self) -> Vec<u32> {
        below(self.rig.daemon(), "/opt/agent/")
    }

    /// Kills the agent's processes, and waits until all are gone.
    async fn kill_agent(&self) {
        let own = self.processes();
        assert!(!own.is_empty(), "it runs");
        for pid in own {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            // It may have ended together with another process.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        until("nothing of the agent is left", || self.processes().is_empty()).await;
    }

    /// Whether any model request of the agent held this text.
    fn model_heard(&self, words: &str) -> bool {
        self.model.requests().iter().any(|request| request.text().contains(words))
    }
}

/// Where the agents are installed.
fn programs() -> PathBuf {
    let place = std::env::var_os("TRIBUNE_E2E_AGENTS").expect(
        "these tests need the agents: run scripts/test, or install them with `tribune agents install` into a home and set \
         TRIBUNE_E2E_AGENTS to its programs folder",
    );
    PathBuf::from(place)
}
