//! The values that the parts of the daemon exchange and record: payloads of ledger entries, approvals and grants, amounts of
//! money, outcomes of tools, the workspace roots of a session. Only the validation of workspace roots reads the file system;
//! nothing here uses a clock or the network.

pub mod agents;
pub mod approval;
pub mod deciders;
pub mod egress_labels;
pub mod exec;
pub mod ledger_payloads;
pub mod outcome;
pub mod session_opening;
pub mod spend;
pub mod text;
pub mod workspace_roots;
