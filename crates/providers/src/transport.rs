//! Classifies connection errors by the causes inside the HTTP library's error.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::endpoint::ProviderEndpoint;
use super::error::ProviderError;

/// Resolves names like the default resolver, but with an error type that can be recognised.
#[derive(Debug)]
pub(super) struct Resolver;

/// A host name could not be resolved.
#[derive(Debug, thiserror::Error)]
#[error("the host name could not be resolved")]
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

/// Converts the error of a request. The error itself is never shown: it may contain a URL with credentials.
pub(super) fn classify(endpoint: &ProviderEndpoint, error: &reqwest::Error) -> ProviderError {
    let provider = endpoint.provider.clone();
    let host = endpoint.base_url.host();
    if !error.is_connect() {
        return ProviderError::ConnectionLost { provider };
    }
    if error.is_timeout() {
        return ProviderError::ConnectTimeout { provider, host, after: endpoint.timeouts.connect };
    }
    if cause::<LookupFailed>(error).is_some() {
        return ProviderError::DnsFailed { provider, host };
    }
    let kind = cause::<io::Error>(error).map(kind_within);
    match kind {
        // A TLS error is reported as invalid data, and an aborted handshake as an unexpected end.
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
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => "unreachable",
        _ => "no connection",
    }
}

/// The kind of the innermost `io::Error`. Nested ones are not reachable through `source`.
fn kind_within(mut error: &io::Error) -> io::ErrorKind {
    while let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>()) {
        error = inner;
    }
    error.kind()
}

/// The innermost cause of type `E`.
fn cause<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    let mut found = None;
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        found = error.downcast_ref::<E>().or(found);
        next = error.source();
    }
    found
}
