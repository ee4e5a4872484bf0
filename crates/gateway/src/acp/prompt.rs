//! `session/prompt`: runs one turn of a session and returns its stop reason.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use tribune_governance::turn::slash_tribune;
use tribune_runtime::StopReason;
use tribune_sessions::session::TurnEnd;

use super::client_session::{ClientSession, Running, TurnFailure};
use super::connection::Connection;
use super::passthrough::merge_members;
use super::update_mapper::{AcpMessage, chunk};
use super::wire::Fault;
use super::{content_blocks, slash_commands, wire};

/// The running prompt of a client session. A client session has at most one.
pub(super) struct Prompt {
    session: Arc<ClientSession>,
    token: CancellationToken,
}

impl Prompt {
    /// Claims the session, unless another prompt of this client is running in it.
    pub(super) fn begin(session: &Arc<ClientSession>, token: CancellationToken) -> Result<Self, Fault> {
        let mut running = session.running();
        if running.is_some() {
            let what = "a prompt of this session is running: wait for its end, or cancel it";
            return Err(Fault::new(wire::INVALID_REQUEST, "busy", what));
        }
        *running = Some(Running { token: token.clone(), turn: None });
        Ok(Self { session: Arc::clone(session), token })
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        self.session.end_running();
    }
}

impl Connection {
    /// `session/cancel`: cancels the client's own prompt, or else the turn that is running in the session.
    pub(super) fn cancel(self: &Arc<Self>, id: &str) {
        let Some(session) = self.state().sessions.get(id).cloned() else { return };
        if let Some(running) = &*session.running() {
            running.token.cancel();
            return;
        }
        let own = Arc::clone(self);
        self.spawn(async move {
            // An error means that no turn is running. A notification has no response, so the error is dropped.
            let _ = own.gateway.api.session_cancel(&own.who, session.key().as_str()).await;
        });
    }

    pub(super) async fn prompt(self: &Arc<Self>, prompt: Prompt, params: &Value) -> Result<Value, Fault> {
        let session = &prompt.session;
        let content = content_blocks::read(&params["prompt"], &session.binding().folder)?;
        if let Some(answer) = slash_commands::answer(self, &content).await? {
            if let AcpMessage::Update(update) = chunk("agent_message_chunk", &answer) {
                self.update(&session.id, &update).await;
            }
            return Ok(json!({ "stopReason": "end_turn" }));
        }
        let (title, is_tribune_command) =
            (content_blocks::title(&content), slash_tribune::is_meant(&content));
        let (api, key) = (&self.gateway.api, self.attach(session).await?);
        let pending = session.begin_turn();
        let asked = match api.turn_run(&self.who, key.as_str(), content.clone()).await {
            // The session was closed meanwhile, for inactivity or by another client. A prompt reopens it.
            Err(error) if error.code == "session_closed" => {
                let seq = session.progress.borrow().seq;
                session.stop_following(seq);
                let key = self.attach(session).await?;
                api.turn_run(&self.who, key.as_str(), content).await
            }
            asked => asked,
        };
        let (key, mut ticket) = asked?;
        let accepted = tokio::select! {
            accepted = ticket.accepted() => accepted,
            () = prompt.token.cancelled() => match ticket.withdraw() {
                // The turn was still queued and has not started.
                true => return Ok(json!({ "stopReason": "cancelled" })),
                false => ticket.accepted().await,
            },
        }?;
        if let Some(running) = &mut *session.running() {
            running.turn = Some(accepted.turn.clone());
        }
        pending.started(&accepted.turn);
        let session_id = ticket.session().map(|session| Arc::clone(&session.handle().session_id));
        if !is_tribune_command {
            self.set_title(session, session_id.as_deref(), title).await;
        }
        let mut ended = std::pin::pin!(ticket.ended());
        let end = tokio::select! {
            end = &mut ended => end,
            () = prompt.token.cancelled() => {
                api.session_cancel(&self.who, key.as_str()).await?;
                ended.await
            }
        }?;
        // Every event of the turn is sent before the response to the prompt.
        let mut progress = session.progress.subscribe();
        let progress = progress.wait_for(|progress| progress.is_over || progress.seq >= end.last_seq).await;
        let progress = progress.map(|progress| progress.clone()).unwrap_or_default();
        let response = progress.response.filter(|response| response.turn == end.turn);
        result(&end, progress.failure, response.map(|response| response.fields).unwrap_or_default())
    }

    /// Sets the title of a session from its first prompt.
    async fn set_title(&self, session: &ClientSession, session_id: Option<&str>, title: Option<String>) {
        let is_first = !std::mem::replace(&mut session.binding().has_title, true);
        let now = self.gateway.api.sessions.governance().storage.clock.now().to_string();
        let mut update = json!({ "sessionUpdate": "session_info_update", "updatedAt": now });
        if let Some((session_id, title)) = session_id.zip(title).filter(|_| is_first) {
            // If this fails, `session/list` derives the title again.
            let _ = self.gateway.api.sessions.vault().entitle(session_id, &title).await;
            update["title"] = title.into();
        }
        self.update(&session.id, &update).await;
    }
}

/// The response to a prompt, merged with the fields of the agent's own response.
fn result(end: &TurnEnd, failure: Option<TurnFailure>, fields: Map<String, Value>) -> Result<Value, Fault> {
    let reason = match end.stop_reason {
        StopReason::EndTurn => "end_turn",
        StopReason::MaxTokens => "max_tokens",
        StopReason::Refusal => "refusal",
        StopReason::Cancelled | StopReason::Interrupted => "cancelled",
        StopReason::Error => {
            let failure = failure.filter(|failure| failure.turn == end.turn);
            let (message, code) = failure.map_or_else(
                || ("the turn failed: its events say why".to_owned(), "error".to_owned()),
                |failure| (failure.message, failure.code),
            );
            return Err(Fault::new(wire::INTERNAL, "turn_failed", format!("{message} ({code})")));
        }
    };
    let (input, output) = (end.usage.input_tokens, end.usage.output_tokens);
    let usage =
        json!({ "totalTokens": input.saturating_add(output), "inputTokens": input, "outputTokens": output });
    let mut result = Value::Object(fields);
    result["stopReason"] = reason.into();
    merge_members(&mut result["usage"], usage);
    merge_members(&mut result["_meta"], json!({ "tribune": { "turn": end.turn } }));
    Ok(result)
}
