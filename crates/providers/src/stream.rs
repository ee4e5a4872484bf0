//! An answer while it arrives.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::body::Body;
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
    body: Option<Body>,
    parser: Parser,
    /// Events that have arrived and were not asked for yet.
    ready: VecDeque<ModelEvent>,
    /// Told after them.
    error: Option<ProviderError>,
}

impl std::fmt::Debug for ModelStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelStream").field("provider", &self.endpoint.provider).finish_non_exhaustive()
    }
}

impl ModelStream {
    pub(super) fn new(endpoint: Endpoint, body: Body, parser: Parser, cancel: CancellationToken) -> Self {
        Self { endpoint, cancel, body: Some(body), parser, ready: VecDeque::new(), error: None }
    }

    /// The next event. After [`ModelEvent::Ended`] or an error there is none; an error before that means that the answer is
    /// cut. Safe to be dropped while it waits.
    pub async fn next(&mut self) -> Option<Result<ModelEvent, ProviderError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if let Some(error) = self.error.take() {
                self.body = None;
                return Some(Err(error));
            }
            self.body.as_ref()?;
            self.read().await;
        }
    }

    /// Waits for the beginning of the answer itself, so that trouble before it can still be told from trouble within.
    pub(super) async fn wait_for_output(&mut self) -> Result<(), ProviderError> {
        while self.body.is_some() && self.error.is_none() && !self.ready.iter().any(ModelEvent::is_output) {
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
            Some(chunk) => self.parser.push(chunk, &mut events),
            None => self.parser.finish(&mut events),
        };
        let has_ended = matches!(events.last(), Some(ModelEvent::Ended(_)));
        self.ready.extend(events);
        if let Err(fault) = result {
            self.error = Some(ProviderError::of_fault(&self.endpoint, fault));
        }
        if chunk.is_none() {
            self.body = None;
        } else if has_ended && let Some(body) = self.body.take() {
            settle(body).await;
        }
    }

    /// A piece of the body, or `None` at its end.
    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ProviderError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                Err(ProviderError::Cancelled { provider: self.endpoint.provider.clone() })
            }
            chunk = body.chunk() => chunk,
        }
    }
}

/// Reads what is behind the end, which is nothing or the mark of the body's end.
async fn settle(mut body: Body) {
    let rest = async { while let Ok(Some(_)) = body.chunk().await {} };
    // A server that has more to say is hung up on.
    let _ = timeout(SETTLING, rest).await;
}
