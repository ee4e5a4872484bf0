//! Where a connection would lead: what an address is, how far the operator's word for a place reaches, and what a name means.
//! Shared by the tools that fetch and by the brokers of the boxes, so that both know the same ways back into the house.

mod address_class;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

pub use address_class::AddressClass;

/// How long a name may take to resolve.
const LOOKUP: Duration = Duration::from_secs(5);

/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Any port: nothing is sent to it.
const DISCARD: u16 = 9;

/// How far the operator's word for a place reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressScope {
    /// Wherever the place is: its address itself was written down.
    Literal,
    /// To the public internet, and into the own network.
    Inside,
    /// To the public internet.
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

/// The addresses of a name, each once.
pub async fn resolve(host: &str, port: u16) -> Result<Vec<IpAddr>, Unresolved> {
    let found = tokio::time::timeout(LOOKUP, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|_| Unresolved::Slow)?
        .map_err(|_| Unresolved::Failed)?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found {
        // A scoped address is bound to an interface; its zone is not kept, so it leads nowhere.
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    addresses.truncate(MAX_ADDRESSES);
    if addresses.is_empty() { Err(Unresolved::Empty) } else { Ok(addresses) }
}

/// Whether an address is one of this machine's own, whatever range it is from: what is sent there comes back to services that
/// listen for others. Asks the kernel which address it would send from; nothing is sent.
pub fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(address, DISCARD))?;
        socket.local_addr()
    });
    // What is sent from loopback stays here. Without a way there, there is none back either.
    source.is_ok_and(|source| source.ip() == address || source.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_its_own_addresses() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(is_own(Ipv4Addr::new(127, 3, 2, 1).into()));
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], DISCARD));
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        // A machine that is connected to something has an address there.
        if socket.connect(elsewhere).is_ok() {
            let here = socket.local_addr().unwrap().ip();
            assert!(is_own(here) && (here == elsewhere.ip() || !is_own(elsewhere.ip())), "{here}");
        }
    }

    #[test]
    fn a_word_reaches_as_far_as_it_says() {
        let all = [AddressClass::Public, AddressClass::Inside, AddressClass::Special];
        let covered = |reach: AddressScope| all.map(|place| reach.covers(place));
        assert_eq!(covered(AddressScope::Literal), [true, true, true]);
        assert_eq!(covered(AddressScope::Inside), [true, true, false]);
        assert_eq!(covered(AddressScope::Public), [true, false, false]);
    }
}
