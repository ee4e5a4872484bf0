//! Trust in the content of a text, a result or a session: four levels.

use serde::{Deserialize, Serialize};

/// The origin of a piece of data. A larger value means more trust; data made from several pieces has the least of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Written by anyone: pages, mail from unknown senders, output without a label.
    Untrusted,
    /// Written by someone who has access, but for whom no one vouches.
    Community,
    /// From a known source, or from another agent of this instance.
    Verified,
    /// The owner's own words.
    Owner,
}

impl Trust {
    pub const ALL: [Self; 4] = [Self::Untrusted, Self::Community, Self::Verified, Self::Owner];

    /// The word in files and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::Community => "community",
            Self::Verified => "verified",
            Self::Owner => "owner",
        }
    }

    /// 0 for untrusted to 3 for owner: the number that operators' rules compare.
    pub const fn level(self) -> u8 {
        match self {
            Self::Untrusted => 0,
            Self::Community => 1,
            Self::Verified => 2,
            Self::Owner => 3,
        }
    }
}
