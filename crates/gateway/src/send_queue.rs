//! The send queue of one connection, bounded by frames and by bytes. Beyond either bound the producer waits, so that a reader
//! that takes nothing costs a fixed amount of memory, whatever it requested.

use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Frames that can wait for a reader.
pub(super) const FRAMES: usize = 64;

/// Bytes that can wait for a reader: a page of events. A larger frame is queued alone.
const BYTES: u32 = 128 << 10;

/// A frame that can be queued.
pub(super) trait Frame {
    fn bytes(&self) -> usize;
}

impl Frame for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// The sending end. Clones share the bounds.
#[derive(Debug)]
pub(super) struct SendQueue<F> {
    byte_permits: Arc<Semaphore>,
    frames: mpsc::Sender<(F, OwnedSemaphorePermit)>,
}

/// The receiving end. Taking a frame frees its share of the bounds.
#[derive(Debug)]
pub(super) struct SendReceiver<F>(mpsc::Receiver<(F, OwnedSemaphorePermit)>);

/// Creates an empty queue.
pub(super) fn send_queue<F: Frame>() -> (SendQueue<F>, SendReceiver<F>) {
    let (frames, receiver) = mpsc::channel(FRAMES);
    (SendQueue { byte_permits: Arc::new(Semaphore::new(BYTES as usize)), frames }, SendReceiver(receiver))
}

impl<F> Clone for SendQueue<F> {
    fn clone(&self) -> Self {
        Self { byte_permits: Arc::clone(&self.byte_permits), frames: self.frames.clone() }
    }
}

impl<F: Frame> SendQueue<F> {
    /// Queues a frame as soon as the bounds allow. Returns the frame if the receiver is dropped.
    pub(super) async fn send(&self, frame: F) -> Result<(), F> {
        let Ok(permit) = Arc::clone(&self.byte_permits).acquire_many_owned(weight(&frame)).await else {
            return Err(frame);
        };
        self.frames.send((frame, permit)).await.map_err(|refused| refused.0.0)
    }

    /// Queues a frame if the bounds allow it now, and returns it otherwise. If the receiver is dropped, the frame is discarded
    /// and the result is `Ok`.
    pub(super) fn try_send(&self, frame: F) -> Result<(), F> {
        let Ok(permit) = Arc::clone(&self.byte_permits).try_acquire_many_owned(weight(&frame)) else {
            return Err(frame);
        };
        match self.frames.try_send((frame, permit)) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full((frame, _))) => Err(frame),
        }
    }
}

impl<F> SendReceiver<F> {
    /// The next frame. `None` when all senders are dropped and the queue is empty.
    pub(super) async fn recv(&mut self) -> Option<F> {
        self.0.recv().await.map(|(frame, _)| frame)
    }

    /// The next frame, if one is queued.
    pub(super) fn try_recv(&mut self) -> Option<F> {
        self.0.try_recv().ok().map(|(frame, _)| frame)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn weight(frame: &impl Frame) -> u32 {
    u32::try_from(frame.bytes()).map_or(BYTES, |bytes| bytes.min(BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(frame: &str) -> usize {
        let (queue, _receiver) = send_queue();
        (0..1_000).take_while(|_| queue.try_send(frame.to_owned()).is_ok()).count()
    }

    #[test]
    fn a_send_queue_is_full_by_frames_or_by_bytes() {
        assert_eq!(filled("x"), FRAMES);
        assert_eq!(filled(&"x".repeat(40 << 10)), 3);
    }

    #[tokio::test]
    async fn a_frame_larger_than_the_queue_waits_until_it_is_empty() {
        let (queue, mut receiver) = send_queue();
        assert_eq!(queue.send("small".to_owned()).await, Ok(()));
        let large = "x".repeat(BYTES as usize + 1);
        assert_eq!(queue.try_send(large.clone()), Err(large.clone()));
        assert_eq!(receiver.recv().await.as_deref(), Some("small"));
        assert_eq!(queue.send(large.clone()).await, Ok(()));
        assert!(queue.try_send("x".to_owned()).is_err(), "nothing fits beside it");
        assert_eq!(receiver.try_recv(), Some(large));
        assert!(receiver.is_empty());
    }

    #[tokio::test]
    async fn a_waiting_sender_learns_that_the_receiver_is_dropped() {
        let (queue, receiver) = send_queue();
        for _ in 0..FRAMES {
            assert_eq!(queue.try_send("x".to_owned()), Ok(()));
        }
        drop(receiver);
        assert_eq!(queue.send("late".to_owned()).await, Err("late".to_owned()));
    }
}
