//! A decision with its durable record, compared with one sync of the same disk; and an approval inbox with ten thousand
//! calls.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tribune_client::RpcClient;
use tribune_config::Config;
use tribune_daemon::daemon::Daemon;
use tribune_runtime::{SessionKey, ToolCall};
use tribune_storage::clock::SystemClock;

use crate::log::BenchHome;
use crate::server::percentile;
use crate::turns::{SyncProbe, ms};

const DECISIONS: usize = 2_000;

/// Pending calls, and how many of them are in one session.
const PENDING: usize = 10_000;
const PER_SESSION: usize = 50;

/// Operations of each kind on the full inbox.
const OPERATIONS: usize = 500;

const ASK: &str = r#"@id("ask-search") forbid(principal, action == Tribune::Action::"search", resource) unless { context.approved };"#;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!("admit: a decision with its durable record, alternating with one fdatasync; goal: p99 <= 2 x");
    let home = BenchHome::new()?;
    let root = home.home.root();
    std::fs::create_dir_all(root.join("policy"))?;
    std::fs::write(root.join("policy/ask.cedar"), ASK)?;
    let sync_probe = SyncProbe::new(root.parent().unwrap_or(root))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut config = Config::default();
        config.gateway.address = "127.0.0.1:0".parse()?;
        let daemon = Daemon::start(&home.home, &config, Arc::new(SystemClock)).await?;
        let token = std::fs::read_to_string(daemon.token_path())?;
        let mut client = RpcClient::connect(&daemon.address().to_string(), Some(token.trim())).await?;
        decisions(&daemon, &mut client, sync_probe).await?;
        inbox(&daemon, &mut client).await?;
        drop(client);
        daemon.stop(std::future::pending()).await;
        Ok(())
    })
}

async fn open(client: &mut RpcClient, n: usize) -> Result<SessionKey, Box<dyn Error>> {
    let key = format!("agent:main:rpc:local:dm:bench-{n}");
    client.call("session.init", &json!({ "session_key": key, "mode": "persistent" })).await?;
    Ok(key.parse()?)
}

fn call(tool: &str, n: usize) -> ToolCall {
    ToolCall {
        id: format!("call-{n}"),
        name: tool.to_owned(),
        input: json!({ "path": format!("src/{n}.rs") }),
    }
}

async fn decisions(
    daemon: &Daemon,
    client: &mut RpcClient,
    mut sync_probe: SyncProbe,
) -> Result<(), Box<dyn Error>> {
    let key = open(client, 0).await?;
    let (mut taken, mut bare) = (Vec::with_capacity(DECISIONS), Vec::with_capacity(DECISIONS));
    for n in 0..DECISIONS {
        bare.push(sync_probe.once()?);
        let started = Instant::now();
        daemon.sessions().governance().request_external_call(&key, call("read", n), Duration::ZERO).await?;
        taken.push(started.elapsed());
    }
    for percent in [50, 99] {
        let (time, sync) = (percentile(&taken, percent), percentile(&bare, percent));
        println!(
            "  p{percent} {:>7.3} ms = {:.1} x one fdatasync of 8 KiB (p{percent} {:.3} ms)",
            ms(time),
            time.as_secs_f64() / sync.as_secs_f64(),
            ms(sync)
        );
    }
    Ok(())
}

async fn inbox(daemon: &Daemon, client: &mut RpcClient) -> Result<(), Box<dyn Error>> {
    println!("inbox with {PENDING} calls waiting; goal: under 5 ms per operation");
    for session in 1..=PENDING / PER_SESSION {
        let key = open(client, session).await?;
        for n in 0..PER_SESSION {
            daemon
                .sessions()
                .governance()
                .request_external_call(&key, call("search", n), Duration::ZERO)
                .await?;
        }
    }
    let page = client.call("approval.list", &json!({ "limit": 1000 })).await?;
    let ids: Vec<String> = page["approvals"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|approval| approval["id"].as_str().map(str::to_owned))
        .collect();
    println!("  waiting: {}", page["pending"]);
    let mut asked = Vec::new();
    for session in 1..=OPERATIONS / PER_SESSION {
        let key = open(client, PENDING + session).await?;
        for n in 0..PER_SESSION {
            let started = Instant::now();
            daemon
                .sessions()
                .governance()
                .request_external_call(&key, call("search", n), Duration::ZERO)
                .await?;
            asked.push(started.elapsed());
        }
    }
    report("ask", &asked);
    let mut listed = Vec::new();
    for _ in 0..OPERATIONS {
        let started = Instant::now();
        client.call("approval.list", &json!({ "limit": 100 })).await?;
        listed.push(started.elapsed());
    }
    report("list 100", &listed);
    let (mut shown, mut decided) = (Vec::new(), Vec::new());
    for id in ids.iter().take(OPERATIONS) {
        let started = Instant::now();
        client.call("approval.show", &json!({ "id": id })).await?;
        shown.push(started.elapsed());
        let started = Instant::now();
        client.call("approval.decide", &json!({ "id": id, "decision": "deny" })).await?;
        decided.push(started.elapsed());
    }
    report("show", &shown);
    report("decide", &decided);
    Ok(())
}

fn report(what: &str, taken: &[Duration]) {
    println!(
        "  {what:<9} p50 {:>7.3} ms   p99 {:>7.3} ms",
        ms(percentile(taken, 50)),
        ms(percentile(taken, 99))
    );
}
