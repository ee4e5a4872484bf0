//! CLI agents in the real sandbox under the real daemon: `agent.py` performs the acts that a test sends it.

mod canary;
mod mcp_servers;
mod modes;
mod passthrough;
mod permission_bypass;
mod protocol_violations;
mod terminals;
mod turns;
mod ungoverned;

use std::os::unix::fs::PermissionsExt;
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::{RpcClient, RpcIncoming};
use tribune_storage::home::Home;
use tribune_testkit::{assert_sound, output_text, turn_params};

use crate::fixture::Place;
use crate::turn_crash::start_with;

pub(crate) const KEY: &str = "agent:coder:rpc:local:dm:op";

/// Allowed without an approval.
pub(crate) const FREE: &str =
    r#"@id("free") permit(principal, action in Tribune::Action::"side_effect", resource);"#;

/// Needs an approval.
pub(crate) const ASK: &str = r#"
    @id("free") permit(principal, action in Tribune::Action::"side_effect", resource);
    @id("ask") forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit", Tribune::Action::"exec"], resource)
    unless { context.approved };
"#;

/// Most of these agents have no model, so they cannot be tested by a canary.
pub(super) const UNTRIED: &str = "{ canary: { untried: ['played'] } }";

/// The setup of a daemon with a scripted agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) role: &'a str,
    pub(super) tools: &'a str,
    pub(super) law: &'a str,
    /// More members of its profile.
    pub(super) profile: &'a str,
    /// More members of its roster line.
    pub(super) roster: &'a str,
    pub(super) config: &'a str,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        let tools = "read, write, edit, exec";
        Self { role: "", tools, law: FREE, profile: "", roster: "", config: UNTRIED }
    }
}

/// A daemon with a scripted agent.
pub(crate) struct Rig {
    pub(crate) place: Place,
    child: KillOnDrop,
    address: String,
    token: String,
    /// The environment of its daemon.
    variables: Vec<(String, String)>,
    pub(crate) client: RpcClient,
}

impl Rig {
    pub(super) async fn new(setting: Setting<'_>) -> Self {
        Self::on(Self::set_up(setting), &[]).await
    }

    /// The home for a setting, without a daemon.
    pub(super) fn set_up(setting: Setting<'_>) -> Place {
        let place = Place::new();
        let folder = place.path("played");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::write(folder.join("agent.py"), include_str!("agent.py")).unwrap();
        let Setting { role, tools, law, profile, roster, config } = setting;
        let folder = folder.display();
        let profile = format!(
            "{{ id: 'played', title: 'a played agent', command: ['python3', '{folder}/agent.py', '{role}'], \
             folders: ['{folder}'], keep: ['talks'], hide: ['.played']{profile} }}"
        );
        let roster = format!(
            "{{\"id\":\"coder\",\"backend\":\"acp\",\"profile\":\"played\",\"mandate\":\"work\"{roster}}}\n"
        );
        for (file, text) in [
            ("config.json5", config),
            ("mandates/work.md", format!("---\ntools: {tools}\n---\n# For work\n").as_str()),
            ("policy/law.cedar", law),
            // Whatever labels the session has by then.
            ("policy/law.json5", "{ overrides: { exec: \"off\" } }"),
            ("profiles/played.json5", &profile),
            ("data/agent-roster.jsonl", &roster),
            ("agents/coder/workspace/notes.txt", "notes"),
            ("secret.txt", "hush"),
        ] {
            let path = place.home().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        place
    }

    /// On an existing home.
    pub(crate) async fn on(place: Place, variables: &[(&str, &str)]) -> Self {
        let (child, address, token) = start_with(&place, variables);
        let child = KillOnDrop(child);
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut client = RpcClient::connect(&address, Some(&token)).await.unwrap();
        client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
        Self { place, child, address, token, variables, client }
    }

    /// The metrics page.
    pub(super) async fn metrics(&self) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(&self.address).await.unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        page
    }

    /// Another connection as operator.
    pub(crate) async fn operator(&self) -> RpcClient {
        RpcClient::connect(&self.address, Some(&self.token)).await.unwrap()
    }

    /// Runs a turn with these acts to its end.
    pub(super) async fn plays(&mut self, acts: Value) -> FinishedTurn {
        let running = self.begins(acts).await;
        self.ended(running).await
    }

    pub(super) async fn begins(&mut self, acts: Value) -> u64 {
        self.begins_in(KEY, acts).await
    }

    /// Starts a turn in another session.
    pub(super) async fn begins_in(&mut self, key: &str, acts: Value) -> u64 {
        // In hex, so that no part of it counts as the owner's own text.
        let script: String = acts.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
        self.client.send("turn.run", &turn_params(key, &script)).await.unwrap()
    }

    /// The processes of scripted agents, as this machine sees them.
    pub(super) fn agent_processes(&self) -> Vec<u32> {
        below(self.daemon(), "/agent.py")
    }

    /// Sends a message, and waits for the end of the turn.
    pub(crate) async fn hears(&mut self, words: &str) -> FinishedTurn {
        let running = self.begins_with(words).await;
        self.ended(running).await
    }

    pub(crate) async fn begins_with(&mut self, words: &str) -> u64 {
        self.client.send("turn.run", &turn_params(KEY, words)).await.unwrap()
    }

