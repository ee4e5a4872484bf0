//! Approvals: the inbox of every call that waits for a person.
//!
//! A call that the law sends to a person is parked: its request is recorded with the digest of the exact action, and survives
//! restarts until a person decides, it expires, or it is withdrawn. The decision is recorded before the call continues. Only
//! that action runs: the digest is computed again right before the call starts, and if it differs, the call returns to the
//! inbox with the changes ([`action`](tribune_records::approval::action)) as a diff ([`difference`]).
//!
//! A decision can create a [`grant`](tribune_records::approval::grant), so that similar calls are allowed without asking for a
//! while. A denial is remembered for its session ([`denial_memory`]).

mod denial_memory;
pub mod draft;
mod error;
mod file_diff;
mod inbox;
mod pending;
mod replaced_file;

pub(crate) use denial_memory::KnownAction;
pub use error::ApprovalError;
pub use file_diff::difference;
pub use inbox::Inbox;
pub(crate) use inbox::MAX_PENDING;
pub use replaced_file::{ReplacedContent, ReplacedFile, folder_of, replaced_file};
