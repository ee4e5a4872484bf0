//! Verifies a log from its entries, a checkpoint and a trusted public key, without trusting its operator.
//!
//! There are two verdicts. **Integrity**: every entry hashes to its CID, has the attestation it requires, follows its
//! predecessors without a gap, and is covered by the signed root. **Completeness**: no entry was removed or rewritten
//! since a checkpoint that was kept outside the log. The log alone cannot prove completeness.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::cid::{Cid, CidBuildHasher};
use crate::entry::{EntryRef, FieldError};
use crate::key_change::{KeyChangeError, KeyHistory};
use crate::limits::MAX_FINDINGS;
use crate::note::VerifierKey;
use crate::proof::ProofError;
use crate::tree::tile::{TileEdge, TileId};
use crate::tree::{Frontier, Hash};

/// A checkpoint that was kept outside the log, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCheckpoint {
    pub label: String,
    pub note: String,
}

/// What is wrong with one entry, with the checkpoint or with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFault {
    #[error("{0}")]
    Field(#[from] FieldError),
    #[error("{0}")]
    Unreadable(String),
    #[error("its text hashes to {0}: the entry was altered")]
    Cid(Cid),
    #[error("it is in the log twice")]
    Duplicate,
    #[error("it is number {found} of `{entity}`, but number {expected} must come next")]
    Seq { entity: String, expected: u64, found: u64 },
    #[error("its parent {0} is not in the log before it")]
    Parent(Cid),
    #[error("{0}")]
    Proof(#[from] ProofError),
    #[error("{0}")]
    Key(#[from] KeyChangeError),
    #[error("it is not the entry that was logged here: the signed tree has another leaf at this index")]
    LeafMismatch,
    #[error("it comes after the last entry that the checkpoint covers")]
    AfterCheckpoint,
    #[error("the log's checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("you trust {trusted}, which is not among the keys of this log; its key is {found}")]
    UntrustedKey { trusted: String, found: String },
    #[error("the entries have the root {computed}, but the signed root is {signed}")]
    Root { computed: Hash, signed: Hash },
    #[error("entries are missing, and the remaining ones cannot be linked to the signed root")]
    Unlinked,
    #[error("the stored tree does not have the signed root, although the entries do")]
    Tiles,
    #[error("{path}: {what}")]
    File { path: String, what: String },
}

/// A fault and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyFinding {
    /// The index of the entry; `None` if the fault is not in an entry.
    pub index: Option<u64>,
    /// The CID that the entry claims, if it could be read.
    pub cid: Option<Cid>,
    pub fault: VerifyFault,
}

impl fmt::Display for VerifyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.index, self.cid) {
            (Some(index), Some(cid)) => write!(f, "entry {index} ({cid}): {}", self.fault),
            (Some(index), None) => write!(f, "entry {index}: {}", self.fault),
            (None, _) => fmt::Display::fmt(&self.fault, f),
        }
    }
}

/// Whether the entries are those that were logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    Sound,
    /// The first finding is the first bad entry, if an entry is bad.
    Broken(Vec<VerifyFinding>),
}

/// Whether all logged entries are present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// All entries up to this checkpoint, which was kept outside the log, are present and unchanged.
    Shown {
        size: u64,
        label: String,
    },
    /// No checkpoint from outside was given, so a cut or rewritten log looks like a complete one.
    NotChecked,
    Failed(Vec<Gap>),
}

/// Why completeness failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    #[error("{label} covers {signed} entries; {here} are here: the log was cut")]
    Cut { label: String, signed: u64, here: u64 },
    #[error("{label} has another root at size {size}: the history was rewritten or forked")]
    Forked { label: String, size: u64 },
    #[error("{label} is not a valid checkpoint of this log: {error}")]
    Unusable { label: String, error: CheckpointError },
    #[error("{label} could not be compared, because an earlier entry is broken")]
    NotComparable { label: String },
}

/// Both verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// Entries read.
    pub entries: u64,
    /// The log's own checkpoint, if it can be read.
    pub checkpoint: Option<Checkpoint>,
    /// The key in force at the end of the log.
    pub key: Option<VerifierKey>,
    pub integrity: Integrity,
    pub completeness: Completeness,
}

