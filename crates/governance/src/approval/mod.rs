//! The one inbox of everything that waits for a person.
//!
//! A call that the law wants a person to see is parked: its request is on record with the digest of the exact action,
//! and stays there through restarts until someone decides, its time runs out, or whoever asked takes it back. The
//! decision is on record before anything moves. What runs then is that action and no other: the digest is made again
//! when the call is about to start, and one that has changed comes back with what changed ([`action`]) and how.
//!
//! A decision can leave a [`grant`] behind, so that calls like this one need not ask again for a while.

pub mod draft;
pub mod error;
pub mod file_diff;
pub mod inbox;
mod pending;

pub use error::ApprovalError;
pub use file_diff::difference;
pub use inbox::{Inbox, MAX_PENDING};
