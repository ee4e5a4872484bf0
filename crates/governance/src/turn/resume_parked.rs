//! Calls that outlived their turn: parked when the daemon ended, and decided later. Each is carried out at most once, and
//! its result reaches the agent as a letter before its next turn.

use std::sync::Arc;

use tribune_constitution::{DecisionStage, SPEND};
use tribune_ledger::Cid;
use tribune_records::approval::action::Action;
use tribune_records::approval::decision::ApprovalDecision;
use tribune_records::approval::record::{ApprovalState, Requested};
use tribune_records::ledger_payloads::ToolCallRecord;
use tribune_records::outcome::{Access, Resource};
use tribune_registry::mailbox::MAX_TEXT_BYTES;
use tribune_runtime::{EventKind, Handle, RuntimeError, SessionKey, ToolCall, ToolOutcome};
use tribune_storage::store::{ApprovalRow, OpenWork};

use super::Governance;
use super::calls::{action_now, run};
use super::turn_recorder::{Judged, Recorded, TurnRecorder, input_from};
use crate::approval::MAX_PENDING;
use crate::gate::Ticket;
use crate::spend::{share_a_limit, whose};

/// Who writes the letters about such calls.
const FROM: &str = "tribune";

/// Requests whose words are read in one go.
const READ_AT_ONCE: usize = 256;

/// What an agent learns of a call whose words are gone.
const LOST: &str = "its words were lost when the daemon ended, and it was not carried out: make it again if it is still needed";

impl Governance {
    /// Takes back the requests whose words never reached the disk: the daemon was killed while it wrote both, and nobody can
    /// decide what nobody can read.
    pub async fn withdraw_wordless(self: &Arc<Self>) -> Result<(), RuntimeError> {
        let waiting = self.readers.read(|reader| reader.pending_approvals(MAX_PENDING));
        let mut wordless = Vec::new();
        for some in waiting.await?.chunks(READ_AT_ONCE) {
            let some: Vec<Requested> = some.iter().map(|row| row.requested.clone()).collect();
            let ids: Vec<String> = some.iter().map(|requested| requested.id.clone()).collect();
            // Words that are there and cannot be opened are another matter, and told when they are asked for.
            let Ok(actions) = self.actions_of(some).await else { continue };
            wordless.extend(
                ids.into_iter().zip(actions).filter(|(_, action)| action.is_none()).map(|(id, _)| id),
            );
        }
        if wordless.is_empty() {
            return Ok(());
        }
        for requested in self.gate.inbox.withdraw(&wordless).await {
            self.finish(requested.id);
        }
        Ok(())
    }

    /// Takes up what an earlier daemon left parked and somebody had decided before it ended. Nobody waits for it to end.
    pub async fn resume_parked(self: &Arc<Self>) -> Result<(), RuntimeError> {
        let parked: Vec<OpenWork> = self
            .readers
            .read(|reader| Ok(reader.open_work()?.into_iter().filter(|work| work.kind == "parked").collect()))
            .await?;
        for work in parked {
            let row = self.readers.read(move |reader| reader.approval_of_call(&work.cid)).await?;
            if let Some(row) =
                row.filter(|row| row.state != ApprovalState::Pending && row.requested.runner.is_host())
            {
                self.finish(row.requested.id);
            }
        }
        Ok(())
    }

    /// Carries out, or refuses, a parked call that no turn waits for.
    pub(crate) async fn resume_decided(self: &Arc<Self>, id: &str) -> Result<(), RuntimeError> {
        let id = id.to_owned();
        match self.readers.read(move |reader| reader.approval(&id)).await? {
            Some(row) => self.resume(row).await,
            None => Ok(()),
        }
    }

