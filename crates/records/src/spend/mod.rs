//! Amounts of money and tokens, spend limits, prices of models, and the ledger records of spending.

pub mod amount;
pub mod money;
pub mod record;
pub mod report;
