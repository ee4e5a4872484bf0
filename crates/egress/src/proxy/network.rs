//! The network beyond the egress proxy: DNS lookups and TCP connections.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tribune_governance::gate::Admission;

use crate::net;
use crate::net::Unresolved;

/// Timeout of a connection attempt to one address.
const CONNECT: Duration = Duration::from_secs(8);

/// DNS and TCP. Tests pass their own implementation, so that nothing leaves the machine.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// Resolves a name to its addresses.
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<IpAddr>, Unresolved>;

    /// Whether an address belongs to this machine.
    fn is_own(&self, address: IpAddr) -> bool;

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// The real network of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealNetwork;

#[async_trait]
impl Network for RealNetwork {
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<IpAddr>, Unresolved> {
        net::resolve(host, port).await
    }

    fn is_own(&self, address: IpAddr) -> bool {
        net::is_own(address)
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(address).await
    }
}

/// Connects to the first checked address that answers. The admission covers this one connection.
pub(super) async fn connect(
    network: &dyn Network,
    admission: Admission,
    addresses: &[SocketAddr],
) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match tokio::time::timeout(CONNECT, network.dial(*address)).await {
            Ok(Ok(stream)) => {
                // Sends small writes at once. If setting the option fails, only latency suffers.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    tracing::debug!(entry = %admission.entry(), error = %failed, "connecting to an allowed destination failed");
    Err(failed)
}
