//! The state of calls that external harnesses execute, in memory and as the ledger has it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tribune_constitution::{Decision, Labels, Verdict};
use tribune_ledger::commitment::Commitment;
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::approval::record::CallRunner;
use tribune_records::ledger_payloads::{ToolCallRecord, VerdictRecord};
use tribune_runtime::ToolOutcome;
use tribune_storage::store::{Reader, SessionRow, StoreError};

use super::call_decision::denial;
use super::external_calls::{ExternalCallState, ExternalDecision};
use crate::approval::KnownAction;
use crate::gate::OwnerWords;

/// Messages of a session that are searched for calls from before a restart.
const MAX_MESSAGES_SEARCHED: usize = 1_000;

/// Calls of one session that are kept in memory.
const MAX_CALLS: usize = 4_096;

/// The calls of one session that an external harness executes.
#[derive(Debug)]
pub(super) struct ExternalCalls {
    calls: HashMap<String, ExternalCall>,
    /// Their ids, oldest first.
    order: VecDeque<String>,
    /// Calls whose result was not reported: how many of each tool were allowed, and the ids of those that a person was
    /// asked about.
    allowed: BTreeMap<String, usize>,
    asked: HashSet<String>,
    /// The labels of calls that are not kept one by one and whose result was not reported.
    floor: Labels,
    /// What the harness handed in as the owner's.
    pub(super) owner_words: Arc<OwnerWords>,
}

impl ExternalCalls {
    /// Loads the state from the ledger. `brings` gives the labels that a call of a tool brings into a session.
    pub(super) fn load(
        reader: &Reader,
        row: Option<&SessionRow>,
        brings: impl Fn(&str) -> Labels,
    ) -> Result<Self, StoreError> {
        let mut state = Self {
            calls: HashMap::new(),
            order: VecDeque::new(),
            allowed: BTreeMap::new(),
            asked: HashSet::new(),
            floor: Labels::FRESH,
            owner_words: Arc::default(),
        };
        let Some(row) = row else { return Ok(state) };
        for (id, known) in calls_of(reader, row)? {
            state.remember(id, known, &brings);
        }
        // Calls that are too far back to be kept one by one count as well.
        for tool in reader.unreported_tools(&row.key)? {
            state.floor = state.floor.meet(brings(&tool));
        }
        Ok(state)
    }

    pub(super) fn call(&self, id: &str) -> Option<&ExternalCall> {
        self.calls.get(id)
    }

    /// Adds a call. The oldest one is dropped if there are too many; if its result was not reported, it counts as
    /// executed from then on.
    pub(super) fn remember(&mut self, id: String, known: ExternalCall, brings: impl Fn(&str) -> Labels) {
        if let Some(before) = self.calls.remove(&id) {
            self.uncount(&id, &before);
        } else {
            self.order.push_back(id.clone());
        }
        match known.verdict.decision {
            Decision::Allow if !known.is_over => *self.allowed.entry(known.tool.clone()).or_default() += 1,
            Decision::Ask if !known.is_over => drop(self.asked.insert(id.clone())),
            Decision::Allow | Decision::Ask | Decision::Deny => {}
        }
        self.calls.insert(id, known);
        while self.calls.len() > MAX_CALLS {
            let Some(oldest) = self.order.pop_front() else { return };
            let Some(known) = self.calls.remove(&oldest) else { continue };
            self.uncount(&oldest, &known);
            if !known.is_over && known.verdict.decision != Decision::Deny {
                self.floor = self.floor.meet(brings(&known.tool));
            }
        }
    }

    /// Removes a call from the counts of calls whose result was not reported.
    fn uncount(&mut self, id: &str, known: &ExternalCall) {
        if known.is_over {
            return;
        }
        self.asked.remove(id);
        if known.verdict.decision == Decision::Allow
            && let Some(count) = self.allowed.get_mut(&known.tool)
        {
            *count -= 1;
            if *count == 0 {
                self.allowed.remove(&known.tool);
            }
        }
    }

    /// Marks a call as over: its result is recorded.
    pub(super) fn mark_over(&mut self, id: &str) {
        if let Some(known) = self.calls.get(id).cloned() {
            self.uncount(id, &known);
            self.calls.insert(id.to_owned(), ExternalCall { is_over: true, ..known });
        }
    }

    /// The labels of unreported calls that are not kept one by one.
    pub(super) const fn floor(&self) -> Labels {
        self.floor
    }

    /// The tools of calls that were allowed and whose result was not reported, except for this call.
    pub(super) fn allowed_unreported(&self, but: Option<&str>) -> impl Iterator<Item = &str> {
        let but = but.and_then(|id| self.calls.get(id)).filter(|known| !known.is_over);
        let only = but.filter(|known| known.verdict.decision == Decision::Allow).map(|known| &known.tool);
        self.allowed
            .iter()
            .filter(move |(tool, count)| Some(*tool) != only || **count > 1)
            .map(|(tool, _)| tool.as_str())
    }

