//! Money, limits and what models cost, as the ledger and its views have it.

pub mod amount;
pub mod money;
pub mod record;
pub mod report;
