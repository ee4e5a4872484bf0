//! The one inbox of everything that waits for a person.
//!
//! A call that the law wants a person to see is parked: its request is on record with the digest of the exact action,
//! and stays there through restarts until someone decides, its time runs out, or whoever asked takes it back. The
//! decision is on record before anything moves. What runs then is that action and no other: the digest is made again
//! when the call is about to start, and one that has changed comes back with what changed ([`action`]) and how.
//!
//! A decision can leave a [`grant`] behind, so that calls like this one need not ask again for a while.

pub mod action;
pub mod approver;
mod difference;
pub mod draft;
pub mod error;
pub mod grant;
pub mod inbox;
pub mod record;
pub mod ruling;
mod waiting;

pub use approver::Approver;
pub(crate) use difference::difference;
pub use error::ApprovalError;
pub use grant::{Grant, Granted};
pub use inbox::{Inbox, MAX_PENDING};
pub use record::{ApprovalRecord, Decision, Requested, State};
pub use ruling::{Outcome, Ruling, Wish};
