//! Following a session: where someone stands in its events, and how to go on from there.

use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tribune_governance::event_buffer::Head;
use tribune_runtime::{SessionKey, SessionState};
use tribune_storage::vault::{ReadLimit, StoredEvent, Vault};

use super::SessionManager;
use super::actor::{Accepted, QueueClaim, Session, TurnEnd};
use super::error::SessionError;

/// Bytes of events that are read in one go, so that whoever does not take them costs no more. An event that is larger is read alone.
const PAGE_BYTES: usize = 128 << 10;

/// A turn that was asked for.
#[derive(Debug)]
pub struct TurnHandle {
    pub(super) in_line: Arc<QueueClaim>,
    pub(super) accepted: oneshot::Receiver<Result<Accepted, SessionError>>,
    pub(super) ended: oneshot::Receiver<Result<TurnEnd, SessionError>>,
    /// Taken before the turn begins, so that its events are kept in memory for whoever asked for it.
    pub(super) follower: Option<Subscription>,
}

impl TurnHandle {
    /// Waits until the input is durable and the turn runs.
    pub async fn accepted(&mut self) -> Result<Accepted, SessionError> {
        (&mut self.accepted).await.unwrap_or(Err(SessionError::Draining))
    }

    /// Takes the turn back, unless it was begun. One that nobody waits for any more and nobody took back is run all the same.
    pub fn withdraw(&self) -> bool {
        self.in_line.take()
    }

    /// The turn's events, from the first.
    pub fn events(&mut self, accepted: &Accepted) -> Option<Subscription> {
        let mut follower = self.follower.take()?;
        follower.after = accepted.first_seq - 1;
        Some(follower)
    }

    /// The session that runs it.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.follower.as_ref()?.session()
    }

    /// Waits for the end of the turn.
    pub async fn ended(self) -> Result<TurnEnd, SessionError> {
        self.ended.await.unwrap_or(Err(SessionError::Draining))
    }
}

/// Where someone stands in a session's events.
#[derive(Debug)]
pub struct Subscription {
    pub(super) vault: Arc<Vault>,
    pub(super) session_id: Arc<str>,
    pub(super) session: Option<Arc<Session>>,
    pub(super) head: Option<watch::Receiver<Head>>,
    /// The newest event of a session that was closed when this began.
    pub(super) left: u64,
    pub(super) after: u64,
}

impl SessionManager {
    /// Follows a session's events from behind `after`; without that, from the oldest that is kept.
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
                    // It was closed in between, or nobody is there to run turns in it; what it said is still there.
                    Err(error) if matches!(error, SessionError::Closed(_)) || error.is_unserved() => None,
                    Err(error) => return Err(error),
                }
            }
        };
        // Following before looking: an event that comes in between is not missed.
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
    /// The session that is followed, while it is loaded.
    pub const fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// The place behind which the next events are read.
    pub const fn after(&self) -> u64 {
        self.after
    }

    /// At most `limit` further events, fewer if they are large. Waits if there are none yet; none at all if there will be none.
    pub async fn next(&mut self, limit: usize) -> Result<Vec<StoredEvent>, SessionError> {
        loop {
            // A closed session has no feed; what it left is all there is.
            let head = match &mut self.head {
                Some(head) => *head.borrow_and_update(),
                None => Head { seq: self.left, is_over: true },
            };
            if self.after < head.seq {
                let mut events = self.read(ReadLimit { events: limit, bytes: PAGE_BYTES }).await?;
                // The vault can be ahead of the ledger. What was not shown yet may never have happened.
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
                return Ok(Vec::new());
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