    /// The calls that a person was asked about and whose result was not reported, except for this call.
    pub(super) fn asked_unreported(&self, but: Option<&str>) -> impl Iterator<Item = &ExternalCall> {
        let others = self.asked.iter().filter(move |id| Some(id.as_str()) != but);
        others.filter_map(|id| self.calls.get(id))
    }
}

/// A call that an external harness executes.
#[derive(Debug, Clone)]
pub(super) struct ExternalCall {
    pub(super) entry: Cid,
    pub(super) input_hash: Commitment,
    pub(super) tool: String,
    /// The verdict, and its entry.
    pub(super) verdict: Arc<ExternalVerdict>,
    pub(super) is_over: bool,
    /// The approval of an equal call, whose decision this call waits for.
    pub(super) waits_with: Option<String>,
}

/// Why a call may not be made, without a decision of a person about it.
pub(super) struct UnaskedRefusal {
    pub(super) outcome: ToolOutcome,
    known: Option<KnownAction>,
    /// Whether the state has the reason already.
    is_by_law: bool,
}

impl UnaskedRefusal {
    pub(super) fn by_law(verdict: &Verdict) -> Self {
        Self { outcome: denial(verdict), known: None, is_by_law: true }
    }

    pub(super) fn with(sentence: String) -> Self {
        Self { outcome: ToolOutcome::error(sentence), known: None, is_by_law: false }
    }

    pub(super) fn known(known: KnownAction) -> Self {
        Self { known: Some(known.clone()), ..Self::with(known.sentence()) }
    }

    /// Puts the reason into the state of the call. Returns the approval that the call waits for, if it waits for that
    /// of an equal call.
    pub(super) fn apply(self, state: &mut ExternalCallState) -> Option<String> {
        if !self.is_by_law {
            state.reason = self.outcome.content;
        }
        match self.known {
            Some(KnownAction::Waits(id)) => {
                state.verdict = ExternalDecision::Waits;
                state.approval = Some(id.clone());
                Some(id)
            }
            Some(KnownAction::Denied(_)) | None => None,
        }
    }
}

/// The verdict on a call at the time of its request.
#[derive(Debug)]
pub(super) struct ExternalVerdict {
    pub(super) entry: Cid,
    pub(super) decision: Decision,
    pub(super) rules: Vec<String>,
    pub(super) reason: String,
    /// The hash of the law, and the labels of the session, at that time.
    pub(super) constitution: String,
    pub(super) labels: Labels,
}

impl ExternalVerdict {
    pub(super) fn new(entry: Cid, verdict: Verdict, constitution: String, labels: Labels) -> Self {
        let Verdict { decision, rules, reason, .. } = verdict;
        Self { entry, decision, rules, reason, constitution, labels }
    }

    pub(super) fn state(&self) -> ExternalCallState {
        ExternalCallState {
            verdict: if self.decision == Decision::Allow {
                ExternalDecision::Allowed
            } else {
                ExternalDecision::Refused
            },
            rules: self.rules.clone(),
            reason: self.reason.clone(),
            approval: None,
            cid: self.entry.to_string(),
        }
    }
}

/// The newest calls of a session that external harnesses execute, from the ledger, oldest first.
fn calls_of(reader: &Reader, row: &SessionRow) -> Result<Vec<(String, ExternalCall)>, StoreError> {
    let mut calls = Vec::new();
    let mut over = HashSet::new();
    for message in reader.messages(row, MAX_MESSAGES_SEARCHED)? {
        let Ok(cid) = message.id.parse::<Cid>() else { continue };
        let Some(index) = reader.find(&cid)? else { continue };
        let Some(stored) = reader.entry(index)? else { continue };
        match message.role.as_str() {
            "tool_call" => {
                let Ok(record) = serde_json::from_str::<ToolCallRecord>(&stored.entry.payload) else {
                    continue;
                };
                if record.runner == CallRunner::Caller
                    && let Some(verdict) = verdict_of(reader, index, &cid)?
                {
                    let (input_hash, tool, verdict) = (record.input_hash, record.tool, Arc::new(verdict));
                    let known = ExternalCall {
                        entry: cid,
                        input_hash,
                        tool,
                        verdict,
                        is_over: false,
                        waits_with: None,
                    };
                    calls.push((record.call_id, known));
                }
            }
            "tool" => over.extend(stored.entry.parent_cids().first().copied()),
            _ => {}
        }
    }
    for (_, known) in &mut calls {
        known.is_over = over.contains(&known.entry);
    }
    Ok(calls)
}

/// The first verdict on the call with this index. It directly follows the call, in the same batch.
fn verdict_of(reader: &Reader, index: u64, call: &Cid) -> Result<Option<ExternalVerdict>, StoreError> {
    let Some(stored) = reader.entry(index + 1)? else { return Ok(None) };
    let entry = &stored.entry;
    if entry.quality != EntryQuality::PolicyVerdict || entry.parent_cids().first() != Some(call) {
        return Ok(None);
    }
    let record = serde_json::from_str::<VerdictRecord>(&entry.payload).ok();
    Ok(record.map(|record| {
        ExternalVerdict::new(entry.cid, record.verdict, record.constitution_hash, record.facts.labels)
    }))
}
