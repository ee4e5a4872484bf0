//! Calls that another harness makes: judged, parked and recorded here, carried out there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::Instant;
use tribune_constitution::{Decision, DecisionStage, EGRESS, LAND, Labels, SPEND, Trust};
use tribune_ledger::EntryQuality;
use tribune_records::approval::action::approval_id;
use tribune_records::approval::record::{ApprovalState, CallRunner};
use tribune_records::ledger_payloads::{CallOutcome, MailboxRecord};
use tribune_records::outcome::ToolRun;
use tribune_runtime::{ContentBlock, Handle, RuntimeError, SessionKey, ToolCall, ToolOutcome};
use tribune_storage::store::Reader;

use super::Governance;
use super::external_call_state::{Elsewhere, Judgement, Known};
use super::session_writer::SessionWriter;
use super::turn_recorder::{Recorded, TurnRecorder, denial, input_from};
use crate::gate::PolicyContext;
use crate::gate::hooks::HookSubject;

/// Bytes of a text of the owner that is remembered for provenance.
const MAX_OWNER_BYTES: usize = 64 << 10;

/// Bytes of a message that is labelled here.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// What a call is told that was allowed in another context, or under another law.
const STALE: &str = "the session has read more since this was allowed: ask again with another toolCallId";
const OTHER_LAW: &str =
    "the constitution is not the one that this was allowed under: ask again with another toolCallId";

/// What is told about a call that is over.
const OVER: &str = "what came of this call is on record already: give each call an id of its own";

/// What a call is told that would have to wait where too many do.
pub(super) const FULL: &str = "denied (ask.full): too many calls wait for a person already";

/// How long a request waits for a turn of the same session.
const FREE_SOON: Duration = Duration::from_secs(1);

/// What is known of each session's calls that others carry out.
pub(crate) type Calls = Mutex<HashMap<SessionKey, Elsewhere>>;

/// A message that came in.
#[derive(Debug)]
pub struct Heard {
    pub text: String,
    pub trust: Trust,
}

/// Whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExternalDecision {
    Allowed,
    Waits,
    Refused,
}

/// How a call stands.
#[derive(Debug)]
pub struct ExternalCallState {
    pub verdict: ExternalDecision,
    pub rules: Vec<String>,
    pub reason: String,
    pub approval: Option<String>,
    /// The verdict's entry.
    pub cid: String,
}

impl Governance {
    /// Labels what came in.
    pub async fn heard(self: &Arc<Self>, key: &SessionKey, heard: Heard) -> Result<Labels, RuntimeError> {
        if heard.text.len() > MAX_TEXT_BYTES {
            return Err(RuntimeError::new(
                "too_large",
                format!("a message has at most {MAX_TEXT_BYTES} bytes"),
            ));
        }
        let mut desk = self.desk(key).await?;
        // What the log knows of the session's calls is read before anything is remembered of it.
        self.known(&desk, "").await?;
        let who = HookSubject::of(&desk.journal.standing);
        let trust = self.gate.hooks.message_received(&who, &heard.text, heard.trust).await;
        let heard = Heard { trust, ..heard };
        let labels = Labels::new(trust, false);
        let content_hash = desk.content(&[ContentBlock::text(&heard.text)])?;
        let record =
            MailboxRecord { letter: String::new(), from: "harness".to_owned(), content_hash, labels };
        let target = Arc::clone(&desk.handle.session_id);
        desk.line(EntryQuality::MailboxInject, &target, Vec::new(), &record)?;
        desk.journal.standing.labels = desk.journal.standing.labels.meet(labels);
        desk.write().await?;
        if heard.trust == Trust::Owner && heard.text.len() <= MAX_OWNER_BYTES {
            self.of_session(key, |known| known.owner_said(heard.text));
        }
        Ok(desk.journal.standing.labels)
    }

    /// Judges a call, or tells how one stands that was asked for before. Waits for a person as long as it may.
    pub async fn asked_for(
        self: &Arc<Self>,
        key: &SessionKey,
        call: ToolCall,
        wait: Duration,
    ) -> Result<ExternalCallState, RuntimeError> {
        check(&call)?;
        let deadline = Instant::now() + wait;
        let mut changes = self.gate.inbox.watch();
        let mut standpoint = self.ask_or_look(key, &call).await?;
        while standpoint.verdict == ExternalDecision::Waits && Instant::now() < deadline {
            let changed = tokio::time::timeout_at(deadline, changes.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                break;
            }
            // Most changes are of other calls.
            if standpoint.approval.as_deref().is_some_and(|id| self.gate.inbox.is_undecided(id)) {
                continue;
            }
            standpoint = self.ask_or_look(key, &call).await?;
        }
        Ok(standpoint)
    }

