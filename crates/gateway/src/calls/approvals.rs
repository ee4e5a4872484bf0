//! Operations for approvers: list and decide approvals, list and revoke grants, stop everything and resume.

use std::sync::Arc;

use serde_json::Value;
use tribune_governance::approval::difference;
use tribune_governance::approval::{ApprovalError, ReplacedFile, draft, folder_of, replaced_file};
use tribune_governance::turn::approval_result::approval_result;
use tribune_governance::turn::label_history::trail;
use tribune_records::approval::action::Action;
use tribune_records::approval::call_args::args_of;
use tribune_records::approval::decision::DecisionRequest;
use tribune_records::approval::grant_subject;
use tribune_records::approval::record::{ApprovalState, CallRunner, DecisionKind, Requested};
use tribune_storage::store::{ApprovalOrder, ApprovalRow, Reader};

use super::{Answer, MAX_PAGE, PAGE};
use crate::api::Api;
use crate::api_types::{
    ApprovalInfo, ApprovalList, ApprovalPage, DecisionBody, DecisionResult, Frozen, Grants, Past, Replaced,
};
use crate::error::ApiError;
use crate::principal::Principal;
use crate::views::LabelStep;

/// Approvals of each state that are read to count what a pattern would have covered.
const LOOKED_BACK: usize = 50;

/// A call that waits for a person, as it would run.
pub(crate) struct RequestedCall {
    pub(crate) tool: String,
    pub(crate) input: Value,
    /// The folder to which its paths belong, and the file that it would replace.
    pub(crate) folder: Option<String>,
    pub(crate) replaces: Option<ReplacedFile>,
}

impl From<ApprovalError> for ApiError {
    fn from(error: ApprovalError) -> Self {
        match error {
            // An unknown id is text that the caller sent and may be anything: it is not repeated.
            ApprovalError::Unknown(_) => Self::new(
                error.code(),
                "there is no such approval: `tribune approvals list` shows what waits",
            ),
            ApprovalError::UnknownGrant(_) => {
                Self::new(error.code(), "there is no such grant: `tribune approvals grants` lists them")
            }
            other => Self::new(other.code(), other.to_string()),
        }
    }
}

impl Api {
    /// Pending approvals, oldest first; decided ones, or all, newest first. An approver sees only those that it may decide.
    pub(crate) async fn approvals(&self, who: &Principal, list: ApprovalList) -> Answer<ApprovalPage> {
        let approver = who.approver()?;
        let state = match list.state.as_deref() {
            None => Some(ApprovalState::Pending),
            Some("any") => None,
            Some(word) => Some(ApprovalState::parse(word).ok_or_else(|| {
                let what = "state must be pending, allowed, denied, expired, withdrawn or any";
                ApiError::params(what)
            })?),
        };
        // The longest wait is served first; of decided approvals, people look for the newest.
        let order = match state {
            Some(ApprovalState::Pending) => ApprovalOrder::OldestFirst,
            Some(
                ApprovalState::Allowed
                | ApprovalState::Denied
                | ApprovalState::Expired
                | ApprovalState::Withdrawn,
            )
            | None => ApprovalOrder::NewestFirst,
        };
        let limit = list.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
        let after = list.after;
        let look = move |reader: &Reader| reader.approvals(state, order, after.as_deref(), limit);
        let rows = self.readers.read(look).await?;
        let next = (rows.len() == limit).then(|| rows.last().map(|row| row.requested.id.clone())).flatten();
        let approvals =
            rows.into_iter().filter(|row| approver.may_see(&row.requested)).map(ApprovalInfo::from).collect();
        Ok(ApprovalPage { approvals, next, pending: self.sessions.governance().policy.gate.inbox.pending() })
    }

