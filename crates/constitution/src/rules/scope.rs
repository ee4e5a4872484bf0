//! The scope of a rule: the agents, tools and sessions that it is for.

use cedar_policy::{ActionConstraint, Policy, PrincipalConstraint, ResourceConstraint};

/// The scope of a rule. It is stored because reading it from a policy costs more than a comparison.
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

    /// Whether it certainly contains every call in the scope of `other`.
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
