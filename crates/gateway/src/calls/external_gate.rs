//! The gate for other agent harnesses: three requests that mirror the hooks of such a harness. They use the same gate,
//! approvals and ledger as agents that Tribune runs. The harness executes an allowed call itself; Tribune does not.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tribune_constitution::Trust;
use tribune_governance::turn::{ExternalCallState, ExternalDecision, ExternalMessage};
use tribune_records::agents::GATE_PASS;
use tribune_runtime::{SessionKey, ToolCall};
use tribune_sessions::session::SessionError;
use utoipa::ToSchema;

use crate::api::Api;
use crate::error::{ApiError, misnamed};
use crate::principal::Principal;

/// The longest time that a request waits for a person.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// A message that the session received.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct MessageReceived {
    pub(crate) agent_id: String,
    pub(crate) session_key: String,
    #[serde(default)]
    #[expect(dead_code, reason = "accepted from harnesses that send it")]
    pub(crate) channel: Option<String>,
    pub(crate) text: String,
    /// `owner`, `verified`, `community` or `untrusted`. Without it: `untrusted`.
    #[serde(default)]
    pub(crate) trust: Option<String>,
    /// Where it came from, in a few words.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted from harnesses that send it")]
    pub(crate) source: Option<String>,
}

/// The labels of everything that the session has received so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Labelled {
    pub(crate) trust: String,
    pub(crate) private: bool,
}

/// A call that a harness is about to make.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct BeforeToolCall {
    pub(crate) agent_id: String,
    pub(crate) session_key: String,
    #[serde(default)]
    #[expect(dead_code, reason = "accepted from harnesses that send it")]
    pub(crate) workspace_dir: Option<String>,
    pub(crate) tool_name: String,
    pub(crate) tool_call_id: String,
    #[schema(value_type = Object)]
    pub(crate) params: Value,
    /// How long to wait, in milliseconds, if a person must decide; 0 answers at once.
    #[serde(default)]
    pub(crate) wait_ms: u64,
}

/// Whether the call may be made.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GateVerdict {
    /// `allow`, `ask` or `deny`.
    pub(crate) verdict: String,
    /// Whether the call must not be made now.
    pub(crate) block: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block_reason: Option<String>,
    /// The approval that the call waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval_id: Option<String>,
    pub(crate) rules: Vec<String>,
    /// The verdict's entry in the ledger.
    pub(crate) cid: String,
}

/// The result of a call.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct AfterToolCall {
    pub(crate) session_key: String,
    pub(crate) tool_call_id: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub(crate) result: Value,
    #[serde(default)]
    pub(crate) is_error: bool,
}

impl Api {
    /// Opens the session of a harness, or finds it open.
    async fn harness(&self, who: &Principal, agent: Option<&str>, key: &str) -> Result<SessionKey, ApiError> {
        let key: SessionKey = key.parse().map_err(|error| misnamed(&error))?;
        if agent.is_some_and(|agent| agent != key.agent().as_str()) {
            return Err(ApiError::params("agentId is not the agent in sessionKey"));
        }
        who.owns(&key)?;
        // A pass would otherwise put words into the operator's conversations with the agent.
        if matches!(who, Principal::GatePass { .. })
            && let Some(row) = self.sessions.row(&key).await?
            && row.terms.pubkey.as_deref() != Some(GATE_PASS)
        {
            return Err(ApiError::forbidden(
                "this session was not opened with a gate pass: use a session key of your own",
            ));
        }
        self.sessions.ensure(key.clone(), who.opener()).await?;
        Ok(key)
    }

    pub(crate) async fn gate_message_received(
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
        if trust == Trust::Owner && *who != Principal::Operator {
            return Err(ApiError::forbidden(
                "only the operator's token may say that a message is the owner's: give a lower trust",
            ));
        }
        let heard = ExternalMessage { text: message.text, trust };
        let labels = self
            .sessions
            .governance()
            .record_external_message(&key, heard)
            .await
            .map_err(SessionError::from)?;
        Ok(Labelled { trust: labels.trust.as_str().to_owned(), private: labels.private })
    }

    pub(crate) async fn gate_before_tool_call(
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
            .map_err(SessionError::from)?;
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

    pub(crate) async fn gate_after_tool_call(
        &self,
        who: &Principal,
        call: AfterToolCall,
    ) -> Result<Labelled, ApiError> {
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
            .map_err(SessionError::from)?;
        Ok(Labelled { trust: labels.trust.as_str().to_owned(), private: labels.private })
    }
}
