//! What models cost, and how much of it a session, an agent and a day may have.
//!
//! Before a request the most that it can cost is set aside; afterwards what it did cost is counted, and is in the log. Where
//! that would go beyond a limit, the house asks a person through the same gate as any call, or ends the turn.

mod amount;
mod money;
mod purse;
mod record;
mod report;

pub use self::amount::{Amount, Limit, Price};
pub use self::money::Money;
pub(crate) use self::purse::{Payer, Purse, Reservation, Reserve, Told};
pub use self::record::{Raised, SpendRecord, Spent, spend_entity};
pub use self::report::{By, Line, Report};
