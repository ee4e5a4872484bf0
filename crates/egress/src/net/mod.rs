//! The destination of a connection: the class of its address ([`AddressClass`]), which classes an allowlist entry covers
//! ([`AddressScope`]), and the addresses of a name ([`resolve`]). The web tools and the egress proxy share it, so that both apply
//! the same SSRF guard.

mod address_class;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

pub use address_class::AddressClass;

/// Timeout of a DNS lookup.
const LOOKUP: Duration = Duration::from_secs(5);

/// Maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// An arbitrary port: no packet is sent to it.
const DISCARD: u16 = 9;

/// Which classes of addresses a destination may resolve to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressScope {
    /// Any: the operator listed the address itself.
    Literal,
    /// Public and internal addresses.
    Inside,
    /// Public addresses.
    Public,
}

impl AddressScope {
    pub const fn covers(self, place: AddressClass) -> bool {
        match (self, place) {
            (Self::Literal, _) | (_, AddressClass::Public) => true,
            (Self::Inside, AddressClass::Inside) => true,
            (Self::Inside, AddressClass::Special) => false,
            (Self::Public, AddressClass::Inside | AddressClass::Special) => false,
        }
    }
}

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    #[error("took too long to resolve")]
    Slow,
    #[error("could not be resolved")]
    Failed,
    #[error("has no address")]
    Empty,
}

/// Resolves a name to its distinct addresses, at most `MAX_ADDRESSES`.
pub async fn resolve(host: &str, port: u16) -> Result<Vec<IpAddr>, Unresolved> {
    let found = tokio::time::timeout(LOOKUP, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|_| Unresolved::Slow)?
        .map_err(|_| Unresolved::Failed)?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found {
        // The zone of a scoped IPv6 address is dropped, so a link-local address cannot be connected to.
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    addresses.truncate(MAX_ADDRESSES);
    if addresses.is_empty() { Err(Unresolved::Empty) } else { Ok(addresses) }
}

/// Whether an address belongs to this machine, whatever range it is from. A connection to it would reach local services that
/// listen for other hosts. Connects a UDP socket to learn the source address that the kernel would choose; no packet is sent.
pub fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(address, DISCARD))?;
        socket.local_addr()
    });
    // A loopback source means that the packet would stay on this machine. Without a route there is no connection either.
    source.is_ok_and(|source| source.ip() == address || source.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_the_addresses_of_this_machine() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(is_own(Ipv4Addr::new(127, 3, 2, 1).into()));
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], DISCARD));
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // A machine with a route to the address has a source address for it.
        if socket.connect(elsewhere).is_ok() {
            let here = socket.local_addr().unwrap().ip();
            assert!(is_own(here) && (here == elsewhere.ip() || !is_own(elsewhere.ip())), "{here}");
        }
    }

    #[test]
    fn a_scope_covers_its_address_classes_only() {
        let all = [AddressClass::Public, AddressClass::Inside, AddressClass::Special];
        let covered = |reach: AddressScope| all.map(|place| reach.covers(place));
        assert_eq!(covered(AddressScope::Literal), [true, true, true]);
        assert_eq!(covered(AddressScope::Inside), [true, true, false]);
        assert_eq!(covered(AddressScope::Public), [true, false, false]);
    }
}
