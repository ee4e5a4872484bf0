//! The ledger entries of a request: before it is sent, after it has ended, or when it is denied. They hold the caller, the
//! provider, the endpoint and the usage, but no content.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tribune_governance::models::RequestRecord;
use tribune_ledger::{Cid, Draft, EntryQuality};
use tribune_records::ledger_payloads::{ProxyRecord, payload, proxy_entity};
use tribune_storage::store::StoreError;

use super::Proxy;
use super::auth::Caller;
use super::budget::ReservedTokens;
use super::routes::Route;
use super::upstream_call::CallEnd;
use crate::error::ApiError;

/// Writes the ledger entries of one request.
#[derive(Debug)]
pub(super) struct RequestRecorder {
    proxy: Arc<Proxy>,
    provider: String,
    by: String,
    session: Option<String>,
}

/// A request that is recorded and has not end.
#[derive(Debug)]
pub(super) struct OpenRequest {
    recorder: RequestRecorder,
    pub(super) provider: String,
    model: String,
    /// 0 for free requests.
    tokens: ReservedTokens,
    cid: Cid,
}

impl RequestRecorder {
    pub(super) fn new(proxy: Arc<Proxy>, provider: String, caller: &Caller) -> Self {
        let (by, session) = (caller.name(), caller.session());
        Self { proxy, provider, by, session }
    }

    /// Records the request. It must not be sent before this returns.
    pub(super) async fn record_request(
        self,
        route: &Route,
        model: Option<&str>,
        tokens: ReservedTokens,
    ) -> Result<OpenRequest, ApiError> {
        let redact = |text: &str| self.proxy.parts.redactor.redact(text).into_owned();
        let record = ProxyRecord::Asked {
            by: self.by.clone(),
            session: self.session.clone(),
            provider: self.provider.clone(),
            model: model.map(redact),
            method: route.method.to_string(),
            path: redact(&route.path),
        };
        let cid = self.append(&record, Vec::new()).await?;
        let model = model.map(redact).unwrap_or_default();
        Ok(OpenRequest { provider: self.provider.clone(), recorder: self, model, tokens, cid })
    }

    /// Records a denial by Tribune (`forbidden`). Other errors are faults of the client and are not recorded.
    pub(super) async fn record_denial(&self, error: &ApiError) -> Result<(), ApiError> {
        if error.code != "forbidden" {
            return Ok(());
        }
        let record = ProxyRecord::Refused { by: self.by.clone(), provider: self.provider.clone() };
        self.append(&record, Vec::new()).await?;
        Ok(())
    }

    async fn append(&self, record: &ProxyRecord, parents: Vec<Cid>) -> Result<Cid, StoreError> {
        let entity = proxy_entity(&self.provider);
        let draft = Draft {
            entity_id: entity.clone(),
            target: entity,
            quality: EntryQuality::Delivery,
            timestamp: self.proxy.parts.clock.now(),
            source: "proxy".to_owned(),
            actor: self.by.clone(),
            parents,
            tags: Vec::new(),
            payload: payload(record),
            attested_by: None,
            envelope: None,
        };
        Ok(self.proxy.parts.ledger.append(&draft).await?.cid)
    }
}

impl OpenRequest {
    /// The content id of its entry.
    pub(super) fn cid(&self) -> String {
        self.cid.to_string()
    }

    /// Records how it ended, in the ledger and in the request log.
    pub(super) async fn record_end(self, end: CallEnd) {
        let record = ProxyRecord::Ended { status: end.status, outcome: end.outcome, usage: end.usage };
        if let Err(error) = self.recorder.append(&record, vec![self.cid]).await {
            // The next start finds the request without an end and records it as interrupted.
            tracing::warn!(provider = self.provider, %error, "recording the end of a forwarded request failed");
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let turn = self.cid();
        let usage = end.usage.unwrap_or_default();
        let line = RequestRecord {
            request_id: turn.trim_start_matches("b3:").get(..16).unwrap_or_default().to_owned(),
            timestamp: self.recorder.proxy.parts.clock.now().to_string(),
            provider: self.provider,
            model: self.model,
            session: self.recorder.session.clone().unwrap_or_default(),
            turn,
            round: 0,
            estimated_tokens: self.tokens.prompt,
            reserved_tokens: self.tokens.response,
            input_tokens: usage.input,
            output_tokens: usage.output,
            cache_read_tokens: usage.cache_read,
            cache_written_tokens: usage.cache_written,
            first_ms: millis(end.first),
            latency_ms: millis(end.whole),
            outcome: end.outcome.as_str().to_owned(),
            prompt: json!({}),
            gate: json!({ "proxy": self.recorder.by, "status": end.status, "counted": end.usage.is_some() }),
        };
        let log = self.recorder.proxy.parts.requests.clone();
        // This fails only while the daemon shuts down.
        let _ = tokio::task::spawn_blocking(move || log.write(&line)).await;
    }
}
