//! Subscriptions to a session's events: a position in the event log, and reading on from there.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tribune_governance::event_buffer::Head;
use tribune_runtime::{SessionKey, SessionState};
use tribune_storage::vault::{ReadLimit, StoredEvent, Vault};

use super::SessionManager;
use super::actor::{Accepted, QueueClaim, Session, TurnEnd};
use super::error::SessionError;

/// Bytes of events per read, which bounds the memory of a slow subscriber. A larger event is read alone.
const PAGE_BYTES: usize = 128 << 10;

/// The handle of a queued turn.
#[derive(Debug)]
pub struct TurnHandle {
    pub(super) in_line: Arc<QueueClaim>,
    pub(super) accepted: oneshot::Receiver<Result<Accepted, SessionError>>,
    pub(super) ended: oneshot::Receiver<Result<TurnEnd, SessionError>>,
    /// Subscribed before the turn begins, so that its events stay in memory for the caller.
    pub(super) follower: Option<Subscription>,
}

impl TurnHandle {
    /// Waits until the input is durable and the turn runs.
    pub async fn accepted(&mut self) -> Result<Accepted, SessionError> {
        (&mut self.accepted).await.unwrap_or(Err(SessionError::Draining))
    }

    /// Withdraws the turn; `false` if it has begun. A turn that is neither withdrawn nor awaited still runs.
    pub fn withdraw(&self) -> bool {
        self.in_line.take()
    }

    /// A subscription that begins at the turn's first event.
    pub fn events(&mut self, accepted: &Accepted) -> Option<Subscription> {
        let mut follower = self.follower.take()?;
        follower.after = accepted.first_seq - 1;
        Some(follower)
    }

    /// The session that runs the turn.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.follower.as_ref()?.session()
    }

    /// Waits for the end of the turn.
    pub async fn ended(self) -> Result<TurnEnd, SessionError> {
        self.ended.await.unwrap_or(Err(SessionError::Draining))
    }
}

/// A subscriber's position in a session's events.
#[derive(Debug)]
pub struct Subscription {
    pub(super) vault: Arc<Vault>,
    pub(super) session_id: Arc<str>,
    pub(super) session: Option<Arc<Session>>,
    pub(super) head: Option<watch::Receiver<Head>>,
    /// The newest event of a session that was closed when the subscription began.
    pub(super) left: u64,
    pub(super) after: u64,
}

impl SessionManager {
    /// Subscribes to a session's events after `after`; without it, from the oldest that is kept.
    pub async fn subscribe(
        &self,
        key: &SessionKey,
        after: Option<u64>,
    ) -> Result<Subscription, SessionError> {
        let vault = Arc::clone(self.vault());
        let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
        let session = match row.state {
            SessionState::Closed => self.loaded(key),
            SessionState::Idle | SessionState::Running | SessionState::Cancelled => {
                match self.session(key).await {
                    Ok(session) => Some(session),
                    // Nothing can be recorded any more; what was recorded until then can be read.
                    Err(SessionError::Store(_) | SessionError::Runtime(_)) if self.failure().is_some() => {
                        None
                    }
                    // It was closed in between, or its backend or mandate is gone; its stored events can still be read.
                    Err(error) if matches!(error, SessionError::Closed(_)) || error.is_unserved() => None,
                    Err(error) => return Err(error),
                }
            }
        };
        // Subscribe before reading the head, so that no event in between is missed.
        let head_now = session.as_ref().map(|session| session.feed.follow());
        let head = match &head_now {
            Some(head) => head.borrow().seq,
            None => self.newest_at_rest(key).await?,
        };
        if let Some(after) = after.filter(|after| *after > head) {
            return Err(SessionError::Ahead { after, head });
        }
        let (reading, id) = (Arc::clone(&vault), row.id.clone());
        let range =
            tokio::task::spawn_blocking(move || reading.events(&id, head, ReadLimit::events(1))).await;
        let oldest = range.map_err(|_| SessionError::Draining)??.oldest;
        let after = after.unwrap_or(oldest - 1);
        if after + 1 < oldest {
            return Err(SessionError::Expired { oldest });
        }
        Ok(Subscription { vault, session_id: row.id.into(), session, head: head_now, left: head, after })
    }
}

impl Subscription {
    /// The subscribed session, if it is loaded.
    pub const fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// The sequence number after which the next events are read.
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// Returns at most `limit` events, fewer if they are large. Waits for the first one; an empty list means that the stream has
    /// ended. Fails at its end if the stream ended before its turn did.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<StoredEvent>, SessionError> {
        loop {
            // A closed session has no event buffer: its stored events are all.
            let head = match &mut self.head {
                Some(head) => *head.borrow_and_update(),
                None => Head { seq: self.left, is_over: true },
            };
            if self.after < head.seq {
                let mut events = self.read(ReadLimit { events: limit, bytes: PAGE_BYTES }).await?;
                // The vault can be ahead of the ledger. After a crash, events beyond the published head may be discarded.
                events.retain(|event| event.seq <= head.seq);
                if let Some(last) = events.last() {
                    self.after = last.seq;
                    return Ok(events);
                }
            }
            let more = match &mut self.head {
                Some(feed) if !head.is_over => feed.changed().await.is_ok(),
                _ => false,
            };
            if !more {
                let failure = self.session.as_ref().and_then(|session| session.failure());
                return failure.map_or(Ok(Vec::new()), Err);
            }
        }
    }

    async fn read(&self, most: ReadLimit) -> Result<Vec<StoredEvent>, SessionError> {
        if let Some(recent) = self.session.as_ref().and_then(|session| session.feed.recent(self.after, most))
        {
            return Ok(recent);
        }
        let (vault, session_id, after) = (Arc::clone(&self.vault), Arc::clone(&self.session_id), self.after);
        let read = tokio::task::spawn_blocking(move || vault.events(&session_id, after, most)).await;
        let range = read.map_err(|_| SessionError::Draining)??;
        if self.after + 1 < range.oldest {
            return Err(SessionError::Expired { oldest: range.oldest });
        }
        Ok(range.events)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.head = None;
        if let Some(session) = &self.session
            && !session.is_running()
        {
            session.feed.clear();
        }
    }
}
