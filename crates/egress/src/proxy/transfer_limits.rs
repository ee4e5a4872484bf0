//! Counts and limits the bytes of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The byte counters of a connection.
#[derive(Debug)]
pub(super) struct Gauge {
    /// Bytes to the server.
    sent: AtomicU64,
    received: AtomicU64,
    /// Maximum of both counters together.
    limit: u64,
}

impl Gauge {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { sent: AtomicU64::new(0), received: AtomicU64::new(0), limit })
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn total(&self) -> u64 {
        self.sent().saturating_add(self.received())
    }

    pub(super) fn is_full(&self) -> bool {
        self.total() >= self.limit
    }

    /// The number of bytes that may still pass; an error if there are none left, which ends the connection.
    fn room(&self) -> io::Result<usize> {
        match self.limit.saturating_sub(self.total()) {
            0 => Err(io::ErrorKind::QuotaExceeded.into()),
            room => Ok(usize::try_from(room).unwrap_or(usize::MAX)),
        }
    }

    /// Waits until no byte has passed for at least `period`, and returns before twice that time.
    pub(super) async fn idle(&self, period: Duration) {
        loop {
            let before = self.total();
            tokio::time::sleep(period).await;
            if self.total() == before {
                return;
            }
        }
    }
}

/// A stream whose bytes a [`Gauge`] counts.
#[derive(Debug)]
pub(super) struct Metered<S> {
    pub(super) stream: S,
    pub(super) gauge: Arc<Gauge>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.gauge.room()?;
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.gauge.received.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let room = self.gauge.room()?.min(bytes.len());
        let polled = Pin::new(&mut self.stream).poll_write(cx, &bytes[..room]);
        if let Poll::Ready(Ok(written)) = &polled {
            self.gauge.sent.fetch_add(*written as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
