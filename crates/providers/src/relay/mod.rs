//! Someone else's request, sent with this provider's key, and the answer to it as it comes.
//!
//! What may be asked, and by whom, is the caller's to know; so is which headers go up and which come back. Here the key is put
//! in, the provider is waited for as long as [`Patience`](super::Patience) says, and the key is kept out of what comes back
//! ([`mask_key`], [`mask_key_deltas`]). Nothing is sent twice: whoever asked knows best whether to ask again.

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

use super::body::Body;
use super::client::Client;
use super::error::ProviderError;

pub use mask_key::Veil;
pub use mask_key_deltas::Deltas;
pub use strip_usage::UnaskedUsage;
pub use token_counter::{Ending, Tallied, Tally};
pub use wire::Wire;

/// A request as it is to go up, but for the key.
#[derive(Debug, Clone)]
pub struct Relay {
    pub method: Method,
    /// Behind the provider's base, without a slash in front.
    pub path: String,
    pub query: Option<String>,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A request that is ready to be sent. Nothing has left yet.
pub struct Outbound {
    client: Client,
    request: RequestBuilder,
}

/// An answer whose head has come.
pub struct Relayed {
    pub status: u16,
    pub headers: HeaderMap,
    body: Body,
}

impl std::fmt::Debug for Outbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outbound({})", self.client.endpoint().provider)
    }
}

impl std::fmt::Debug for Relayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relayed").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Client {
    /// Makes a request ready. Refused if the key that it needs is not there.
    pub fn relay(&self, relay: Relay) -> Result<Outbound, ProviderError> {
        let Relay { method, path, query, mut headers, body } = relay;
        for (name, value) in self.headers()? {
            let Some(name) = name else { continue };
            // Which version of the API is meant is the asker's to say; who asks is not.
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
        Ok(Outbound { client: self.clone(), request })
    }

    /// Keeps this provider's key out of what it sends back.
    pub fn veil(&self) -> Veil {
        Veil::new(self.endpoint().key.as_ref())
    }

    /// The same for the texts of a stream, which come in pieces.
    pub fn deltas(&self) -> Deltas {
        Deltas::new(self.endpoint().key.as_ref())
    }
}

impl Outbound {
    /// Sends it, and comes back when the head of the answer is there, whatever its status.
    pub async fn send(self) -> Result<Relayed, ProviderError> {
        let Self { client, request } = self;
        let endpoint = client.endpoint();
        let began = Instant::now();
        let head = timeout_at(began + endpoint.patience.first_byte, client.head(Box::pin(request.send())));
        let response = head.await.unwrap_or_else(|_| {
            let after = endpoint.patience.first_byte;
            Err(ProviderError::FirstByteTimeout { provider: endpoint.provider.clone(), after })
        })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(Relayed { status, headers, body: Body::new(endpoint, response, began) })
    }
}

impl Relayed {
    /// The next piece of the body, or `None` at its end. Safe to be dropped while it waits.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ProviderError> {
        self.body.chunk().await
    }
}
