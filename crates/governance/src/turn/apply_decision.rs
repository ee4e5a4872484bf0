//! Applies the decision of a person. A turn that waits continues by itself; a call that outlived its turn is resumed
//! here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tribune_constitution::{DecisionStage, Labels};
use tribune_ledger::commitment::Commitment;
use tribune_records::approval::action::{Action, Files};
use tribune_records::approval::approver::Approver;
use tribune_records::approval::decision::{DecisionOutcome, DecisionRequest};
use tribune_records::approval::grant::GrantTerms;
use tribune_records::approval::record::{
    ApprovalRecord, ApprovalState, CallRunner, Decided, DecisionKind, Requested, approval_entity,
};
use tribune_redact::Redactor;
use tribune_runtime::{SessionKey, ToolCall};
use tribune_storage::store::StoreError;

use super::Governance;
use super::calls::MAX_CALL_BYTES;
use crate::approval::{ApprovalError, draft};
use crate::gate::hooks::HookSubject;
use crate::gate::{AuthorizationRequest, PolicyContext};

/// How often the inbox is checked for requests that expired.
const EXPIRY_TICK: Duration = Duration::from_secs(1);

/// How long the response to a decision waits for the result of a call that no turn waits for.
const RESULT_WAIT: Duration = Duration::from_secs(2);

impl Governance {
    /// Decides about an approval.
    pub async fn decide(
        self: &Arc<Self>,
        id: &str,
        request: DecisionRequest,
        text: Option<String>,
        who: Approver,
    ) -> Result<DecisionOutcome, ApprovalError> {
        if self.policy.gate.is_frozen() && request.decision.allows() {
            return Err(ApprovalError::Frozen);
        }
        let name = id.to_owned();
        let row = self.storage.readers.read(move |reader| reader.approval(&name)).await?;
        let Some(row) = row else { return Err(ApprovalError::Unknown(id.to_owned())) };
        if row.state == ApprovalState::Pending {
            self.policy.gate.inbox.arrival(id).await;
        }
        let action = self.action_of(&row.requested).await?;
        let request = match text {
            Some(text) => {
                // Checked before anything is stored: the caller may decide, and the request is still open.
                who.may_decide(&row.requested)?;
                if row.state != ApprovalState::Pending {
                    return Err(ApprovalError::Over { id: id.to_owned(), state: row.state });
                }
                self.rewording(&row.requested, action.as_ref(), request, text).await?
            }
            None => request,
        };
        let (input, files) = action.map(|action| (action.input, action.files)).unzip();
        let not_bound = row.requested.not_bound.clone();
        let terms = GrantTerms {
            schema: self.policy.gate.schema_pin(&row.requested.tool),
            input,
            files: files.unwrap_or_default(),
            not_bound,
            output: Labels::for_output(self.policy.gate.law.manifest(&row.requested.tool), None),
            holds_secret: |text| Redactor::new().redact(text) != text,
        };
        let is_stop = request.decision == DecisionKind::DenyStop;
        let outcome = self.policy.gate.inbox.decide(id, request, who, terms).await?;
        if is_stop {
            // Nothing of a stopped session runs, so no person is asked about the rest of it.
            for requested in self.policy.gate.inbox.withdraw_session(&outcome.requested.session).await {
                self.finish(requested.id);
            }
        }
        if outcome.is_orphan && outcome.missing == 0 && outcome.requested.runner == CallRunner::Host {
            // Waits a little, so that the response can include the result if it is known soon.
            let finishing = self.finish(outcome.requested.id.clone());
            let _ = tokio::time::timeout(RESULT_WAIT, finishing).await;
        }
        Ok(outcome)
    }

    /// The decision to allow a draft with another text. The text is stored before the decision is applied.
    async fn rewording(
        &self,
        requested: &Requested,
        action: Option<&Action>,
        request: DecisionRequest,
        text: String,
    ) -> Result<DecisionRequest, ApprovalError> {
        let no = |what: &str| Err(ApprovalError::InvalidDecision(what.to_owned()));
        if request.decision != DecisionKind::AllowOnce {
            return no("a changed text is for this one call: leave `text` out, or choose allow_once");
        }
        if requested.needs > 1 {
            return no("several people must agree to the same text: deny it, and say what to change");
        }
        if requested.runner != CallRunner::Host {
            return no(
                "this call is executed outside of Tribune with its own text: deny it, and say what to change",
            );
        }
        if text.len() > MAX_CALL_BYTES {
            return no("the text is larger than a call may be: shorten it");
        }
        let Some(action) = action else {
            return no("the content of the call has been forgotten: allow it once, or deny it");
        };
        let Some(input) = draft::reworded(&requested.tool, &action.input, &text) else {
            return no(
                "only the text of a message or of a file can be changed: leave `text` out, or deny the call",
            );
        };
        let name = requested.session.clone();
        let session = self.storage.readers.read(move |reader| reader.session(&name)).await?;
        let Some(session) = session else { return no("the session has been forgotten: deny the call") };
        if let Some(context) = PolicyContext::of(&session) {
            let call = ToolCall { id: requested.call_id.clone(), name: requested.tool.clone(), input };
            self.would_run(&context, &call, &requested.id).await?;
        }
        let kept = self.storage.vault.keep(&session.id, text.as_bytes()).await?;
        match kept {
            Some(commitment) => Ok(DecisionRequest { text: Some((text, commitment)), ..request }),
            None => no("the session has been forgotten: deny the call"),
        }
    }

