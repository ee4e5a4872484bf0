//! The state of the gateway: the daemon's state ([`crate::api`]), and what decides which connections and requests are accepted.
//!
//! It opens no socket (`listener`) and knows no route.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Extensions;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::Api;
use crate::connection_limit::{ConnectionLimit, ConnectionSlot};
use crate::error::ApiError;
use crate::guest_rate::GuestRate;
use crate::metrics::Metrics;
use crate::principal::{Authenticator, Principal};

/// Read buffer of a WebSocket connection. Large frames grow it; idle connections stay small.
pub(crate) const READ_BUFFER: usize = 4 << 10;

/// Write buffer of a WebSocket connection: frames that are queued together go out in one write.
pub(crate) const WRITE_BUFFER: usize = 16 << 10;

/// Limits of the gateway.
#[derive(Debug, Clone)]
pub struct GatewayLimits {
    pub max_connections: usize,
    pub max_message_bytes: usize,
    pub idle: Duration,
    pub timeouts: Timeouts,
}

/// How long the peer of a connection may take. Only tests need other values, so the configuration does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// To send the head of an HTTP request.
    pub head: Duration,
    /// To send the body of an HTTP request, as a whole.
    pub body: Duration,
    /// To authenticate on a WebSocket.
    pub authenticate: Duration,
    /// To take one frame. A reader that is slower is disconnected; it can resume with `session.events`.
    pub slow_reader: Duration,
}

impl GatewayLimits {
    /// How long the body of a request may take.
    pub(crate) fn body_time(&self) -> Duration {
        self.timeouts.body.min(self.idle)
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(60),
            authenticate: Duration::from_secs(15),
            slow_reader: Duration::from_secs(20),
        }
    }
}

/// Accepted `Host` and `Origin` values: the defence against DNS rebinding and cross-site requests.
#[derive(Debug, Clone)]
pub struct Names {
    /// Values of the `Host` header that name this daemon.
    pub(crate) hosts: Vec<String>,
    /// Origins whose pages may call the daemon.
    pub(crate) origins: Vec<String>,
}

impl Names {
    /// The loopback names of this address, and those that the configuration adds.
    pub fn new(address: SocketAddr, hosts: &[String], origins: &[String]) -> Self {
        let port = address.port();
        let own = [
            format!("127.0.0.1:{port}"),
            format!("localhost:{port}"),
            format!("[::1]:{port}"),
            address.to_string(),
        ];
        let own_origins = own.iter().map(|host| format!("http://{host}"));
        Self {
            origins: own_origins.chain(origins.iter().map(|origin| origin.to_ascii_lowercase())).collect(),
            hosts: own.iter().cloned().chain(hosts.iter().map(|host| host.to_ascii_lowercase())).collect(),
        }
    }
}

/// State that all connections share.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) api: Api,
    pub(crate) authenticator: Authenticator,
    pub(crate) names: Names,
    pub(crate) limits: GatewayLimits,
    /// The principal of a caller that proved nothing; `None` if such callers are refused.
    pub(crate) anonymous: Option<Principal>,
    pub(crate) guest_rate: GuestRate,
    /// Cancelled when connections must end.
    pub(crate) stopping: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) connection_limit: Arc<ConnectionLimit>,
}

/// What [`Gateway::new`] needs.
#[derive(Debug)]
pub struct Parts {
    pub api: Api,
    pub authenticator: Authenticator,
    pub names: Names,
    pub limits: GatewayLimits,
    pub anonymous: Option<Principal>,
    pub stopping: CancellationToken,
}

impl Gateway {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { api, authenticator, names, limits, anonymous, stopping } = parts;
        let (tasks, metrics) = (api.proxy.tasks.clone(), Arc::clone(&api.proxy.metrics));
        let connection_limit = ConnectionLimit::new(limits.max_connections, Arc::clone(&api.status));
        Arc::new(Self {
            api,
            authenticator,
            names,
            limits,
            anonymous,
            guest_rate: GuestRate::default(),
            stopping,
            tasks,
            metrics,
            connection_limit,
        })
    }

    /// Resolves the token of a request to its principal. The connection counts as that principal's from then on.
    pub(crate) fn check_token(&self, token: &str, request: &Extensions) -> Result<Principal, ApiError> {
        let who = self.authenticator.check_token(token).inspect_err(|_| self.metrics.auth_failed())?;
        if let Some(slot) = request.get::<Arc<ConnectionSlot>>() {
            slot.is_of(who.tier());
        }
        Ok(who)
    }
}
