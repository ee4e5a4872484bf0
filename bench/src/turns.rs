//! The overhead of the daemon per turn: the same script in the bare backend, and through RPC with durable records.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tribune_client::RpcClient;
use tribune_runtime::rehearsal::{RehearsalBackend, Scenes};
use tribune_runtime::{
    AgentExecutedCall, AgentRuntime, ContentBlock, Handle, PermissionOutcome, ReportedOutcome, SessionKey,
    Speaker, ToolCall, ToolOutcome, ToolSpec, Toolbox, TurnInput,
};

use crate::log::{BenchHome, median};
use crate::server::{DaemonProcess, percentile};

/// A turn with some text only, so that the time is that of the daemon.
const SCRIPT: &str = "!say The quick brown fox\n!say jumps over the lazy dog.";

const TURNS: usize = 2_000;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!("turns: added by the daemon, over the bare backend; goal: p50 <= 1 ms with durable records");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let home = BenchHome::new()?;
    let sync = sync_cost(home.home.root().parent().unwrap_or(home.home.root()))?;
    let server = DaemonProcess::start(&home.home)?;
    runtime.block_on(async {
        let bare = bare_turns().await?;
        let key = "agent:main:rpc:local:dm:bench";
        let mut client = server.client().await?;
        client.call("session.init", &json!({ "session_key": key, "mode": "persistent" })).await?;
        let mut governed = Vec::with_capacity(TURNS);
        for _ in 0..TURNS {
            governed.push(turn(&mut client, key).await?);
        }
        println!(
            "  bare backend      p50 {:>7.3} ms   p99 {:>7.3} ms",
            ms(percentile(&bare, 50)),
            ms(percentile(&bare, 99))
        );
        println!(
            "  through the daemon p50 {:>6.3} ms   p99 {:>7.3} ms",
            ms(percentile(&governed, 50)),
            ms(percentile(&governed, 99))
        );
        let added = percentile(&governed, 50).saturating_sub(percentile(&bare, 50));
        println!(
            "  added             p50 {:>7.3} ms = {:.1} x one fdatasync of 8 KiB ({:.3} ms)",
            ms(added),
            added.as_secs_f64() / sync.as_secs_f64(),
            ms(sync)
        );
        for sessions in [1_usize, 8, 64] {
            println!("  {sessions:>3} sessions at once: {:>6.0} turns/s", rate(&server, sessions).await?);
        }
        Ok::<_, Box<dyn Error>>(())
    })
}

/// The median time of a small write and its sync on this disk.
pub(crate) fn sync_cost(folder: &std::path::Path) -> Result<Duration, Box<dyn Error>> {
    let mut sync_probe = SyncProbe::new(folder)?;
    let taken: Result<Vec<f64>, _> =
        (0..300).map(|_| sync_probe.once().map(|time| time.as_secs_f64())).collect();
    Ok(Duration::from_secs_f64(median(taken?)))
}

/// Times small synced writes to a preallocated file.
pub(crate) struct SyncProbe {
    file: std::fs::File,
    next: u64,
}

impl SyncProbe {
    const BLOCK: u64 = 8192;
    const BLOCKS: u64 = 64;

    pub(crate) fn new(folder: &std::path::Path) -> Result<Self, Box<dyn Error>> {
        use std::os::unix::fs::FileExt as _;
        let path = folder.join("sync");
        let file = std::fs::File::create(&path)?;
        file.write_all_at(&vec![1; (Self::BLOCKS * Self::BLOCK) as usize], 0)?;
        file.sync_all()?;
        std::fs::remove_file(path)?;
        Ok(Self { file, next: 0 })
    }

    /// Times one write and its sync.
    pub(crate) fn once(&mut self) -> std::io::Result<Duration> {
        use std::os::unix::fs::FileExt as _;
        let started = Instant::now();
        self.file.write_all_at(&[2; Self::BLOCK as usize], self.next % Self::BLOCKS * Self::BLOCK)?;
        self.file.sync_data()?;
        self.next += 1;
        Ok(started.elapsed())
    }
}

pub(crate) async fn turn(client: &mut RpcClient, key: &str) -> Result<Duration, Box<dyn Error>> {
    turn_with_prompt(client, key, SCRIPT).await
}

pub(crate) async fn turn_with_prompt(
    client: &mut RpcClient,
    key: &str,
    prompt: &str,
) -> Result<Duration, Box<dyn Error>> {
    let params = json!({ "session_key": key, "input": { "content": [{ "type": "text", "text": prompt }] } });
    let started = Instant::now();
    let result = client.call("turn.run", &params).await?;
    let taken = started.elapsed();
    let notifications = client.take_notifications();
    match result["stop_reason"].as_str() {
        Some("end_turn") => Ok(taken),
        other => {
            let error = notifications.iter().find(|message| message.params["event"]["type"] == "error");
            let why =
                error.map_or_else(String::new, |message| message.params["event"]["message"].to_string());
            Err(format!("a turn ended with {other:?}: {why}").into())
        }
    }
}

/// Turns per second with this many busy sessions, each with its own connection.
async fn rate(server: &DaemonProcess, sessions: usize) -> Result<f64, Box<dyn Error>> {
    let each = (4_000 / sessions).clamp(40, 1_000);
    let mut clients = Vec::new();
    for n in 0..sessions {
        let key = format!("agent:main:rpc:local:dm:rate-{sessions}-{n}");
        let mut client = server.client().await?;
        client.call("session.init", &json!({ "session_key": key, "mode": "persistent" })).await?;
        clients.push((client, key));
    }
    let started = Instant::now();
    let busy = clients.into_iter().map(|(mut client, key)| async move {
        for _ in 0..each {
            turn(&mut client, &key).await?;
        }
        Ok::<_, Box<dyn Error>>(())
    });
    for done in futures_util::future::join_all(busy).await {
        done?;
    }
    Ok((sessions * each) as f64 / started.elapsed().as_secs_f64())
}

async fn bare_turns() -> Result<Vec<Duration>, Box<dyn Error>> {
    let backend = RehearsalBackend::new(Scenes::builtin());
    let key: SessionKey = "agent:main:rpc:local:dm:bare".parse()?;
    let handle = Handle { key: Arc::new(key), session_id: "bare".into() };
    let mut taken = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        let input = TurnInput {
            content: vec![ContentBlock::text(SCRIPT)],
            speaker: Speaker::Owner,
            schedule_id: None,
            system: String::new(),
            injected_messages: Vec::new(),
            tools: Arc::new(EmptyToolbox),
            cancel: CancellationToken::new(),
        };
        let started = Instant::now();
        let mut events = backend.run_turn(&handle, input);
        while let Some(event) = events.next().await {
            event?;
        }
        taken.push(started.elapsed());
    }
    Ok(taken)
}

struct EmptyToolbox;

#[async_trait::async_trait]
impl Toolbox for EmptyToolbox {
    fn tools(&self) -> &[ToolSpec] {
        &[]
    }

    async fn call(&self, _: ToolCall) -> ToolOutcome {
        ToolOutcome::error("this benchmark has no tools")
    }

    async fn request_permission(&self, _: AgentExecutedCall) -> PermissionOutcome {
        PermissionOutcome::Denied("this benchmark has no tools".to_owned())
    }

    async fn execute_granted(&self, _: &str) -> ToolOutcome {
        ToolOutcome::error("this benchmark has no tools")
    }

    async fn report_result(&self, _: &str, _: ReportedOutcome) {}
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