    async fn ask_or_look(
        self: &Arc<Self>,
        key: &SessionKey,
        call: &ToolCall,
    ) -> Result<ExternalCallState, RuntimeError> {
        let desk = self.desk(key).await?;
        match self.known(&desk, &call.id).await? {
            Some(known) => self.look(&desk, &known, call).await,
            None => self.ask(desk, call.clone()).await,
        }
    }

    async fn ask(
        self: &Arc<Self>,
        mut desk: TurnRecorder,
        call: ToolCall,
    ) -> Result<ExternalCallState, RuntimeError> {
        let key = (*desk.handle.key).clone();
        let owner_words = self.of_session(&key, |known| known.owner_words().to_vec()).unwrap_or_default();
        let owner_words: Vec<&str> = owner_words.iter().map(String::as_str).collect();
        let vetoes = self.gate.hooks.objections(&HookSubject::of(&desk.journal.standing), &call).await;
        let recorded = desk.record_external_call(call, Vec::new(), (CallRunner::Caller, None))?;
        let standing = self.with_unreported(&desk, None).await?;
        let stage = (DecisionStage::Call, None);
        // Whoever asked carries it out; nothing here does, so the leave to do it is let go.
        let (_, verdict, placed) = desk.authorize(&recorded, &standing, stage, &owner_words, vetoes)?;
        let judged =
            Judgement::new(placed.cid, verdict.clone(), (self.gate.law.hash().to_string(), standing.labels));
        let judged = Arc::new(judged);
        let mut waits = None;
        let mut is_over = false;
        match verdict.decision {
            Decision::Allow => {}
            Decision::Deny => {
                let parents = vec![recorded.entry, placed.cid];
                desk.record_denial(&recorded, &denial(&verdict), CallOutcome::Denied, parents)?;
                is_over = true;
            }
            Decision::Ask if self.gate.inbox.has_room(key.as_str()) => {
                let action = self.gate.action_elsewhere(&standing, &recorded.call);
                let asked = (verdict, placed.cid);
                waits = Some(desk.request(&recorded, asked, &action, (0, None))?);
            }
            Decision::Ask => {
                let parents = vec![recorded.entry, placed.cid];
                desk.record_denial(&recorded, &ToolOutcome::error(FULL), CallOutcome::Denied, parents)?;
                is_over = true;
            }
        }
        let written = desk.write().await?;
        let mut standpoint = judged.standpoint();
        if let Some((requested, entry)) = waits {
            standpoint.verdict = ExternalDecision::Waits;
            standpoint.approval = Some(requested.id.clone());
            // Nobody waits inside this daemon; whoever asked looks again.
            drop(self.gate.inbox.ask(requested, entry));
        }
        desk.show(&written);
        let (entry, input_hash) = (recorded.entry, recorded.input_hash);
        let known = Known { entry, input_hash, tool: recorded.call.name, verdict: judged, is_over };
        self.of_session(&key, |calls| calls.remember(recorded.call.id, known, |tool| self.brings(tool)));
        Ok(standpoint)
    }

