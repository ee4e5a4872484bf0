//! Calls that an external harness executes: decided, parked and recorded here, executed there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::Instant;
use tribune_constitution::{Decision, DecisionStage, EGRESS, LAND, Labels, SPEND, Trust};
use tribune_ledger::EntryQuality;
use tribune_records::approval::action::{Action, approval_id};
use tribune_records::approval::record::{ApprovalState, CallRunner};
use tribune_records::ledger_payloads::{CallOutcome, MailboxRecord};
use tribune_records::outcome::ToolRun;
use tribune_runtime::{ContentBlock, ErrorKind, Handle, RuntimeError, SessionKey, ToolCall, ToolOutcome};
use tribune_storage::store::Reader;

use super::Governance;
use super::call_decision::{Attempt, CallReview, digest_of};
use super::external_call_state::{ExternalCall, ExternalCalls, ExternalVerdict, UnaskedRefusal};
use super::session_writer::SessionWriter;
use super::turn_recorder::{LedgerCall, TurnRecorder, input_from};
use crate::gate::PolicyContext;
use crate::gate::hooks::HookSubject;

/// Maximum size of a text of the owner that is kept for provenance.
const MAX_OWNER_BYTES: usize = 64 << 10;

/// Maximum size of a message that is labelled here.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// The answers to a call that was allowed in another context, or under another law.
const STALE: &str =
    "the session has read more since this call was allowed: ask again with another toolCallId";
const OTHER_LAW: &str =
    "the constitution has changed since this call was allowed: ask again with another toolCallId";

/// The answer about a call that is over.
const OVER: &str = "the result of this call is already recorded: give each call its own id";

/// The answer about a call that waited for the decision about an equal one, when that one was allowed.
const ANSWERED: &str =
    "the same call was allowed once, under another toolCallId: ask again if it is to be made once more";

/// The denial of a call that would wait for a person when too many calls do already.
pub(super) const FULL: &str = "denied (ask.full): too many calls wait for a person already";

/// How long a request waits for a running turn of the same session.
const TURN_WAIT: Duration = Duration::from_secs(1);

/// The external calls of each session.
pub(super) type Calls = Mutex<HashMap<SessionKey, ExternalCalls>>;

/// A message that the harness received.
#[derive(Debug)]
pub struct ExternalMessage {
    pub text: String,
    pub trust: Trust,
}

/// Whether a call may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExternalDecision {
    Allowed,
    Waits,
    Refused,
}

/// The state of an external call.
#[derive(Debug)]
pub struct ExternalCallState {
    pub verdict: ExternalDecision,
    pub rules: Vec<String>,
    pub reason: String,
    pub approval: Option<String>,
    /// The entry of the verdict.
    pub cid: String,
}

impl Governance {
    /// Records a received message and applies its labels to the session.
    pub async fn record_external_message(
        self: &Arc<Self>,
        key: &SessionKey,
        message: ExternalMessage,
    ) -> Result<Labels, RuntimeError> {
        if message.text.len() > MAX_TEXT_BYTES {
            return Err(RuntimeError::new(
                ErrorKind::TooLarge,
                format!("a message has at most {MAX_TEXT_BYTES} bytes"),
            ));
        }
        let mut recorder = self.open_recorder(key).await?;
        // The state of the session is loaded from the ledger before anything is added to it.
        self.known(&recorder, "").await?;
        let who = HookSubject::of(&recorder.writer.context);
        let trust = self.policy.gate.hooks.message_received(&who, &message.text, message.trust).await;
        let message = ExternalMessage { trust, ..message };
        let labels = Labels::new(trust, false);
        let content_hash = recorder.content(&[ContentBlock::text(&message.text)])?;
        let record =
            MailboxRecord { letter: String::new(), from: "harness".to_owned(), content_hash, labels };
        let target = Arc::clone(&recorder.handle.session_id);
        recorder.line(EntryQuality::MailboxInject, &target, Vec::new(), &record)?;
        recorder.writer.context.labels = recorder.writer.context.labels.meet(labels);
        recorder.write().await?;
        if message.trust == Trust::Owner {
            self.policy.gate.inbox.lift_denials(key.as_str()).await?;
            if message.text.len() <= MAX_OWNER_BYTES {
                self.of_session(key, |known| known.owner_words.add(message.text));
            }
        }
        Ok(recorder.writer.context.labels)
    }

