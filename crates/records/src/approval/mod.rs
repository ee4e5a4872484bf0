//! Approvals: the exact action, who may decide it, the decision, and the grant that it may leave behind.

pub mod action;
pub mod approver;
pub mod decision;
pub mod grant;
pub mod record;
