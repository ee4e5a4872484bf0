//! What programs in a box reach of the world: one unix socket for each session and service. The socket is the identity: whoever
//! can connect to it is that session, and nobody else can.
//!
//! [`egress`] is the way out. The way to the session's model is the proxy, with its routes under the paths of the agent's own provider; no
//! token is needed, and what a program sends as its key goes nowhere. The way to its MCP servers is their [`Door`]. Both speak [`http`]. [`room`]
//! is where the sockets lie. Whoever starts a box opens a session's sockets with [`Brokers::open`], shows them to the box, and keeps
//! what it got for as long as the box lives.

mod exec_egress;
mod http_socket;
pub mod net;
mod proxy;
pub mod proxy_env;
mod socket_dir;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tribune_agents::SessionKey;

pub use self::exec_egress::WayOut;
pub use self::proxy::{Network, Outlets, Places, RealNetwork, Unresolved};

use tribune_gateway::{Gateway, proxy};
use tribune_sessions::canary;
use tribune_sessions::canary::Play;
use tribune_storage::home::Home;
use tribune_tools::mcp::Door;

use self::proxy::{Egress, Stops};
use self::socket_dir::Room;

/// How long to wait when the machine has no more descriptors to give, before asking again.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(100);

/// How long connections get to write down their end when the daemon leaves.
const GOODBYE: Duration = Duration::from_secs(3);

/// What bounds a session's connections. Nobody needs other values but tests, so no configuration has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
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

impl Default for Limits {
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
pub struct Brokers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    home: Home,
    gateway: Arc<Gateway>,
    egress: Egress,
    limits: Limits,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// The brokers, as long as the daemon runs.
#[derive(Debug, Clone)]
pub(crate) struct WeakBrokers(std::sync::Weak<Shared>);

impl WeakBrokers {
    pub(crate) fn upgrade(&self) -> Option<Brokers> {
        self.0.upgrade().map(Brokers)
    }
}

/// Who is on the other side of a socket.
#[derive(Debug, Clone)]
struct Peer {
    session: Arc<SessionKey>,
    outlets: Arc<Outlets>,
    /// What answers in place of the model, for a canary. It has no way out either.
    play: Option<Arc<Play>>,
    /// Who speaks for the MCP servers that the house runs for the session.
    door: Option<Arc<Door>>,
}

/// The sockets of one session. They and their connections end with this.
#[derive(Debug)]
pub struct SessionSockets {
    room: Room,
    closing: CancellationToken,
}

/// What a socket is for.
#[derive(Debug, Clone, Copy)]
enum Service {
    Egress,
    Model,
    Servers,
}

impl Brokers {
    /// Brokers for the sessions behind this gateway. What an earlier daemon left behind goes first.
    pub(crate) fn new(
        home: &Home,
        gateway: Arc<Gateway>,
        (places, network): (Places, Arc<dyn Network>),
        limits: Limits,
    ) -> Result<Self, BrokerError> {
        Room::sweep(home)?;
        let governance = Arc::clone(gateway.api.sessions.governance());
        let egress = Egress { governance, places, network, limits };
        let (home, closing, tasks) = (home.clone(), CancellationToken::new(), TaskTracker::new());
        Ok(Self(Arc::new(Shared { home, gateway, egress, limits, closing, tasks })))
    }

    /// Opens the sockets of a session, on which its box is that session and its agent.
    pub fn open(&self, session: &SessionKey) -> Result<SessionSockets, BrokerError> {
        self.open_with(session, Outlets::default())
    }

    /// The same for a session that has more places than its agent.
    pub fn open_with(&self, session: &SessionKey, outlets: Outlets) -> Result<SessionSockets, BrokerError> {
        self.open_for(session, outlets, (None, None))
    }

    /// The same for an agent's session that may have MCP servers of the house's.
    pub(crate) fn open_serving(
        &self,
        session: &SessionKey,
        door: Option<Arc<Door>>,
    ) -> Result<SessionSockets, BrokerError> {
        self.open_for(session, Outlets::default(), (None, door))
    }

