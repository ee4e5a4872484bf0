//! The classes of senders, each with quotas of its own, so that no class can fill a mailbox for another one.

use tribune_records::agents::is_unregistered;

use super::{MAX_FILE_BYTES, MAX_UNREAD, MAX_UNREAD_BYTES};

/// The sender of the daemon's own messages, such as results of calls that were allowed late.
pub const DAEMON_SENDER: &str = "tribune";

/// The share of guests in the quotas of a mailbox: one in this many.
const GUESTS_ONE_IN: usize = 8;

/// Bytes of the file that are left for the daemon.
const LEFT_FOR_DAEMON: u64 = 2 * 1024 * 1024;

/// A class of senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SenderClass {
    Daemon,
    Agent,
    Guest,
}

impl SenderClass {
    /// The class of a sender, as the message names it.
    pub(super) fn of(from: &str) -> Self {
        match from {
            DAEMON_SENDER => Self::Daemon,
            guest if is_unregistered(guest) => Self::Guest,
            _ => Self::Agent,
        }
    }

    /// Most unread messages of one recipient.
    pub(super) const fn most_unread(self) -> usize {
        match self {
            Self::Daemon | Self::Agent => MAX_UNREAD,
            Self::Guest => MAX_UNREAD / GUESTS_ONE_IN,
        }
    }

    /// Most bytes of unread lines of one recipient.
    pub(super) const fn most_unread_bytes(self) -> u64 {
        match self {
            Self::Daemon | Self::Agent => MAX_UNREAD_BYTES,
            Self::Guest => MAX_UNREAD_BYTES / GUESTS_ONE_IN as u64,
        }
    }

    /// The length of the file beyond which this class adds nothing.
    pub(super) const fn most_file_bytes(self) -> u64 {
        match self {
            Self::Daemon => MAX_FILE_BYTES,
            Self::Agent | Self::Guest => MAX_FILE_BYTES - LEFT_FOR_DAEMON,
        }
    }
}
