//! Approvals: the exact action, who may decide it, the decision, and the grant that can result from it.

pub mod action;
pub mod approver;
pub mod decision;
pub mod grant;
pub mod record;
