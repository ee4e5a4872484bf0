//! The hash that names a constitution, and the version of the kernel in it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tribune_ledger::Cid;
use tribune_ledger::cid::Domain;
use tribune_ledger::jcs::{self, JcsError};

use crate::texts::LawTexts;

/// The version of the kernel. It counts up whenever a built-in manifest, the order of decisions or a kernel rule changes,
/// so that a verdict of one kernel is never taken for a verdict of another.
pub const KERNEL_VERSION: u32 = 5;

/// The name of a constitution: `b3:` and 64 lowercase hex digits, the text form of a CID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConstitutionHash(Cid);

/// The error for a text that is not a constitution hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a constitution hash is `b3:` followed by 64 lowercase hex digits")]
pub struct InvalidConstitutionHash;

impl ConstitutionHash {
    /// BLAKE3 over the canonical form of all texts and the kernel's version.
    pub(crate) fn of(texts: &LawTexts) -> Result<Self, JcsError> {
        Ok(Self(Cid::from_bytes(Domain::Constitution.hash(&[&canonical(texts)?]))))
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

/// The bytes that the hash covers.
pub(crate) fn canonical(texts: &LawTexts) -> Result<Vec<u8>, JcsError> {
    jcs::to_vec(&json!({
        "constitution": texts.constitution,
        "mandates": texts.mandates,
        "manifests": texts.manifests,
        "policies": texts.policies,
        "law": texts.law,
        "kernel": KERNEL_VERSION,
    }))
}

impl fmt::Display for ConstitutionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ConstitutionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ConstitutionHash {
    type Err = InvalidConstitutionHash;

    fn from_str(text: &str) -> Result<Self, InvalidConstitutionHash> {
        text.parse().map(Self).map_err(|_| InvalidConstitutionHash)
    }
}
