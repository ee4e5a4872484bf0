//! Spending: the cost of models, and the budgets per session, per agent and per day.
//!
//! Before a request, the most that it can cost is reserved; afterwards the actual cost is counted and recorded in the ledger.
//! If a request would exceed a limit, the daemon asks a person through the gate, like any call, or ends the turn.

/// The payer of the operator's own requests: through the proxy, or to check a provider. No agent can have this name.
pub const OPERATOR: &str = "(operator)";

mod budgets;
mod limit_increase;
mod reservation;

pub use self::budgets::{Budgets, Payer, Reserve};
pub(crate) use self::limit_increase::{share_a_limit, whose};
pub use self::reservation::{ReportedUsage, Reservation};
