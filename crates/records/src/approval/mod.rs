//! Approvals: the exact action, who may decide it, the decision, and the grant that can result from it.

pub mod action;
pub mod approver;
pub mod call_args;
pub mod call_roots;
pub mod decision;
pub mod grant;
pub mod grant_subject;
pub mod record;
