//! The body of an answer, piece by piece, within the provider's patience.

use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::endpoint::{Endpoint, Patience};
use super::error::ProviderError;

/// A body on its way. Dropping it closes the connection.
pub(super) struct Body {
    provider: String,
    patience: Patience,
    response: Response,
    /// Until when the first byte is waited for; `None` once it has come.
    first_byte: Option<Instant>,
    end: Instant,
}

impl Body {
    /// The body of an answer to what was asked at `began`.
    pub(super) fn new(endpoint: &Endpoint, response: Response, began: Instant) -> Self {
        let patience = endpoint.patience;
        Self {
            provider: endpoint.provider.clone(),
            patience,
            response,
            first_byte: Some(began + patience.first_byte),
            end: began + patience.whole,
        }
    }

    /// The next piece, or `None` at the end. Safe to be dropped while it waits.
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ProviderError> {
        let provider = || self.provider.clone();
        let until = self.first_byte.unwrap_or_else(|| Instant::now() + self.patience.idle);
        match timeout_at(until.min(self.end), self.response.chunk()).await {
            Ok(Ok(chunk)) => {
                if chunk.as_ref().is_some_and(|chunk| !chunk.is_empty()) {
                    self.first_byte = None;
                }
                Ok(chunk.map(Vec::from))
            }
            Ok(Err(_)) => Err(ProviderError::CutStream { provider: provider() }),
            Err(_) if self.end < until => {
                Err(ProviderError::AnswerTimeout { provider: provider(), after: self.patience.whole })
            }
            Err(_) if self.first_byte.is_some() => {
                Err(ProviderError::FirstByteTimeout { provider: provider(), after: self.patience.first_byte })
            }
            Err(_) => Err(ProviderError::IdleTimeout { provider: provider(), after: self.patience.idle }),
        }
    }
}
