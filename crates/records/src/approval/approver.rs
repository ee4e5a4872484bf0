//! Who may decide. An approver is a principal that proved itself at the door; what it may decide follows from its roles.

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

/// Why someone may not decide a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotEntitled {
    #[error("`{0}` was asked for by yourself: someone else has to decide")]
    Own(String),
    #[error("`{id}` may be decided by {roles} only: ask someone who has that role")]
    WrongRole { id: String, roles: String },
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