    async fn resume(self: &Arc<Self>, row: ApprovalRow) -> Result<(), RuntimeError> {
        let ApprovalRow { requested, state, decided_by, reason, .. } = row;
        let Ok(key) = requested.session.parse::<SessionKey>() else { return Ok(()) };
        let name = requested.session.clone();
        let session = self.readers.read(move |reader| reader.session(&name)).await?;
        let Some(session) = session else { return Ok(()) };
        let handle = Handle { key: Arc::new(key), session_id: session.id.as_str().into() };
        let journal = self.journal(&handle).await?.lock_owned().await;
        // Looked at behind the lock: whoever held it may have finished the call.
        if !self.is_parked(&requested.call).await? {
            return Ok(());
        }
        let recorded = self.recorded(&handle, &requested).await?;
        let mut desk = TurnRecorder::new(Arc::clone(self), handle, journal);
        let Some(recorded) = recorded else { return self.give_up(desk, &requested).await };
        let recorded = self.as_asked(&mut desk, recorded, &requested).await?;
        let id = requested.id.clone();
        desk.event(EventKind::ApprovalDecided { id, state: state.as_str().to_owned() });
        if state != ApprovalState::Allowed {
            let ruling = match state {
                ApprovalState::Denied => {
                    ApprovalDecision::Denied { by: decided_by.unwrap_or_default(), reason, stop: false }
                }
                ApprovalState::Expired => ApprovalDecision::Expired,
                ApprovalState::Pending | ApprovalState::Allowed | ApprovalState::Withdrawn => {
                    ApprovalDecision::Withdrawn
                }
            };
            let outcome = ToolOutcome::error(ruling.sentence());
            let letter = [letter_of(&requested)];
            desk.record_not_executed(&recorded, &outcome, &letter)?;
            desk.write_outside_turn().await?;
            self.send_letter(&desk, &requested, Some(&recorded.call), &outcome);
            return Ok(());
        }
        self.carry_out(desk, recorded, requested).await
    }

    /// Ends a call whose words are gone: what it was is not known any more, so it cannot be carried out.
    async fn give_up(&self, mut desk: TurnRecorder, requested: &Requested) -> Result<(), RuntimeError> {
        let Ok(call) = requested.call.parse() else { return Ok(()) };
        desk.record_unreadable(requested, call, &[letter_of(requested)])?;
        desk.write_outside_turn().await?;
        self.send_letter(&desk, requested, None, &ToolOutcome::error(LOST));
        Ok(())
    }

    async fn carry_out(
        self: &Arc<Self>,
        mut desk: TurnRecorder,
        recorded: Recorded,
        requested: Requested,
    ) -> Result<(), RuntimeError> {
        let now = action_now(&desk, &recorded.call).await?;
        // Whatever happens from here on, it happens in the words that were allowed.
        let recorded = match self.rewording_of(&desk, &requested).await? {
            Some((by, text)) => desk.reworded(recorded, by, &text)?,
            None => recorded,
        };
        if !self.gate.still_fits(&requested, &now) {
            return self.ask_again(desk, recorded, requested).await;
        }
        let (stage, letter) =
            ((DecisionStage::Dispatch, Some(requested.id.as_str())), [letter_of(&requested)]);
        match desk.judge_telling(&recorded, stage, &[], Vec::new(), &letter)? {
            Judged::Allowed(ticket) => self.run_ticket(desk, recorded, requested, ticket).await,
            Judged::Denied(outcome, _) => {
                desk.write_outside_turn().await?;
                self.send_letter(&desk, &requested, Some(&recorded.call), &outcome);
                Ok(())
            }
            Judged::Asked(..) => self.ask_again(desk, recorded, requested).await,
        }
    }

    async fn run_ticket(
        self: &Arc<Self>,
        mut desk: TurnRecorder,
        recorded: Recorded,
        requested: Requested,
        ticket: Ticket,
    ) -> Result<(), RuntimeError> {
        let written = desk.write_outside_turn().await?;
        let Some(admission) = ticket.redeem(&written) else { return Ok(()) };
        let mut done = run(&*self.tools, admission, None).await;
        recorded.tell_reworded(&mut done);
        done.touched.push(letter_of(&requested));
        self.tell_done(&desk.journal.standing, &recorded, &done.outcome);
        let result = desk.record_result(&recorded, &done)?;
        desk.write_outside_turn().await?;
        desk.tell_persisted(&recorded, &done.outcome, result);
        self.send_letter(&desk, &requested, Some(&recorded.call), &done.outcome);
        drop(desk);
        self.answer_others(&recorded.call, &done.outcome).await;
        Ok(())
    }

