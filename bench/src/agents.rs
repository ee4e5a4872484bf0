//! The overhead of the daemon for CLI agents: the same agent directly without a sandbox, and through the daemon in its
//! sandbox, with and without a call that the law decides. Also the gain of keeping an agent between turns, and the
//! memory of twenty idle agents.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tribune_storage::home::Home;

use crate::log::BenchHome;
use crate::server::{DaemonProcess, percentile};
use crate::turns::{ms, turn, turn_with_prompt};

const TURNS: usize = 500;

/// The prompt that makes the agent request permission for a call before it answers.
const CALLS: &str = "call";

/// The command of that call.
const COMMAND: &str = "true";

/// Agents that stay alive at the same time.
const KEPT: usize = 20;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "agents: a turn of an agent over ACP, through the daemon and its sandbox, over the same agent directly"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = BenchHome::new()?;
    // Mounts need absolute paths.
    let root = folder.home.root();
    let home = Home::at(root.parent().unwrap_or(root).canonicalize()?.join("home"));
    // A folder that the sandbox can mount: the agent is this program.
    let place = tempfile::tempdir()?;
    let program = place.path().join("agent");
    std::fs::copy(std::env::current_exe()?, &program)?;
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    write_home(&home, &program.to_string_lossy(), &place.path().to_string_lossy())?;

    let (started, direct) = directly(&program, "hello")?;
    let (_, direct_calls) = directly(&program, CALLS)?;
    let server = DaemonProcess::start(&home)?;
    runtime.block_on(async {
        let mut client = server.client().await?;
        client.call("daemon.status", &json!({})).await?;
        let before = server.resident()?;
        let mut cold = Vec::with_capacity(KEPT);
        for n in 0..KEPT {
            client.call("session.init", &json!({ "session_key": key(n), "mode": "persistent" })).await?;
            cold.push(turn(&mut client, &key(n)).await?);
        }
        let after = server.resident()?;
        let sandboxes = server.descendants()?;
        let mut warm = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            warm.push(turn(&mut client, &key(0)).await?);
        }
        let mut calls = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            calls.push(turn_with_prompt(&mut client, &key(0), CALLS).await?);
        }
        let (p50, of_direct) = (percentile(&warm, 50), percentile(&direct, 50));
        println!(
            "  directly            p50 {:>7.3} ms   p99 {:>7.3} ms   started in {:.1} ms",
            ms(of_direct),
            ms(percentile(&direct, 99)),
            ms(started)
        );
        println!(
            "  through the daemon  p50 {:>7.3} ms   p99 {:>7.3} ms   = {:.1} x, {:.3} ms added",
            ms(p50),
            ms(percentile(&warm, 99)),
            p50.as_secs_f64() / of_direct.as_secs_f64(),
            ms(p50.saturating_sub(of_direct))
        );
        let (with_call, of_direct_call) = (percentile(&calls, 50), percentile(&direct_calls, 50));
        println!(
            "  with a call, directly p50 {:>7.3} ms; decided and recorded by the daemon p50 {:>7.3} ms   p99 {:>7.3} ms   \
             = {:.1} x, {:.3} ms more than a turn without",
            ms(of_direct_call),
            ms(with_call),
            ms(percentile(&calls, 99)),
            with_call.as_secs_f64() / of_direct_call.as_secs_f64(),
            ms(with_call.saturating_sub(p50))
        );
        let first = percentile(&cold, 50);
        println!(
            "  first turn, started p50 {:>7.3} ms   = {:.1} x a turn of one that is kept",
            ms(first),
            first.as_secs_f64() / p50.as_secs_f64()
        );
        println!(
            "  {KEPT} kept agents: the daemon grew by {:.0} KB each; their sandboxes have {:.1} MB each, including the agent itself",
            after.saturating_sub(before) as f64 / KEPT as f64,
            sandboxes as f64 / 1024.0 / KEPT as f64
        );
        Ok::<_, Box<dyn Error>>(())
    })
}

fn key(n: usize) -> String {
    format!("agent:fake:rpc:local:dm:peer-{n}")
}

