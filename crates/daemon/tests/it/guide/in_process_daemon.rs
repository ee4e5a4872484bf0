//! The daemon of the examples, in its own runtime, so that it can be killed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::runtime::Runtime;
use tribune_config::Config;
use tribune_daemon::daemon::Daemon;
use tribune_storage::clock::SystemClock;
use tribune_testkit::TempHome;

use super::fences::Fence;
use super::pattern::Names;

/// How long turns may continue when a daemon of the examples stops; the default would make the test slow.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(1);

pub(super) struct InProcessDaemon {
    pub(super) home: TempHome,
    pub(super) config: Config,
    running: Option<Running>,
    stopping: Option<JoinHandle<()>>,
}

struct Running {
    daemon: Daemon,
    runtime: Runtime,
}

impl InProcessDaemon {
    /// Starts a daemon with these files in its home.
    pub(super) fn start(files: &[&Fence]) -> Self {
        let home = TempHome::new();
        let mut config = Config::default();
        for fence in files {
            let name = fence.file().unwrap();
            home.write(name, &fence.text);
            if name == "config.json5" {
                config = Config::parse(&fence.place, &fence.text).unwrap();
            }
        }
        config.gateway.address = "127.0.0.1:0".parse().unwrap();
        config.gateway.drain = DRAIN;
        let mut daemon = Self { home, config, running: None, stopping: None };
        daemon.open();
        daemon
    }

    pub(super) fn open(&mut self) {
        assert!(self.running.is_none(), "it is already running");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let started = Daemon::start(&self.home.home, &self.config, Arc::new(SystemClock));
        let daemon = runtime.block_on(started).unwrap();
        self.running = Some(Running { daemon, runtime });
    }

    /// Tells the daemon to stop. When this returns, it accepts no more work.
    pub(super) fn stop(&mut self) {
        let Running { daemon, runtime } = self.running.take().unwrap();
        let mut stopping = Box::pin(daemon.stop(std::future::pending()));
        // The first step of stopping waits for nothing.
        runtime.block_on(async { assert!(futures_util::poll!(&mut stopping).is_pending()) });
        self.stopping = Some(std::thread::spawn(move || {
            runtime.block_on(stopping);
        }));
    }

    /// Kills the daemon by dropping its runtime, and starts another on the same home. Milder than SIGKILL: the
    /// databases are still closed properly.
    pub(super) fn kill(&mut self) {
        let Running { daemon, runtime } = self.running.take().unwrap();
        drop(runtime);
        drop(daemon);
        self.open();
    }

    /// Waits for the end of a stopped daemon and starts it again.
    pub(super) fn open_again(&mut self) {
        self.stopping.take().unwrap().join().unwrap();
        self.open();
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.running.as_ref().unwrap().daemon.address()
    }

    /// The placeholders of the guides, with their values for this daemon.
    pub(super) fn names(&self) -> Names {
        let name = |name: &str, value: String| (name.to_owned(), Value::from(value));
        let key = blake3::hash(self.home.read("run/token").trim().as_bytes());
        let keyed = |text: &str| blake3::keyed_hash(key.as_bytes(), text.as_bytes()).to_hex();
        let zeros = "0".repeat(64);
        let proof = keyed(&format!("tribune/daemon-auth/v1\n{}\n{zeros}\n", self.address()));
        Names::from([
            name("<token>", self.home.read("run/token").trim().to_owned()),
            name("<guest-token>", self.home.read("run/guest-token").trim().to_owned()),
            name("<token-hint>", keyed("tribune/daemon-auth/v1/hint")[..16].to_owned()),
            name("<proof>", proof.to_string()),
            name("<zeros>", zeros),
            name("<address>", self.address().to_string()),
        ])
    }
}

impl Drop for InProcessDaemon {
    fn drop(&mut self) {
        if let Some(Running { daemon, runtime }) = self.running.take() {
            runtime.block_on(daemon.stop(std::future::ready(())));
        }
    }
}
