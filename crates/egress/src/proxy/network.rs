//! The world beyond the brokers: what a name means there, and a connection to it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tribune_governance::gate::Admission;

use crate::net;
use crate::net::Unresolved;

/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(8);

/// Names and connections. Tests bring their own, so that nothing leaves the machine.
#[async_trait]
pub trait Network: fmt::Debug + Send + Sync {
    /// The addresses of a name.
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<IpAddr>, Unresolved>;

    /// Whether an address is this machine's own.
    fn is_own(&self, address: IpAddr) -> bool;

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

/// The network that the machine is in.
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

/// Connects to the first of the checked addresses that answers. The admission is for this one connection.
pub(super) async fn connect(
    network: &dyn Network,
    admission: Admission,
    addresses: &[SocketAddr],
) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match tokio::time::timeout(CONNECT, network.dial(*address)).await {
            Ok(Ok(stream)) => {
                // Small pieces go out at once; a failure to say so changes nothing but speed.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failed = error,
            Err(_) => failed = io::ErrorKind::TimedOut.into(),
        }
    }
    tracing::debug!(entry = %admission.entry(), error = %failed, "an allowed connection could not be made");
    Err(failed)
}
