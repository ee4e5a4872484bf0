//! Whom and what a rule is for, before its conditions are looked at.

use cedar_policy::{ActionConstraint, Policy, PrincipalConstraint, ResourceConstraint};

/// The head of a rule. It is kept because taking it out of a policy costs more than comparing it.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(super) principal: PrincipalConstraint,
    pub(super) action: ActionConstraint,
    resource: ResourceConstraint,
}

impl Scope {
    pub(super) fn of(policy: &Policy) -> Self {
        let (principal, action) = (policy.principal_constraint(), policy.action_constraint());
        Self { principal, action, resource: policy.resource_constraint() }
    }

    /// Whether it is known to take in every call that `other` does.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        (self.principal == PrincipalConstraint::Any || self.principal == other.principal)
            && (self.action == ActionConstraint::Any || self.action == other.action)
            && (self.resource == ResourceConstraint::Any || self.resource == other.resource)
    }

    /// Whether it is for every agent and every session.
    pub(crate) fn is_for_everyone(&self) -> bool {
        self.principal == PrincipalConstraint::Any && self.resource == ResourceConstraint::Any
    }
}
