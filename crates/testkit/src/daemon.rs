//! Temporary home folders, and real daemons on port 0 in this process.

use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tribune_client::{ClientError, RpcClient};
use tribune_config::Config;
use tribune_daemon::daemon::Daemon;
use tribune_ledger::verify::Integrity;
use tribune_storage::clock::SystemClock;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::{audit, store};

/// A home folder that is removed on drop.
#[derive(Debug)]
pub struct TempHome {
    pub home: Home,
    pub folder: TempDir,
}

impl TempHome {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { home: Home::at(folder.path().join("home")), folder }
    }

    /// Writes a file in the home folder.
    pub fn write(&self, name: &str, content: &str) {
        let path = self.home.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.home.root().join(name)).unwrap()
    }
}

impl Default for TempHome {
    fn default() -> Self {
        Self::new()
    }
}

/// A configuration for tests: any free port, short timeouts.
pub fn config() -> Config {
    let mut config = Config::default();
    config.gateway.address = "127.0.0.1:0".parse().unwrap();
    config.gateway.drain = std::time::Duration::from_secs(1);
    config
}

/// A daemon in this process.
#[derive(Debug)]
pub struct TestDaemon {
    pub daemon: Daemon,
    pub home: TempHome,
}

impl TestDaemon {
    pub async fn start() -> Self {
        Self::start_at(TempHome::new(), &config()).await
    }

    pub async fn start_at(home: TempHome, config: &Config) -> Self {
        let daemon = Daemon::start(&home.home, config, Arc::new(SystemClock)).await.unwrap();
        Self { daemon, home }
    }

    pub fn address(&self) -> String {
        self.daemon.address().to_string()
    }

    pub fn token(&self) -> String {
        self.home.read("run/token").trim().to_owned()
    }

    /// Connects as the operator.
    pub async fn operator(&self) -> RpcClient {
        RpcClient::connect(&self.address(), Some(&self.token())).await.unwrap()
    }

    /// Stops the daemon and returns its home folder.
    pub async fn stop(self) -> TempHome {
        self.daemon.stop(std::future::pending()).await;
        self.home
    }
}

/// Checks a home without a running daemon: the log verifies, and every view equals its rebuild from the log. Returns
/// the number of entries.
pub fn assert_sound(home: &Home) -> u64 {
    let reader = Reader::open(home).unwrap();
    let key = reader.key_in_force().unwrap();
    let report = audit::verify_home(&reader, &key, Vec::new(), &mut |_| {}).unwrap();
    assert!(matches!(report.integrity, Integrity::Sound), "{report:?}");
    drop(reader);
    let views = store::check_views(home, &mut |_| {}).unwrap();
    assert_eq!(views.fault, None);
    views.entries
}

/// The parameters of a turn with the input `text`.
pub fn turn_params(key: &str, text: &str) -> Value {
    json!({ "session_key": key, "input": { "content": [{ "type": "text", "text": text }] } })
}

/// Runs a turn and returns its events and its result. Notifications about other turns are dropped.
pub async fn run_turn(
    client: &mut RpcClient,
    key: &str,
    text: &str,
) -> Result<(Vec<Value>, Value), ClientError> {
    let result = client.call("turn.run", &turn_params(key, text)).await?;
    let own = result["first_seq"].as_u64()..=result["last_seq"].as_u64();
    let events =
        client.take_notifications().into_iter().map(|notification| notification.params["event"].clone());
    Ok((events.filter(|event| own.contains(&event["seq"].as_u64())).collect(), result))
}

/// The output text of a turn's events.
pub fn output_text(events: &[Value]) -> String {
    events
        .iter()
        .filter(|event| event["type"] == "text_delta")
        .filter_map(|event| event["text"].as_str())
        .collect()
}