/// Writes a home with the agent's profile, mandate and law.
fn write_home(home: &Home, program: &str, folder: &str) -> Result<(), Box<dyn Error>> {
    let profile = json!({ "id": "fake", "title": "fake", "command": [program, AGENT], "folders": [folder] });
    let agent = json!({ "id": "fake", "backend": "acp", "profile": "fake", "mandate": "work" });
    for (file, text) in [
        // No canary runs during the benchmark.
        ("config.json5", "{ canary: { every: 'off' } }".to_owned()),
        ("mandates/work.md", "---\ntools: read, exec\n---\n# For work\n".to_owned()),
        (
            "policy/law.cedar",
            "@id(\"free\") permit(principal, action in Tribune::Action::\"side_effect\", resource);"
                .to_owned(),
        ),
        // Allows the command whatever labels the session has.
        ("policy/law.json5", "{ overrides: { exec: \"off\" } }".to_owned()),
        ("profiles/fake.json5", profile.to_string()),
        ("data/agent-roster.jsonl", format!("{agent}\n")),
    ] {
        let path = home.root().join(file);
        std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// Runs the agent without the daemon. Returns how long its start took, and each turn.
fn directly(program: &std::path::Path, words: &str) -> Result<(Duration, Vec<Duration>), Box<dyn Error>> {
    let started = Instant::now();
    let mut child = Command::new(program).arg(AGENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut pipes = AgentPipes::of(&mut child)?;
    pipes.ask(1, "initialize", words)?;
    pipes.ask(2, "session/new", words)?;
    let started = started.elapsed();
    let mut taken = Vec::with_capacity(TURNS);
    for n in 0..TURNS {
        let began = Instant::now();
        pipes.ask(3 + n, "session/prompt", words)?;
        taken.push(began.elapsed());
    }
    drop(pipes);
    child.wait()?;
    Ok((started, taken))
}

struct AgentPipes {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl AgentPipes {
    fn of(child: &mut Child) -> Result<Self, Box<dyn Error>> {
        let stdin = child.stdin.take().ok_or("no input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { stdin, stdout })
    }

    /// Sends a request, allows every permission request, and reads until the response.
    fn ask(&mut self, id: usize, method: &str, words: &str) -> Result<(), Box<dyn Error>> {
        let params = json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": words }] });
        writeln!(
            self.stdin,
            "{}",
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
        )?;
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err("the agent ended".into());
            }
            let message: Value = serde_json::from_str(&line)?;
            if message["method"] == "session/request_permission" {
                let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "yes" } });
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": outcome });
                writeln!(self.stdin, "{answer}")?;
            } else if message["id"] == id {
                return Ok(());
            }
        }
    }
}

/// The argument that makes this program run the fake agent.
pub(crate) const AGENT: &str = "acp-agent";

/// The fake agent: writes two pieces of text in each turn, and first requests permission for a call if the prompt asks
/// for it.
pub(crate) fn run_fake_agent() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    let mut lines = std::io::stdin().lock().lines();
    let mut turns = 0;
    while let Some(line) = lines.next() {
        let message: Value = serde_json::from_str(&line?)?;
        let Some(method) = message["method"].as_str() else { continue };
        let result = match method {
            "initialize" => json!({ "protocolVersion": 1, "agentCapabilities": {} }),
            "session/new" => json!({ "sessionId": "s" }),
            "session/prompt" => {
                turns += 1;
                // On the first turn the daemon puts its own instructions before the prompt.
                let prompt = message["params"]["prompt"].as_array().and_then(|blocks| blocks.last());
                if prompt.is_some_and(|prompt| prompt["text"] == CALLS) {
                    let id = format!("c{turns}");
                    let call = json!({ "toolCallId": id, "title": COMMAND, "kind": "execute", "rawInput": { "command": COMMAND } });
                    let options = json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }]);
                    let params = json!({ "sessionId": "s", "toolCall": call, "options": options });
                    let ask = json!({ "jsonrpc": "2.0", "id": turns, "method": "session/request_permission", "params": params });
                    writeln!(out, "{ask}")?;
                    out.flush()?;
                    let answer: Value = serde_json::from_str(&lines.next().ok_or("no answer")??)?;
                    if answer["result"]["outcome"]["optionId"] != "yes" {
                        return Err("the call was refused".into());
                    }
                    let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed" });
                    notify(&mut out, &update)?;
                }
                for word in ["The quick brown fox ", "jumps over the lazy dog."] {
                    let content = json!({ "type": "text", "text": word });
                    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
                    notify(&mut out, &update)?;
                }
                json!({ "stopReason": "end_turn" })
            }
            _ => continue,
        };
        writeln!(out, "{}", json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))?;
        out.flush()?;
    }
    Ok(())
}

/// Sends a session update.
fn notify(out: &mut impl Write, update: &Value) -> std::io::Result<()> {
    let params = json!({ "sessionId": "s", "update": update });
    writeln!(out, "{}", json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
}
