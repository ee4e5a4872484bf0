//! Opening, closing and forgetting a session. Each operation runs to its end in a task of its own, even if its caller is
//! gone, and holds the session's lock until its writes are durable.

use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;
use tribune_ledger::Cid;
use tribune_records::agents::{PrincipalTier, RUN_BACKEND};
use tribune_runtime::{CloseReason, Handle, SessionInput, SessionKey, SessionState};
use tribune_storage::store::SessionRow;

use super::actor::{Close, Command, Session};
use super::error::SessionError;
use super::session_limit::IfFull;
use super::{IfClosed, SessionManager};

/// How often `forget` closes a session that other clients reopen meanwhile.
const CLOSING_ATTEMPTS: usize = 8;

/// Why a session is closed, and the condition for it.
#[derive(Debug, Clone)]
pub(super) struct Closing {
    pub(super) reason: CloseReason,
    /// Close only if the session was not used since this time.
    pub(super) unused_since: Option<String>,
}

impl Closing {
    /// Whether the session was used too recently to be closed.
    pub(super) fn is_too_early(&self, row: &SessionRow) -> bool {
        self.unused_since.as_ref().is_some_and(|since| row.last_activity >= *since)
    }
}

impl SessionManager {
    /// Runs `work` to its end in a task of its own. A lost connection drops the futures of its requests, and a write that has
    /// begun must not be dropped with them.
    pub(super) async fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, SessionError>> + Send + 'static,
    ) -> Result<T, SessionError> {
        match self.shared.work.spawn(work).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(SessionError::Draining),
            },
        }
    }

    pub(super) async fn open(
        &self,
        input: SessionInput,
        if_closed: IfClosed,
        if_full: IfFull,
    ) -> Result<Arc<Session>, SessionError> {
        let sessions = self.clone();
        self.to_the_end(async move { sessions.open_now(input, if_closed, if_full).await }).await
    }

    async fn open_now(
        &self,
        input: SessionInput,
        if_closed: IfClosed,
        if_full: IfFull,
    ) -> Result<Arc<Session>, SessionError> {
        let shared = &self.shared;
        if shared.draining.is_cancelled() {
            return Err(SessionError::Draining);
        }
        let runtime = shared.runtimes.get(&input.terms.backend).ok_or_else(|| {
            let names = shared.runtimes.keys().map(String::as_str);
            let mut known: Vec<&str> = names.filter(|name| *name != RUN_BACKEND).collect();
            known.sort_unstable();
            SessionError::UnknownBackend(input.terms.backend.clone(), known.join(", "))
        })?;
        let _opening = self.opening(&input.key).lock().await;
        let loaded = self.loaded(&input.key);
        if let Some(running) = loaded.as_ref().filter(|session| session.is_running()) {
            // The terms cannot change during a turn; the next opening compares them again.
            return Ok(Arc::clone(running));
        }
        let row = self.row(&input.key).await?;
        let is_new = row.as_ref().is_none_or(|row| row.state == SessionState::Closed);
        if is_new && if_closed == IfClosed::Refuse {
            return Err(SessionError::Closed(input.key.to_string()));
        }
        if let Some(row) = row.filter(|_| is_new) {
            // An earlier `forget` is completed first, so that it does not shred the new conversation.
            shared.governance.finish_forgetting(&handle(&input.key, row)).await?;
        }
        let tier = PrincipalTier::of_session(input.agent().as_str(), input.terms.pubkey.as_deref());
        let slot = match is_new {
            true => Some(shared.room.take(&input.key, tier, if_full)?),
            false => None,
        };
        let (key, mode) = (input.key.clone(), input.terms.mode);
        let opened = runtime.ensure_session(input).await;
        if let Some(slot) = slot
            && (opened.is_ok() || self.is_open(&key).await)
        {
            slot.keep();
        }
        let handle = opened?;
        if let Some(session) = loaded {
            session.set_mode(mode);
            return Ok(session);
        }
        let journal = shared.governance.session_writer(&handle).await?;
        // INVARIANT: writers outside of turns hold the session writer's lock, so every event after this head reaches the event
        // buffer.
        let writer = journal.lock().await;
        let (session, commands) = Session::new(handle, mode, writer.next_event() - 1, shared.limits.queue);
        shared.governance.event_hub().add(&key, &session.feed);
        drop(writer);
        self.start(Arc::clone(&session), Arc::clone(runtime), commands);
        shared.loaded.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&session));
        Ok(session)
    }

    /// Whether the ledger has the session as open; `false` if it cannot be read.
    async fn is_open(&self, key: &SessionKey) -> bool {
        matches!(self.row(key).await, Ok(Some(row)) if row.state != SessionState::Closed)
    }

    /// Closes a session. With [`CloseReason::Requested`] its running turn is cancelled first and its queued turns are refused.
    pub async fn close(&self, key: &SessionKey, reason: CloseReason) -> Result<(), SessionError> {
        self.close_as(key, Closing { reason, unused_since: None }).await
    }

    pub(super) async fn close_as(&self, key: &SessionKey, closing: Closing) -> Result<(), SessionError> {
        let (sessions, key) = (self.clone(), key.clone());
        self.to_the_end(async move { sessions.close_now(&key, closing).await }).await
    }

    async fn close_now(&self, key: &SessionKey, closing: Closing) -> Result<(), SessionError> {
        if self.shared.draining.is_cancelled() {
            return Err(SessionError::Draining);
        }
        if let Some(session) = self.loaded(key) {
            return enqueue_close(&session, closing).await;
        }
        let opening = self.opening(key).lock().await;
        if let Some(session) = self.loaded(key) {
            drop(opening);
            return enqueue_close(&session, closing).await;
        }
        // The session is not loaded, and need not be: its backend and its mandate may be gone.
        let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
        if row.state == SessionState::Closed {
            return Err(SessionError::Closed(key.to_string()));
        }
        if closing.is_too_early(&row) {
            return Err(SessionError::InUse(key.to_string()));
        }
        let runtime = self.shared.runtimes.get(&row.terms.backend);
        let handle = handle(key, row);
        match runtime {
            Some(runtime) => runtime.close(&handle, closing.reason).await?,
            None => self.shared.governance.close_session(&handle, closing.reason).await?,
        }
        self.shared.room.leave(key);
        Ok(())
    }

    /// Closes a session and shreds its content. The ledger keeps the hashes and still verifies.
    pub async fn forget(&self, key: &SessionKey, by: &str) -> Result<Cid, SessionError> {
        let (sessions, key, by) = (self.clone(), key.clone(), by.to_owned());
        self.to_the_end(async move { sessions.forget_now(&key, &by).await }).await
    }

    async fn forget_now(&self, key: &SessionKey, by: &str) -> Result<Cid, SessionError> {
        for _ in 0..CLOSING_ATTEMPTS {
            let closing = Closing { reason: CloseReason::Requested, unused_since: None };
            match self.close_now(key, closing).await {
                Ok(()) | Err(SessionError::Closed(_)) => {}
                Err(error) => return Err(error),
            }
            // Under the lock no client opens it; one may have done so just before, so the state is read again.
            let _opening = self.opening(key).lock().await;
            let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
            if row.state == SessionState::Closed {
                return Ok(self.shared.governance.forget(&handle(key, row), by).await?);
            }
        }
        Err(SessionError::Reopened(key.to_string()))
    }

    /// The sequence number of the newest event of a session that is not loaded. It may be open, but nothing runs in it.
    pub(super) async fn newest_at_rest(&self, key: &SessionKey) -> Result<u64, SessionError> {
        let (sessions, key) = (self.clone(), key.clone());
        // Opening the session writer recovers the stream after a crash, which writes.
        self.to_the_end(async move {
            let _opening = sessions.opening(&key).lock().await;
            if let Some(session) = sessions.loaded(&key) {
                return Ok(session.feed.head());
            }
            let row = sessions.row(&key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
            if row.state == SessionState::Closed || sessions.failure().is_some() {
                return sessions.newest_stored(row.id).await;
            }
            let journal = sessions.shared.governance.session_writer(&handle(&key, row)).await?;
            let newest = journal.lock().await.next_event() - 1;
            Ok(newest)
        })
        .await
    }

    /// The sequence number of the newest stored event of a session to which nothing is written.
    async fn newest_stored(&self, session_id: String) -> Result<u64, SessionError> {
        let vault = Arc::clone(self.vault());
        let read = tokio::task::spawn_blocking(move || vault.newest_event(&session_id)).await;
        Ok(read.map_err(|_| SessionError::Draining)??)
    }
}

fn handle(key: &SessionKey, row: SessionRow) -> Handle {
    Handle { key: Arc::new(key.clone()), session_id: row.id.into() }
}

/// Puts the close command into the session's queue, behind the commands that wait there.
async fn enqueue_close(session: &Session, closing: Closing) -> Result<(), SessionError> {
    let (answer, closed) = oneshot::channel();
    if closing.reason == CloseReason::Requested {
        session.set_closing(true);
        session.cancel();
    }
    let command = Command::Close(Box::new(Close { closing, answer }));
    let sent = session.inbox.send(command).await;
    sent.map_err(|_| SessionError::Closed(session.handle().key.to_string()))?;
    let closed = closed.await.unwrap_or(Err(SessionError::Draining));
    if closed.is_err() {
        session.set_closing(false);
    }
    closed
}
