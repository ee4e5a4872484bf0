//! The values that the daemon's parts exchange and write down: payloads of ledger entries, approvals and grants, amounts of
//! money, outcomes of tools, the folders of a session. Nothing here touches a file, a clock or the network.

pub mod agents;
pub mod approval;
pub mod egress_labels;
pub mod exec;
pub mod ledger_payloads;
pub mod outcome;
pub mod spend;
pub mod text;
pub mod workspace_roots;
