//! The egress proxy of a sandbox: an HTTP proxy on the session's own socket. CONNECT opens a tunnel; an absolute `http://` URL is
//! one forwarded request.
//!
//! The stages of a connection: [`request_head`] (an unambiguous request head), [`authority`] and [`connect_request`] (the
//! destination), [`allowlist`] (the operator's rules for the agent), the gate (a verdict in the ledger, and a person's approval
//! where it asks for one), [`network`] (resolves the name once, checks every address, connects to a checked address), then
//! [`tunnel`], which compares the server name of the TLS ClientHello ([`tls_client_hello`]), or [`forward`].
//! [`transfer_limits`] counts the bytes. The ledger also records how the connection ended.
//!
//! What it deliberately does not do: decrypt TLS, reuse a connection for a second request, or reveal to a program in the sandbox
//! the address of a name.

mod allowlist;
mod authority;
mod connect_request;
mod denial;
mod forward;
mod network;
mod request_head;
mod tls_client_hello;
mod transfer_limits;
mod tunnel;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tribune_config::egress_rules::ConnectionKind;
use tribune_constitution::Veto;
use tribune_runtime::SessionKey;

pub use self::allowlist::{AllowedEgress, EgressRules};
pub use self::network::{Network, RealNetwork};
pub use crate::net::Unresolved;

use tribune_governance::gate::Admission;
use tribune_governance::turn::{Denied, OutOfTurn};
use tribune_records::ledger_payloads::{EgressOutcome, EgressRecord};

use self::allowlist::EgressVerdict;
use self::authority::Host;
use self::connect_request::ConnectRequest;
use self::denial::Refusal;
use self::request_head::RequestHead;
use self::transfer_limits::{Gauge, Metered};
use self::tunnel::{Broken, Opening};
use super::SocketLimits;
use crate::net::AddressScope;

/// How much of a denied request is read after the response, and for how long. Closing earlier could lose the response.
const DRAIN_BYTES: usize = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The session whose sandbox opened a connection, with what it may reach in addition to its agent's allowlist.
#[derive(Debug, Clone, Copy)]
pub(super) struct EgressPeer<'a> {
    pub(super) session: &'a Arc<SessionKey>,
    pub(super) allowed: &'a AllowedEgress,
}

/// The egress proxy of the daemon.
#[derive(Debug)]
pub(super) struct Egress {
    pub(super) out_of_turn: Arc<OutOfTurn>,
    pub(super) rules: EgressRules,
    pub(super) network: Arc<dyn Network>,
    pub(super) limits: SocketLimits,
}

/// The signals that end a connection early.
#[derive(Debug, Clone)]
struct StopSignals {
    /// The session's sockets are closed.
    closing: CancellationToken,
    /// The global stop is set.
    stopped: CancellationToken,
}

impl StopSignals {
    async fn any(&self) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = self.stopped.cancelled() => {}
        }
    }
}