    /// Whether a call may run with the changed text. Checked before the decision is applied, so that the person can
    /// write another text.
    async fn would_run(
        &self,
        context: &PolicyContext,
        call: &ToolCall,
        approval: &str,
    ) -> Result<(), ApprovalError> {
        let vetoes = self.policy.gate.hooks.objections(&HookSubject::of(context), call).await;
        let verdict = self.policy.gate.preview(AuthorizationRequest {
            context,
            tool: &call.name,
            stage: DecisionStage::Dispatch,
            call_id: &call.id,
            input: Some(&call.input),
            original_input: None,
            runs: &|| Some(Files::default()),
            owner_words: None,
            vetoes,
            approval: Some(approval),
        });
        if verdict.is_allowed() {
            return Ok(());
        }
        let what = format!("this text is not allowed ({}): {}", verdict.rule_list(), verdict.reason);
        Err(ApprovalError::InvalidDecision(what))
    }

    /// Resumes a decided call that no turn waits for. Runs to its end even if the caller stops waiting.
    pub(super) fn finish(self: &Arc<Self>, id: String) -> JoinHandle<()> {
        let governance = Arc::clone(self);
        self.background.spawn(async move {
            if let Err(error) = governance.resume_decided(&id).await {
                tracing::error!(approval = id, code = error.code(), "a decided call could not be resumed");
            }
        })
    }

    /// The exact action of a request, if its content still exists.
    pub async fn action_of(self: &Arc<Self>, requested: &Requested) -> Result<Option<Action>, StoreError> {
        Ok(self.actions_of(vec![requested.clone()]).await?.pop().flatten())
    }

    /// The exact actions of many requests, in their order, with one blocking task.
    pub async fn actions_of(
        self: &Arc<Self>,
        requested: Vec<Requested>,
    ) -> Result<Vec<Option<Action>>, StoreError> {
        let governance = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let mut sessions: HashMap<String, Option<String>> = HashMap::new();
            let mut action = |requested: Requested| {
                let Requested { session, action, .. } = requested;
                let id = match sessions.get(&session) {
                    Some(known) => known.clone(),
                    None => {
                        let found = governance.storage.readers.now(|reader| reader.session(&session))?;
                        let is_key = session.parse::<SessionKey>().is_ok();
                        let id = found.filter(|_| is_key).map(|found| found.id);
                        sessions.entry(session).or_insert(id).clone()
                    }
                };
                let Some(id) = id else { return Ok(None) };
                let content = governance.storage.vault.content(&id, &action.to_string())?;
                Ok(content.and_then(|json| serde_json::from_slice(&json).ok()))
            };
            requested.into_iter().map(&mut action).collect()
        });
        read.await.map_err(|_| StoreError::Closed)?
    }

    /// The changed text that a call was allowed with, if it still exists.
    pub async fn approved_text(
        self: &Arc<Self>,
        requested: &Requested,
    ) -> Result<Option<String>, StoreError> {
        let Some((_, text)) = self.approved_rewording(requested).await? else { return Ok(None) };
        let (governance, name) = (Arc::clone(self), requested.session.clone());
        let read = tokio::task::spawn_blocking(move || {
            let session = governance.storage.readers.now(|reader| reader.session(&name))?;
            let Some(session) = session else { return Ok(None) };
            let content = governance.storage.vault.content(&session.id, &text.to_string())?;
            Ok(content.and_then(|content| String::from_utf8(content).ok()))
        });
        read.await.map_err(|_| StoreError::Closed)?
    }

    /// Who allowed a call with a changed text, and the commitment of that text in the ledger.
    pub(super) async fn approved_rewording(
        &self,
        requested: &Requested,
    ) -> Result<Option<(String, Commitment)>, StoreError> {
        let entity = approval_entity(&requested.id);
        let decided = self.storage.readers.read(move |reader| reader.head(&entity)).await?;
        let decided = decided.and_then(|stored| serde_json::from_str(&stored.entry.payload).ok());
        match decided {
            Some(ApprovalRecord::Decided(Decided { by, text: Some(text), .. })) => Ok(Some((by, text))),
            _ => Ok(None),
        }
    }

    /// Expires requests that nobody decided in time, until the daemon stops.
    pub async fn expire_approvals(self: Arc<Self>, stopping: CancellationToken) {
        let mut tick = tokio::time::interval(EXPIRY_TICK);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = stopping.cancelled() => return,
            }
            for requested in self.policy.gate.inbox.expire().await {
                self.finish(requested.id);
            }
        }
    }
}
