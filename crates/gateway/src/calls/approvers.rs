//! The approvers, who may decide beside the operator. Only the operator lists, adds and removes them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tribune_governance::decider_log::RecordedChange;
use tribune_records::approval::approver::{Approver, Roles};
use tribune_records::deciders::{ChangeKind, DeciderChange, DeciderKind};
use tribune_registry::ApproversError;
use utoipa::ToSchema;

use crate::api::Api;
use crate::error::ApiError;
use crate::principal::Principal;

/// Changes in a list.
const SHOWN_CHANGES: usize = 50;

/// `approver.add`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApproverAdd {
    /// Lowercase letters, digits, `-` and `_`.
    pub(crate) id: String,
    /// The roles it has. Without any, it decides only what requires no role.
    #[serde(default)]
    pub(crate) roles: Vec<String>,
}

/// An approver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ApproverInfo {
    pub(crate) id: String,
    pub(crate) roles: Vec<String>,
    /// Who added or changed it, and when; `file` if that was found in the file when the daemon started.
    pub(crate) changed_by: Option<String>,
    pub(crate) changed_at: Option<String>,
    /// Shown once, in the answer that adds the approver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// All approvers beside the operator, and the newest changes of who may decide or act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ApproverList {
    pub(crate) approvers: Vec<ApproverInfo>,
    /// The newest first; all of them are in the ledger under `roster:deciders`.
    pub(crate) changes: Vec<DeciderChangeInfo>,
}

/// An approver or agent that was added, changed or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct DeciderChangeInfo {
    pub(crate) at: String,
    /// `operator`, or `file` for a change that was found in the file when the daemon started.
    pub(crate) by: String,
    /// `added`, `changed`, `removed`, or `failed`: the change before did not happen.
    pub(crate) change: String,
    /// `approver` or `agent`.
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) roles: Vec<String>,
}

impl From<&RecordedChange> for DeciderChangeInfo {
    fn from(recorded: &RecordedChange) -> Self {
        let RecordedChange { at, change: DeciderChange { change, by, decider } } = recorded;
        Self {
            at: at.clone(),
            by: by.clone(),
            change: change.as_str().to_owned(),
            kind: decider.kind.as_str().to_owned(),
            id: decider.id.clone(),
            roles: decider.roles.clone(),
        }
    }
}

impl From<ApproversError> for ApiError {
    fn from(error: ApproversError) -> Self {
        let code = match &error {
            ApproversError::Name(_)
            | ApproversError::Operator(_)
            | ApproversError::Agent(_)
            | ApproversError::TooMany => "invalid_params",
            ApproversError::Taken(_) => "conflict",
            ApproversError::Unknown(_) => "not_found",
            ApproversError::File { .. } => "storage",
            ApproversError::Random(_) => "internal",
        };
        Self::new(code, error.to_string())
    }
}

impl Api {
    pub(crate) async fn approvers(&self, who: &Principal) -> Result<ApproverList, ApiError> {
        who.operator()?;
        let changes = self.deciders.changes().await?;
        let approver = |approver: Approver| {
            let is_it = |recorded: &&RecordedChange| {
                let RecordedChange { change, .. } = recorded;
                change.decider.kind == DeciderKind::Approver && change.decider.id == approver.id
            };
            let newest = changes.iter().rev().find(is_it);
            ApproverInfo {
                id: approver.id.clone(),
                roles: match approver.roles {
                    Roles::All => Vec::new(),
                    Roles::These(roles) => roles,
                },
                changed_by: newest.map(|recorded| recorded.change.by.clone()),
                changed_at: newest.map(|recorded| recorded.at.clone()),
                token: None,
            }
        };
        let approvers = self.approvers.list().into_iter().map(approver).collect();
        let changes = changes.iter().rev().take(SHOWN_CHANGES).map(DeciderChangeInfo::from).collect();
        Ok(ApproverList { approvers, changes })
    }

    pub(crate) async fn approver_add(
        &self,
        who: &Principal,
        add: ApproverAdd,
    ) -> Result<ApproverInfo, ApiError> {
        who.operator()?;
        let is_agent = |id: &str| id.parse().is_ok_and(|id| self.agents.knows(&id));
        let new = self.approvers.prepare(&add.id, &add.roles, is_agent)?;
        let (by, decider) = (who.opener().name, new.decider());
        let change = DeciderChange { change: ChangeKind::Added, by: by.clone(), decider };
        let approvers = Arc::clone(&self.approvers);
        let token = self.deciders.change(change, move || approvers.add(new)).await??;
        let ApproverAdd { id, roles } = add;
        Ok(ApproverInfo { id, roles, changed_by: Some(by), changed_at: None, token: Some(token) })
    }

    pub(crate) async fn approver_remove(
        &self,
        who: &Principal,
        id: String,
    ) -> Result<ApproverList, ApiError> {
        who.operator()?;
        let known = self.approvers.deciders().into_iter().find(|decider| decider.id == id);
        let decider = known.ok_or_else(|| ApproversError::Unknown(id.clone()))?;
        let change = DeciderChange { change: ChangeKind::Removed, by: who.opener().name, decider };
        let approvers = Arc::clone(&self.approvers);
        self.deciders.change(change, move || approvers.remove(&id)).await??;
        self.approvers(who).await
    }
}
