//! Approvers. An approver is an authenticated principal; its roles determine which requests it may decide.

use super::record::Requested;

/// The operator's id in records. The operator has every role.
pub const OPERATOR: &str = "operator";

/// A principal that may decide requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approver {
    pub id: String,
    pub roles: Roles,
}

/// The roles of an approver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roles {
    All,
    These(Vec<String>),
}

/// Why an approver may not decide a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotEntitled {
    #[error("you requested `{0}` yourself: someone else has to decide")]
    Own(String),
    #[error("`{id}` may be decided by {roles} only: ask someone who has that role")]
    WrongRole { id: String, roles: String },
}

impl Approver {
    pub fn operator() -> Self {
        Self { id: OPERATOR.to_owned(), roles: Roles::All }
    }

    /// Whether this approver may see a request.
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

    /// Refuses the approver's own requests, and those for other roles.
    pub fn may_decide(&self, requested: &Requested) -> Result<(), NotEntitled> {
        if self.id == requested.agent {
            return Err(NotEntitled::Own(requested.id.clone()));
        }
        if self.has_role_for(requested) {
            return Ok(());
        }
        Err(NotEntitled::WrongRole { id: requested.id.clone(), roles: requested.roles.join(", ") })
    }
}
