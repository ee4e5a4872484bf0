//! Reads the body of a response chunk by chunk, within the timeouts of the provider.

use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::endpoint::{ProviderEndpoint, RequestTimeouts};
use super::error::ProviderError;

/// The body of a response that is being received. Dropping it closes the connection.
pub(super) struct ResponseBody {
    provider: String,
    patience: RequestTimeouts,
    response: Response,
    /// Deadline of the first byte; `None` once it has arrived.
    first_byte_deadline: Option<Instant>,
    deadline: Instant,
}

impl ResponseBody {
    /// The body of the response to a request that was sent at `sent_at`.
    pub(super) fn new(endpoint: &ProviderEndpoint, response: Response, sent_at: Instant) -> Self {
        let patience = endpoint.timeouts;
        Self {
            provider: endpoint.provider.clone(),
            patience,
            response,
            first_byte_deadline: Some(sent_at + patience.first_byte),
            deadline: sent_at + patience.total,
        }
    }

    /// The next chunk, or `None` at the end. Cancel-safe.
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ProviderError> {
        let provider = || self.provider.clone();
        let until = self.first_byte_deadline.unwrap_or_else(|| Instant::now() + self.patience.idle);
        match timeout_at(until.min(self.deadline), self.response.chunk()).await {
            Ok(Ok(chunk)) => {
                if chunk.as_ref().is_some_and(|chunk| !chunk.is_empty()) {
                    self.first_byte_deadline = None;
                }
                Ok(chunk.map(Vec::from))
            }
            Ok(Err(_)) => Err(ProviderError::TruncatedStream { provider: provider() }),
            Err(_) if self.deadline < until => {
                Err(ProviderError::AnswerTimeout { provider: provider(), after: self.patience.total })
            }
            Err(_) if self.first_byte_deadline.is_some() => {
                Err(ProviderError::FirstByteTimeout { provider: provider(), after: self.patience.first_byte })
            }
            Err(_) => Err(ProviderError::IdleTimeout { provider: provider(), after: self.patience.idle }),
        }
    }
}
