//! What waits for one reader: so many frames and so many bytes. Beyond them whoever makes more waits, so that a reader who takes
//! nothing costs the same whatever it asked for.

use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Frames waiting for a reader.
pub(super) const FRAMES: usize = 64;

/// Bytes waiting for a reader: a page of events. A frame that is larger waits alone.
const BYTES: u32 = 128 << 10;

/// What is sent to a reader.
pub(super) trait Frame {
    fn bytes(&self) -> usize;
}

impl Frame for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// The end where frames are put. Clones share the room.
#[derive(Debug)]
pub(super) struct SendQueue<F> {
    room: Arc<Semaphore>,
    frames: mpsc::Sender<(F, OwnedSemaphorePermit)>,
}

/// The end where they are taken, which makes room.
#[derive(Debug)]
pub(super) struct SendReceiver<F>(mpsc::Receiver<(F, OwnedSemaphorePermit)>);

/// An empty outbox.
pub(super) fn send_queue<F: Frame>() -> (SendQueue<F>, SendReceiver<F>) {
    let (frames, waiting) = mpsc::channel(FRAMES);
    (SendQueue { room: Arc::new(Semaphore::new(BYTES as usize)), frames }, SendReceiver(waiting))
}

impl<F> Clone for SendQueue<F> {
    fn clone(&self) -> Self {
        Self { room: Arc::clone(&self.room), frames: self.frames.clone() }
    }
}

impl<F: Frame> SendQueue<F> {
    /// Puts a frame behind the others, as soon as there is room. It comes back if the reader is gone.
    pub(super) async fn send(&self, frame: F) -> Result<(), F> {
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(weight(&frame)).await else {
            return Err(frame);
        };
        self.frames.send((frame, room)).await.map_err(|refused| refused.0.0)
    }

    /// Puts a frame behind the others if there is room now. It comes back if there is none; one that nobody will take is gone.
    pub(super) fn try_send(&self, frame: F) -> Result<(), F> {
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(weight(&frame)) else {
            return Err(frame);
        };
        match self.frames.try_send((frame, room)) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full((frame, _))) => Err(frame),
        }
    }
}

impl<F> SendReceiver<F> {
    /// The next frame. None if there will be none.
    pub(super) async fn recv(&mut self) -> Option<F> {
        self.0.recv().await.map(|(frame, _)| frame)
    }

    /// The next frame, if one waits.
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
        let (outbox, _waiting) = send_queue();
        (0..1_000).take_while(|_| outbox.try_send(frame.to_owned()).is_ok()).count()
    }

    #[test]
    fn an_outbox_is_full_by_frames_or_by_bytes() {
        assert_eq!(filled("x"), FRAMES);
        assert_eq!(filled(&"x".repeat(40 << 10)), 3);
    }

    #[tokio::test]
    async fn a_frame_larger_than_the_outbox_waits_for_an_empty_one() {
        let (outbox, mut waiting) = send_queue();
        assert_eq!(outbox.send("small".to_owned()).await, Ok(()));
        let large = "x".repeat(BYTES as usize + 1);
        assert_eq!(outbox.try_send(large.clone()), Err(large.clone()));
        assert_eq!(waiting.recv().await.as_deref(), Some("small"));
        assert_eq!(outbox.send(large.clone()).await, Ok(()));
        assert!(outbox.try_send("x".to_owned()).is_err(), "nothing fits beside it");
        assert_eq!(waiting.try_recv(), Some(large));
        assert!(waiting.is_empty());
    }

    #[tokio::test]
    async fn whoever_waits_for_room_learns_that_the_reader_is_gone() {
        let (outbox, waiting) = send_queue();
        for _ in 0..FRAMES {
            assert_eq!(outbox.try_send("x".to_owned()), Ok(()));
        }
        drop(waiting);
        assert_eq!(outbox.send("late".to_owned()).await, Err("late".to_owned()));
    }
}
