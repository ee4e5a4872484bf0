//! Why a request did not get through, found out from the causes of the HTTP library's error.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::endpoint::Endpoint;
use super::error::ProviderError;

/// Looks names up like everyone, but can be told apart when it fails.
#[derive(Debug)]
pub(super) struct Resolver;

/// A name could not be looked up.
#[derive(Debug, thiserror::Error)]
#[error("the name could not be looked up")]
struct LookupFailed;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(|_| LookupFailed)?;
            let addresses: Vec<SocketAddr> = found.collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// What the error of a request means. The error itself is never shown: it may hold an address with more in it.
pub(super) fn explain(endpoint: &Endpoint, error: &reqwest::Error) -> ProviderError {
    let provider = endpoint.provider.clone();
    let host = endpoint.base_url.host();
    if !error.is_connect() {
        return ProviderError::ConnectionLost { provider };
    }
    if error.is_timeout() {
        return ProviderError::ConnectTimeout { provider, host, after: endpoint.patience.connect };
    }
    if cause::<LookupFailed>(error).is_some() {
        return ProviderError::DnsFailed { provider, host };
    }
    let kind = cause::<io::Error>(error).map(kind_within);
    match kind {
        // What TLS finds wrong arrives as bad data, and a handshake that is cut as an early end.
        Some(io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) if endpoint.base_url.is_https() => {
            ProviderError::TlsFailed { provider, host }
        }
        _ => ProviderError::ConnectFailed { provider, host, why: why(kind) },
    }
}

const fn why(kind: Option<io::ErrorKind>) -> &'static str {
    match kind {
        Some(io::ErrorKind::ConnectionRefused) => "refused",
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted) => "reset",
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => "no way there",
        _ => "no connection",
    }
}

/// The kind of an error that may be wrapped in others of its type, which do not name it as their cause.
fn kind_within(mut error: &io::Error) -> io::ErrorKind {
    while let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>()) {
        error = inner;
    }
    error.kind()
}

/// The innermost cause of a type.
fn cause<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    let mut found = None;
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        found = error.downcast_ref::<E>().or(found);
        next = error.source();
    }
    found
}