    /// A limit that was raised answers all who wait for the same one: those that need still more ask again.
    pub(super) async fn answer_others(self: &Arc<Self>, call: &ToolCall, outcome: &ToolOutcome) {
        if call.name != SPEND || outcome.is_error {
            return;
        }
        let mut answered = Vec::new();
        for requested in self.gate.inbox.waiting_of(SPEND) {
            if let Ok(Some(action)) = self.action_of(&requested).await
                && share_a_limit(&call.input, &action.input)
            {
                answered.push(requested.id);
            }
        }
        if answered.is_empty() {
            return;
        }
        for requested in self.gate.inbox.answer(&answered).await {
            self.finish(requested.id);
        }
    }

    /// What was approved is not what would run: back to the inbox, with what changed.
    async fn ask_again(
        self: &Arc<Self>,
        mut desk: TurnRecorder,
        recorded: Recorded,
        requested: Requested,
    ) -> Result<(), RuntimeError> {
        let now = action_now(&desk, &recorded.call).await?;
        let before = self.asked_action(&desk, &requested)?;
        let changed = before.map_or_else(Vec::new, |before| before.changed(&now));
        let letter = [letter_of(&requested)];
        match desk.judge_telling(&recorded, (DecisionStage::Dispatch, None), &[], Vec::new(), &letter)? {
            Judged::Asked(verdict, entry) => {
                let attempt = attempt_after(&recorded.entry, &requested.id);
                let instead_of = Some((requested.id, changed));
                let (requested, request) =
                    desk.request(&recorded, (verdict, entry), &now, (attempt, instead_of))?;
                let written = desk.write().await?;
                // Nobody waits in this daemon: dropping the receiver leaves it an orphan, which the next decision finds.
                drop(self.gate.inbox.ask(requested, request));
                desk.show(&written);
                Ok(())
            }
            Judged::Denied(outcome, _) => {
                desk.write_outside_turn().await?;
                self.send_letter(&desk, &requested, Some(&recorded.call), &outcome);
                Ok(())
            }
            Judged::Allowed(ticket) => self.run_ticket(desk, recorded, requested, ticket).await,
        }
    }

    /// What was asked for, if it is still there.
    fn asked_action(
        &self,
        desk: &TurnRecorder,
        requested: &Requested,
    ) -> Result<Option<Action>, RuntimeError> {
        let action = requested.action.to_string();
        let json = self.vault.content(&desk.handle.session_id, &action)?;
        Ok(json.and_then(|json| serde_json::from_slice(&json).ok()))
    }

    /// The call as the request has it: one that came back to the inbox may have been put into other words before.
    async fn as_asked(
        &self,
        desk: &mut TurnRecorder,
        recorded: Recorded,
        requested: &Requested,
    ) -> Result<Recorded, RuntimeError> {
        let (Some(before), Some(action)) = (&requested.instead_of, self.asked_action(desk, requested)?)
        else {
            return Ok(recorded);
        };
        if action.input == recorded.call.input {
            return Ok(recorded);
        }
        let before = before.clone();
        let before = self.readers.read(move |reader| reader.approval(&before)).await?;
        let by = before.and_then(|row| row.decided_by).unwrap_or_else(|| FROM.to_owned());
        desk.in_place(recorded, by, action.input)
    }

    /// Who let the call go in other words, and in which.
    async fn rewording_of(
        &self,
        desk: &TurnRecorder,
        requested: &Requested,
    ) -> Result<Option<(String, String)>, RuntimeError> {
        let Some((by, text)) = self.other_words(requested).await? else { return Ok(None) };
        let words = self.vault.content(&desk.handle.session_id, &text.to_string())?;
        match words.map(String::from_utf8) {
            Some(Ok(words)) => Ok(Some((by, words))),
            // Without the words that were allowed, nothing was.
            _ => Err(RuntimeError::new("internal", "the words that were allowed are gone")),
        }
    }

