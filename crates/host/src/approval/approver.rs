//! Who may decide. An approver is a principal that proved itself at the door; what it may decide follows from its roles.

use super::error::ApprovalError;
use super::record::Requested;

/// The operator's name in records. It has every role.
pub const OPERATOR: &str = "operator";

/// Someone who may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    pub id: String,
    pub roles: Roles,
}

/// What an approver may decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roles {
    All,
    These(Vec<String>),
}

impl Approver {
    pub fn operator() -> Self {
        Self { id: OPERATOR.to_owned(), roles: Roles::All }
    }

    /// Whether a request concerns this approver.
    pub fn may_see(&self, requested: &Requested) -> bool {
        self.has_role_for(requested)
    }

    fn has_role_for(&self, requested: &Requested) -> bool {
        match &self.roles {
            Roles::All => true,
            Roles::These(own) => {
                requested.roles.is_empty() || own.iter().any(|role| requested.roles.contains(role))
            }
        }
    }

    /// Refuses one's own requests, and those of other roles.
    pub(crate) fn may_decide(&self, requested: &Requested) -> Result<(), ApprovalError> {
        if self.id == requested.agent {
            return Err(ApprovalError::Own(requested.id.clone()));
        }
        if self.has_role_for(requested) {
            return Ok(());
        }
        Err(ApprovalError::WrongRole { id: requested.id.clone(), roles: requested.roles.join(", ") })
    }
}
