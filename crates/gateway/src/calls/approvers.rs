//! The approvers, who may decide beside the operator. Only the operator lists, adds and removes them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tribune_records::approval::approver::Roles;
use tribune_registry::ApproversError;
use utoipa::ToSchema;

use crate::api::Api;
use crate::error::ApiError;
use crate::principal::Principal;

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
    /// Shown once, in the answer that adds the approver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// All approvers beside the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct ApproverList {
    pub(crate) approvers: Vec<ApproverInfo>,
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
    pub(crate) fn approvers(&self, who: &Principal) -> Result<ApproverList, ApiError> {
        who.operator()?;
        let approvers = self.approvers.list().into_iter().map(|approver| ApproverInfo {
            id: approver.id,
            roles: match approver.roles {
                Roles::All => Vec::new(),
                Roles::These(roles) => roles,
            },
            token: None,
        });
        Ok(ApproverList { approvers: approvers.collect() })
    }

    pub(crate) async fn approver_add(
        &self,
        who: &Principal,
        add: ApproverAdd,
    ) -> Result<ApproverInfo, ApiError> {
        who.operator()?;
        let (approvers, agents) = (Arc::clone(&self.approvers), Arc::clone(&self.agents));
        let ApproverAdd { id, roles } = add;
        let added = tokio::task::spawn_blocking(move || {
            let is_agent = |id: &str| id.parse().is_ok_and(|id| agents.knows(&id));
            let token = approvers.add(&id, &roles, is_agent)?;
            Ok::<_, ApproversError>(ApproverInfo { id, roles, token: Some(token) })
        });
        let info = added.await.map_err(|_| ApiError::new("internal", "the daemon is stopping"))??;
        Ok(info)
    }

    pub(crate) async fn approver_remove(
        &self,
        who: &Principal,
        id: String,
    ) -> Result<ApproverList, ApiError> {
        who.operator()?;
        let approvers = Arc::clone(&self.approvers);
        let removed = tokio::task::spawn_blocking(move || approvers.remove(&id)).await;
        removed.map_err(|_| ApiError::new("internal", "the daemon is stopping"))??;
        self.approvers(who)
    }
}
