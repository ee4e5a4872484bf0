//! Relays the request of a client to a provider with the provider's key, and streams the response back.
//!
//! This module adds the key, applies the timeouts of [`RequestTimeouts`](super::RequestTimeouts), and masks the key in the response
//! ([`mask_key`], [`mask_key_deltas`]). It does not authorize requests and does not filter headers: that is the caller's. It never
//! retries, because the client decides that.

mod frames;
pub mod mask_key;
pub mod mask_key_deltas;
pub mod strip_usage;
pub mod token_counter;
mod usage_observer;
pub mod wire;

use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use tokio::time::{Instant, timeout_at};

use super::body::ResponseBody;
use super::client::ProviderClient;
use super::error::ProviderError;

pub use mask_key::KeyMask;
pub use mask_key_deltas::DeltaKeyMask;
pub use strip_usage::UsageStripper;
pub use token_counter::{CountedUsage, ResponseEnd, TokenCounter};
pub use wire::ApiFormat;

/// A request to relay, without the key.
#[derive(Debug, Clone)]
pub struct RelayRequest {
    pub method: Method,
    /// Relative to the provider's base URL, without a leading slash.
    pub path: String,
    pub query: Option<String>,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A request that is ready to be sent. Nothing has been sent yet.
pub struct PreparedRelay {
    client: ProviderClient,
    request: RequestBuilder,
}

/// A response whose head has arrived.
pub struct RelayResponse {
    pub status: u16,
    pub headers: HeaderMap,
    body: ResponseBody,
}

impl std::fmt::Debug for PreparedRelay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbound({})", self.client.endpoint().provider)
    }
}

impl std::fmt::Debug for RelayResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relayed").field("status", &self.status).finish_non_exhaustive()
    }
}

impl ProviderClient {
    /// Prepares a request. Fails if the provider requires a key and it is missing.
    pub fn relay(&self, relay: RelayRequest) -> Result<PreparedRelay, ProviderError> {
        let RelayRequest { method, path, query, mut headers, body } = relay;
        for (name, value) in self.headers()? {
            let Some(name) = name else { continue };
            // The client may choose the API version, but not the credentials.
            if name.as_str() != "anthropic-version" || !headers.contains_key(&name) {
                headers.insert(name, value);
            }
        }
        let mut url = self.endpoint().base_url.join(&path);
        url.set_query(query.as_deref());
        let mut request = self.request(method.clone(), url)?.headers(headers);
        if method != Method::GET {
            request = request.body(body);
        }
        Ok(PreparedRelay { client: self.clone(), request })
    }

    /// Masks this provider's key in the bytes of a response.
    pub fn veil(&self) -> KeyMask {
        KeyMask::new(self.endpoint().key.as_ref())
    }

    /// Masks this provider's key in the texts of an event stream, where it may be split between events.
    pub fn deltas(&self) -> DeltaKeyMask {
        DeltaKeyMask::new(self.endpoint().key.as_ref())
    }
}

impl PreparedRelay {
    /// Sends the request and returns when the response head has arrived, whatever its status.
    pub async fn send(self) -> Result<RelayResponse, ProviderError> {
        let Self { client, request } = self;
        let endpoint = client.endpoint();
        let sent_at = Instant::now();
        let head = timeout_at(sent_at + endpoint.timeouts.first_byte, client.head(Box::pin(request.send())));
        let response = head.await.unwrap_or_else(|_| {
            let after = endpoint.timeouts.first_byte;
            Err(ProviderError::FirstByteTimeout { provider: endpoint.provider.clone(), after })
        })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(RelayResponse { status, headers, body: ResponseBody::new(endpoint, response, sent_at) })
    }
}

impl RelayResponse {
    /// The next chunk of the body, or `None` at its end. Cancel-safe.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ProviderError> {
        self.body.chunk().await
    }
}
