//! The way out of a box: a proxy for HTTP on the session's own socket. CONNECT makes a tunnel, a whole `http://` address is
//! one request.
//!
//! The way of a connection: [`head`] (what was said, if that can be read in one way), [`authority`] and [`wanted`] (where to),
//! [`list`] (what the operator listed for the agent), the gate (the verdict, on record, and a person where it asks), [`network`]
//! (the name resolved once, each address checked, and the checked address connected to), then [`tunnel`], which looks at the
//! name in TLS ([`hello`]), or [`forward`]. [`meter`] counts the bytes. How it ended is in the ledger too.
//!
//! What it deliberately does not do: look into TLS, keep a connection for a second request, or tell a program in the box which
//! address a name led to.

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

/// What is read of a request that was refused, so that its answer arrives, and for how long.
const GOODBYE_BYTES: usize = 64 << 10;
const GOODBYE: Duration = Duration::from_secs(2);

/// The egress broker of a house.
#[derive(Debug)]
pub(super) struct Egress {
    pub(super) out_of_turn: Arc<OutOfTurn>,
    pub(super) places: EgressRules,
    pub(super) network: Arc<dyn Network>,
    pub(super) limits: SocketLimits,
}

/// What ends a connection from outside.
#[derive(Debug, Clone)]
struct Stops {
    /// The session's sockets are closed.
    closing: CancellationToken,
    /// Everything is stopped.
    stopped: CancellationToken,
}

impl Stops {
    async fn any(&self) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = self.stopped.cancelled() => {}
        }
    }
}

