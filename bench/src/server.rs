//! A daemon in a separate process, so that its memory and its start can be measured from outside: this program with the
//! arguments `serve` and a home.

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tribune_client::RpcClient;
use tribune_config::Config;
use tribune_daemon::daemon::Daemon;
use tribune_daemon::{memory, threads};
use tribune_storage::clock::SystemClock;
use tribune_storage::home::Home;

/// A daemon process that is stopped on drop.
pub(crate) struct DaemonProcess {
    child: Child,
    address: String,
    token: String,
    /// From the start of the process to its readiness.
    pub(crate) ready: Duration,
}

impl DaemonProcess {
    pub(crate) fn start(home: &Home) -> Result<Self, Box<dyn Error>> {
        let started = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg(home.root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        let mut address = String::new();
        BufReader::new(stdout).read_line(&mut address)?;
        let ready = started.elapsed();
        if address.is_empty() {
            return Err("the daemon did not start".into());
        }
        let token = std::fs::read_to_string(home.root().join("run/token"))?.trim().to_owned();
        Ok(Self { child, address: address.trim().to_owned(), token, ready })
    }

    pub(crate) async fn client(&self) -> Result<RpcClient, Box<dyn Error>> {
        Ok(RpcClient::connect(&self.address, Some(&self.token)).await?)
    }

    /// Resident memory of the process, in KiB.
    pub(crate) fn resident(&self) -> Result<u64, Box<dyn Error>> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
    }

    /// Resident memory of its descendant processes, in KiB.
    pub(crate) fn descendants(&self) -> Result<u64, Box<dyn Error>> {
        let mut family = vec![self.child.id()];
        let mut kilobytes = 0;
        let mut at = 0;
        while let Some(&parent) = family.get(at) {
            let mut found = String::new();
            for thread in std::fs::read_dir(format!("/proc/{parent}/task"))?.flatten() {
                found.push_str(&std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
                found.push(' ');
            }
            for child in found.split_whitespace().filter_map(|pid| pid.parse().ok()) {
                if !family.contains(&child) {
                    family.push(child);
                }
            }
            at += 1;
        }
        for pid in family.into_iter().skip(1) {
            // A process that has ended meanwhile counts as 0.
            let status = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let pss = status.lines().find_map(|line| line.strip_prefix("Pss:"));
            kilobytes += pss
                .and_then(|pss| pss.trim().trim_end_matches(" kB").trim().parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(kilobytes)
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        // The daemon process ends when its standard input is closed.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs in the daemon process: serves `home` until standard input ends.
pub(crate) fn serve(home: &str) -> Result<(), Box<dyn Error>> {
    memory::disable_huge_pages();
    let mut config = Config::load(&Home::at(home).root().join("config.json5"))?;
    config.gateway.address = "127.0.0.1:0".parse()?;
    config.gateway.drain = Duration::from_secs(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads::workers())
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let daemon = Daemon::start(&Home::at(home), &config, Arc::new(SystemClock)).await?;
        println!("{}", daemon.address());
        memory::drop_code_pages();
        let ended =
            tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        let _ = ended.await?;
        daemon.stop(std::future::pending()).await;
        Ok(())
    })
}

pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}