    /// Sockets for a canary: its model is played, and there is no way out.
    pub(crate) fn open_played(
        &self,
        session: &SessionKey,
        play: Arc<Play>,
    ) -> Result<SessionSockets, BrokerError> {
        self.open_for(session, Outlets::default(), (Some(play), None))
    }

    fn open_for(
        &self,
        session: &SessionKey,
        outlets: Outlets,
        (play, door): (Option<Arc<Play>>, Option<Arc<Door>>),
    ) -> Result<SessionSockets, BrokerError> {
        let outlets = Arc::new(outlets);
        let room = Room::new(&self.0.home)?;
        let closing = self.0.closing.child_token();
        let session = Arc::new(session.clone());
        let servers = door.as_ref().map(|_| Service::Servers);
        for service in [Service::Egress, Service::Model].into_iter().chain(servers) {
            let listener = room.listen(service.name())?;
            let (shared, closing) = (Arc::clone(&self.0), closing.clone());
            let (session, outlets) = (Arc::clone(&session), Arc::clone(&outlets));
            let peer = Peer { session, outlets, play: play.clone(), door: door.clone() };
            self.0.tasks.spawn(async move { shared.serve(service, listener, peer, closing).await });
        }
        Ok(SessionSockets { room, closing })
    }

    /// For whoever the brokers themselves depend on.
    pub(crate) fn downgrade(&self) -> WeakBrokers {
        WeakBrokers(Arc::downgrade(&self.0))
    }

    /// Ends every connection. Returns when their ends are written down, within bounds.
    pub(crate) async fn close(&self) {
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
        self.dir().join(Service::Egress.name())
    }

    /// The way to the session's model, under the paths of its provider.
    pub fn model(&self) -> PathBuf {
        self.dir().join(Service::Model.name())
    }

    /// The way to the session's MCP servers, if it has any.
    pub(crate) fn servers(&self) -> PathBuf {
        self.dir().join(Service::Servers.name())
    }
}

impl Drop for SessionSockets {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl Service {
    const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress.sock",
            Self::Model => "model.sock",
            Self::Servers => "servers.sock",
        }
    }
}

impl Shared {
    /// Accepts a session's connections until its sockets are closed.
    async fn serve(
        self: Arc<Self>,
        service: Service,
        listener: UnixListener,
        peer: Peer,
        closing: CancellationToken,
    ) {
        let room = Arc::new(Semaphore::new(self.limits.connections));
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
            let seat = Arc::clone(&room).try_acquire_owned().ok();
            let (shared, peer, closing) = (Arc::clone(&self), peer.clone(), closing.clone());
            self.tasks.spawn(async move {
                match (service, &peer.play) {
                    _ if seat.is_none() => Egress::refuse_full(stream).await,
                    (Service::Egress, None) => shared.way_out(stream, &peer, closing).await,
                    (Service::Model, None) => shared.way_to_model(stream, &peer.session, closing).await,
                    (Service::Servers, _) => shared.way_to_servers(stream, &peer, closing).await,
                    (Service::Egress, Some(_)) => drop(stream),
                    (Service::Model, Some(play)) => tokio::select! {
                        () = canary::serve(stream, play) => {}
                        () = closing.cancelled() => {}
                    },
                }
                drop(seat);
            });
        }
    }

    async fn way_out(&self, stream: UnixStream, peer: &Peer, closing: CancellationToken) {
        // Taken before the gate looks at the switch: a stop in between ends this one too.
        let stopped = self.gateway.api.proxy.running();
        let from = (&peer.session, &*peer.outlets);
        self.egress.serve(stream, from, Stops { closing, stopped }).await;
    }

    async fn way_to_servers(&self, stream: UnixStream, peer: &Peer, closing: CancellationToken) {
        let Some(door) = &peer.door else { return };
        tokio::select! {
            () = http_socket::serve(stream, self.limits.head, |request| door.answer(request)) => {}
            () = closing.cancelled() => {}
        }
    }

    async fn way_to_model(&self, stream: UnixStream, session: &Arc<SessionKey>, closing: CancellationToken) {
        let answer = |request| proxy::of_session(&self.gateway, session, request);
        let serving = http_socket::serve(stream, self.limits.head, answer);
        tokio::select! {
            () = serving => {}
            () = closing.cancelled() => {}
        }
    }
}
