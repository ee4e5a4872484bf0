//! Sessions and their turns: open, list, cancel, close, forget, read, follow and run.

use std::sync::Arc;

use tribune_providers::ModelRef;
use tribune_records::agents::PrincipalTier;
use tribune_records::workspace_roots;
use tribune_registry::CLI_BACKENDS;
use tribune_runtime::{AgentId, CloseReason, ContentBlock, Handle, SessionKey, SessionMode, SessionState};
use tribune_sessions::session::{SessionError, Subscription, TurnHandle};
use tribune_storage::store::SessionFilter;

use super::{Answer, MAX_PAGE, page_limit, parse_key};
use crate::api::Api;
use crate::api_types::{
    Cancelled, EventPage, Forgotten, History, MessageInfo, SessionInfo, SessionInit, SessionList,
    SessionPage, TurnInfo, TurnResult, Turns,
};
use crate::error::{ApiError, misnamed};
use crate::principal::Principal;
use crate::validate_content;

impl Api {
    pub(crate) async fn session_init(&self, who: &Principal, init: SessionInit) -> Answer<SessionInfo> {
        let key = self.key_of(who, &init)?;
        who.owns(&key)?;
        self.takes_work()?;
        let mode = match init.mode.as_deref() {
            None => None,
            Some(word) => Some(
                SessionMode::parse(word)
                    .ok_or_else(|| ApiError::params("mode must be persistent, domain or oneshot"))?,
            ),
        };
        if mode == Some(SessionMode::Persistent) && who.tier() == PrincipalTier::Guest {
            return Err(ApiError::forbidden(
                "an unregistered or anonymous caller has no persistent sessions: mode must be domain or oneshot",
            ));
        }
        let mut opener = who.opener();
        opener.requested.mode = mode;
        if let Some(model) = init.model {
            // Models cost money: only the operator chooses them.
            who.operator()?;
            let model: ModelRef =
                model.parse().map_err(|_| ApiError::params("model must be provider:model"))?;
            opener.requested.model = Some(model.to_string());
        }
        if let Some(folder) = init.workspace {
            who.operator()?;
            let home = self.status.home.clone();
            let found = tokio::task::spawn_blocking(move || {
                workspace_roots::validate_root("workspace", &folder, &home)
            })
            .await;
            let found = found.map_err(|error| ApiError::new("internal", error.to_string()))?;
            opener.requested.workspace =
                Some(found.map_err(ApiError::params)?.to_string_lossy().into_owned());
        }
        self.sessions.ensure(key.clone(), opener).await?;
        self.session_status(who, key.as_str()).await
    }

    /// The key that was given, or the key of the caller's own session with the agent.
    fn key_of(&self, who: &Principal, init: &SessionInit) -> Answer<SessionKey> {
        if let Some(key) = &init.session_key {
            let key = parse_key(key)?;
            if init.agent_id.as_ref().is_some_and(|agent| agent != key.agent().as_str()) {
                return Err(ApiError::params("agent_id is not the agent in session_key: give one of them"));
            }
            return Ok(key);
        }
        let agent: AgentId = match (&init.agent_id, who.agent()) {
            (Some(agent), _) => agent.parse().map_err(|error| misnamed(&error))?,
            (None, Some(own)) => own.clone(),
            (None, None) => {
                tribune_registry::MAIN_AGENT.parse().map_err(|error| ApiError::params(format!("{error}")))?
            }
        };
        let peer = who.agent().map_or("operator", AgentId::as_str);
        SessionKey::direct(&agent, "rpc", "local", peer).map_err(|error| ApiError::params(error.to_string()))
    }

    /// A session that the caller may use.
    fn own_key(&self, who: &Principal, key: &str) -> Answer<SessionKey> {
        let key = parse_key(key)?;
        who.owns(&key)?;
        Ok(key)
    }

    pub(crate) async fn session_status(&self, who: &Principal, key: &str) -> Answer<SessionInfo> {
        let key = self.own_key(who, key)?;
        let (running, last_seq) = self.sessions.live(&key).await?;
        let row = self.sessions.row(&key).await?;
        let row = row.ok_or_else(no_session)?;
        let mut info = SessionInfo::from(row).with_failure(self.sessions.failure().as_deref());
        if CLI_BACKENDS.contains(&info.backend.as_str()) {
            let session_id = info.session_id.as_str().into();
            let handle = Handle { key: Arc::new(key.clone()), session_id };
            info.agent_stderr = self.cli_agents.stderr(&handle);
        }
        if running {
            info.failure = None;
            info.state = SessionState::Running.as_str().to_owned();
        }
        info.last_seq = Some(last_seq);
        Ok(info)
    }

