//! What models cost, and how much of it a session, an agent and a day may have.
//!
//! Before a request the most that it can cost is set aside; afterwards what it did cost is counted, and is in the log. Where
//! that would go beyond a limit, the house asks a person through the same gate as any call, or ends the turn.

/// Who pays for what the operator asks, through the proxy or to try a provider. No agent has such a name.
pub const OPERATOR: &str = "(operator)";

mod amount;
mod money;
mod purse;
mod question;
mod record;
mod report;
mod reservation;

pub use self::amount::{Amount, Limit, Price};
pub use self::money::Money;
pub(crate) use self::purse::{Payer, Purse, Reserve};
pub(crate) use self::question::{share_a_limit, whose};
pub use self::record::{Raised, SpendRecord, Spent, spend_entity};
pub use self::report::{By, Line, Report};
pub(crate) use self::reservation::{Reservation, Told};
