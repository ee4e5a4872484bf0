//! What a session, a file, a memory or a mail carries about where its content came from.
//!
//! Labels only ever sink: trust falls to the least that flowed in, and `private` stays set once it was. Raising one is
//! a person's decision about a single call, and lives in that call's facts, never here.

use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;
use crate::trust::Trust;

/// The two labels of a piece of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// The least trust of all that flowed in.
    pub trust: Trust,
    /// Whether private data flowed in.
    pub private: bool,
}

impl Labels {
    /// A session nobody has said anything in yet.
    pub const FRESH: Self = Self { trust: Trust::Owner, private: false };

    /// What has no label: nobody stands behind it.
    pub const UNKNOWN: Self = Self { trust: Trust::Untrusted, private: false };

    pub const fn new(trust: Trust, private: bool) -> Self {
        Self { trust, private }
    }

    /// Of data made from both.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        Self { trust: self.trust.min(other.trust), private: self.private || other.private }
    }

    /// Of what a tool returns: no better than the tool's word for its output, than what it was called with, and than
    /// the stored data that it returned (`content`: the labels of the file, memory or mail it read, where there is
    /// one). Without a manifest nobody vouches for the output.
    ///
    /// What the tool fetched for the first time does not depend on the caller's words: a session's own trust is met
    /// with this when the result enters its context.
    #[must_use]
    pub fn of_output(manifest: Option<&Manifest>, content: Option<Self>) -> Self {
        let own = manifest.map_or(Self::new(Trust::Untrusted, true), |manifest| {
            Self::new(manifest.output_trust, manifest.reads_private())
        });
        content.map_or(own, |content| own.meet(content))
    }

    /// Of what this session writes, remembers, mails or schedules: its own labels, whole.
    #[must_use]
    pub const fn of_written(self) -> Self {
        self
    }

    /// Of a sub-agent's session at its start: its parent is an agent, so it is never the owner's own word.
    #[must_use]
    pub fn of_spawned(self) -> Self {
        Self { trust: self.trust.min(Trust::Verified), private: self.private }
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self::FRESH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Labels> {
        Trust::ALL.into_iter().flat_map(|trust| [Labels::new(trust, false), Labels::new(trust, true)])
    }

    #[test]
    fn joining_never_raises_a_label() {
        for a in all() {
            assert_eq!((a.meet(a), a.meet(Labels::FRESH)), (a, a));
            for b in all() {
                let both = a.meet(b);
                assert_eq!(both, b.meet(a));
                assert!(both.trust <= a.trust && both.trust <= b.trust);
                assert_eq!(both.private, a.private || b.private);
                for c in all() {
                    assert_eq!(a.meet(b).meet(c), a.meet(b.meet(c)));
                }
            }
        }
    }

    #[test]
    fn output_is_no_better_than_the_tool_or_the_content() {
        let read = Manifest::built_in("read").unwrap();
        let page = Manifest::built_in("web_fetch").unwrap();
        assert_eq!(Labels::of_output(Some(&read), None), Labels::new(Trust::Verified, true));
        assert_eq!(Labels::of_output(Some(&page), None), Labels::new(Trust::Untrusted, false));
        assert_eq!(Labels::of_output(None, None), Labels::new(Trust::Untrusted, true));
        let tainted = Some(Labels::new(Trust::Untrusted, false));
        assert_eq!(Labels::of_output(Some(&read), tainted), Labels::new(Trust::Untrusted, true));
        assert_eq!(Labels::FRESH.of_spawned(), Labels::new(Trust::Verified, false));
        for labels in all() {
            assert_eq!(labels.of_written(), labels);
            assert!(labels.of_spawned().trust <= labels.trust);
        }
    }
}