    /// How the session stands if every call that it may have made by now was made: what came of a call is often told
    /// late, or never, and the next one may be asked for before. `but` is the call that is looked at.
    async fn with_unreported(
        &self,
        desk: &TurnRecorder,
        but: Option<&str>,
    ) -> Result<PolicyContext, RuntimeError> {
        let mut standing = desk.journal.standing.clone();
        let asked = self.of_session(&desk.handle.key, |known| {
            standing.labels = standing.labels.meet(known.floor());
            for tool in known.allowed_untold(but) {
                standing.labels = standing.labels.meet(self.brings(tool));
            }
            // What nobody decides yet is not allowed; of the rest, the log knows.
            let undecided = |call: &&Known| self.gate.inbox.is_undecided(&approval_id(&call.entry, 0));
            let asked = known.asked_untold(but).filter(|call| !undecided(call));
            asked.map(|call| (call.entry.to_string(), call.tool.clone())).collect::<Vec<_>>()
        });
        let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(standing) };
        let allowed = move |reader: &Reader| {
            let mut allowed = Vec::new();
            for (call, tool) in asked {
                let approval = reader.approval_of_call(&call)?;
                allowed
                    .extend(approval.is_some_and(|row| row.state == ApprovalState::Allowed).then_some(tool));
            }
            Ok(allowed)
        };
        for tool in self.readers.read(allowed).await? {
            standing.labels = standing.labels.meet(self.brings(&tool));
        }
        Ok(standing)
    }

    /// What a call of a tool brings into its session.
    pub(super) fn brings(&self, tool: &str) -> Labels {
        Labels::for_output(self.gate.law.manifest(tool), None)
    }

    /// Looks at what is remembered of a session, if it is.
    fn of_session<T>(&self, key: &SessionKey, look: impl FnOnce(&mut Elsewhere) -> T) -> Option<T> {
        let mut elsewhere = self.external_calls.lock().unwrap_or_else(PoisonError::into_inner);
        elsewhere.get_mut(key).map(look)
    }

    /// How a recorded call stands.
    async fn look(
        &self,
        desk: &TurnRecorder,
        known: &Known,
        call: &ToolCall,
    ) -> Result<ExternalCallState, RuntimeError> {
        let words = self.vault.content(&desk.handle.session_id, &known.input_hash.to_string())?;
        if known.tool != call.name || words.as_deref().and_then(input_from).as_ref() != Some(&call.input) {
            let what = "this toolCallId was used for another call: give each call an id of its own";
            return Err(RuntimeError::new("conflict", what));
        }
        let call_id = &call.id;
        let call = known.entry.to_string();
        let approval = self.readers.read(move |reader| reader.approval_of_call(&call)).await?;
        let mut standpoint = known.verdict.standpoint();
        if let Some(row) = approval {
            standpoint.verdict = match row.state {
                ApprovalState::Pending => ExternalDecision::Waits,
                ApprovalState::Allowed => ExternalDecision::Allowed,
                ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Withdrawn => {
                    ExternalDecision::Refused
                }
            };
            match (row.state, row.decided_by, row.reason) {
                (ApprovalState::Denied, Some(by), Some(words)) => {
                    standpoint.reason = format!("denied by {by}: {words}")
                }
                (ApprovalState::Denied, Some(by), None) => standpoint.reason = format!("denied by {by}"),
                (ApprovalState::Expired, ..) => "nobody decided in time".clone_into(&mut standpoint.reason),
                _ => {}
            }
            standpoint.approval = Some(row.requested.id);
        }
        if standpoint.verdict != ExternalDecision::Allowed {
            return Ok(standpoint);
        }
        // A yes is for one call, made once, in the context and under the law that it was given in.
        if known.is_over {
            return Err(RuntimeError::new("conflict", OVER));
        }
        let refused = if self.gate.is_frozen() {
            Some("everything is stopped")
        } else if known.verdict.constitution != self.gate.law.hash().to_string() {
            Some(OTHER_LAW)
        } else if self.has_fallen(desk, call_id, known.verdict.labels).await? {
            Some(STALE)
        } else {
            None
        };
        if let Some(reason) = refused {
            standpoint.verdict = ExternalDecision::Refused;
            reason.clone_into(&mut standpoint.reason);
        }
        Ok(standpoint)
    }

    /// Whether the session has taken in more than it had when the call was judged, which is what whoever allowed it was told.
    async fn has_fallen(
        &self,
        desk: &TurnRecorder,
        call_id: &str,
        labels: Labels,
    ) -> Result<bool, RuntimeError> {
        let now = self.with_unreported(desk, Some(call_id)).await?.labels;
        Ok(labels.meet(now) != labels)
    }

    /// Records what came of a call, and moves labels.
    pub async fn done_elsewhere(
        self: &Arc<Self>,
        key: &SessionKey,
        call_id: &str,
        text: String,
        is_error: bool,
    ) -> Result<Labels, RuntimeError> {
        let mut desk = self.desk(key).await?;
        let Some(known) = self.known(&desk, call_id).await? else {
            return Err(RuntimeError::new(
                "not_found",
                "there is no such call: ask with before_tool_call first",
            ));
        };
        if known.is_over {
            return Err(RuntimeError::new("conflict", OVER));
        }
        let call = known.entry.to_string();
        let approval = self.readers.read(move |reader| reader.approval_of_call(&call)).await?;
        if approval.is_some_and(|row| row.state != ApprovalState::Allowed) {
            return Err(RuntimeError::new("conflict", "nobody allowed this call: it must not be made"));
        }
        let words = self.vault.content(&desk.handle.session_id, &known.input_hash.to_string())?;
        let input = words.as_deref().and_then(input_from).unwrap_or_default();
        let call = ToolCall { id: call_id.to_owned(), name: known.tool, input };
        let (entry, input_hash, runner) = (known.entry, known.input_hash, CallRunner::Caller);
        let recorded = Recorded { call, entry, input_hash, asked: None, runner, reworded_by: None };
        let outcome = ToolOutcome { content: text, is_error };
        self.tell_done(&desk.journal.standing, &recorded, &outcome);
        let done = ToolRun { outcome, code: None, touched: Vec::new(), sandbox: None };
        let result = desk.record_result(&recorded, &done)?;
        desk.write_outside_turn().await?;
        desk.tell_persisted(&recorded, &done.outcome, result);
        self.of_session(key, |calls| calls.is_told(call_id));
        Ok(desk.journal.standing.labels)
    }

    async fn desk(self: &Arc<Self>, key: &SessionKey) -> Result<TurnRecorder, RuntimeError> {
        if let Some(journal) = self.loaded(key) {
            let journal = unless_busy(journal).await?;
            // One that failed while this waited for it is read anew.
            if !journal.is_broken() {
                return Ok(TurnRecorder::new(Arc::clone(self), journal.handle.clone(), journal));
            }
        }
        let name = key.to_string();
        let row = self.readers.read(move |reader| reader.session(&name)).await?;
        let Some(row) = row else {
            return Err(RuntimeError::new("not_found", format!("there is no session `{key}`")));
        };
        let handle = Handle { key: Arc::new(key.clone()), session_id: row.id.as_str().into() };
        let journal = unless_busy(self.journal(&handle).await?).await?;
        Ok(TurnRecorder::new(Arc::clone(self), handle, journal))
    }

    /// A call of this session that was asked for before.
    async fn known(&self, desk: &TurnRecorder, call_id: &str) -> Result<Option<Known>, RuntimeError> {
        let key = (*desk.handle.key).clone();
        if let Some(known) = self.of_session(&key, |known| known.call(call_id).cloned()) {
            return Ok(known);
        }
        let (name, law) = (key.to_string(), Arc::clone(&self.gate.law));
        let brings = move |tool: &str| Labels::for_output(law.manifest(tool), None);
        let loaded = self
            .readers
            .read(move |reader| Elsewhere::load(reader, reader.session(&name)?.as_ref(), &brings))
            .await?;
        let mut elsewhere = self.external_calls.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(elsewhere.entry(key).or_insert(loaded).call(call_id).cloned())
    }
}

/// The session's history, unless a turn of its own keeps it: one that waits for a person may do so for a day.
async fn unless_busy(
    journal: Arc<AsyncMutex<SessionWriter>>,
) -> Result<OwnedMutexGuard<SessionWriter>, RuntimeError> {
    tokio::time::timeout(FREE_SOON, journal.lock_owned()).await.map_err(|_| {
        let what = "a turn of this session is running or waits for a person: ask again when it is over, or use a session of your own";
        RuntimeError::new("conflict", what)
    })
}

fn check(call: &ToolCall) -> Result<(), RuntimeError> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    let named = |text: &str, limit| (1..=limit).contains(&text.len()) && text.bytes().all(word);
    if [SPEND, EGRESS, LAND].contains(&call.name.as_str()) {
        let what = format!("`{}` is for the house alone to ask", call.name);
        return Err(RuntimeError::new("invalid_params", what));
    }
    if named(&call.name, 64) && named(&call.id, 128) {
        return Ok(());
    }
    let what =
        "toolName and toolCallId are made of letters, digits, `_`, `-`, `.` and `:`, 64 and 128 at most";
    Err(RuntimeError::new("invalid_params", what))
}
