//! A streamed response as a sequence of events.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::body::ResponseBody;
use super::endpoint::ProviderEndpoint;
use super::error::ProviderError;
use super::event::ModelEvent;
use super::parser::StreamParser;

/// Time limit for reading the rest of the body after the last event. A connection whose body was read to the end is
/// reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// The events of a response. Dropping it closes the connection.
pub struct ModelStream {
    endpoint: ProviderEndpoint,
    cancel: CancellationToken,
    /// `None` once reading has ended.
    body: Option<ResponseBody>,
    parser: StreamParser,
    /// Events that have arrived and were not returned yet.
    ready: VecDeque<ModelEvent>,
    /// Returned after the events in `ready`.
    error: Option<ProviderError>,
}

impl std::fmt::Debug for ModelStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelStream").field("provider", &self.endpoint.provider).finish_non_exhaustive()
    }
}

impl ModelStream {
    pub(super) fn new(
        endpoint: ProviderEndpoint,
        body: ResponseBody,
        parser: StreamParser,
        cancel: CancellationToken,
    ) -> Self {
        Self { endpoint, cancel, body: Some(body), parser, ready: VecDeque::new(), error: None }
    }

    /// The next event. `None` after [`ModelEvent::Finished`] or an error; an error means that the response is incomplete.
    /// Cancel-safe.
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

    /// Waits for the first output. Returns an error that occurs before it, which may be retried; a later error is
    /// stored for [`next`](Self::next).
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

    /// Reads and parses one chunk of the body.
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
        let has_ended = matches!(events.last(), Some(ModelEvent::Finished(_)));
        self.ready.extend(events);
        if let Err(error) = result {
            self.error = Some(ProviderError::from_decode_error(&self.endpoint, error));
        }
        if chunk.is_none() {
            self.body = None;
        } else if has_ended && let Some(body) = self.body.take() {
            drain(body).await;
        }
    }

    /// One chunk of the body, or `None` at its end.
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

/// Reads the rest of the body after the last event, which is normally only the end marker of the transfer encoding.
async fn drain(mut body: ResponseBody) {
    let rest = async { while let Ok(Some(_)) = body.chunk().await {} };
    // After the timeout the connection is closed.
    let _ = timeout(DRAIN_TIMEOUT, rest).await;
}
