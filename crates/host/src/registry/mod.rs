//! The three plain files that agents meet in, each of which a person can open in an editor.
//!
//! [`roster`] says who there is, [`mailbox`] holds what they write to each other, [`board`] what everyone may see. The
//! files are read and written here and judged elsewhere: whether an agent may send, or what a letter's word is worth, is
//! for the law to say. Everything in here blocks on the disk; from async code, call it on a blocking thread.

mod agents;
mod approvers;
pub mod board;
mod lines;
pub mod mailbox;
pub mod roster;

pub use agents::Agents;
pub use approvers::{Approvers, ApproversError};
pub use board::{Board, BoardError};
pub use mailbox::{Letter, Mailbox, MailboxError, Sent};
pub use roster::{ANONYMOUS, DEFAULT_ROSTER, Roster, RosterAgent, RosterError, STRANGER};

/// The agent that a fresh home has.
pub const MAIN_AGENT: &str = "main";

/// Runs agents that nobody gave another backend.
pub const DEFAULT_BACKEND: &str = "rehearsal";
