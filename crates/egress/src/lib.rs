//! The sockets of sessions: one Unix socket for each session and service. They are the only connection from a sandbox to
//! anything outside. The socket is the identity: only the programs of a session can connect to it, so a connection on it comes
//! from that session.
//!
//! [`proxy`] is the egress proxy. The sockets of the session's model and of its MCP servers are served by a [`SocketService`]
//! that the caller passes in; this crate does not know what it does. [`http_socket`] is the HTTP server that such services
//! share, [`socket_dir`] is the folder of the sockets. The caller that starts a sandbox opens the session's sockets with
//! [`SessionSocketService::open`], mounts them in the sandbox, and keeps the returned value for as long as the sandbox lives.

mod exec_egress;
pub mod http_socket;
pub mod net;
mod proxy;
pub mod proxy_env;
mod service;
mod socket_dir;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_runtime::SessionKey;

pub use self::exec_egress::EgressLease;
pub use self::proxy::{AllowedEgress, EgressRules, Network, RealNetwork, Unresolved};
pub use self::service::SocketService;

use tribune_governance::turn::OutOfTurn;
use tribune_storage::home::Home;

use self::proxy::{Egress, EgressPeer};
use self::socket_dir::SocketDir;

/// Pause after a failed `accept`, which usually means that the process has no file descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How long connections have to record their end in the ledger when the daemon stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Limits on a session's connections. Only tests need other values, so they are not configurable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketLimits {
    /// Concurrent connections for each service of a session: more than a package manager opens.
    pub connections: usize,
    /// Timeout for the head of a request, and for the TLS ClientHello.
    pub head: Duration,
    /// Timeout without a byte in either direction. Models think for minutes.
    pub idle: Duration,
    /// Maximum duration of a connection.
    pub whole: Duration,
    /// Maximum bytes of a connection, both directions together.
    pub bytes: u64,
    /// How long a connection waits for a person's decision.
    pub ask: Duration,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            connections: 64,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(5 * 60),
            whole: Duration::from_secs(60 * 60),
            bytes: 4 << 30,
            ask: Duration::from_secs(10 * 60),
        }
    }
}

/// Why a session's sockets could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the session sockets in `{path}` ({error}): check the owner of the folder and the free space", path = .path.display())]
pub struct SessionSocketError {
    pub path: PathBuf,
    pub error: io::Error,
}

/// Opens and serves the sockets of all sessions of a daemon. Clones share one state.
#[derive(Debug, Clone)]
pub struct SessionSocketService(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    home: Home,
    egress: Egress,
    /// Serves the socket of a session's model.
    model: Arc<dyn SocketService>,
    limits: SocketLimits,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// The session that a socket belongs to, and the service that answers on it.
#[derive(Debug, Clone)]
struct Peer {
    session: Arc<SessionKey>,
    service: Service,
}

/// The service that answers on a socket.
#[derive(Debug, Clone)]
enum Service {
    /// The egress proxy, with what this session may reach in addition to its agent's allowlist.
    Egress(Arc<AllowedEgress>),
    /// No egress: every connection is closed at once.
    NoEgress,
    Other(Arc<dyn SocketService>),
}

/// The sockets of one session. Dropping this removes them and closes their connections.
#[derive(Debug)]
pub struct SessionSockets {
    dir: SocketDir,
    closing: CancellationToken,
}

/// What a socket is for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Egress,
    Model,
    Servers,
}

impl SessionSocketService {
    /// Creates the service for the sessions of this home. `model` serves their model sockets. Removes the sockets that an
    /// earlier daemon left behind.
    pub fn new(
        home: &Home,
        out_of_turn: Arc<OutOfTurn>,
        model: Arc<dyn SocketService>,
        rules: EgressRules,
        network: Arc<dyn Network>,
        limits: SocketLimits,
    ) -> Result<Self, SessionSocketError> {
        SocketDir::sweep(home)?;
        let egress = Egress { out_of_turn, rules, network, limits };
        let (home, closing, tasks) = (home.clone(), CancellationToken::new(), TaskTracker::new());
        Ok(Self(Arc::new(Shared { home, egress, model, limits, closing, tasks })))
    }

    /// Opens the sockets of a session. A connection on them counts as this session and its agent.
    pub fn open(&self, session: &SessionKey) -> Result<SessionSockets, SessionSocketError> {
        self.open_with(session, AllowedEgress::default())
    }

