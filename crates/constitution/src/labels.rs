//! Taint labels: where the content of a session, a file, a memory or a mail comes from.
//!
//! Labels only sink: trust falls to the least of all inputs, and `private` stays set. To raise one is a person's
//! decision about a single call, which is in the facts of that call and never here.

use serde::{Deserialize, Serialize};

use crate::manifest::ToolManifest;
use crate::trust::Trust;

/// The two labels of a piece of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// The least trust of all inputs.
    pub trust: Trust,
    /// Whether an input contained private data.
    pub private: bool,
}

impl Labels {
    /// A session without any input.
    pub const FRESH: Self = Self { trust: Trust::Owner, private: false };

    /// Data without a label: its origin is unknown.
    pub const UNKNOWN: Self = Self { trust: Trust::Untrusted, private: false };

    pub const fn new(trust: Trust, private: bool) -> Self {
        Self { trust, private }
    }

    /// The labels of data made from both.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        Self { trust: self.trust.min(other.trust), private: self.private || other.private }
    }

    /// The labels of a tool's output: no better than the manifest's `outputTrust`, and no better than the stored
    /// data that the call returned (`content`: the labels of the file, memory or mail that it read, if any).
    /// Without a manifest the output is untrusted and private.
    ///
    /// The labels of the caller's words have no influence on new output. When the result enters the context of a
    /// session, the caller meets the session's own labels with these.
    #[must_use]
    pub fn for_output(manifest: Option<&ToolManifest>, content: Option<Self>) -> Self {
        let own = manifest.map_or(Self::new(Trust::Untrusted, true), |manifest| {
            Self::new(manifest.output_trust, manifest.reads_private())
        });
        content.map_or(own, |content| own.meet(content))
    }

    /// The labels of what this session writes, remembers, mails or schedules: its own, unchanged.
    #[must_use]
    pub const fn for_written(self) -> Self {
        self
    }

    /// The labels of a sub-agent's new session. Its parent is an agent, so its input is never the owner's own
    /// words.
    #[must_use]
    pub fn for_sub_agent(self) -> Self {
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
        let read = ToolManifest::built_in("read").unwrap();
        let page = ToolManifest::built_in("web_fetch").unwrap();
        assert_eq!(Labels::for_output(Some(&read), None), Labels::new(Trust::Verified, true));
        assert_eq!(Labels::for_output(Some(&page), None), Labels::new(Trust::Untrusted, false));
        assert_eq!(Labels::for_output(None, None), Labels::new(Trust::Untrusted, true));
        let tainted = Some(Labels::new(Trust::Untrusted, false));
        assert_eq!(Labels::for_output(Some(&read), tainted), Labels::new(Trust::Untrusted, true));
        assert_eq!(Labels::FRESH.for_sub_agent(), Labels::new(Trust::Verified, false));
        for labels in all() {
            assert_eq!(labels.for_written(), labels);
            assert!(labels.for_sub_agent().trust <= labels.trust);
        }
    }
}
