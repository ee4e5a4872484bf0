//! Latency of a prompt over ACP, from an editor through `tribune acp` and the daemon to the agent and back, with
//! durable records. The baseline is a minimal agent of the official SDK, which keeps no records. Then a hundred
//! concurrent sessions.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::log::BenchHome;
use crate::server::percentile;

const SCRIPT: &str = "!say The quick brown fox\n!say jumps over the lazy dog.";
const PROMPTS: usize = 500;
const SESSIONS: usize = 100;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!(
        "acp: one prompt over standard input and output, as a ratio to the SDK's smallest agent in the same run"
    );
    let Some(programs) = std::env::var_os("TRIBUNE_E2E_ACP").map(PathBuf::from) else {
        println!(
            "  not measured: set TRIBUNE_E2E_ACP to a copy of e2e/acp in which `npm install` was called"
        );
        return Ok(());
    };
    let tribune = std::env::current_exe()?.with_file_name("tribune");
    if !tribune.exists() {
        println!("  not measured: build `tribune` with the same profile first");
        return Ok(());
    }
    let home = BenchHome::new()?;
    let root = home.home.root();
    std::fs::create_dir_all(root)?;
    std::fs::write(root.join("config.json5"), "{ gateway: { address: '127.0.0.1:0' } }")?;
    let mut own = AcpProcess::start(Command::new(&tribune).arg("--home").arg(root).arg("acp"))?;
    let node = programs.join("node_modules/node/bin/node");
    let mut theirs = AcpProcess::start(Command::new(node).arg(programs.join("agent.mjs")))?;
    let (session, other) = (own.session()?, theirs.session()?);
    // Alternately, so that both run under the same load.
    let (mut ours, mut minimal) = (Vec::new(), Vec::new());
    for round in 0..PROMPTS + 20 {
        let (mine, its) = (own.prompt(&session)?, theirs.prompt(&other)?);
        if round >= 20 {
            ours.push(mine);
            minimal.push(its);
        }
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    for (name, times) in [("tribune acp", &ours), ("the SDK's smallest", &minimal)] {
        println!(
            "  {name:<20} p50 {:>7.3} ms   p99 {:>7.3} ms",
            ms(percentile(times, 50)),
            ms(percentile(times, 99))
        );
    }
    let ratio = percentile(&ours, 50).as_secs_f64() / percentile(&minimal, 50).as_secs_f64();
    println!("  ratio of the medians {ratio:.1}");

    let sessions: Vec<String> = (0..SESSIONS).map(|_| own.session()).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let asked: Vec<u64> = sessions.iter().map(|session| own.ask(session)).collect::<Result<_, _>>()?;
    own.answers(asked.len())?;
    let all = began.elapsed();
    println!(
        "  {SESSIONS} sessions at once: all answered after {:.0} ms, {:.0} prompts/s",
        ms(all),
        SESSIONS as f64 / all.as_secs_f64()
    );
    drop(own);
    let _ = Command::new(&tribune).arg("--home").arg(root).args(["down", "--now"]).output()?;
    Ok(())
}

/// An ACP agent process, driven over its standard streams.
struct AcpProcess {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl AcpProcess {
    fn start(command: &mut Command) -> Result<Self, Box<dyn Error>> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut agent = Self { child, stdin, stdout, next: 0 };
        agent.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }))?;
        Ok(agent)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64, Box<dyn Error>> {
        self.next += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        writeln!(self.stdin, "{message}")?;
        Ok(self.next)
    }

    /// The next response to any request. Skips notifications.
    fn answer(&mut self) -> Result<Value, Box<dyn Error>> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err("the agent ended".into());
            }
            let message: Value = serde_json::from_str(&line)?;
            if message["method"].is_null() {
                return Ok(message);
            }
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Box<dyn Error>> {
        self.send(method, params)?;
        let answer = self.answer()?;
        if answer["result"].is_null() { Err(answer.to_string().into()) } else { Ok(answer) }
    }

    fn session(&mut self) -> Result<String, Box<dyn Error>> {
        let opened = self.call("session/new", &json!({ "cwd": "/workspace", "mcpServers": [] }))?;
        Ok(opened["result"]["sessionId"].as_str().unwrap_or_default().to_owned())
    }

    fn ask(&mut self, session: &str) -> Result<u64, Box<dyn Error>> {
        let prompt = json!([{ "type": "text", "text": SCRIPT }]);
        self.send("session/prompt", &json!({ "sessionId": session, "prompt": prompt }))
    }

    fn prompt(&mut self, session: &str) -> Result<Duration, Box<dyn Error>> {
        let began = Instant::now();
        self.ask(session)?;
        self.answers(1)?;
        Ok(began.elapsed())
    }

    fn answers(&mut self, count: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..count {
            let answer = self.answer()?;
            if answer["result"]["stopReason"] != "end_turn" {
                return Err(answer.to_string().into());
            }
        }
        Ok(())
    }
}

impl Drop for AcpProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