/// Reads a log entry by entry. It keeps the CIDs seen, the next number of each entity, and the frontier of the tree.
#[derive(Debug)]
pub struct Verifier {
    trusted: VerifierKey,
    note: String,
    own: Result<Checkpoint, CheckpointError>,
    held: Vec<HeldCheckpoint>,
    /// Sizes whose roots the verdicts need, in ascending order.
    sizes: Vec<u64>,
    /// The tree that the log stores, if it was given.
    stored_tree: Option<StoredTree>,
    index: u64,
    tree: Frontier,
    roots: HashMap<u64, Hash>,
    /// The first halves of the CIDs so far. A half is enough, because a collision takes 2^64 tries, and a smaller table
    /// has fewer cache misses.
    seen: HashSet<u128, CidBuildHasher>,
    next_seq: HashMap<String, u64>,
    keys: KeyHistory,
    bad_entry: Option<VerifyFinding>,
    file_faults: Vec<VerifyFinding>,
}

#[derive(Debug)]
struct StoredTree {
    leaves: Vec<Hash>,
    roots: HashMap<u64, Hash>,
    /// Its root is the one in the log's checkpoint.
    fits: bool,
}

impl Verifier {
    /// `note` is the log's own checkpoint; `trusted` is any key of its history.
    pub fn new(trusted: VerifierKey, note: &str, held: Vec<HeldCheckpoint>) -> Self {
        let own = Checkpoint::parse(note);
        let held_sizes = held.iter().filter_map(|held| Checkpoint::parse(&held.note).ok());
        let mut sizes: Vec<u64> =
            own.iter().cloned().chain(held_sizes).map(|checkpoint| checkpoint.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        Self {
            trusted,
            note: note.to_owned(),
            own,
            held,
            roots: HashMap::from([(0, Hash::empty())]),
            sizes,
            stored_tree: None,
            index: 0,
            tree: Frontier::default(),
            seen: HashSet::default(),
            next_seq: HashMap::new(),
            keys: KeyHistory::default(),
            bad_entry: None,
            file_faults: Vec::new(),
        }
    }

    /// Sets the leaf hashes that the log stores next to its entries. With them the verifier can name a bad entry that
    /// only the tree reveals, and can link a cut log to its root. Calls `each_tile` with every full and partial tile.
    pub fn set_stored_leaves(
        &mut self,
        leaves: Vec<Hash>,
        mut each_tile: impl FnMut(&mut Self, TileId, &[Hash]),
    ) {
        let mut roots = HashMap::from([(0, Hash::empty())]);
        let mut edge = TileEdge::default();
        for leaf in &leaves {
            for full in edge.push(*leaf) {
                each_tile(self, full.id, &full.hashes);
            }
            if self.sizes.binary_search(&edge.size()).is_ok() {
                roots.insert(edge.size(), edge.frontier().root());
            }
        }
        for (id, hashes) in edge.partial() {
            each_tile(self, id, hashes);
        }
        let fits = self
            .own
            .as_ref()
            .is_ok_and(|own| own.size == leaves.len() as u64 && roots.get(&own.size) == Some(&own.root));
        self.seen.reserve(leaves.len());
        self.stored_tree = Some(StoredTree { leaves, roots, fits });
    }

    /// Records that a file other than the entries is unreadable or does not match them.
    pub fn record_file_fault(&mut self, path: &str, what: impl Into<String>) {
        if self.file_faults.len() < MAX_FINDINGS {
            let fault = VerifyFault::File { path: path.to_owned(), what: what.into() };
            self.file_faults.push(VerifyFinding { index: None, cid: None, fault });
        }
    }

    /// Checks the next entry, given its canonical line without the newline. Entries after a bad one are only counted.
    pub fn push(&mut self, line: &[u8]) {
        let index = self.index;
        self.index += 1;
        if self.bad_entry.is_some() {
            return;
        }
        let mut cid = None;
        if let Err(fault) = self.check(index, line, &mut cid) {
            self.bad_entry = Some(VerifyFinding { index: Some(index), cid, fault });
        }
    }

    /// Counts an entry for which there is no line.
    pub fn push_unreadable(&mut self, what: String) {
        let index = self.index;
        self.index += 1;
        if self.bad_entry.is_none() {
            self.bad_entry =
                Some(VerifyFinding { index: Some(index), cid: None, fault: VerifyFault::Unreadable(what) });
        }
    }

    /// The key in force after the last entry; `None` if an entry was bad.
    pub fn key_in_force(&self) -> Option<&VerifierKey> {
        self.keys.current().filter(|_| self.bad_entry.is_none())
    }

    /// Entries read so far.
    pub const fn entries(&self) -> u64 {
        self.index
    }

    fn check(&mut self, index: u64, line: &[u8], name: &mut Option<Cid>) -> Result<(), VerifyFault> {
        let entry = EntryRef::read(line)?;
        *name = Some(entry.cid);
        let computed = entry.compute_cid();
        if computed != entry.cid {
            return Err(VerifyFault::Cid(computed));
        }
        if !self.seen.insert(entry.cid.first_half()) {
            return Err(VerifyFault::Duplicate);
        }
        let leaf = Hash::leaf(&entry.cid);
        let stored = self.stored_tree.as_ref().filter(|tree| tree.fits);
        // The stored leaves already have the signed root, so a leaf that equals its stored one needs no further
        // hashing.
        let compared = stored.is_some();
        if let Some(stored) = stored {
            match usize::try_from(index).ok().and_then(|index| stored.leaves.get(index)) {
                Some(logged) if *logged == leaf => {}
                Some(_) => return Err(VerifyFault::LeafMismatch),
                None => return Err(VerifyFault::AfterCheckpoint),
            }
        }
        self.check_seq(&entry)?;
        if let Some(parent) = entry.parents.iter().find(|parent| !self.seen.contains(&parent.first_half())) {
            return Err(VerifyFault::Parent(*parent));
        }
        entry.proof.check(entry.attested_by.as_ref(), &entry.cid)?;
        self.keys.apply(index, &entry)?;
        if !compared {
            self.tree.push(leaf);
            if self.sizes.binary_search(&self.tree.size()).is_ok() {
                self.roots.insert(self.tree.size(), self.tree.root());
            }
        }
        Ok(())
    }

    fn check_seq(&mut self, entry: &EntryRef<'_>) -> Result<(), VerifyFault> {
        let expected = match self.next_seq.get_mut(entry.entity_id) {
            Some(next) => next,
            None => self.next_seq.entry(entry.entity_id.to_owned()).or_insert(0),
        };
        if entry.seq != *expected {
            let entity = entry.entity_id.to_owned();
            return Err(VerifyFault::Seq { entity, expected: *expected, found: entry.seq });
        }
        *expected += 1;
        Ok(())
    }

    /// Both verdicts over all entries.
    pub fn finish(self) -> VerifyReport {
        let completeness = self.completeness();
        let integrity = match self.integrity() {
            findings if findings.is_empty() => Integrity::Sound,
            findings => Integrity::Broken(findings),
        };
        VerifyReport {
            entries: self.index,
            checkpoint: self.own.as_ref().ok().cloned(),
            key: self.keys.current().cloned(),
            integrity,
            completeness,
        }
    }

    fn integrity(&self) -> Vec<VerifyFinding> {
        let mut findings = Vec::new();
        let mut add = |fault| findings.push(VerifyFinding { index: None, cid: None, fault });
        let own = match self.own_checkpoint() {
            Ok(own) => Some(own),
            Err(fault) if self.bad_entry.is_none() => {
                add(fault);
                None
            }
            // The key history is incomplete after a bad entry, so the signature cannot be checked.
            Err(_) => None,
        };
        if let (Some(own), None) = (own, &self.bad_entry)
            && let Some(fault) = self.tree_fault(own)
        {
            add(fault);
        }
        findings.splice(0..0, self.bad_entry.iter().cloned());
        findings.extend(self.file_faults.iter().cloned());
        findings.truncate(MAX_FINDINGS);
        findings
    }

    /// The log's checkpoint, if the key in force signed it and the trusted key is in the same key history.
    fn own_checkpoint(&self) -> Result<&Checkpoint, VerifyFault> {
        let own = self.own.as_ref().map_err(|error| VerifyFault::Checkpoint(error.clone()))?;
        let signer = self.signer(&self.note, own.size)?;
        if signer != &self.trusted && !self.keys.contains(&self.trusted) {
            return Err(VerifyFault::UntrustedKey {
                trusted: self.trusted.to_string(),
                found: signer.to_string(),
            });
        }
        Ok(own)
    }

    /// The key that signed a checkpoint of `size`, if it was allowed to. Beyond the present entries a change of key may
    /// have been cut; there the trusted key may sign too, unless the history shows that it was replaced.
    fn signer(&self, note: &str, size: u64) -> Result<&VerifierKey, CheckpointError> {
        let in_force = self.keys.at_size(size).unwrap_or(&self.trusted);
        match Checkpoint::open(note, in_force) {
            Ok(_) => Ok(in_force),
            Err(_) if size > self.index && !self.keys.contains(&self.trusted) => {
                Checkpoint::open(note, &self.trusted).map(|_| &self.trusted)
            }
            Err(error) => Err(error),
        }
    }

    fn tree_fault(&self, own: &Checkpoint) -> Option<VerifyFault> {
        let stored_fits = self.stored_tree.as_ref().map(|tree| tree.fits);
        if self.index < own.size {
            // Each entry was compared with its leaf, and the leaves have the signed root. The missing entries are a
            // question of completeness.
            return (stored_fits != Some(true)).then_some(VerifyFault::Unlinked);
        }
        if self.index > own.size {
            return Some(VerifyFault::AfterCheckpoint);
        }
        if stored_fits == Some(true) {
            return None;
        }
        let computed = self.tree.root();
        if computed != own.root {
            return Some(VerifyFault::Root { computed, signed: own.root });
        }
        (stored_fits == Some(false)).then_some(VerifyFault::Tiles)
    }

    fn completeness(&self) -> Completeness {
        let mut gaps = Vec::new();
        if let Ok(own) = &self.own
            && self.index < own.size
        {
            let label = "the log's own checkpoint".to_owned();
            gaps.push(Gap::Cut { label, signed: own.size, here: self.index });
        }
        let mut shown: Option<(u64, &str)> = None;
        for held in &self.held {
            match self.compare(held) {
                Ok(size) if shown.is_none_or(|(best, _)| size > best) => shown = Some((size, &held.label)),
                Ok(_) => {}
                Err(gap) => gaps.push(gap),
            }
        }
        match (gaps.is_empty(), shown) {
            (false, _) => Completeness::Failed(gaps),
            (true, Some((size, label))) => Completeness::Shown { size, label: label.to_owned() },
            (true, None) => Completeness::NotChecked,
        }
    }

    /// The size up to which `held` proves the log complete.
    fn compare(&self, held: &HeldCheckpoint) -> Result<u64, Gap> {
        let label = held.label.clone();
        let unusable = |error| Gap::Unusable { label: held.label.clone(), error };
        let checkpoint = Checkpoint::parse(&held.note).map_err(unusable)?;
        let size = checkpoint.size;
        // From a bad entry on, no entry was compared and the key history was not applied.
        if self.bad_entry.as_ref().and_then(|bad| bad.index).is_some_and(|bad| bad < size) {
            return Err(Gap::NotComparable { label });
        }
        self.signer(&held.note, size).map_err(unusable)?;
        if size > self.index {
            return Err(Gap::Cut { label, signed: size, here: self.index });
        }
        let stored_roots = self.stored_tree.as_ref().filter(|tree| tree.fits).map(|tree| &tree.roots);
        match stored_roots.unwrap_or(&self.roots).get(&size) {
            Some(root) if *root == checkpoint.root => Ok(size),
            Some(_) => Err(Gap::Forked { label, size }),
            None => Err(Gap::NotComparable { label }),
        }
    }
}
