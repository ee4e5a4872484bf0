//! An answer while it arrives.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::Response;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::error::ProviderError;
use super::event::ModelEvent;
use super::parser::Parser;

/// How long the rest of a body may take after the answer's end. Read to its end, the connection serves the next request.
const SETTLING: Duration = Duration::from_millis(250);

/// The events of an answer. Dropping it closes the connection.
pub struct ModelStream {
    endpoint: Endpoint,
    cancel: CancellationToken,
    /// `None` once nothing more is read.
    response: Option<Response>,
    parser: Parser,
    /// Events that have arrived and were not asked for yet.
    ready: VecDeque<ModelEvent>,
    /// Told after them.
    error: Option<ProviderError>,
    /// Until when the first byte is waited for; `None` once it has come.
    first_byte: Option<Instant>,
    end: Instant,
}

impl std::fmt::Debug for ModelStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelStream").field("provider", &self.endpoint.provider).finish_non_exhaustive()
    }
}

impl ModelStream {
    pub(super) fn new(
        endpoint: Endpoint,
        response: Response,
        parser: Parser,
        began: Instant,
        cancel: CancellationToken,
    ) -> Self {
        let first_byte = Some(began + endpoint.patience.first_byte);
        let end = began + endpoint.patience.whole;
        Self {
            endpoint,
            cancel,
            response: Some(response),
            parser,
            ready: VecDeque::new(),
            error: None,
            first_byte,
            end,
        }
    }

    /// The next event. After [`ModelEvent::Ended`] or an error there is none; an error before that means that the answer is
    /// cut. Safe to be dropped while it waits.
    pub async fn next(&mut self) -> Option<Result<ModelEvent, ProviderError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if let Some(error) = self.error.take() {
                self.response = None;
                return Some(Err(error));
            }
            self.response.as_ref()?;
            self.read().await;
        }
    }

    /// Waits for the beginning of the answer itself, so that trouble before it can still be told from trouble within.
    pub(super) async fn wait_for_output(&mut self) -> Result<(), ProviderError> {
        while self.response.is_some() && self.error.is_none() && !self.ready.iter().any(ModelEvent::is_output)
        {
            self.read().await;
        }
        match self.error.take() {
            Some(error) if !self.ready.iter().any(ModelEvent::is_output) => Err(error),
            error => {
                self.error = error;
                Ok(())
            }
        }
    }

    /// Reads a piece of the body.
    async fn read(&mut self) {
        let chunk = match self.chunk().await {
            Ok(chunk) => chunk,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        let mut events = Vec::new();
        let result = match &chunk {
            Some(chunk) if chunk.is_empty() => Ok(()),
            Some(chunk) => {
                self.first_byte = None;
                self.parser.push(chunk, &mut events)
            }
            None => self.parser.finish(&mut events),
        };
        let has_ended = matches!(events.last(), Some(ModelEvent::Ended(_)));
        self.ready.extend(events);
        if let Err(fault) = result {
            self.error = Some(ProviderError::of_fault(&self.endpoint, fault));
        }
        if chunk.is_none() {
            self.response = None;
        } else if has_ended && let Some(response) = self.response.take() {
            settle(response).await;
        }
    }

    /// A piece of the body, or `None` at its end.
    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ProviderError> {
        let provider = || self.endpoint.provider.clone();
        let patience = self.endpoint.patience;
        let Some(response) = &mut self.response else { return Ok(None) };
        let until = self.first_byte.unwrap_or_else(|| Instant::now() + patience.idle);
        let chunk = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(ProviderError::Cancelled { provider: provider() }),
            chunk = timeout_at(until.min(self.end), response.chunk()) => chunk,
        };
        match chunk {
            Ok(Ok(chunk)) => Ok(chunk.map(Vec::from)),
            Ok(Err(_)) => Err(ProviderError::CutStream { provider: provider() }),
            Err(_) if self.end < until => {
                Err(ProviderError::AnswerTimeout { provider: provider(), after: patience.whole })
            }
            Err(_) if self.first_byte.is_some() => {
                Err(ProviderError::FirstByteTimeout { provider: provider(), after: patience.first_byte })
            }
            Err(_) => Err(ProviderError::IdleTimeout { provider: provider(), after: patience.idle }),
        }
    }
}

/// Reads what is behind the end, which is nothing or the mark of the body's end.
async fn settle(mut response: Response) {
    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
    // A server that has more to say is hung up on.
    let _ = timeout(SETTLING, rest).await;
}
