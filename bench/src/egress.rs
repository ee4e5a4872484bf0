//! Throughput of egress from a sandbox: reading from a server on loopback through the relay and the egress proxy, compared
//! with reading directly.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tribune_client::RpcClient;
use tribune_config::Config;
use tribune_contract::{LaunchProfile, Mount, PortRelay, SandboxName};
use tribune_daemon::daemon::Daemon;
use tribune_runtime::SessionKey;
use tribune_sandbox::{InstanceId, ProgramStreams, SandboxLauncher};
use tribune_storage::clock::SystemClock;
use tribune_storage::home::Home;

/// Bytes per read: enough that the time to connect does not matter.
const BYTES: usize = 256 << 20;

const ROUNDS: usize = 5;

/// The port of the relay in the sandbox.
const PORT: u16 = 4001;

const KEY: &str = "agent:main:cli:local:dm:op";

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir_in(".")?;
    let home = Home::at(folder.path().canonicalize()?.join("home"));
    for (name, text) in [
        ("mandates/egress.md", "---\ntools: egress\n---\n# For egress\n"),
        (
            "data/agent-roster.jsonl",
            "{\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"egress\",\"standing\":false}\n",
        ),
    ] {
        let path = home.root().join(name);
        std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        std::fs::write(path, text)?;
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    let rule = format!("{{ host: '127.0.0.1', port: {}, scheme: 'tcp' }}", server.port());
    let mut config =
        Config::parse("config.json5", &format!("{{ egress: {{ agents: {{ main: [{rule}] }} }} }}"))?;
    config.gateway.address = "127.0.0.1:0".parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let daemon = Daemon::start(&home, &config, Arc::new(SystemClock)).await?;
        let token = std::fs::read_to_string(home.root().join("run/token"))?;
        let mut client = RpcClient::connect(&daemon.address().to_string(), Some(token.trim())).await?;
        client.call("session.init", &json!({ "session_key": KEY })).await?;
        let key: SessionKey = KEY.parse()?;
        let sockets = daemon.socket_service().open(&key)?;
        let relay = PortRelay { name: "egress".to_owned(), port: PORT, socket: sockets.egress() };
        let measured = tokio::task::spawn_blocking(move || {
            measure(&server.to_string(), relay).map_err(|e| e.to_string())
        });
        measured.await??;
        drop((client, sockets));
        daemon.stop(std::future::pending()).await;
        Ok(())
    })
}

fn serve(mut stream: TcpStream) {
    let piece = vec![7; 1 << 16];
    for _ in 0..BYTES / piece.len() {
        if stream.write_all(&piece).is_err() {
            return;
        }
    }
}

fn measure(server: &str, relay: PortRelay) -> Result<(), Box<dyn Error>> {
    let launcher = SandboxLauncher::this_program(InstanceId::of_state_folder("bench".as_ref()));
    let mut profile = LaunchProfile::new(SandboxName::new("bench")?, "/opt/bench");
    profile.mounts = vec![Mount::ReadOnly {
        source: std::env::current_exe()?,
        target: "/opt/bench".into(),
        hide: Vec::new(),
    }];
    profile.args = ["sandbox-fetch", server].map(str::to_owned).into();
    profile.relays = vec![relay];
    let (mut inside, mut outside) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let mut child = launcher.launch(&profile, ProgramStreams::captured())?;
        let mut output = String::new();
        child.stdout().ok_or("no output")?.read_to_string(&mut output)?;
        inside.push(output.trim().parse::<f64>().map_err(|_| format!("the sandbox printed `{output}`"))?);
        outside.push(read_all(TcpStream::connect(server)?)?);
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (inside, outside) = (median(&mut inside), median(&mut outside));
    println!(
        "egress, {} MiB from a server on loopback: {inside:.0} MB/s through relay and proxy, {outside:.0} without: {:.2}",
        BYTES >> 20,
        inside / outside
    );
    Ok(())
}

/// Reads to the end and returns megabytes per second.
fn read_all(mut stream: TcpStream) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    let mut piece = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        match stream.read(&mut piece)? {
            0 => break,
            read => bytes += read,
        }
    }
    if bytes != BYTES {
        return Err(format!("received {bytes} bytes of {BYTES}").into());
    }
    Ok(bytes as f64 / 1e6 / start.elapsed().as_secs_f64())
}

/// Runs in the sandbox: reads from the server through the relay and prints the rate.
pub(crate) fn fetch(server: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(("127.0.0.1", PORT))?;
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n").as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    if !head.starts_with(b"HTTP/1.1 200") {
        return Err(String::from_utf8_lossy(&head).into_owned().into());
    }
    println!("{}", read_all(stream)?);
    Ok(())
}