    /// One approval with the exact action.
    pub(crate) async fn approval(&self, who: &Principal, id: &str) -> Answer<ApprovalInfo> {
        let approver = who.approver()?;
        let row = self.approval_row(id).await?;
        if !approver.may_see(&row.requested) {
            return Err(ApprovalError::Unknown(id.to_owned()).into());
        }
        let governance = self.sessions.governance();
        let is_pending = row.state == ApprovalState::Pending;
        if is_pending {
            governance.policy.gate.inbox.arrival(id).await;
        }
        let action = governance.action_of(&row.requested).await.map_err(ApiError::from)?;
        let text = governance.approved_text(&row.requested).await.map_err(ApiError::from)?;
        let home = governance.home.root();
        let folder = action.as_ref().and_then(|action| folder_of(home, &row.requested, action));
        let (entry, runner, call) = (row.entry, row.requested.runner, row.requested.call.clone());
        let mut info = ApprovalInfo::from(row);
        info.text = text;
        info.folder = folder;
        info.replaces = action.as_ref().and_then(replaced_file).map(Replaced::from);
        if let Some(action) = &action {
            info.diff = self.diff(&info, action).await?;
            info.patterns =
                grant_subject::suggestions(&action.tool, &action.input, &action.roots.additional_directories);
            info.past = self.past(&info).await?;
            let words = draft::words(&action.tool).filter(|words| action.input[words].is_string());
            let may_change = info.needs == 1 && runner == CallRunner::Host;
            info.draft = words.filter(|_| may_change).map(str::to_owned);
        }
        let session = info.session_key.clone();
        let (steps, came_of_it) = self
            .readers
            .read(move |reader| {
                let came_of_it =
                    if is_pending { None } else { approval_result(reader, &session, &call, &entry)? };
                Ok((trail(reader, &session, &entry)?, came_of_it.map(str::to_owned)))
            })
            .await?;
        info.trail = steps.into_iter().map(LabelStep::from).collect();
        info.came_of_it = came_of_it;
        info.action = action.and_then(|action| serde_json::to_value(action.without_texts()).ok());
        Ok(info)
    }

    /// The call of an approval, complete. `None` once the session's content was forgotten.
    pub(crate) async fn approval_call(&self, who: &Principal, id: &str) -> Answer<Option<RequestedCall>> {
        let approver = who.approver()?;
        let row = self.approval_row(id).await?;
        if !approver.may_see(&row.requested) {
            return Err(ApprovalError::Unknown(id.to_owned()).into());
        }
        let governance = self.sessions.governance();
        let action = governance.action_of(&row.requested).await.map_err(ApiError::from)?;
        Ok(action.map(|action| RequestedCall {
            folder: folder_of(governance.home.root(), &row.requested, &action),
            replaces: replaced_file(&action),
            tool: action.tool,
            input: action.input,
        }))
    }

    /// The changes of a call's files since it was approved, for an approval that replaces an earlier one.
    async fn diff(&self, info: &ApprovalInfo, now: &Action) -> Answer<Option<String>> {
        let Some(before) = &info.instead_of else { return Ok(None) };
        let before = self.approval_row(before).await?;
        let approved = self.sessions.governance().action_of(&before.requested).await?;
        Ok(approved.and_then(|approved| difference(&approved, now)))
    }

    /// Counts what each pattern would have covered among earlier approvals.
    async fn past(&self, info: &ApprovalInfo) -> Answer<Vec<Past>> {
        if info.patterns.is_empty() {
            return Ok(Vec::new());
        }
        let governance = self.sessions.governance();
        let (mut asked, mut denied) = (Vec::new(), Vec::new());
        for state in [ApprovalState::Allowed, ApprovalState::Denied] {
            let rows = self
                .readers
                .read(move |reader| {
                    reader.approvals(Some(state), ApprovalOrder::NewestFirst, None, LOOKED_BACK)
                })
                .await?;
            let alike = |asked: &Requested| {
                asked.agent == info.agent_id && asked.tool == info.tool && asked.id != info.id
            };
            let rows = rows.into_iter().map(|row| row.requested).filter(alike).collect();
            for action in governance.actions_of(rows).await?.into_iter().flatten() {
                let args = args_of(&info.tool, &action.input, &action.roots.additional_directories);
                if state == ApprovalState::Denied {
                    denied.push((action.input.clone(), args.clone()));
                }
                asked.push((action.input, args));
            }
        }
        let past = |pattern: &String| Past {
            pattern: pattern.clone(),
            covered: grant_subject::covered(&info.tool, pattern, &asked),
            asked: asked.len(),
            denied: grant_subject::covered(&info.tool, pattern, &denied),
        };
        Ok(info.patterns.iter().map(past).collect())
    }