    /// Decides about a call, or returns the state of a call that was requested before. Waits for a person up to `wait`.
    pub async fn request_external_call(
        self: &Arc<Self>,
        key: &SessionKey,
        call: ToolCall,
        wait: Duration,
    ) -> Result<ExternalCallState, RuntimeError> {
        check(&call)?;
        let deadline = Instant::now() + wait;
        let mut changes = self.policy.gate.inbox.watch();
        let mut state = self.ask_or_state_of(key, &call).await?;
        while state.verdict == ExternalDecision::Waits && Instant::now() < deadline {
            let changed = tokio::select! {
                changed = tokio::time::timeout_at(deadline, changes.changed()) => changed,
                // No decision can be recorded any more.
                error = self.storage.ledger.wait_failed() => return Err(error.into()),
            };
            if !matches!(changed, Ok(Ok(()))) {
                break;
            }
            // Most changes concern other calls.
            if state.approval.as_deref().is_some_and(|id| self.policy.gate.inbox.is_undecided(id)) {
                continue;
            }
            state = self.ask_or_state_of(key, &call).await?;
        }
        Ok(state)
    }

    async fn ask_or_state_of(
        self: &Arc<Self>,
        key: &SessionKey,
        call: &ToolCall,
    ) -> Result<ExternalCallState, RuntimeError> {
        let recorder = self.open_recorder(key).await?;
        match self.known(&recorder, &call.id).await? {
            Some(known) => self.state_of(&recorder, &known, call).await,
            None => self.ask(recorder, call.clone()).await,
        }
    }

    async fn ask(
        self: &Arc<Self>,
        mut recorder: TurnRecorder,
        call: ToolCall,
    ) -> Result<ExternalCallState, RuntimeError> {
        let key = (*recorder.handle.key).clone();
        let owner_words = self.of_session(&key, |known| Arc::clone(&known.owner_words));
        let vetoes =
            self.policy.gate.hooks.objections(&HookSubject::of(&recorder.writer.context), &call).await;
        let recorded = recorder.record_external_call(call, Vec::new(), CallRunner::Caller, None)?;
        let context = self.context_with_unreported(&recorder, None).await?;
        // The caller executes the call, so the allow token is dropped here.
        let review =
            CallReview { owner_words: owner_words.as_deref(), vetoes, ..CallReview::at(DecisionStage::Call) };
        let (_, verdict, position) = recorder.authorize(&recorded, &context, review)?;
        let law = self.policy.gate.law.hash().to_string();
        let recorded_verdict =
            Arc::new(ExternalVerdict::new(position.cid, verdict.clone(), law, context.labels));
        let mut waits = None;
        let mut refused = None;
        match verdict.decision {
            Decision::Allow => {}
            Decision::Deny => refused = Some(UnaskedRefusal::by_law(&verdict)),
            Decision::Ask => {
                let action = self.policy.gate.action_elsewhere(&context, &recorded.call);
                refused = self.refused_unasked(&context, &key, &recorded.call.name, &action)?;
                if refused.is_none() {
                    let request =
                        recorder.request(&recorded, verdict, position.cid, &action, Attempt::FIRST)?;
                    waits = Some(request);
                }
            }
        }
        if let Some(UnaskedRefusal { outcome, .. }) = &refused {
            let parents = vec![recorded.entry, position.cid];
            recorder.record_denial(&recorded, outcome, CallOutcome::Denied, parents)?;
        }
        let written = recorder.write().await?;
        let mut state = recorded_verdict.state();
        let is_over = refused.is_some();
        let waits_with = refused.and_then(|refused| refused.apply(&mut state));
        if let Some((requested, entry)) = waits {
            state.verdict = ExternalDecision::Waits;
            state.approval = Some(requested.id.clone());
            // No task of this daemon waits; the caller asks again.
            drop(self.policy.gate.inbox.ask(requested, context.tier, entry));
        }
        recorder.show(&written);
        let (entry, input_hash) = (recorded.entry, recorded.input_hash);
        let tool = recorded.call.name;
        let known = ExternalCall { entry, input_hash, tool, verdict: recorded_verdict, is_over, waits_with };
        self.of_session(&key, |calls| calls.remember(recorded.call.id, known, |tool| self.brings(tool)));
        Ok(state)
    }

