//! How long the daemon takes to become ready, and its memory: idle, and per open session.

use std::error::Error;

use serde_json::json;

use crate::log::{BenchHome, median};
use crate::server::DaemonProcess;

const SESSIONS: usize = 10_000;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!("footprint: goals: ready <= 50 ms, idle <= 25 MB, <= 20 KB per open session at {SESSIONS}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut fresh, mut again) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let home = BenchHome::new()?;
        fresh.push(DaemonProcess::start(&home.home)?.ready.as_secs_f64() * 1e3);
        again.push(DaemonProcess::start(&home.home)?.ready.as_secs_f64() * 1e3);
    }
    println!("  ready, fresh home      {:>7.1} ms", median(fresh));
    println!("  ready, home with a log {:>7.1} ms", median(again));

    let home = BenchHome::new()?;
    let server = DaemonProcess::start(&home.home)?;
    runtime.block_on(async {
        let mut client = server.client().await?;
        client.call("daemon.status", &json!({})).await?;
        let idle = server.resident()?;
        println!("  idle                   {:>7.1} MB", idle as f64 / 1024.0);
        for n in 0..SESSIONS {
            let key = format!("agent:main:rpc:local:dm:peer-{n}");
            client.call("session.init", &json!({ "session_key": key, "mode": "persistent" })).await?;
        }
        let open = server.resident()?;
        println!(
            "  {SESSIONS} open sessions   {:>7.1} MB = {:.1} KB each",
            open as f64 / 1024.0,
            open.saturating_sub(idle) as f64 / SESSIONS as f64
        );
        for n in 0..SESSIONS {
            let key = format!("agent:main:rpc:local:dm:peer-{n}");
            let input = json!({ "content": [{ "type": "text", "text": "!say hello" }] });
            client.call("turn.run", &json!({ "session_key": key, "input": input })).await?;
            client.take_notifications();
        }
        let used = server.resident()?;
        println!(
            "  the same after a turn  {:>7.1} MB = {:.1} KB each",
            used as f64 / 1024.0,
            used.saturating_sub(idle) as f64 / SESSIONS as f64
        );
        Ok::<_, Box<dyn Error>>(())
    })?;
    drop(server);
    let started = DaemonProcess::start(&home.home)?;
    println!("  ready with those       {:>7.1} ms", started.ready.as_secs_f64() * 1e3);
    Ok(())
}
