//! The metrics that `/metrics` serves.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tribune_providers::TokenUsage;
use tribune_records::ledger_payloads::ProxyOutcome;
use tribune_sessions::canary::CanaryStatus;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProxiedLabels {
    provider: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TokenLabels {
    provider: String,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusalLabels {
    code: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CanaryLabels {
    backend: String,
    subject: String,
}

/// The state of the daemon that is measured when `/metrics` is read.
#[derive(Debug)]
pub(super) struct DaemonGauges {
    pub(super) sessions_open: usize,
    pub(super) sessions_loaded: usize,
    /// `None` if the ledger cannot be read; the gauge then keeps its value.
    pub(super) ledger_entries: Option<u64>,
    pub(super) is_ready: bool,
    pub(super) canaries: Vec<CanaryStatus>,
}

/// The gateway's counters and gauges. No label takes a value that a caller chooses, so their number is bounded.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    connections: Gauge,
    connections_total: Counter,
    auth_failures: Counter,
    proxied: Family<ProxiedLabels, Counter>,
    proxy_tokens: Family<TokenLabels, Counter>,
    proxy_refused: Family<RefusalLabels, Counter>,
    sessions_open: Gauge,
    sessions_loaded: Gauge,
    ledger_entries: Gauge,
    ready: Gauge,
    canaries: Family<CanaryLabels, Gauge>,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("tribune");
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register("rpc_requests", "RPC requests by method and outcome", requests.clone());
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let connections = gauge("connections", "WebSocket connections that are open");
        let sessions_open = gauge("sessions_open", "Sessions that are not closed");
        let sessions_loaded = gauge("sessions_loaded", "Sessions that are in memory");
        let ledger_entries = gauge("ledger_entries", "Entries in the ledger");
        let ready = gauge("ready", "1 if everything is ready");
        let canaries = Family::<CanaryLabels, Gauge>::default();
        let help = "1 if the gate holds the backend or profile, -1 if it does not, 0 if that is not known";
        registry.register("canary", help, canaries.clone());
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let connections_total = counter("connections_opened", "WebSocket connections so far");
        let auth_failures = counter("auth_failures", "Wrong tokens and signatures so far");
        let proxied = Family::<ProxiedLabels, Counter>::default();
        registry.register("proxied", "Requests forwarded to providers, by outcome", proxied.clone());
        let proxy_tokens = Family::<TokenLabels, Counter>::default();
        registry.register("proxied_tokens", "Tokens of forwarded requests, by kind", proxy_tokens.clone());
        let proxy_refused = Family::<RefusalLabels, Counter>::default();
        registry.register("proxy_refused", "Requests that were not forwarded", proxy_refused.clone());
        Self {
            registry,
            requests,
            connections,
            connections_total,
            auth_failures,
            proxied,
            proxy_tokens,
            proxy_refused,
            sessions_open,
            sessions_loaded,
            ledger_entries,
            ready,
            canaries,
        }
    }

    pub(super) fn connected(&self) {
        self.connections.inc();
        self.connections_total.inc();
    }

    pub(super) fn disconnected(&self) {
        self.connections.dec();
    }

    pub(super) fn auth_failed(&self) {
        self.auth_failures.inc();
    }

    pub(super) fn request(&self, method: &str, good: bool) {
        let outcome = if good { "ok" } else { "error" };
        self.requests.get_or_create(&RequestLabels { method: method.to_owned(), outcome }).inc();
    }

    pub(super) fn proxied(&self, provider: &str, outcome: ProxyOutcome, usage: Option<TokenUsage>) {
        let labels = ProxiedLabels { provider: provider.to_owned(), outcome: outcome.as_str() };
        self.proxied.get_or_create(&labels).inc();
        let Some(usage) = usage else { return };
        for (kind, tokens) in [
            ("input", usage.input),
            ("output", usage.output),
            ("cache_read", usage.cache_read),
            ("cache_written", usage.cache_written),
        ] {
            self.proxy_tokens
                .get_or_create(&TokenLabels { provider: provider.to_owned(), kind })
                .inc_by(tokens);
        }
    }

    pub(super) fn proxy_refused(&self, code: &'static str) {
        self.proxy_refused.get_or_create(&RefusalLabels { code }).inc();
    }

    /// Renders all metrics in the OpenMetrics text format.
    pub(super) fn render(&self, gauges: DaemonGauges) -> String {
        let DaemonGauges { sessions_open, sessions_loaded, ledger_entries, is_ready, canaries } = gauges;
        let whole = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.sessions_open.set(whole(sessions_open));
        self.sessions_loaded.set(whole(sessions_loaded));
        if let Some(entries) = ledger_entries {
            self.ledger_entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        }
        self.ready.set(i64::from(is_ready));
        for CanaryStatus { subject, state, .. } in canaries {
            let labels = CanaryLabels { backend: subject.backend, subject: subject.name };
            self.canaries.get_or_create(&labels).set(match state {
                "live" => 1,
                "ungoverned" => -1,
                _ => 0,
            });
        }
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