    /// Like [`Self::open`], for a session that may reach more than its agent's allowlist.
    pub fn open_with(
        &self,
        session: &SessionKey,
        allowed: AllowedEgress,
    ) -> Result<SessionSockets, SessionSocketError> {
        let egress = Service::Egress(Arc::new(allowed));
        self.open_for(session, egress, Arc::clone(&self.0.model), None)
    }

    /// Like [`Self::open`], with a socket to the session's MCP servers if it has any.
    pub fn open_serving(
        &self,
        session: &SessionKey,
        servers: Option<Arc<dyn SocketService>>,
    ) -> Result<SessionSockets, SessionSocketError> {
        let egress = Service::Egress(Arc::default());
        self.open_for(session, egress, Arc::clone(&self.0.model), servers)
    }

    /// Opens sockets without egress. `model` answers in place of the session's model.
    pub fn open_isolated(
        &self,
        session: &SessionKey,
        model: Arc<dyn SocketService>,
    ) -> Result<SessionSockets, SessionSocketError> {
        self.open_for(session, Service::NoEgress, model, None)
    }

    fn open_for(
        &self,
        session: &SessionKey,
        egress: Service,
        model: Arc<dyn SocketService>,
        servers: Option<Arc<dyn SocketService>>,
    ) -> Result<SessionSockets, SessionSocketError> {
        let dir = SocketDir::new(&self.0.home)?;
        let closing = self.0.closing.child_token();
        let session = Arc::new(session.clone());
        let servers = servers.map(|servers| (Purpose::Servers, Service::Other(servers)));
        let always = [(Purpose::Egress, egress), (Purpose::Model, Service::Other(model))];
        for (purpose, service) in always.into_iter().chain(servers) {
            let listener = dir.listen(purpose.socket())?;
            let (shared, closing) = (Arc::clone(&self.0), closing.clone());
            let peer = Peer { session: Arc::clone(&session), service };
            self.0.tasks.spawn(async move { shared.serve(listener, peer, closing).await });
        }
        Ok(SessionSockets { dir, closing })
    }

    /// Whether the daemon is stopping. If so, no sandbox may be started any more.
    pub fn is_closing(&self) -> bool {
        self.0.closing.is_cancelled()
    }

    /// Closes every connection. Returns when their ends are recorded, or after `CLOSE_TIMEOUT`.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.tasks.close();
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.0.tasks.wait()).await;
    }
}

impl SessionSockets {
    /// The folder of the sockets. Only its owner can access it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Changes the owner of the sockets to the user that the sandbox runs as. Until then the daemon's user owns them.
    pub fn give_to(&self, user: u32, group: u32) -> Result<(), SessionSocketError> {
        self.dir.give_to(user, group)
    }

    /// The socket of the egress proxy, which speaks HTTP.
    pub fn egress(&self) -> PathBuf {
        self.dir().join(Purpose::Egress.socket())
    }

    /// The socket of the session's model. It serves the paths of the provider's API.
    pub fn model(&self) -> PathBuf {
        self.dir().join(Purpose::Model.socket())
    }

    /// The socket of the session's MCP servers. It exists only if the session has any.
    pub fn servers(&self) -> PathBuf {
        self.dir().join(Purpose::Servers.socket())
    }
}

impl Drop for SessionSockets {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Purpose {
    /// The file name of the socket.
    const fn socket(self) -> &'static str {
        match self {
            Self::Egress => "egress.sock",
            Self::Model => "model.sock",
            Self::Servers => "servers.sock",
        }
    }
}

impl Shared {
    /// Accepts a session's connections until its sockets are closed.
    async fn serve(self: Arc<Self>, listener: UnixListener, peer: Peer, closing: CancellationToken) {
        let permits = Arc::new(Semaphore::new(self.limits.connections));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = closing.cancelled() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection from a sandbox failed");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            let permit = Arc::clone(&permits).try_acquire_owned().ok();
            let (shared, peer, closing) = (Arc::clone(&self), peer.clone(), closing.clone());
            self.tasks.spawn(async move {
                if permit.is_none() {
                    return Egress::refuse_full(stream).await;
                }
                match &peer.service {
                    Service::Egress(allowed) => {
                        let peer = EgressPeer { session: &peer.session, allowed };
                        shared.egress.serve(stream, peer, closing).await;
                    }
                    Service::NoEgress => drop(stream),
                    Service::Other(service) => tokio::select! {
                        () = service.serve(stream, &peer.session, shared.limits.head) => {}
                        () = closing.cancelled() => {}
                    },
                }
                drop(permit);
            });
        }
    }
}