    pub(crate) async fn session_list(&self, who: &Principal, list: SessionList) -> Answer<SessionPage> {
        let state = match list.state.as_deref() {
            None => None,
            Some(word) => Some(
                SessionState::parse(word)
                    .ok_or_else(|| ApiError::params("state must be idle, running, cancelled or closed"))?,
            ),
        };
        let agent_id = match (who.agent(), list.agent_id) {
            (None, asked) => asked,
            (Some(own), None) => Some(own.to_string()),
            (Some(own), Some(asked)) if asked == own.as_str() => Some(asked),
            (Some(_), Some(_)) => return Err(ApiError::forbidden("an agent may list its own sessions only")),
        };
        let limit = page_limit(list.limit)?;
        let filter = SessionFilter { agent_id, state, after: list.after };
        let mut rows = self.sessions.list(filter, limit + 1).await?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|row| row.key.clone());
        let failure = self.sessions.failure();
        let sessions =
            rows.into_iter().map(|row| SessionInfo::from(row).with_failure(failure.as_deref())).collect();
        Ok(SessionPage { sessions, next })
    }

    pub(crate) async fn session_cancel(&self, who: &Principal, key: &str) -> Answer<Cancelled> {
        let key = self.own_key(who, key)?;
        Ok(Cancelled { cancelled: self.sessions.cancel(&key).await? })
    }

    pub(crate) async fn session_close(&self, who: &Principal, key: &str) -> Answer<SessionInfo> {
        let key = self.own_key(who, key)?;
        self.sessions.close(&key, CloseReason::Requested).await?;
        self.session_status(who, key.as_str()).await
    }

    pub(crate) async fn session_forget(&self, who: &Principal, key: &str) -> Answer<Forgotten> {
        who.operator()?;
        let key = parse_key(key)?;
        Ok(Forgotten { cid: self.sessions.forget(&key, "operator").await?.to_string() })
    }

    pub(crate) async fn session_turns(
        &self,
        who: &Principal,
        key: &str,
        limit: Option<usize>,
    ) -> Answer<Turns> {
        let key = self.own_key(who, key)?;
        let limit = page_limit(limit)?;
        let turns = self
            .readers
            .read(move |reader| match reader.session(key.as_str())? {
                Some(session) => reader.turns(&session, limit).map(Ok),
                None => Ok(Err(no_session())),
            })
            .await??;
        Ok(Turns { turns: turns.into_iter().map(TurnInfo::from).collect() })
    }

    pub(crate) async fn session_history(
        &self,
        who: &Principal,
        key: &str,
        limit: Option<usize>,
    ) -> Answer<History> {
        let key = self.own_key(who, key)?;
        let limit = page_limit(limit)?;
        let vault = Arc::clone(self.sessions.vault());
        let redactor = Arc::clone(&self.sessions.governance().policy.redactor);
        let messages = self
            .readers
            .read(move |reader| {
                let Some(session) = reader.session(key.as_str())? else { return Ok(Err(no_session())) };
                let mut messages = Vec::new();
                for row in reader.messages(&session, limit)? {
                    let words = vault.content(&session.id, &row.content)?;
                    messages.push(MessageInfo::new(row, words, &redactor));
                }
                Ok(Ok(messages))
            })
            .await??;
        Ok(History { messages })
    }

    pub(crate) async fn subscribe(
        &self,
        who: &Principal,
        key: &str,
        after: Option<u64>,
    ) -> Answer<(SessionKey, Subscription)> {
        let key = self.own_key(who, key)?;
        let subscription = self.sessions.subscribe(&key, after).await?;
        Ok((key, subscription))
    }

    /// One page of events, without waiting for more.
    pub(crate) async fn session_events(
        &self,
        who: &Principal,
        key: &str,
        after: Option<u64>,
        limit: Option<usize>,
    ) -> Answer<EventPage> {
        let limit = page_limit(limit.or(Some(MAX_PAGE)))?;
        let (key, mut subscription) = self.subscribe(who, key, after).await?;
        let (_, last_seq) = self.sessions.live(&key).await?;
        let events =
            if subscription.after() < last_seq { subscription.next(limit).await? } else { Vec::new() };
        let events = events.iter().filter_map(|event| serde_json::from_str(&event.json).ok()).collect();
        Ok(EventPage { events, last_seq })
    }

    /// Queues a turn.
    pub(crate) async fn turn_run(
        &self,
        who: &Principal,
        key: &str,
        content: Vec<ContentBlock>,
    ) -> Answer<(SessionKey, TurnHandle)> {
        let key = self.own_key(who, key)?;
        validate_content::check(&content)?;
        self.takes_work()?;
        let ticket = self.sessions.run_turn(&key, content, who.speaker()).await?;
        Ok((key, ticket))
    }

    /// Waits until the turn is accepted and, with `wait`, until it has ended.
    pub(crate) async fn turn_result(
        &self,
        key: SessionKey,
        mut ticket: TurnHandle,
        wait: bool,
    ) -> Answer<TurnResult> {
        let accepted = ticket.accepted().await?;
        let mut result = TurnResult {
            session_key: key.to_string(),
            turn: accepted.turn,
            first_seq: accepted.first_seq,
            last_seq: None,
            stop_reason: None,
            usage: None,
        };
        if wait {
            let end = ticket.ended().await?;
            result.last_seq = Some(end.last_seq);
            result.stop_reason = Some(end.stop_reason.as_str().to_owned());
            result.usage = Some(end.usage);
        }
        Ok(result)
    }
}

fn no_session() -> ApiError {
    SessionError::NotFound(String::new()).into()
}