/// How a connection ended, and what went wrong if something did.
type End = (EgressOutcome, Option<&'static str>);

impl Egress {
    /// Serves one connection from a session's box.
    pub(super) async fn serve(
        &self,
        mut stream: UnixStream,
        from: (&Arc<SessionKey>, &AllowedEgress),
        closing: CancellationToken,
    ) {
        // Taken before the gate looks at the switch: a stop in between ends this one too.
        let stops = Stops { closing, stopped: self.out_of_turn.gate.stop_signal.token() };
        let read = RequestHead::read(&mut stream, self.limits.head).await;
        let asked = read.and_then(|head| head.map(|head| Ok((ConnectRequest::of(&head)?, head))).transpose());
        match asked {
            Ok(None) => {}
            Ok(Some((wanted, head))) => self.wanted(stream, from, &stops, wanted, head).await,
            Err(refusal) => {
                let record = EgressRecord::Refused { code: refusal.code.to_owned() };
                self.out_of_turn.note_crossing(from.0, None, &record).await;
                answer(stream, &refusal).await;
            }
        }
    }

    /// One connection too many.
    pub(super) async fn refuse_full(stream: UnixStream) {
        answer(stream, &Refusal::BUSY).await;
    }

    async fn wanted(
        &self,
        stream: UnixStream,
        (session, outlets): (&Arc<SessionKey>, &AllowedEgress),
        stops: &Stops,
        wanted: ConnectRequest,
        head: RequestHead,
    ) {
        let said = self.places.look(session.agent(), outlets, &wanted);
        let is_listed = matches!(said, EgressVerdict::Listed(..));
        let (reach, speech, vetoes) = match said {
            EgressVerdict::Listed(reach, speech) => (reach, speech, Vec::new()),
            // What a person allows is what the card shows: a public place, spoken to in the usual way.
            EgressVerdict::Unlisted => {
                (AddressScope::Public, ConnectionKind::Https, self.never(&wanted).into_iter().collect())
            }
            EgressVerdict::No(rule, why) => {
                (AddressScope::Public, ConnectionKind::Https, vec![Veto::new(rule, &why)])
            }
        };
        let call = wanted.call(is_listed, random());
        let gone = async {
            tokio::select! {
                () = stops.any() => {}
                () = hung_up(&stream, &wanted) => {}
            }
        };
        let admitted =
            self.out_of_turn.cross((session, outlets.carries), (call, vetoes), self.limits.ask, gone).await;
        let admission = match admitted {
            Ok(admission) => admission,
            Err(Denied { code, message, is_recorded }) => {
                if !is_recorded {
                    let record = EgressRecord::Refused { code: code.to_owned() };
                    self.out_of_turn.note_crossing(session, None, &record).await;
                }
                return answer(stream, &Refusal::denied(code, message)).await;
            }
        };
        let entry = admission.entry();
        let gauge = Gauge::new(self.limits.bytes);
        let passage = Passage { wanted: &wanted, reach, speech, gauge: &gauge };
        let (outcome, code) = self.carry(stream, head, passage, admission, stops).await;
        let (sent, received) = (gauge.sent(), gauge.received());
        let code = code.map(str::to_owned);
        let record = EgressRecord::Ended { outcome, code, sent, received };
        self.out_of_turn.note_crossing(session, Some(entry), &record).await;
    }

    /// Why nobody is asked about a place that is on no list: no decision would open it, because it is this machine itself.
    fn never(&self, wanted: &ConnectRequest) -> Option<Veto> {
        let place = &wanted.authority;
        let is_here = match &place.host {
            Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
            Host::Literal(address) | Host::Disguised(address) => {
                let is_own = |address| self.network.is_own(address);
                !self.places.lets(AddressScope::Public, *address, place.port, is_own)
            }
        };
        let what = format!(
            "`{place}` is not for boxes unless it is named: run it with `--net {place}`, or list it under egress.agents"
        );
        is_here.then(|| Veto::new("egress.private", &what))
    }

    /// Makes an allowed connection and stays with it to its end.
    async fn carry(
        &self,
        mut stream: UnixStream,
        head: RequestHead,
        passage: Passage<'_>,
        admission: Admission,
        stops: &Stops,
    ) -> End {
        let Passage { wanted, speech, gauge, .. } = passage;
        let reaching = async {
            let addresses = self.addresses(&passage).await?;
            network::connect(&*self.network, admission, &addresses).await.map_err(|_| {
                let what = format!("`{}` could not be connected to: try again later", wanted.authority);
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
                answer(stream, &refusal).await;
                return (outcome, Some(refusal.code));
            }
        };
        if wanted.is_tunnel()
            && let Err(broken) = tunnel::nothing_early(&stream)
        {
            if let Broken::Refused(refusal) = &broken {
                answer(stream, refusal).await;
            }
            return ended(Err(broken), gauge);
        }
        let moving = async {
            if wanted.is_tunnel() {
                let opening = match speech {
                    ConnectionKind::Https | ConnectionKind::Http => Opening::Tls(wanted.name()),
                    ConnectionKind::Tcp => Opening::Anything,
                };
                let mut upstream = upstream;
                tunnel::run(&mut stream, &mut upstream, opening, self.limits.head).await
            } else {
                forward::run(stream, head, wanted, upstream).await.map_err(Broken::from)
            }
        };
        tokio::select! {
            moved = moving => ended(moved, gauge),
            () = gauge.idle(self.limits.idle) => (EgressOutcome::Limit, Some("idle")),
            () = tokio::time::sleep(self.limits.whole) => (EgressOutcome::Limit, Some("too_long")),
            () = stops.any() => (EgressOutcome::Stopped, None),
        }
    }

    /// The addresses of a place, each of them checked. Asked for once: what is connected to is what was looked at.
    async fn addresses(&self, passage: &Passage<'_>) -> Result<Vec<SocketAddr>, Refusal> {
        let (host, port) = (&passage.wanted.authority.host, passage.wanted.authority.port);
        let addresses = match host {
            Host::Literal(address) | Host::Disguised(address) => vec![*address],
            Host::Name(name) => self.network.resolve(name, port).await.map_err(|unresolved| {
                let what = format!("the name `{name}` {unresolved}: check it, or try again later");
                Refusal::failed(502, "unresolved", what)
            })?,
        };
        let lets =
            |address| self.places.lets(passage.reach, address, port, |address| self.network.is_own(address));
        if addresses.is_empty() || !addresses.iter().all(|address| lets(*address)) {
            let what = format!("`{host}` leads to an address that may not be reached from a box");
            return Err(Refusal::denied("address_refused", format!("{what}: ask the operator")));
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// An allowed connection.
#[derive(Debug, Clone, Copy)]
struct Passage<'a> {
    wanted: &'a ConnectRequest,
    reach: AddressScope,
    speech: ConnectionKind,
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

/// Waits until the other side of a tunnel-to-be goes away, or does not wait for its answer. A request may have a body on its
/// way, which is nobody's to read yet.
async fn hung_up(stream: &UnixStream, wanted: &ConnectRequest) {
    if !wanted.is_tunnel() {
        return std::future::pending().await;
    }
    while stream.readable().await.is_ok() && tunnel::nothing_early(stream).is_ok() {}
}

/// Says why not, and hears the rest of the request: to close before that would take the answer back.
async fn answer(mut stream: UnixStream, refusal: &Refusal) {
    let saying = async {
        stream.write_all(&refusal.response()).await?;
        stream.shutdown().await?;
        let mut unread = [0; 4096];
        let mut heard = 0;
        while heard < GOODBYE_BYTES {
            match stream.read(&mut unread).await? {
                0 => break,
                bytes => heard += bytes,
            }
        }
        Ok::<_, std::io::Error>(())
    };
    let _ = tokio::time::timeout(GOODBYE, saying).await;
}

/// A number that tells calls apart.
fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness the numbers are all the same, and the entries still differ.
    let _ = getrandom::fill(&mut bytes);
    u64::from_be_bytes(bytes)
}
