//! Proofs in single files: that an entry is in the log (C2SP tlog-proof), and that one state of the log extends
//! another.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::entry::{EntryRef, FieldError};
use crate::limits::MAX_PROOF_HASHES;
use crate::note::VerifierKey;
use crate::proof::ProofError;
use crate::tree::Hash;
use crate::tree::prove::{self, TreeProofError};

const HEADER: &str = "c2sp.org/tlog-proof@v1";

/// The inclusion proof of one entry, with the entry and a signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofBundle {
    /// The entry's canonical line. tlog-proof calls this `extra` and does not authenticate it; [`Self::check`] does.
    pub entry: Vec<u8>,
    pub index: u64,
    pub path: Vec<Hash>,
    /// A signed checkpoint, as the log issued it.
    pub checkpoint: String,
}

/// Why a bundle is not a valid proof.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    #[error("it is not a tlog-proof: {0}")]
    Malformed(&'static str),
    #[error("it is not a consistency proof: {0}")]
    NotConsistency(&'static str),
    #[error("its checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("its entry: {0}")]
    Entry(#[from] FieldError),
    #[error("its entry was altered: the text hashes to {0}")]
    Cid(crate::Cid),
    #[error("its entry: {0}")]
    Proof(#[from] ProofError),
    #[error("{0}")]
    Path(#[from] TreeProofError),
}

impl ProofBundle {
    /// Checks the whole bundle and returns its entry and checkpoint.
    pub fn check(&self, key: &VerifierKey) -> Result<(EntryRef<'_>, Checkpoint), BundleError> {
        let checkpoint = Checkpoint::open(&self.checkpoint, key)?;
        let entry = EntryRef::read(&self.entry)?;
        let computed = entry.compute_cid();
        if computed != entry.cid {
            return Err(BundleError::Cid(computed));
        }
        entry.proof.check(entry.attested_by.as_ref(), &entry.cid)?;
        let leaf = Hash::leaf(&entry.cid);
        prove::check_inclusion(leaf, self.index, checkpoint.size, &checkpoint.root, &self.path)?;
        Ok((entry, checkpoint))
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, BundleError> {
        let malformed = BundleError::Malformed;
        let (head, checkpoint) = text.split_once("\n\n").ok_or(malformed("there is no empty line"))?;
        let mut lines = head.lines();
        if lines.next() != Some(HEADER) {
            return Err(malformed("it does not begin with c2sp.org/tlog-proof@v1"));
        }
        let entry = lines
            .next()
            .and_then(|line| line.strip_prefix("extra "))
            .and_then(|extra| STANDARD.decode(extra).ok())
            .ok_or(malformed("its `extra` line does not hold an entry"))?;
        let index = lines
            .next()
            .and_then(|line| line.strip_prefix("index "))
            .and_then(decimal)
            .ok_or(malformed("its `index` line is not a decimal number"))?;
        let path = hashes(lines).map_err(malformed)?;
        Ok(Self { entry, index, path, checkpoint: checkpoint.to_owned() })
    }
}

impl fmt::Display for ProofBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}\nextra {}\nindex {}", STANDARD.encode(&self.entry), self.index)?;
        for hash in &self.path {
            writeln!(f, "{hash}")?;
        }
        write!(f, "\n{}", self.checkpoint)
    }
}

/// First line of a consistency proof. C2SP defines no file format for it; this one follows tlog-proof.
const CONSISTENCY_HEADER: &str = "tribune/consistency-proof/v1";

/// Proves that the log of a checkpoint extends the log at an older size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsistencyProof {
    pub old_size: u64,
    /// To be compared with a checkpoint that was kept from that time.
    pub old_root: Hash,
    pub path: Vec<Hash>,
    /// A signed checkpoint, as the log issued it.
    pub checkpoint: String,
}

impl ConsistencyProof {
    /// Checks the proof and returns the newer checkpoint.
    pub fn check(&self, key: &VerifierKey) -> Result<Checkpoint, BundleError> {
        let checkpoint = Checkpoint::open(&self.checkpoint, key)?;
        prove::check_consistency(
            self.old_size,
            &self.old_root,
            checkpoint.size,
            &checkpoint.root,
            &self.path,
        )?;
        Ok(checkpoint)
    }

    /// Whether a text has the first line of a consistency proof.
    pub fn has_header(text: &str) -> bool {
        text.lines().next() == Some(CONSISTENCY_HEADER)
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, BundleError> {
        let malformed = BundleError::NotConsistency;
        let (head, checkpoint) = text.split_once("\n\n").ok_or(malformed("there is no empty line"))?;
        let mut lines = head.lines();
        if lines.next() != Some(CONSISTENCY_HEADER) {
            return Err(malformed("it does not begin with tribune/consistency-proof/v1"));
        }
        let (old_size, old_root) = lines
            .next()
            .and_then(|line| line.strip_prefix("old ")?.split_once(' '))
            .and_then(|(size, root)| Some((decimal(size)?, Hash::from_base64(root)?)))
            .ok_or(malformed("its `old` line does not hold a size and a root"))?;
        Ok(Self {
            old_size,
            old_root,
            path: hashes(lines).map_err(malformed)?,
            checkpoint: checkpoint.to_owned(),
        })
    }
}

impl fmt::Display for ConsistencyProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{CONSISTENCY_HEADER}\nold {} {}", self.old_size, self.old_root)?;
        for hash in &self.path {
            writeln!(f, "{hash}")?;
        }
        write!(f, "\n{}", self.checkpoint)
    }
}

/// A decimal number in canonical form, so that no two texts mean the same proof.
fn decimal(text: &str) -> Option<u64> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| plain)
}

fn hashes(lines: std::str::Lines<'_>) -> Result<Vec<Hash>, &'static str> {
    let path: Vec<Hash> = lines
        .map(|line| Hash::from_base64(line).ok_or("a hash is not 32 bytes in base64"))
        .collect::<Result<_, _>>()?;
    if path.len() > MAX_PROOF_HASHES + 1 {
        Err("it has more hashes than a tree of any size needs")
    } else {
        Ok(path)
    }
}
