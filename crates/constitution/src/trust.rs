//! How far a text, a result or a session may be believed: four steps, and nothing between them.

use serde::{Deserialize, Serialize};

/// Who stands behind a piece of data. A larger one is believed further; data joined from several pieces has the least
/// of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Anyone may have written it: pages, mail from strangers, output without a label.
    Untrusted,
    /// Written by someone who was let in, but not vouched for.
    Community,
    /// From a known source, or from another agent of this house.
    Verified,
    /// The owner's own words.
    Owner,
}

impl Trust {
    pub const ALL: [Self; 4] = [Self::Untrusted, Self::Community, Self::Verified, Self::Owner];

    /// The word it has in files and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::Community => "community",
            Self::Verified => "verified",
            Self::Owner => "owner",
        }
    }

    /// 0 for untrusted to 3 for owner: what operators' rules compare.
    pub const fn level(self) -> u8 {
        match self {
            Self::Untrusted => 0,
            Self::Community => 1,
            Self::Verified => 2,
            Self::Owner => 3,
        }
    }
}
