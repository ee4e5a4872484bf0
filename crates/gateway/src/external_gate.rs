//! The gate for other agent harnesses: three requests that mirror the hooks of such a harness. They use the same gate,
//! approvals and ledger as agents that Tribune runs. The harness executes an allowed call itself; Tribune does not.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_constitution::Trust;
use tribune_governance::turn::{ExternalCallState, ExternalDecision, ExternalMessage};
use tribune_runtime::{SessionKey, ToolCall};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Gateway;
use super::api::Api;
use super::api_types::ErrorBody;
use super::error::{ApiError, misnamed};
use super::principal::Principal;
use super::rest::{Body, Operator};

/// The longest time that a request waits for a person.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// A message that the session received.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MessageReceived {
    pub agent_id: String,
    pub session_key: String,
    #[serde(default)]
    pub channel: Option<String>,
    pub text: String,
    /// `owner`, `verified`, `community` or `untrusted`. Without it: `untrusted`.
    #[serde(default)]
    pub trust: Option<String>,
    /// Where it came from, in a few words.
    #[serde(default)]
    pub source: Option<String>,
}

/// The labels of everything that the session has received so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Labelled {
    pub trust: String,
    pub private: bool,
}

/// A call that a harness is about to make.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BeforeToolCall {
    pub agent_id: String,
    pub session_key: String,
    #[serde(default)]
    pub workspace_dir: Option<String>,
    pub tool_name: String,
    pub tool_call_id: String,
    #[schema(value_type = Object)]
    pub params: Value,
    /// How long to wait, in milliseconds, if a person must decide; 0 answers at once.
    #[serde(default)]
    pub wait_ms: u64,
}

/// Whether the call may be made.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateVerdict {
    /// `allow`, `ask` or `deny`.
    pub verdict: String,
    /// Whether the call must not be made now.
    pub block: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
    /// The approval that the call waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    pub rules: Vec<String>,
    /// The verdict's entry in the ledger.
    pub cid: String,
}

/// The result of a call.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AfterToolCall {
    pub session_key: String,
    pub tool_call_id: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub result: Value,
    #[serde(default)]
    pub is_error: bool,
}

type App = State<Arc<Gateway>>;
type Answer<T> = Result<Json<T>, ApiError>;

pub(super) fn router() -> OpenApiRouter<Arc<Gateway>> {
    OpenApiRouter::new()
        .routes(routes!(message_received))
        .routes(routes!(before_tool_call))
        .routes(routes!(after_tool_call))
}

/// Adds the labels of a received message to the session. Trust can only sink.
#[utoipa::path(post, path = "/v1/gate/message_received", tag = "gate", request_body = MessageReceived, responses((status = 200, description = "the labels of everything that the session has received so far", body = Labelled), (status = "default", description = "an error", body = ErrorBody)))]
async fn message_received(
    State(app): App,
    Operator(who): Operator,
    Body(message): Body<MessageReceived>,
) -> Answer<Labelled> {
    app.api.gate_message_received(&who, message).await.map(Json)
}

/// Asks whether a call may be made. Asking again with the same toolCallId returns its current state.
#[utoipa::path(post, path = "/v1/gate/before_tool_call", tag = "gate", request_body = BeforeToolCall, responses((status = 200, description = "the verdict", body = GateVerdict), (status = "default", description = "an error", body = ErrorBody)))]
async fn before_tool_call(
    State(app): App,
    Operator(who): Operator,
    Body(call): Body<BeforeToolCall>,
) -> Answer<GateVerdict> {
    app.api.gate_before_tool_call(&who, call).await.map(Json)
}

/// Reports the result of a call and updates the labels of the session.
#[utoipa::path(post, path = "/v1/gate/after_tool_call", tag = "gate", request_body = AfterToolCall, responses((status = 200, description = "the labels of everything that the session has received so far", body = Labelled), (status = "default", description = "an error", body = ErrorBody)))]
async fn after_tool_call(
    State(app): App,
    Operator(who): Operator,
    Body(call): Body<AfterToolCall>,
) -> Answer<Labelled> {
    app.api.gate_after_tool_call(&who, call).await.map(Json)
}

impl Api {
    /// Opens the session of a harness, or finds it open.
    async fn harness(&self, who: &Principal, agent: Option<&str>, key: &str) -> Result<SessionKey, ApiError> {
        let key: SessionKey = key.parse().map_err(|error| misnamed(&error))?;
        if agent.is_some_and(|agent| agent != key.agent().as_str()) {
            return Err(ApiError::params("agentId is not the agent in sessionKey"));
        }
        who.owns(&key)?;
        self.sessions.ensure(key.clone(), None, who.opener()).await?;
        Ok(key)
    }

    async fn gate_message_received(
        &self,
        who: &Principal,
        message: MessageReceived,
    ) -> Result<Labelled, ApiError> {
        let key = self.harness(who, Some(&message.agent_id), &message.session_key).await?;
        let trust = match message.trust.as_deref() {
            None => Trust::Untrusted,
            Some(word) => Trust::ALL
                .into_iter()
                .find(|trust| trust.as_str() == word)
                .ok_or_else(|| ApiError::params("trust must be owner, verified, community or untrusted"))?,
        };
        let heard = ExternalMessage { text: message.text, trust };
        let labels = self
            .sessions
            .governance()
            .record_external_message(&key, heard)
            .await
            .map_err(tribune_sessions::session::SessionError::from)?;
        Ok(Labelled { trust: labels.trust.as_str().to_owned(), private: labels.private })
    }

    async fn gate_before_tool_call(
        &self,
        who: &Principal,
        call: BeforeToolCall,
    ) -> Result<GateVerdict, ApiError> {
        let key = self.harness(who, Some(&call.agent_id), &call.session_key).await?;
        if !call.params.is_object() {
            return Err(ApiError::params("params is an object"));
        }
        let wait = Duration::from_millis(call.wait_ms).min(MAX_WAIT);
        let call = ToolCall { id: call.tool_call_id, name: call.tool_name, input: call.params };
        let standpoint = self
            .sessions
            .governance()
            .request_external_call(&key, call, wait)
            .await
            .map_err(tribune_sessions::session::SessionError::from)?;
        let ExternalCallState { verdict, rules, reason, approval, cid } = standpoint;
        let (word, block) = match verdict {
            ExternalDecision::Allowed => ("allow", false),
            ExternalDecision::Waits => ("ask", true),
            ExternalDecision::Refused => ("deny", true),
        };
        Ok(GateVerdict {
            verdict: word.to_owned(),
            block,
            block_reason: block.then_some(reason),
            approval_id: approval,
            rules,
            cid,
        })
    }

    async fn gate_after_tool_call(&self, who: &Principal, call: AfterToolCall) -> Result<Labelled, ApiError> {
        let key = self.harness(who, None, &call.session_key).await?;
        let text = match call.result {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let labels = self
            .sessions
            .governance()
            .record_external_result(&key, &call.tool_call_id, text, call.is_error)
            .await
            .map_err(tribune_sessions::session::SessionError::from)?;
        Ok(Labelled { trust: labels.trust.as_str().to_owned(), private: labels.private })
    }
}
