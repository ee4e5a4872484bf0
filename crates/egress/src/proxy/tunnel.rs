//! A CONNECT tunnel. It copies bytes in both directions, after the TLS ClientHello has named the host of the CONNECT request.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::denial::Refusal;
use super::tls_client_hello::{Hello, UNRECOGNIZED_NAME};
use super::transfer_limits::Metered;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";

/// What a tunnel must begin with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Opening<'a> {
    /// TLS with this server name; without one where the host is an address.
    Tls(Option<&'a str>),
    Anything,
}

/// Why a tunnel ended early.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client sent something that is not allowed. It was not forwarded.
    Refused(Refusal),
    /// One side disconnected.
    Off,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "a connection from a sandbox was interrupted");
        Self::Off
    }
}

/// Rejects bytes that arrive before the response to CONNECT. Also fails if the client has disconnected.
pub(super) fn nothing_early(client: &UnixStream) -> Result<(), Broken> {
    match client.try_read(&mut [0]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        Ok(_) => Err(Broken::Refused(Refusal::EARLY_BYTES)),
        Err(error) => Err(error.into()),
    }
}

/// Answers CONNECT and copies bytes until both sides are done.
pub(super) async fn run(
    client: &mut UnixStream,
    upstream: &mut Metered<TcpStream>,
    opening: Opening<'_>,
    limit: Duration,
) -> Result<(), Broken> {
    client.write_all(ESTABLISHED).await?;
    if let Opening::Tls(name) = opening {
        let hello = tokio::time::timeout(limit, read_client_hello(client, name));
        match hello.await.map_err(|_| refused("the TLS ClientHello did not arrive in time: try again"))? {
            Ok(bytes) => upstream.write_all(&bytes).await?,
            Err(broken) => {
                // TLS clients report this alert as an unrecognized name.
                let _ = client.write_all(&UNRECOGNIZED_NAME).await;
                return Err(broken);
            }
        }
    }
    tokio::io::copy_bidirectional(client, upstream).await?;
    Ok(())
}

/// Reads a ClientHello with the expected server name and returns its bytes.
async fn read_client_hello(client: &mut UnixStream, name: Option<&str>) -> Result<Vec<u8>, Broken> {
    let mut bytes = Vec::new();
    loop {
        match Hello::read(&bytes) {
            Hello::Unfinished => {}
            Hello::Other => {
                return Err(refused("this tunnel accepts TLS only: use https"));
            }
            Hello::Client(said) => {
                let fits = match (name, &said) {
                    (Some(name), Some(said)) => said.eq_ignore_ascii_case(name),
                    (Some(_), None) => false,
                    (None, said) => said.is_none(),
                };
                let what = "the TLS server name differs from the host of the CONNECT request: use the same host in both";
                return if fits { Ok(bytes) } else { Err(refused(what)) };
            }
        }
        if client.read_buf(&mut bytes).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

fn refused(what: &'static str) -> Broken {
    Broken::Refused(Refusal::denied("wrong_tls", what))
}
