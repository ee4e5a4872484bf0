//! The model proxy with a client on one side and a fake provider on the other: what is forwarded, what is refused, who
//! sees the key, and what the ledger records.

mod budget;
mod denials;
mod forwarding;
mod termination;

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tribune_config::Config;
use tribune_daemon::daemon::{Daemon, DaemonOverrides};
use tribune_ledger::EntryQuality;
use tribune_records::ledger_payloads::proxy_entity;
use tribune_storage::clock::SystemClock;
use tribune_storage::store::EntryFilter;
use tribune_storage::store::Reader;
use tribune_testkit::upstream::FakeUpstream;
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config};

/// The provider keys in the environment: no output may contain them.
const SECRET: &str = "fixture-key-5f1c9e0b7a";

const ROSTER: &str = "{\"id\":\"main\",\"backend\":\"native\",\"model\":\"fake:m\",\"mandate\":\"default\",\"standing\":false}\n\
                      {\"id\":\"talker\",\"backend\":\"native\",\"model\":\"chat:m\",\"mandate\":\"default\",\"standing\":false}\n\
                      {\"id\":\"mute\",\"backend\":\"rehearsal\",\"mandate\":\"default\",\"standing\":false}\n";

/// A timeout for every wait, longer than any step takes on a busy machine. A test that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

struct Setup {
    daemon: TestDaemon,
    upstream: FakeUpstream,
    token: String,
    http: reqwest::Client,
}

/// Providers `fake` and `chat`, one for each API format, at one upstream; `dark` has no key, `off` is disabled.
fn providers(upstream: &FakeUpstream) -> Config {
    let base = upstream.base_url();
    let models = "models: { m: { contextWindow: 100000, maxOutputTokens: 1000 } }, startupValidation: 'off'";
    let text = format!(
        "{{ models: {{ providers: {{ \
           fake: {{ kind: 'anthropic', baseUrl: '{base}', keyEnv: 'FAKE_API_KEY', {models} }}, \
           chat: {{ kind: 'openai', baseUrl: '{base}/v1', keyEnv: 'FAKE_API_KEY', {models} }}, \
           dark: {{ kind: 'openai', baseUrl: '{base}/v1', keyEnv: 'DARK_API_KEY', {models} }}, \
           off: {{ kind: 'openai', baseUrl: '{base}/v1', keyEnv: 'FAKE_API_KEY', enabled: false, {models} }} \
         }} }} }}"
    );
    let models = Config::parse("config.json5", &text).unwrap().models;
    Config { models, ..config() }
}

impl Setup {
    async fn open() -> Self {
        Self::with(|config| config).await
    }

    async fn with(change: impl FnOnce(Config) -> Config) -> Self {
        let upstream = FakeUpstream::start().await;
        let home = TempHome::new();
        home.write("data/agent-roster.jsonl", ROSTER);
        let config = change(providers(&upstream));
        let env = |name: &str| (name == "FAKE_API_KEY").then(|| SECRET.to_owned());
        let extras = DaemonOverrides { env: Some(Arc::new(env)), ..DaemonOverrides::default() };
        let daemon = Daemon::start_with(&home.home, &config, Arc::new(SystemClock), extras).await.unwrap();
        let daemon = TestDaemon { daemon, home };
        let token = daemon.token();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        Self { daemon, upstream, token, http }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("http://{}/v1/proxy/{path}", self.daemon.address()))
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        self.post_as(&self.token, path, body).await
    }

    async fn post_as(&self, token: &str, path: &str, body: &Value) -> Response {
        self.request(Method::POST, path).bearer_auth(token).body(body.to_string()).send().await.unwrap()
    }

    /// A proxy token of this agent.
    async fn pass(&self, agent: &str) -> String {
        let mut operator = self.daemon.operator().await;
        let pass = operator.call("proxy.pass", &json!({ "agent_id": agent, "minutes": 5 })).await.unwrap();
        pass["token"].as_str().unwrap().to_owned()
    }

    /// Waits until the ledger has the end of this many requests of a provider.
    async fn ended(&self, provider: &str, count: usize) -> Vec<Value> {
        let mut operator = self.daemon.operator().await;
        let waiting = async {
            loop {
                let asked = json!({ "entity_id": proxy_entity(provider), "limit": 100 });
                let tail = operator.call("ledger.tail", &asked).await.unwrap();
                let payloads: Vec<Value> = tail["entries"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|entry| entry["entry"]["payload"].clone())
                    .collect();
                let ended: Vec<Value> =
                    payloads.into_iter().filter(|payload| payload["event"] == "ended").collect();
                if ended.len() >= count {
                    return ended;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, waiting).await.expect("the end is recorded")
    }

    /// Stops the daemon, verifies its ledger, and returns its entries about a provider.
    async fn close(self, provider: &str) -> Vec<Value> {
        let home = self.daemon.stop().await;
        assert_sound(&home.home);
        entries(&home, provider)
    }
}

fn entries(home: &TempHome, provider: &str) -> Vec<Value> {
    let reader = Reader::open(&home.home).unwrap();
    let filter =
        EntryFilter { entity_id: Some(proxy_entity(provider)), quality: Some(EntryQuality::Delivery) };
    let stored = reader.tail(&filter, 1_000).unwrap();
    stored.iter().map(|stored| serde_json::from_str(&stored.entry.payload).unwrap()).collect()
}

async fn error(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    assert!(!text.contains(SECRET), "{text}");
    (status, serde_json::from_str::<Value>(&text).unwrap_or_else(|_| panic!("{text}"))["error"].clone())
}

fn message(model: &str) -> Value {
    json!({ "model": model, "max_tokens": 10, "stream": true, "messages": [{ "role": "user", "content": "hi" }] })
}
