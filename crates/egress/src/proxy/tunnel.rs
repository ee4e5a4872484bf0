//! A tunnel: bytes in both directions, after TLS has said that it is for the host that the tunnel was asked for.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::denial::Refusal;
use super::tls_client_hello::{Hello, UNRECOGNIZED_NAME};
use super::transfer_limits::Metered;

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";

/// What must stand at the beginning of a tunnel.
#[derive(Debug, Clone, Copy)]
pub(super) enum Opening<'a> {
    /// TLS for this name; for none where the host is an address.
    Tls(Option<&'a str>),
    Anything,
}

/// Why a tunnel ended before its time.
#[derive(Debug)]
pub(super) enum Broken {
    /// Something that must not be: it went no further than here.
    Refused(Refusal),
    /// One side went away.
    Off,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        tracing::debug!(%error, "a connection out of a box broke off");
        Self::Off
    }
}

/// Refuses what came before the answer to CONNECT. None is left to wait for if the other side is gone.
pub(super) fn nothing_early(client: &UnixStream) -> Result<(), Broken> {
    match client.try_read(&mut [0]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        Ok(_) => Err(Broken::Refused(Refusal::EARLY_BYTES)),
        Err(error) => Err(error.into()),
    }
}

/// Answers CONNECT and carries bytes until both sides have said everything.
pub(super) async fn run(
    client: &mut UnixStream,
    upstream: &mut Metered<TcpStream>,
    opening: Opening<'_>,
    patience: Duration,
) -> Result<(), Broken> {
    client.write_all(ESTABLISHED).await?;
    if let Opening::Tls(name) = opening {
        let hello = tokio::time::timeout(patience, first_words(client, name));
        match hello.await.map_err(|_| refused("the first words of TLS did not come in time: try again"))? {
            Ok(bytes) => upstream.write_all(&bytes).await?,
            Err(broken) => {
                // Clients show this as it is: the name was not recognized.
                let _ = client.write_all(&UNRECOGNIZED_NAME).await;
                return Err(broken);
            }
        }
    }
    tokio::io::copy_bidirectional(client, upstream).await?;
    Ok(())
}

/// The bytes up to the end of a ClientHello that is for the right name.
async fn first_words(client: &mut UnixStream, name: Option<&str>) -> Result<Vec<u8>, Broken> {
    let mut bytes = Vec::new();
    loop {
        match Hello::read(&bytes) {
            Hello::Unfinished => {}
            Hello::Other => {
                return Err(refused("this tunnel is for TLS, and what came is something else: use https"));
            }
            Hello::Client(said) => {
                let fits = match (name, &said) {
                    (Some(name), Some(said)) => said.eq_ignore_ascii_case(name),
                    (Some(_), None) => false,
                    (None, said) => said.is_none(),
                };
                let what = "TLS asks for another host than the tunnel was made for: ask for the same in both";
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