    /// Why no person is asked about an action: the answer is known, the same question waits, or too many wait.
    fn refused_unasked(
        &self,
        context: &PolicyContext,
        key: &SessionKey,
        tool: &str,
        action: &Action,
    ) -> Result<Option<UnaskedRefusal>, RuntimeError> {
        let inbox = &self.policy.gate.inbox;
        let known = inbox.known_action(key.as_str(), tool, &digest_of(action)?);
        Ok(match known {
            Some(known) => Some(UnaskedRefusal::known(known)),
            None => {
                (!inbox.has_room(key.as_str(), context.tier)).then(|| UnaskedRefusal::with(FULL.to_owned()))
            }
        })
    }

    /// The policy context of the session under the assumption that every call that may have been executed was: results
    /// are often reported late, or never, and the next call may be requested before. `but` is the call that is looked
    /// at.
    async fn context_with_unreported(
        &self,
        recorder: &TurnRecorder,
        but: Option<&str>,
    ) -> Result<PolicyContext, RuntimeError> {
        let mut context = recorder.writer.context.clone();
        let asked = self.of_session(&recorder.handle.key, |known| {
            context.labels = context.labels.meet(known.floor());
            for tool in known.allowed_unreported(but) {
                context.labels = context.labels.meet(self.brings(tool));
            }
            // A pending request is not allowed yet. The ledger has the state of the others.
            let undecided =
                |call: &&ExternalCall| self.policy.gate.inbox.is_undecided(&approval_id(&call.entry, 0));
            let asked = known.asked_unreported(but).filter(|call| !undecided(call));
            asked.map(|call| (call.entry.to_string(), call.tool.clone())).collect::<Vec<_>>()
        });
        let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(context) };
        let allowed = move |reader: &Reader| {
            let mut allowed = Vec::new();
            for (call, tool) in asked {
                let approval = reader.approval_of_call(&call)?;
                allowed
                    .extend(approval.is_some_and(|row| row.state == ApprovalState::Allowed).then_some(tool));
            }
            Ok(allowed)
        };
        for tool in self.storage.readers.read(allowed).await? {
            context.labels = context.labels.meet(self.brings(&tool));
        }
        Ok(context)
    }

    /// The labels that a call of a tool brings into its session.
    pub(super) fn brings(&self, tool: &str) -> Labels {
        Labels::for_output(self.policy.gate.law.manifest(tool), None)
    }

    /// Accesses the state of a session, if it is loaded.
    fn of_session<T>(&self, key: &SessionKey, access: impl FnOnce(&mut ExternalCalls) -> T) -> Option<T> {
        let mut calls = self.live.external_calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get_mut(key).map(access)
    }

    /// The state of a recorded call.
    async fn state_of(
        &self,
        recorder: &TurnRecorder,
        known: &ExternalCall,
        call: &ToolCall,
    ) -> Result<ExternalCallState, RuntimeError> {
        let content =
            self.storage.vault.content(&recorder.handle.session_id, &known.input_hash.to_string())?;
        if known.tool != call.name || content.as_deref().and_then(input_from).as_ref() != Some(&call.input) {
            let what = "this toolCallId was used for another call: give each call its own id";
            return Err(RuntimeError::new(ErrorKind::Conflict, what));
        }
        let call_id = &call.id;
        let (call, waits_with) = (known.entry.to_string(), known.waits_with.clone());
        let approval = move |reader: &Reader| match waits_with {
            Some(id) => reader.approval(&id),
            None => reader.approval_of_call(&call),
        };
        let approval = self.storage.readers.read(approval).await?;
        let mut state = known.verdict.state();
        if let Some(row) = approval {
            state.verdict = match row.state {
                ApprovalState::Pending => ExternalDecision::Waits,
                ApprovalState::Allowed => ExternalDecision::Allowed,
                ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Withdrawn => {
                    ExternalDecision::Refused
                }
            };
            match (row.state, row.decided_by, row.reason) {
                (ApprovalState::Denied, Some(by), Some(reason)) => {
                    state.reason = format!("denied by {by}: {reason}")
                }
                (ApprovalState::Denied, Some(by), None) => state.reason = format!("denied by {by}"),
                (ApprovalState::Withdrawn, ..) => {
                    let stopped = self.policy.gate.session_stop_reason(recorder.handle.key.as_str());
                    state.reason = stopped.unwrap_or(state.reason);
                }
                (ApprovalState::Expired, ..) => "nobody decided in time".clone_into(&mut state.reason),
                _ => {}
            }
            state.approval = Some(row.requested.id);
        }
        if known.waits_with.is_some() && state.verdict == ExternalDecision::Allowed {
            // The decision was for one call, and that is the other one.
            state.verdict = ExternalDecision::Refused;
            ANSWERED.clone_into(&mut state.reason);
        }
        if state.verdict != ExternalDecision::Allowed {
            return Ok(state);
        }
        // An allow is for one call, executed once, in the context and under the law that it was given in.
        if known.is_over {
            return Err(RuntimeError::new(ErrorKind::Conflict, OVER));
        }
        let refused =
            if let Some(stopped) = self.policy.gate.session_stop_reason(recorder.handle.key.as_str()) {
                Some(stopped)
            } else if self.policy.gate.is_frozen() {
                Some("everything is stopped".to_owned())
            } else if known.verdict.constitution != self.policy.gate.law.hash().to_string() {
                Some(OTHER_LAW.to_owned())
            } else if self.labels_lowered(recorder, call_id, known.verdict.labels).await? {
                Some(STALE.to_owned())
            } else {
                None
            };
        if let Some(reason) = refused {
            state.verdict = ExternalDecision::Refused;
            state.reason = reason;
        }
        Ok(state)
    }

    /// Whether the labels of the session are lower than when the gate decided about the call. Those labels were shown
    /// to the approver.
    async fn labels_lowered(
        &self,
        recorder: &TurnRecorder,
        call_id: &str,
        labels: Labels,
    ) -> Result<bool, RuntimeError> {
        let now = self.context_with_unreported(recorder, Some(call_id)).await?.labels;
        Ok(labels.meet(now) != labels)
    }

    /// Records the result of a call, and propagates its labels.
    pub async fn record_external_result(
        self: &Arc<Self>,
        key: &SessionKey,
        call_id: &str,
        text: String,
        is_error: bool,
    ) -> Result<Labels, RuntimeError> {
        let mut recorder = self.open_recorder(key).await?;
        let Some(known) = self.known(&recorder, call_id).await? else {
            return Err(RuntimeError::new(
                ErrorKind::NotFound,
                "there is no such call: ask with before_tool_call first",
            ));
        };
        if known.is_over {
            return Err(RuntimeError::new(ErrorKind::Conflict, OVER));
        }
        let call = known.entry.to_string();
        let approval = self.storage.readers.read(move |reader| reader.approval_of_call(&call)).await?;
        if approval.is_some_and(|row| row.state != ApprovalState::Allowed) {
            return Err(RuntimeError::new(
                ErrorKind::Conflict,
                "this call is not allowed: it must not be made",
            ));
        }
        let content =
            self.storage.vault.content(&recorder.handle.session_id, &known.input_hash.to_string())?;
        let input = content.as_deref().and_then(input_from).unwrap_or_default();
        let call = ToolCall { id: call_id.to_owned(), name: known.tool, input };
        let (entry, input_hash, runner) = (known.entry, known.input_hash, CallRunner::Caller);
        let recorded =
            LedgerCall { call, entry, input_hash, original_input: None, runner, reworded_by: None };
        let outcome = ToolOutcome { content: text, is_error };
        self.notify_after_call(&recorder.writer.context, &recorded, &outcome);
        let done = ToolRun { outcome, code: None, touched: Vec::new(), sandbox: None };
        let result = recorder.record_result(&recorded, &done)?;
        recorder.write_outside_turn().await?;
        recorder.notify_result_recorded(&recorded, &done.outcome, result);
        self.of_session(key, |calls| calls.mark_over(call_id));
        Ok(recorder.writer.context.labels)
    }

    async fn open_recorder(self: &Arc<Self>, key: &SessionKey) -> Result<TurnRecorder, RuntimeError> {
        if let Some(writer) = self.loaded(key) {
            let writer = lock_unless_busy(writer).await?;
            // A writer that failed during the wait is loaded again.
            if !writer.is_broken() {
                return Ok(TurnRecorder::new(Arc::clone(self), writer.handle.clone(), writer));
            }
        }
        let name = key.to_string();
        let row = self.storage.readers.read(move |reader| reader.session(&name)).await?;
        let Some(row) = row else {
            return Err(RuntimeError::new(ErrorKind::NotFound, format!("there is no session `{key}`")));
        };
        let handle = Handle { key: Arc::new(key.clone()), session_id: row.id.as_str().into() };
        let writer = lock_unless_busy(self.session_writer(&handle).await?).await?;
        Ok(TurnRecorder::new(Arc::clone(self), handle, writer))
    }

    /// The call of this session with this id, if it was requested before.
    async fn known(
        &self,
        recorder: &TurnRecorder,
        call_id: &str,
    ) -> Result<Option<ExternalCall>, RuntimeError> {
        let key = (*recorder.handle.key).clone();
        if let Some(known) = self.of_session(&key, |known| known.call(call_id).cloned()) {
            return Ok(known);
        }
        let (name, law) = (key.to_string(), Arc::clone(&self.policy.gate.law));
        let brings = move |tool: &str| Labels::for_output(law.manifest(tool), None);
        let loaded = self
            .storage
            .readers
            .read(move |reader| ExternalCalls::load(reader, reader.session(&name)?.as_ref(), &brings))
            .await?;
        let mut calls = self.live.external_calls.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(calls.entry(key).or_insert(loaded).call(call_id).cloned())
    }
}

/// Locks the writer of the session. Fails if a turn holds it: a turn that waits for a person may do so for a day.
async fn lock_unless_busy(
    writer: Arc<AsyncMutex<SessionWriter>>,
) -> Result<OwnedMutexGuard<SessionWriter>, RuntimeError> {
    tokio::time::timeout(TURN_WAIT, writer.lock_owned()).await.map_err(|_| {
        let what = "a turn of this session is running or waits for a person: ask again when it is over, or use your own session";
        RuntimeError::new(ErrorKind::Conflict, what)
    })
}

fn check(call: &ToolCall) -> Result<(), RuntimeError> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    let named = |text: &str, limit| (1..=limit).contains(&text.len()) && text.bytes().all(word);
    if [SPEND, EGRESS, LAND].contains(&call.name.as_str()) {
        let what = format!("only the daemon may ask for `{}`", call.name);
        return Err(RuntimeError::new(ErrorKind::InvalidParams, what));
    }
    if named(&call.name, 64) && named(&call.id, 128) {
        return Ok(());
    }
    let what = "toolName and toolCallId consist of letters, digits, `_`, `-`, `.` and `:`, with at most 64 and 128 characters";
    Err(RuntimeError::new(ErrorKind::InvalidParams, what))
}
