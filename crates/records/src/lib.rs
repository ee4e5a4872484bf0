//! Values that the daemon's parts exchange and write down: payloads of ledger entries, approvals, grants, amounts of money,
//! outcomes of tools, folders of a session. They touch no file and no clock.

pub mod agents;
pub mod egress_labels;
pub mod exec;
pub mod text;
