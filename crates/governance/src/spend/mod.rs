//! What models cost, and how much of it a session, an agent and a day may have.
//!
//! Before a request the most that it can cost is set aside; afterwards what it did cost is counted, and is in the log. Where
//! that would go beyond a limit, the house asks a person through the same gate as any call, or ends the turn.

/// Who pays for what the operator asks, through the proxy or to try a provider. No agent has such a name.
pub const OPERATOR: &str = "(operator)";

mod budgets;
mod limit_increase;
mod reservation;

pub use self::budgets::{Budgets, Payer, Reserve};
pub(crate) use self::limit_increase::{share_a_limit, whose};
pub use self::reservation::{Reservation, Told};
