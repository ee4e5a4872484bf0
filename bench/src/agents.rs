//! What the daemon adds to an agent of another make: the same agent spoken with directly, without a box, and through the daemon in
//! one; what keeping it between turns is worth; and what twenty that do nothing take.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tribune_host::Home;

use crate::log::TempHome;
use crate::server::{Server, percentile};
use crate::turns::{ms, turn};

const TURNS: usize = 500;

/// Agents that are kept at once.
const KEPT: usize = 20;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "agents: a turn of an agent over ACP, through the daemon and its box, over the same agent directly"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = TempHome::new()?;
    // Boxes are told where things are from the root on.
    let root = folder.home.root();
    let home = Home::at(root.parent().unwrap_or(root).canonicalize()?.join("home"));
    // Where a box may look: the agent is this program.
    let place = tempfile::tempdir()?;
    let program = place.path().join("agent");
    std::fs::copy(std::env::current_exe()?, &program)?;
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    furnish(&home, &program.to_string_lossy(), &place.path().to_string_lossy())?;

    let (started, direct) = directly(&program)?;
    let server = Server::start(&home)?;
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
        let boxes = server.descendants()?;
        let mut warm = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            warm.push(turn(&mut client, &key(0)).await?);
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
        let first = percentile(&cold, 50);
        println!(
            "  first turn, started p50 {:>7.3} ms   = {:.1} x a turn of one that is kept",
            ms(first),
            first.as_secs_f64() / p50.as_secs_f64()
        );
        println!(
            "  {KEPT} kept agents: the daemon grew by {:.0} KB each; their boxes have {:.1} MB each, the agent's own program among it",
            after.saturating_sub(before) as f64 / KEPT as f64,
            boxes as f64 / 1024.0 / KEPT as f64
        );
        Ok::<_, Box<dyn Error>>(())
    })
}

fn key(n: usize) -> String {
    format!("agent:fake:rpc:local:dm:peer-{n}")
}

/// A house with the agent.
fn furnish(home: &Home, program: &str, folder: &str) -> Result<(), Box<dyn Error>> {
    let profile = json!({ "id": "fake", "title": "fake", "command": [program, AGENT], "folders": [folder] });
    let agent = json!({ "id": "fake", "backend": "acp", "profile": "fake", "mandate": "work" });
    for (file, text) in [
        // Nothing is tried meanwhile.
        ("config.json5", "{ canary: { every: 'off' } }".to_owned()),
        ("mandates/work.md", "---\ntools: read\n---\n# For work\n".to_owned()),
        ("profiles/fake.json5", profile.to_string()),
        ("data/agent-roster.jsonl", format!("{agent}\n")),
    ] {
        let path = home.root().join(file);
        std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// Speaks with the agent as the daemon does, and with nothing in between: how long its start takes, and each turn.
fn directly(program: &std::path::Path) -> Result<(Duration, Vec<Duration>), Box<dyn Error>> {
    let started = Instant::now();
    let mut child = Command::new(program).arg(AGENT).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut pipes = Pipes::of(&mut child)?;
    pipes.ask(1, "initialize")?;
    pipes.ask(2, "session/new")?;
    let started = started.elapsed();
    let mut taken = Vec::with_capacity(TURNS);
    for n in 0..TURNS {
        let began = Instant::now();
        pipes.ask(3 + n, "session/prompt")?;
        taken.push(began.elapsed());
    }
    drop(pipes);
    child.wait()?;
    Ok((started, taken))
}

struct Pipes {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Pipes {
    fn of(child: &mut Child) -> Result<Self, Box<dyn Error>> {
        let stdin = child.stdin.take().ok_or("no input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { stdin, stdout })
    }

    /// Asks, and reads until the answer.
    fn ask(&mut self, id: usize, method: &str) -> Result<(), Box<dyn Error>> {
        let params = json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "hello" }] });
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
            if message["id"] == id {
                return Ok(());
            }
        }
    }
}

/// The argument that makes this program the agent.
pub(crate) const AGENT: &str = "acp-agent";

/// The agent: says two words in each turn.
pub(crate) fn play() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let Some(method) = message["method"].as_str() else { continue };
        let result = match method {
            "initialize" => json!({ "protocolVersion": 1, "agentCapabilities": {} }),
            "session/new" => json!({ "sessionId": "s" }),
            "session/prompt" => {
                for word in ["The quick brown fox ", "jumps over the lazy dog."] {
                    let content = json!({ "type": "text", "text": word });
                    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
                    let params = json!({ "sessionId": "s", "update": update });
                    writeln!(
                        out,
                        "{}",
                        json!({ "jsonrpc": "2.0", "method": "session/update", "params": params })
                    )?;
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