    async fn approval_row(&self, id: &str) -> Answer<ApprovalRow> {
        let name = id.to_owned();
        let row = self.readers.read(move |reader| reader.approval(&name)).await?;
        row.ok_or_else(|| ApprovalError::Unknown(id.to_owned()).into())
    }

    /// Decides an approval.
    pub(crate) async fn approval_decide(
        &self,
        who: &Principal,
        id: &str,
        body: DecisionBody,
    ) -> Answer<DecisionResult> {
        let approver = who.approver()?;
        let decision = DecisionKind::ALL
            .into_iter()
            .find(|decision| decision.as_str() == body.decision)
            .ok_or_else(|| {
                let words = DecisionKind::ALL.map(DecisionKind::as_str).join(", ");
                ApiError::params(format!("decision must be one of {words}"))
            })?;
        let until = match &body.until {
            None => None,
            Some(text) => Some(
                tribune_storage::clock::parse_time(text)
                    .ok_or_else(|| ApiError::params("until is a time such as 2030-01-31T18:00:00Z"))?,
            ),
        };
        let wish =
            DecisionRequest { decision, until, pattern: body.pattern, reason: body.reason, text: None };
        let governance = self.sessions.governance();
        let outcome = governance.decide(id, wish, body.text, approver).await?;
        let without_turn = outcome.is_orphan && outcome.requested.runner == CallRunner::Host;
        let came_of_it = match without_turn && outcome.state == ApprovalState::Allowed {
            true => self.call_outcome(&outcome.requested.id).await?,
            false => None,
        };
        Ok(DecisionResult {
            id: outcome.requested.id,
            state: outcome.state.as_str().to_owned(),
            missing: outcome.missing,
            grant: outcome.grant,
            without_turn,
            came_of_it,
        })
    }

    /// The outcome of a call that was decided, if it is known.
    async fn call_outcome(&self, id: &str) -> Answer<Option<String>> {
        let ApprovalRow { requested, entry, .. } = self.approval_row(id).await?;
        let look =
            move |reader: &Reader| approval_result(reader, &requested.session, &requested.call, &entry);
        Ok(self.readers.read(look).await?.map(str::to_owned))
    }

    /// The grants in force, newest first.
    pub(crate) async fn grants(&self, who: &Principal) -> Answer<Grants> {
        who.approver()?;
        Ok(Grants { grants: self.sessions.governance().policy.gate.inbox.grants() })
    }

    /// Revokes a grant.
    pub(crate) async fn grant_revoke(&self, who: &Principal, id: &str) -> Answer<Grants> {
        let approver = who.approver()?;
        self.sessions.governance().policy.gate.inbox.revoke(id, &approver).await?;
        self.grants(who).await
    }

    /// Stops everything: ends running turns; no call is allowed and no turn begins until an approver resumes.
    pub(crate) async fn stop_all(&self, who: &Principal) -> Answer<Frozen> {
        let approver = who.approver()?;
        let already = self.sessions.governance().policy.gate.is_frozen();
        let stopped = self.sessions.governance().policy.gate.freeze(&approver).await;
        // In any case: a stop that cannot be recorded is still a stop.
        self.sessions.governance().policy.gate.stop_signal.stop();
        // CLI agents and MCP servers also run between turns: they end too.
        for backend in &self.others {
            backend.stop_all();
        }
        self.mcp.stop_all();
        let cancelled = self.sessions.cancel_all();
        stopped?;
        Ok(Frozen { frozen: true, cancelled, already })
    }

    /// Ends the stop of everything, and resumes parked calls.
    pub(crate) async fn resume_all(&self, who: &Principal) -> Answer<Frozen> {
        let approver = who.approver()?;
        let governance = Arc::clone(self.sessions.governance());
        let already = !governance.policy.gate.is_frozen();
        governance.policy.gate.unfreeze(&approver).await?;
        governance.resume_parked().await.map_err(tribune_sessions::session::SessionError::from)?;
        Ok(Frozen { frozen: false, cancelled: 0, already })
    }
}
