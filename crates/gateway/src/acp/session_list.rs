//! `session/list`: the sessions that a client can load, the most recently used first.

use std::sync::Arc;

use serde_json::{Value, json};
use tribune_ledger::Timestamp;
use tribune_records::agents::RUN_BACKEND;
use tribune_redact::Redactor;
use tribune_runtime::{ContentBlock, SessionKey};
use tribune_storage::store::{Reader, RecentSession, SessionRow, StoreError};
use tribune_storage::vault::{SessionTitle, Vault};

use super::connection::Connection;
use super::content_blocks;
use super::cwd::{ADDITIONAL_DIRECTORIES, OWN};
use super::wire::Fault;
use crate::error::ApiError;

/// Sessions per page.
const PAGE: usize = 50;

/// Messages that are searched for the first prompt of a session that was created before titles were stored.
const MAX_MESSAGES: usize = 10_000;

impl Connection {
    pub(super) async fn list(&self, params: &Value) -> Result<Value, Fault> {
        let folder = params["cwd"].as_str().map(|cwd| if cwd == OWN { "" } else { cwd });
        let recent = RecentSession {
            agent_id: self.who.agent().map(ToString::to_string),
            workspace: folder.map(str::to_owned),
            but_of: RUN_BACKEND.to_owned(),
            before: before(&params["cursor"])?,
        };
        let governance = self.gateway.api.sessions.governance();
        let (vault, redactor) =
            (Arc::clone(&governance.storage.vault), Arc::clone(&governance.policy.redactor));
        let read = self.gateway.api.readers.read(move |reader| {
            let mut rows = reader.recent_sessions(&recent, PAGE + 1)?;
            let has_more = rows.len() > PAGE;
            rows.truncate(PAGE);
            let next =
                rows.last().filter(|_| has_more).map(|row| format!("{} {}", row.last_activity, row.key));
            let mut listed = Vec::new();
            for row in rows {
                if row.key.parse::<SessionKey>().is_ok_and(|key| !key.is_subagent()) {
                    listed.extend(Listed::read(reader, &vault, &redactor, row)?);
                }
            }
            Ok((listed, next))
        });
        let (listed, next) = read.await.map_err(ApiError::from)?;
        let mut sessions = Vec::new();
        for Listed { row, title, is_new } in listed {
            if let Some(title) = title.as_ref().filter(|_| is_new) {
                // If this fails, the next list derives the title again.
                let _ = governance.storage.vault.entitle(&row.id, title).await;
            }
            let mut info = json!({
                "sessionId": row.key, "cwd": row.terms.workspace.as_deref().unwrap_or(OWN), "title": title,
                "updatedAt": row.last_activity,
                "_meta": { "tribune": { "agent": row.agent_id, "state": row.state.as_str(), "turns": row.turns } },
            });
            if !row.terms.additional_directories.is_empty() {
                info[ADDITIONAL_DIRECTORIES] = json!(row.terms.additional_directories);
            }
            sessions.push(info);
        }
        let mut page = json!({ "sessions": sessions });
        if let Some(next) = next {
            page["nextCursor"] = next.into();
        }
        Ok(page)
    }
}

/// The time and the session key in a cursor.
fn before(cursor: &Value) -> Result<Option<(String, String)>, Fault> {
    let cursor = match cursor {
        Value::Null => return Ok(None),
        Value::String(cursor) => cursor,
        _ => return Err(Fault::params("`cursor` must be a string")),
    };
    let is_valid =
        |(at, key): &(&str, &str)| at.parse::<Timestamp>().is_ok() && key.parse::<SessionKey>().is_ok();
    match cursor.split_once(' ').filter(is_valid) {
        Some((at, key)) => Ok(Some((at.to_owned(), key.to_owned()))),
        None => Err(Fault::params("`cursor` is invalid: use `nextCursor` of the previous page")),
    }
}

/// A listed session.
struct Listed {
    row: SessionRow,
    title: Option<String>,
    /// The title was derived now and is not stored yet.
    is_new: bool,
}

impl Listed {
    /// `None` if the session's content was erased and the session has not been opened since.
    fn read(
        reader: &Reader,
        vault: &Vault,
        redactor: &Redactor,
        row: SessionRow,
    ) -> Result<Option<Self>, StoreError> {
        let (title, is_new) = match vault.named(&row.id)? {
            SessionTitle::Title(title) => (Some(title), false),
            SessionTitle::No => (first_words(reader, vault, &row)?, true),
            SessionTitle::Forgotten if row.state == tribune_runtime::SessionState::Closed => return Ok(None),
            SessionTitle::Forgotten => (None, false),
        };
        let title = title.map(|title| redactor.redact(&title).into_owned());
        Ok(Some(Self { row, title, is_new }))
    }
}

/// The title of a session without a stored one, from its first prompt.
fn first_words(reader: &Reader, vault: &Vault, row: &SessionRow) -> Result<Option<String>, StoreError> {
    if row.turns == 0 {
        return Ok(None);
    }
    let messages = reader.messages(row, MAX_MESSAGES)?;
    let Some(first) = messages.iter().find(|message| message.role == "user") else { return Ok(None) };
    let content = vault.content(&row.id, &first.content)?;
    let content = content.and_then(|content| serde_json::from_slice::<Vec<ContentBlock>>(&content).ok());
    Ok(content.and_then(|content| content_blocks::title(&content)))
}
