//! Opening, closing and forgetting a session. What was begun is ended, whether or not whoever asked still waits: each
//! runs in a task of its own and holds the session's lock until what it writes is durable.

use std::sync::{Arc, PoisonError};

use tokio::sync::oneshot;
use tribune_ledger::Cid;
use tribune_records::agents::RUN_BACKEND;
use tribune_runtime::{CloseReason, Handle, SessionInput, SessionKey, SessionState};
use tribune_storage::store::SessionRow;

use super::actor::{Close, Command, Session};
use super::error::SessionError;
use super::session_limit::IfFull;
use super::{IfClosed, SessionManager};

/// How often a session is closed again that others open while it is to be forgotten.
const CLOSING_ATTEMPTS: usize = 8;

/// Why a session is to be closed, and what keeps it open.
#[derive(Debug, Clone)]
pub(super) struct Closing {
    pub(super) reason: CloseReason,
    /// Only if it was not used since this time.
    pub(super) unused_since: Option<String>,
}

impl Closing {
    /// Whether the session was used too lately to be closed.
    pub(super) fn is_too_early(&self, row: &SessionRow) -> bool {
        self.unused_since.as_ref().is_some_and(|since| row.last_activity >= *since)
    }
}

impl SessionManager {
    /// Does the work to its end, whoever still waits for it. A connection that breaks off takes its requests with it;
    /// what they have begun to write must not go with them.
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
        let runtime = shared.runtimes.get(&input.backend).ok_or_else(|| {
            let names = shared.runtimes.keys().map(String::as_str);
            let mut known: Vec<&str> = names.filter(|name| *name != RUN_BACKEND).collect();
            known.sort_unstable();
            SessionError::UnknownBackend(input.backend.clone(), known.join(", "))
        })?;
        let _opening = self.opening(&input.key).lock().await;
        let loaded = self.loaded(&input.key);
        if let Some(running) = loaded.as_ref().filter(|session| session.is_running()) {
            // Its terms cannot change under a running turn; they are looked at again when it is next opened.
            return Ok(Arc::clone(running));
        }
        let row = self.row(&input.key).await?;
        let is_new = row.as_ref().is_none_or(|row| row.state == SessionState::Closed);
        if is_new && if_closed == IfClosed::Refuse {
            return Err(SessionError::Closed(input.key.to_string()));
        }
        if let Some(row) = row.filter(|_| is_new) {
            // What is said from here on must not fall to a forgetting that was asked for before.
            shared.governance.finish_forgetting(&handle(&input.key, row)).await?;
        }
        let place = match is_new {
            true => Some(shared.room.take(input.agent(), if_full)?),
            false => None,
        };
        let (key, mode) = (input.key.clone(), input.mode);
        let opened = runtime.ensure_session(input).await;
        if let Some(place) = place
            && (opened.is_ok() || self.is_open(&key).await)
        {
            place.keep();
        }
        let handle = opened?;
        if let Some(session) = loaded {
            session.set_mode(mode);
            return Ok(session);
        }
        let journal = shared.governance.journal(&handle).await?;
        // INVARIANT: whoever writes outside of turns holds the journal; what comes behind this head is shown to the feed.
        let held = journal.lock().await;
        let (session, commands) = Session::new(handle, mode, held.next_event() - 1, shared.limits.queue);
        shared.governance.feeds.add(&key, &session.feed);
        drop(held);
        self.start(Arc::clone(&session), Arc::clone(runtime), commands);
        shared.loaded.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&session));
        Ok(session)
    }

    /// Whether the record has the session open. One that cannot be read does not.
    async fn is_open(&self, key: &SessionKey) -> bool {
        matches!(self.row(key).await, Ok(Some(row)) if row.state != SessionState::Closed)
    }

    /// Closes a session. On request its running turn is ended first, and those that wait are refused.
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
            return ask_to_close(&session, closing).await;
        }
        let opening = self.opening(key).lock().await;
        if let Some(session) = self.loaded(key) {
            drop(opening);
            return ask_to_close(&session, closing).await;
        }
        // Nobody uses it, so nothing has to be loaded: not its backend, which may be gone, nor its mandate.
        let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
        if row.state == SessionState::Closed {
            return Err(SessionError::Closed(key.to_string()));
        }
        if closing.is_too_early(&row) {
            return Err(SessionError::InUse(key.to_string()));
        }
        let runtime = self.shared.runtimes.get(&row.backend);
        let handle = handle(key, row);
        match runtime {
            Some(runtime) => runtime.close(&handle, closing.reason).await?,
            None => self.shared.governance.close_session(&handle, closing.reason).await?,
        }
        self.shared.room.leave(key.agent());
        Ok(())
    }

    /// Closes a session and shreds everything said in it. The ledger keeps its hashes, and still verifies.
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
            // Nobody opens it from here on; someone may have, just before.
            let _opening = self.opening(key).lock().await;
            let row = self.row(key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
            if row.state == SessionState::Closed {
                return Ok(self.shared.governance.forget(&handle(key, row), by).await?);
            }
        }
        Err(SessionError::Reopened(key.to_string()))
    }

    /// The number of the newest event of a session that is not loaded and may be open. Nothing runs in it.
    pub(super) async fn newest_at_rest(&self, key: &SessionKey) -> Result<u64, SessionError> {
        let (sessions, key) = (self.clone(), key.clone());
        // What a crash left of its stream is put in order first, which writes.
        self.to_the_end(async move {
            let _opening = sessions.opening(&key).lock().await;
            if let Some(session) = sessions.loaded(&key) {
                return Ok(session.feed.head());
            }
            let row = sessions.row(&key).await?.ok_or_else(|| SessionError::NotFound(key.to_string()))?;
            if row.state == SessionState::Closed {
                return sessions.newest_of_closed(row.id).await;
            }
            let journal = sessions.shared.governance.journal(&handle(&key, row)).await?;
            let newest = journal.lock().await.next_event() - 1;
            Ok(newest)
        })
        .await
    }

    /// The number of the newest event that a closed session left.
    pub(super) async fn newest_of_closed(&self, session_id: String) -> Result<u64, SessionError> {
        let vault = Arc::clone(self.vault());
        let read = tokio::task::spawn_blocking(move || vault.newest_event(&session_id)).await;
        Ok(read.map_err(|_| SessionError::Draining)??)
    }
}

fn handle(key: &SessionKey, row: SessionRow) -> Handle {
    Handle { key: Arc::new(key.clone()), session_id: row.id.into() }
}

/// Puts the closing into the session's queue, behind what waits there.
async fn ask_to_close(session: &Session, closing: Closing) -> Result<(), SessionError> {
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