    /// The daemon's process id.
    pub(crate) fn daemon(&self) -> u32 {
        self.child.0.id()
    }

    pub(crate) async fn ended(&mut self, running: u64) -> FinishedTurn {
        let mut events = Vec::new();
        let result = loop {
            match within(self.client.next()).await.unwrap() {
                RpcIncoming::Response(of, answer) if of == running => break answer,
                RpcIncoming::Response(..) => {}
                RpcIncoming::Notification(said) => events.push(said.params["event"].clone()),
            }
        };
        let stop = result.as_ref().map_or_else(ToString::to_string, |answer| {
            answer["stop_reason"].as_str().unwrap_or_default().to_owned()
        });
        FinishedTurn { text: output_text(&events), stop, events }
    }

    /// Waits until the agent hangs. Returns the events until then.
    pub(super) async fn hangs(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            if let RpcIncoming::Notification(said) = within(self.client.next()).await.unwrap() {
                let event = said.params["event"].clone();
                if event["kind"] == "hanging" {
                    return events;
                }
                events.push(event);
            }
        }
    }

    pub(crate) fn workspace(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.place.home().join("agents/coder/workspace").join(name)).ok()
    }

    /// Waits for a pending approval, and returns all.
    pub(crate) async fn waiting(client: &mut RpcClient) -> Vec<Value> {
        for _ in 0..3_000 {
            let page = client.call("approval.list", &json!({})).await.unwrap();
            let waiting = page["approvals"].as_array().unwrap().clone();
            if !waiting.is_empty() {
                return waiting;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nothing waits");
    }

    pub(crate) async fn decide(client: &mut RpcClient, approval: &Value, decision: &str) {
        let params = json!({ "id": approval["id"], "decision": decision });
        client.call("approval.decide", &params).await.unwrap();
    }

    /// Kills the daemon and starts it again.
    pub(crate) async fn killed(mut self) -> Self {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
        drop(self.client);
        let variables: Vec<(&str, &str)> =
            self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Self::on(self.place, &variables).await
    }

    /// Stops the daemon, and checks that its home is sound.
    pub(crate) fn end(self) -> Place {
        let Self { place, mut child, client, .. } = self;
        drop(client);
        let pid = rustix::process::Pid::from_child(&child.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(child.0.wait().unwrap().success());
        assert_sound(&Home::at(place.home()));
        place
    }
}

/// Kills the daemon on drop, so that a failing test does not leave it behind.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // A process that has ended needs no signal.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A finished turn.
#[derive(Debug)]
pub(crate) struct FinishedTurn {
    pub(crate) events: Vec<Value>,
    pub(crate) text: String,
    pub(crate) stop: String,
}

impl FinishedTurn {
    /// The turn, with events that arrived before the test waited for its end.
    pub(super) fn after(self, mut before: Vec<Value>) -> Self {
        before.extend(self.events);
        Self { text: output_text(&before), events: before, stop: self.stop }
    }

    pub(crate) fn of_type(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }

    /// The error that ended it.
    pub(crate) fn error(&self) -> (String, String) {
        let errors = self.of_type("error");
        assert_eq!(errors.len(), 1, "{self:#?}");
        let word = |name: &str| errors[0][name].as_str().unwrap().to_owned();
        (word("code"), word("message"))
    }
}

/// A permission request to write a file, and the write.
pub(super) fn write(call: &str, path: &str, content: &str) -> Value {
    let file = format!("/workspace/{path}");
    json!({
        "ask": { "toolCallId": call, "title": format!("Write {path}"), "kind": "edit",
                 "content": [{ "type": "diff", "path": file, "newText": content }] },
        "do": { "write": [file, content] },
    })
}

/// A reported call without a permission request.
pub(super) fn unasked(status: &str, kind: &str, raw: Value) -> Value {
    json!({ "update": { "sessionUpdate": "tool_call", "toolCallId": "u", "title": "on its own", "kind": kind,
                        "status": status, "rawInput": raw } })
}

/// A permission request to run a command, and the run.
pub(super) fn run(call: &str, command: &str) -> Value {
    json!({
        "ask": { "toolCallId": call, "title": command, "kind": "execute", "rawInput": { "command": command } },
        "do": { "run": command },
    })
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), work).await.expect("this takes too long")
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("this did not happen: {what}");
}

/// The descendants of a daemon with this text in their command line.
pub(crate) fn below(daemon: u32, called_with: &str) -> Vec<u32> {
    let all: Vec<(u32, u32, String)> = processes();
    let mut family = vec![daemon];
    let mut at = 0;
    while at < family.len() {
        let parent = family[at];
        family.extend(all.iter().filter(|(_, of, _)| *of == parent).map(|(pid, ..)| *pid));
        at += 1;
    }
    let own = all.iter().filter(|(pid, _, line)| family.contains(pid) && line.contains(called_with));
    own.map(|(pid, ..)| *pid).collect()
}

/// Every process of this machine: its id, its parent's id and its command line.
pub(crate) fn processes() -> Vec<(u32, u32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let one = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, parent, String::from_utf8_lossy(&line).into_owned()))
    };
    entries.filter_map(one).collect()
}