/// How a connection ended, with the error code if it failed.
type End = (EgressOutcome, Option<&'static str>);

impl Egress {
    /// Serves one connection from a session's sandbox.
    pub(super) async fn serve(
        &self,
        mut stream: UnixStream,
        peer: EgressPeer<'_>,
        closing: CancellationToken,
    ) {
        // Taken before the gate checks for a global stop, so that a stop in between ends this connection too.
        let stops = StopSignals { closing, stopped: self.out_of_turn.gate.stop_signal.token() };
        let read = RequestHead::read(&mut stream, self.limits.head).await;
        let parsed =
            read.and_then(|head| head.map(|head| Ok((ConnectRequest::of(&head)?, head))).transpose());
        match parsed {
            Ok(None) => {}
            Ok(Some((request, head))) => self.serve_request(stream, peer, &stops, request, head).await,
            Err(refusal) => {
                let record = EgressRecord::Refused { code: refusal.code.to_owned() };
                self.out_of_turn.record_connection_end(peer.session, None, &record).await;
                send_denial(stream, &refusal).await;
            }
        }
    }

    /// Rejects a connection beyond [`SocketLimits::connections`](crate::SocketLimits).
    pub(super) async fn refuse_full(stream: UnixStream) {
        send_denial(stream, &Refusal::BUSY).await;
    }

    async fn serve_request(
        &self,
        stream: UnixStream,
        EgressPeer { session, allowed }: EgressPeer<'_>,
        stops: &StopSignals,
        request: ConnectRequest,
        head: RequestHead,
    ) {
        let verdict = self.rules.check(session.agent(), allowed, &request);
        let is_listed = matches!(verdict, EgressVerdict::Listed(..));
        let (scope, kind, vetoes) = match verdict {
            EgressVerdict::Listed(scope, kind) => (scope, kind, Vec::new()),
            // A person approves what the approval card shows: a public destination, over TLS or plain HTTP.
            EgressVerdict::Unlisted => (
                AddressScope::Public,
                ConnectionKind::Https,
                self.veto_unlisted(&request).into_iter().collect(),
            ),
            EgressVerdict::No(rule, why) => {
                (AddressScope::Public, ConnectionKind::Https, vec![Veto::new(rule, &why)])
            }
        };
        let call = request.call(is_listed, random());
        let gone = async {
            tokio::select! {
                () = stops.any() => {}
                () = hung_up(&stream, &request) => {}
            }
        };
        let admitted =
            self.out_of_turn.authorize(session, allowed.carries, call, vetoes, self.limits.ask, gone).await;
        let admission = match admitted {
            Ok(admission) => admission,
            Err(Denied { code, message, is_recorded }) => {
                let code = code.as_str();
                if !is_recorded {
                    let record = EgressRecord::Refused { code: code.to_owned() };
                    self.out_of_turn.record_connection_end(session, None, &record).await;
                }
                return send_denial(stream, &Refusal::denied(code, message)).await;
            }
        };
        let entry = admission.entry();
        let gauge = Gauge::new(self.limits.bytes);
        let connection = AllowedConnection { request: &request, scope, kind, gauge: &gauge };
        let (outcome, code) = self.run_connection(stream, head, connection, admission, stops).await;
        let (sent, received) = (gauge.sent(), gauge.received());
        let code = code.map(str::to_owned);
        let record = EgressRecord::Ended { outcome, code, sent, received };
        self.out_of_turn.record_connection_end(session, Some(entry), &record).await;
    }

    /// Vetoes an unlisted destination that no approval could open, such as this machine or its network, so that no person is asked.
    fn veto_unlisted(&self, request: &ConnectRequest) -> Option<Veto> {
        let place = &request.authority;
        let is_here = match &place.host {
            Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
            Host::Literal(address) | Host::Disguised(address) => {
                let is_own = |address| self.network.is_own(address);
                !self.rules.allows_address(AddressScope::Public, *address, place.port, is_own)
            }
        };
        let what = format!(
            "`{place}` is not for sandboxes unless it is named: run it with `--net {place}`, or list it under egress.agents"
        );
        is_here.then(|| Veto::new("egress.private", &what))
    }

    /// Opens an allowed connection and carries it to its end.
    async fn run_connection(
        &self,
        mut stream: UnixStream,
        head: RequestHead,
        connection: AllowedConnection<'_>,
        admission: Admission,
        stops: &StopSignals,
    ) -> End {
        let AllowedConnection { request, kind, gauge, .. } = connection;
        let reaching = async {
            let addresses = self.addresses(&connection).await?;
            network::connect(&*self.network, admission, &addresses).await.map_err(|_| {
                let what = format!("`{}` could not be connected to: try again later", request.authority);
                Refusal::failed(502, "unreachable", what)
            })
        };
        let reached = tokio::select! {
            reached = reaching => reached,
            () = stops.any() => return (EgressOutcome::Stopped, None),
        };
        let upstream = match reached {
            Ok(upstream) => Metered { stream: upstream, gauge: Arc::clone(gauge) },
            Err(refusal) => {
                let outcome =
                    if refusal.status == 403 { EgressOutcome::Refused } else { EgressOutcome::Failed };
                send_denial(stream, &refusal).await;
                return (outcome, Some(refusal.code));
            }
        };
        if request.is_tunnel()
            && let Err(broken) = tunnel::nothing_early(&stream)
        {
            if let Broken::Refused(refusal) = &broken {
                send_denial(stream, refusal).await;
            }
            return ended(Err(broken), gauge);
        }
        let moving = async {
            if request.is_tunnel() {
                let opening = match kind {
                    ConnectionKind::Https | ConnectionKind::Http => Opening::Tls(request.name()),
                    ConnectionKind::Tcp => Opening::Anything,
                };
                let mut upstream = upstream;
                tunnel::run(&mut stream, &mut upstream, opening, self.limits.head).await
            } else {
                forward::run(stream, head, request, upstream).await.map_err(Broken::from)
            }
        };
        tokio::select! {
            moved = moving => ended(moved, gauge),
            () = gauge.idle(self.limits.idle) => (EgressOutcome::Limit, Some("idle")),
            () = tokio::time::sleep(self.limits.whole) => (EgressOutcome::Limit, Some("too_long")),
            () = stops.any() => (EgressOutcome::Stopped, None),
        }
    }

    /// Resolves the destination once and checks every address. The connection uses exactly these addresses (no DNS rebinding).
    async fn addresses(&self, connection: &AllowedConnection<'_>) -> Result<Vec<SocketAddr>, Refusal> {
        let (host, port) = (&connection.request.authority.host, connection.request.authority.port);
        let addresses = match host {
            Host::Literal(address) | Host::Disguised(address) => vec![*address],
            Host::Name(name) => self.network.resolve(name, port).await.map_err(|unresolved| {
                let what = format!("the name `{name}` {unresolved}: check it, or try again later");
                Refusal::failed(502, "unresolved", what)
            })?,
        };
        let is_own = |address| self.network.is_own(address);
        let allows = |address| self.rules.allows_address(connection.scope, address, port, is_own);
        if addresses.is_empty() || !addresses.iter().all(|address| allows(*address)) {
            let what = format!("`{host}` resolves to an address that sandboxes may not reach");
            return Err(Refusal::denied("address_refused", format!("{what}: ask the operator")));
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// An allowed connection.
#[derive(Debug, Clone, Copy)]
struct AllowedConnection<'a> {
    request: &'a ConnectRequest,
    scope: AddressScope,
    kind: ConnectionKind,
    gauge: &'a Arc<Gauge>,
}

fn ended(moved: Result<(), Broken>, gauge: &Gauge) -> End {
    match moved {
        _ if gauge.is_full() => (EgressOutcome::Limit, Some("too_much")),
        Ok(()) => (EgressOutcome::Done, None),
        Err(Broken::Refused(refusal)) => (EgressOutcome::Refused, Some(refusal.code)),
        Err(Broken::Off) => (EgressOutcome::Failed, Some("broken")),
    }
}

/// Waits until the client of a requested tunnel disconnects, or sends bytes before the response. For a plain request it waits
/// forever: a body may be in transit, and it must not be read yet.
async fn hung_up(stream: &UnixStream, request: &ConnectRequest) {
    if !request.is_tunnel() {
        return std::future::pending().await;
    }
    while stream.readable().await.is_ok() && tunnel::nothing_early(stream).is_ok() {}
}

/// Sends the denial and reads the rest of the request. Closing with unread bytes would reset the connection and lose the
/// response.
async fn send_denial(mut stream: UnixStream, refusal: &Refusal) {
    let saying = async {
        stream.write_all(&refusal.response()).await?;
        stream.shutdown().await?;
        let mut unread = [0; 4096];
        let mut drained = 0;
        while drained < DRAIN_BYTES {
            match stream.read(&mut unread).await? {
                0 => break,
                bytes => drained += bytes,
            }
        }
        Ok::<_, std::io::Error>(())
    };
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, saying).await;
}

/// A random number for the id of a call.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // If the random source fails, the ids are equal; the ledger entries still differ.
    let _ = getrandom::fill(&mut bytes);
    u64::from_be_bytes(bytes)
}
