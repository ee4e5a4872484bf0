//! The sockets of sessions: one Unix socket for each session and service, the only way from a sandbox to the world. The socket is
//! the identity: a program that can connect to it is that session, and no other program can.
//!
//! [`proxy`] is the way out. What answers on the sockets to the session's model and to its MCP servers is a [`SocketService`] that is
//! passed in; nothing here knows what it does. [`http_socket`] is what services that speak HTTP share, [`socket_dir`] is where the sockets
//! lie. The caller that starts a sandbox opens the session's sockets with [`Brokers::open`], shows them to the sandbox, and keeps
//! the returned value for as long as the sandbox lives.

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

use self::proxy::Egress;
use self::socket_dir::SocketDir;

/// How long to wait when the machine has no more descriptors to give, before asking again.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// How long connections get to write down their end when the daemon leaves.
const GOODBYE: Duration = Duration::from_secs(3);

/// What bounds a session's connections. Nobody needs other values but tests, so no configuration has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketLimits {
    /// At the same time, for each service of a session: more than a package manager opens.
    pub connections: usize,
    /// To send the head of a request, or the first words of TLS.
    pub head: Duration,
    /// Without a byte in either direction. Models think for minutes.
    pub idle: Duration,
    /// For all of a connection.
    pub whole: Duration,
    /// In both directions together.
    pub bytes: u64,
    /// For a person to decide, while the connection waits.
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

/// Why sockets could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the sockets of a session cannot be made in `{path}` ({error}): check the folder's owner and space", path = .path.display())]
pub struct BrokerError {
    pub path: PathBuf,
    pub error: io::Error,
}

/// The brokers of a daemon; clones share them.
#[derive(Debug, Clone)]
pub struct SessionSocketService(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    home: Home,
    egress: Egress,
    /// What answers on the way to a session's model.
    model: Arc<dyn SocketService>,
    limits: SocketLimits,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// Which session is on the other side of a socket, and what answers it there.
#[derive(Debug, Clone)]
struct Peer {
    session: Arc<SessionKey>,
    service: Service,
}

/// What answers on a socket.
#[derive(Debug, Clone)]
enum Service {
    /// The way out, with what is open to this session beside what is listed for its agent.
    Egress(Arc<AllowedEgress>),
    /// No way out: every connection is closed at once.
    NoEgress,
    Other(Arc<dyn SocketService>),
}

/// The sockets of one session. They and their connections end with this.
#[derive(Debug)]
pub struct SessionSockets {
    room: SocketDir,
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
    /// Sockets for the sessions of this home, whose model `model` is. Removes what an earlier daemon left behind.
    pub fn new(
        home: &Home,
        out_of_turn: Arc<OutOfTurn>,
        model: Arc<dyn SocketService>,
        (places, network): (EgressRules, Arc<dyn Network>),
        limits: SocketLimits,
    ) -> Result<Self, BrokerError> {
        SocketDir::sweep(home)?;
        let egress = Egress { out_of_turn, places, network, limits };
        let (home, closing, tasks) = (home.clone(), CancellationToken::new(), TaskTracker::new());
        Ok(Self(Arc::new(Shared { home, egress, model, limits, closing, tasks })))
    }

    /// Opens the sockets of a session, on which its sandbox is that session and its agent.
    pub fn open(&self, session: &SessionKey) -> Result<SessionSockets, BrokerError> {
        self.open_with(session, AllowedEgress::default())
    }

    /// The same for a session that has more places than its agent.
    pub fn open_with(
        &self,
        session: &SessionKey,
        outlets: AllowedEgress,
    ) -> Result<SessionSockets, BrokerError> {
        let egress = Service::Egress(Arc::new(outlets));
        self.open_for(session, egress, Arc::clone(&self.0.model), None)
    }

    /// The same for an agent's session, with a socket to its MCP servers if it has any.
    pub fn open_serving(
        &self,
        session: &SessionKey,
        servers: Option<Arc<dyn SocketService>>,
    ) -> Result<SessionSockets, BrokerError> {
        let egress = Service::Egress(Arc::default());
        self.open_for(session, egress, Arc::clone(&self.0.model), servers)
    }

    /// Sockets without a way out, on which `model` answers in place of the session's model.
    pub fn open_isolated(
        &self,
        session: &SessionKey,
        model: Arc<dyn SocketService>,
    ) -> Result<SessionSockets, BrokerError> {
        self.open_for(session, Service::NoEgress, model, None)
    }

    fn open_for(
        &self,
        session: &SessionKey,
        egress: Service,
        model: Arc<dyn SocketService>,
        servers: Option<Arc<dyn SocketService>>,
    ) -> Result<SessionSockets, BrokerError> {
        let room = SocketDir::new(&self.0.home)?;
        let closing = self.0.closing.child_token();
        let session = Arc::new(session.clone());
        let servers = servers.map(|servers| (Purpose::Servers, Service::Other(servers)));
        let always = [(Purpose::Egress, egress), (Purpose::Model, Service::Other(model))];
        for (purpose, service) in always.into_iter().chain(servers) {
            let listener = room.listen(purpose.socket())?;
            let (shared, closing) = (Arc::clone(&self.0), closing.clone());
            let peer = Peer { session: Arc::clone(&session), service };
            self.0.tasks.spawn(async move { shared.serve(listener, peer, closing).await });
        }
        Ok(SessionSockets { room, closing })
    }

    /// Whether the daemon is stopping, so that no sandbox is to be started any more.
    pub fn is_closing(&self) -> bool {
        self.0.closing.is_cancelled()
    }

    /// Ends every connection. Returns when their ends are written down, within bounds.
    pub async fn close(&self) {
        self.0.closing.cancel();
        self.0.tasks.close();
        let _ = tokio::time::timeout(GOODBYE, self.0.tasks.wait()).await;
    }
}

impl SessionSockets {
    /// The folder that the sockets lie in, for their owner alone.
    pub fn dir(&self) -> &Path {
        self.room.path()
    }

    /// Gives the sockets to the user that the box runs as. Until then they are the daemon's own user's.
    pub fn give_to(&self, user: u32, group: u32) -> Result<(), BrokerError> {
        self.room.give_to(user, group)
    }

    /// The way out: a proxy for HTTP.
    pub fn egress(&self) -> PathBuf {
        self.dir().join(Purpose::Egress.socket())
    }

    /// The way to the session's model, under the paths of its provider.
    pub fn model(&self) -> PathBuf {
        self.dir().join(Purpose::Model.socket())
    }

    /// The way to the session's MCP servers, if it has any.
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
    /// The name of the socket.
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
                    tracing::warn!(%error, "a connection from a box could not be accepted");
                    tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
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
                    Service::Egress(outlets) => {
                        shared.egress.serve(stream, (&peer.session, outlets), closing).await;
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