    async fn is_parked(&self, call: &str) -> Result<bool, RuntimeError> {
        let call = call.to_owned();
        self.readers
            .read(move |reader| {
                Ok(reader.open_work()?.iter().any(|work| work.cid == call && work.kind == "parked"))
            })
            .await
            .map_err(RuntimeError::from)
    }

    /// The call as it was asked for, if its words are still there.
    async fn recorded(
        &self,
        handle: &Handle,
        requested: &Requested,
    ) -> Result<Option<Recorded>, RuntimeError> {
        let Ok(entry) = requested.call.parse::<Cid>() else { return Ok(None) };
        let record: Option<ToolCallRecord> = self.record_of(entry).await?;
        let Some(record) = record else { return Ok(None) };
        let words = self.vault.content(&handle.session_id, &record.input_hash.to_string())?;
        let Some(input) = words.as_deref().and_then(input_from) else { return Ok(None) };
        // The law looks at what was asked for too; without that it cannot.
        let asked = match record.asked_hash {
            None => None,
            Some(hash) => {
                let words = self.vault.content(&handle.session_id, &hash.to_string())?;
                let Some(asked) = words.as_deref().and_then(input_from) else { return Ok(None) };
                Some(asked)
            }
        };
        let call = ToolCall { id: record.call_id, name: record.tool, input };
        Ok(Some(Recorded {
            call,
            entry,
            input_hash: record.input_hash,
            asked,
            runner: record.runner,
            reworded_by: None,
        }))
    }

    /// Tells the agent what came of a call, whose words may be gone.
    fn send_letter(
        &self,
        desk: &TurnRecorder,
        requested: &Requested,
        call: Option<&ToolCall>,
        outcome: &ToolOutcome,
    ) {
        let text = letter(requested, call, outcome);
        let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
        let (agent, now) = (desk.handle.key.agent(), self.clock.now());
        if let Err(error) = self.mailbox.send(FROM, agent, text, now, &letter_id(requested)) {
            tracing::warn!(%error, "the result of a call that had waited could not be sent to its agent");
        }
    }
}

/// What a letter says. The house asked for more to spend, not the agent, so that is told in other words.
fn letter(requested: &Requested, call: Option<&ToolCall>, outcome: &ToolOutcome) -> String {
    let (tool, content) = (&requested.tool, &outcome.content);
    if tool != SPEND {
        let id = &requested.call_id;
        return format!("your call `{id}` of `{tool}`, which waited for approval, came to this: {content}");
    }
    let budget = match call {
        Some(call) => format!("the budget of {}", whose(&call.input)),
        None => "the budget".to_owned(),
    };
    match outcome.is_error {
        true if *content == ApprovalDecision::Withdrawn.sentence() => {
            format!("{budget} is not asked about any more: it was raised otherwise, or nobody waits for it")
        }
        true => format!("{budget} was not raised: {content}"),
        false => format!("{budget} was raised"),
    }
}

/// What the name of a letter about a call begins with; the approval's follows.
const ABOUT: &str = "approval-";

fn letter_id(requested: &Requested) -> String {
    format!("{ABOUT}{}", requested.id)
}

/// The approval that a letter is about, if it is one of these.
pub(super) fn approval_of(letter: &str) -> Option<&str> {
    letter.strip_prefix(ABOUT)
}

/// The letter about a call, which is as trusted as the session that made it.
fn letter_of(requested: &Requested) -> Access {
    Access::Wrote(Resource::Letter(letter_id(requested)))
}

/// The number of the next attempt: ids are made from the call and the attempt.
fn attempt_after(call: &Cid, id: &str) -> u32 {
    (0..64)
        .find(|attempt| tribune_records::approval::action::approval_id(call, *attempt) == id)
        .map_or(64, |attempt| attempt + 1)
}
