//! What a stranger checks, given the entries, a checkpoint and a public key.
//!
//! Two verdicts. **Integrity**: every entry hashes to its name, carries the attestation it owes, follows its
//! predecessors without a gap, and is the one that the signed root covers. **Completeness**: nothing was cut or
//! rewritten since a checkpoint that somebody keeps elsewhere. The second cannot be had from the log alone.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::cid::{Cid, CidBuildHasher};
use crate::entry::{EntryRef, FieldError};
use crate::key_change::{KeyFault, KeyLine};
use crate::limits::MAX_FINDINGS;
use crate::note::VerifierKey;
use crate::proof::ProofError;
use crate::tree::tile::{TileEdge, TileId};
use crate::tree::{Frontier, Hash};

/// A checkpoint from outside the log, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldCheckpoint {
    pub label: String,
    pub note: String,
}

/// What is wrong with one entry, or with what stands beside the entries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Field(#[from] FieldError),
    #[error("{0}")]
    Unreadable(String),
    #[error("its text hashes to {0}: the entry was altered")]
    Cid(Cid),
    #[error("it stands in the log twice")]
    Twice,
    #[error("it is number {found} of `{entity}` where number {expected} must come")]
    Seq { entity: String, expected: u64, found: u64 },
    #[error("its parent {0} is not in the log before it")]
    Parent(Cid),
    #[error("{0}")]
    Proof(#[from] ProofError),
    #[error("{0}")]
    Key(#[from] KeyFault),
    #[error("it is not the entry that was logged here: the signed tree has another leaf at this index")]
    NotTheLogged,
    #[error("it stands behind the last entry the checkpoint covers")]
    BehindCheckpoint,
    #[error("the log's checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("you trust {trusted}, which is not among the keys of this log; its key is {found}")]
    StrangerKey { trusted: String, found: String },
    #[error("the entries have the root {computed}, but {signed} is signed")]
    Root { computed: Hash, signed: Hash },
    #[error("entries are missing, and what is left cannot be tied to the signed root")]
    Unproven,
    #[error("the stored tree does not have the root that is signed, though the entries do")]
    Tiles,
    #[error("{path}: {what}")]
    File { path: String, what: String },
}

/// A fault and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The entry's place in the log; none if the fault is not in an entry.
    pub index: Option<u64>,
    /// The entry's name as it claims it, where it could be read.
    pub cid: Option<Cid>,
    pub fault: Fault,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.index, self.cid) {
            (Some(index), Some(cid)) => write!(f, "entry {index} ({cid}): {}", self.fault),
            (Some(index), None) => write!(f, "entry {index}: {}", self.fault),
            (None, _) => fmt::Display::fmt(&self.fault, f),
        }
    }
}

/// Whether what is here is what was logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    Sound,
    /// The first finding is the first bad entry, if an entry is bad.
    Broken(Vec<Finding>),
}

/// Whether everything that was logged is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// Everything up to this checkpoint, held elsewhere, is here unchanged.
    Shown {
        size: u64,
        label: String,
    },
    /// Nobody gave a checkpoint from elsewhere, so a cut or rewritten log could not be told from a whole one.
    NotChecked,
    Failed(Vec<Gap>),
}

/// Something that was logged and is not here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    #[error("{label} covers {signed} entries; {here} are here: the log was cut")]
    Cut { label: String, signed: u64, here: u64 },
    #[error("{label} has another root at size {size}: the history was rewritten or forked")]
    Forked { label: String, size: u64 },
    #[error("{label} proves nothing: {error}")]
    Unusable { label: String, error: CheckpointError },
    #[error("{label} could not be compared, because the log is broken before it")]
    NotComparable { label: String },
}

/// Both verdicts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Entries read.
    pub entries: u64,
    /// What the log's own checkpoint says, if it can be read.
    pub checkpoint: Option<Checkpoint>,
    /// The key in force at the end of the log.
    pub key: Option<VerifierKey>,
    pub integrity: Integrity,
    pub completeness: Completeness,
}

/// Reads a log entry by entry and keeps what it needs: the CIDs seen, each entity's next number, the tree's edge.
#[derive(Debug)]
pub struct Verifier {
    trusted: VerifierKey,
    note: String,
    own: Result<Checkpoint, CheckpointError>,
    held: Vec<HeldCheckpoint>,
    /// Sizes whose roots the verdicts need, rising.
    sizes: Vec<u64>,
    /// The tree as the log stores it, if it was given.
    logged: Option<Logged>,
    index: u64,
    tree: Frontier,
    roots: HashMap<u64, Hash>,
    /// The first halves of the CIDs so far. Half is enough, since making two that agree takes 2^64 tries, and a smaller
    /// table misses the cache less.
    seen: HashSet<u128, CidBuildHasher>,
    next_seq: HashMap<String, u64>,
    keys: KeyLine,
    bad_entry: Option<Finding>,
    beside: Vec<Finding>,
}

#[derive(Debug)]
struct Logged {
    leaves: Vec<Hash>,
    roots: HashMap<u64, Hash>,
    /// Its root is the one the log's checkpoint names.
    fits: bool,
}

impl Verifier {
    /// `note` is the log's own checkpoint; `trusted` any key the log ever had.
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
            logged: None,
            index: 0,
            tree: Frontier::default(),
            seen: HashSet::default(),
            next_seq: HashMap::new(),
            keys: KeyLine::default(),
            bad_entry: None,
            beside: Vec::new(),
        }
    }

    /// The leaf hashes as the log stores them beside its entries. With them a bad entry is named even where only the
    /// tree tells, and a cut log can still be tied to its root. `each_tile` is handed every tile they fill or begin.
    pub fn logged_leaves(
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
        self.logged = Some(Logged { leaves, roots, fits });
    }

    /// Something beside the entries could not be read or does not fit them.
    pub fn file_fault(&mut self, path: &str, what: impl Into<String>) {
        if self.beside.len() < MAX_FINDINGS {
            let fault = Fault::File { path: path.to_owned(), what: what.into() };
            self.beside.push(Finding { index: None, cid: None, fault });
        }
    }

    /// Reads the next entry: its canonical line without the newline. Entries behind a bad one are only counted.
    pub fn push(&mut self, line: &[u8]) {
        let index = self.index;
        self.index += 1;
        if self.bad_entry.is_some() {
            return;
        }
        let mut cid = None;
        if let Err(fault) = self.check(index, line, &mut cid) {
            self.bad_entry = Some(Finding { index: Some(index), cid, fault });
        }
    }

    /// Counts an entry that could not even be put into a line.
    pub fn push_unreadable(&mut self, what: String) {
        let index = self.index;
        self.index += 1;
        if self.bad_entry.is_none() {
            self.bad_entry = Some(Finding { index: Some(index), cid: None, fault: Fault::Unreadable(what) });
        }
    }

    /// The key in force behind the last entry read; none if an entry was bad.
    pub fn key_in_force(&self) -> Option<&VerifierKey> {
        self.keys.current().filter(|_| self.bad_entry.is_none())
    }

    /// Entries read so far.
    pub const fn entries(&self) -> u64 {
        self.index
    }

    fn check(&mut self, index: u64, line: &[u8], name: &mut Option<Cid>) -> Result<(), Fault> {
        let entry = EntryRef::read(line)?;
        *name = Some(entry.cid);
        let computed = entry.compute_cid();
        if computed != entry.cid {
            return Err(Fault::Cid(computed));
        }
        if !self.seen.insert(entry.cid.first_half()) {
            return Err(Fault::Twice);
        }
        let leaf = Hash::leaf(&entry.cid);
        let logged = self.logged.as_ref().filter(|logged| logged.fits);
        // A leaf that was compared with one under the signed root need not be hashed up to it again.
        let compared = logged.is_some();
        if let Some(logged) = logged {
            match usize::try_from(index).ok().and_then(|index| logged.leaves.get(index)) {
                Some(there) if *there == leaf => {}
                Some(_) => return Err(Fault::NotTheLogged),
                None => return Err(Fault::BehindCheckpoint),
            }
        }
        self.check_seq(&entry)?;
        if let Some(parent) = entry.parents.iter().find(|parent| !self.seen.contains(&parent.first_half())) {
            return Err(Fault::Parent(*parent));
        }
        entry.proof.check(entry.attested_by.as_ref(), &entry.cid)?;
        self.keys.follow(index, &entry)?;
        if !compared {
            self.tree.push(leaf);
            if self.sizes.binary_search(&self.tree.size()).is_ok() {
                self.roots.insert(self.tree.size(), self.tree.root());
            }
        }
        Ok(())
    }

    fn check_seq(&mut self, entry: &EntryRef<'_>) -> Result<(), Fault> {
        let expected = match self.next_seq.get_mut(entry.entity_id) {
            Some(next) => next,
            None => self.next_seq.entry(entry.entity_id.to_owned()).or_insert(0),
        };
        if entry.seq != *expected {
            let entity = entry.entity_id.to_owned();
            return Err(Fault::Seq { entity, expected: *expected, found: entry.seq });
        }
        *expected += 1;
        Ok(())
    }

    /// Both verdicts over everything read.
    pub fn finish(self) -> Report {
        let completeness = self.completeness();
        let integrity = match self.integrity() {
            findings if findings.is_empty() => Integrity::Sound,
            findings => Integrity::Broken(findings),
        };
        Report {
            entries: self.index,
            checkpoint: self.own.as_ref().ok().cloned(),
            key: self.keys.current().cloned(),
            integrity,
            completeness,
        }
    }

    fn integrity(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut beside = |fault| findings.push(Finding { index: None, cid: None, fault });
        let own = match self.own_checkpoint() {
            Ok(own) => Some(own),
            Err(fault) if self.bad_entry.is_none() => {
                beside(fault);
                None
            }
            // The line of keys was not followed to its end, so the signature cannot be judged.
            Err(_) => None,
        };
        if let (Some(own), None) = (own, &self.bad_entry)
            && let Some(fault) = self.tree_fault(own)
        {
            beside(fault);
        }
        findings.splice(0..0, self.bad_entry.iter().cloned());
        findings.extend(self.beside.iter().cloned());
        findings.truncate(MAX_FINDINGS);
        findings
    }

    /// The log's checkpoint, if it is signed by the key in force and that key descends from or leads to the trusted one.
    fn own_checkpoint(&self) -> Result<&Checkpoint, Fault> {
        let own = self.own.as_ref().map_err(|error| Fault::Checkpoint(error.clone()))?;
        let signer = self.signer(&self.note, own.size)?;
        if signer != &self.trusted && !self.keys.contains(&self.trusted) {
            return Err(Fault::StrangerKey { trusted: self.trusted.to_string(), found: signer.to_string() });
        }
        Ok(own)
    }

    /// Who signed a checkpoint of `size`, if it is who should have. Behind the entries that are here a change of key may
    /// have been cut; there the trusted key may sign as well, unless it is known to have left office.
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

    fn tree_fault(&self, own: &Checkpoint) -> Option<Fault> {
        let logged_fits = self.logged.as_ref().map(|logged| logged.fits);
        if self.index < own.size {
            // Each entry was compared with its leaf, and the leaves have the signed root; the gap itself is a matter
            // of completeness.
            return (logged_fits != Some(true)).then_some(Fault::Unproven);
        }
        if self.index > own.size {
            return Some(Fault::BehindCheckpoint);
        }
        if logged_fits == Some(true) {
            return None;
        }
        let computed = self.tree.root();
        if computed != own.root {
            return Some(Fault::Root { computed, signed: own.root });
        }
        (logged_fits == Some(false)).then_some(Fault::Tiles)
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

    /// The size up to which `held` shows the log to be whole.
    fn compare(&self, held: &HeldCheckpoint) -> Result<u64, Gap> {
        let label = held.label.clone();
        let unusable = |error| Gap::Unusable { label: held.label.clone(), error };
        let checkpoint = Checkpoint::parse(&held.note).map_err(unusable)?;
        let size = checkpoint.size;
        // Entries from a bad one on were not compared with anything, nor the line of keys followed.
        if self.bad_entry.as_ref().and_then(|bad| bad.index).is_some_and(|bad| bad < size) {
            return Err(Gap::NotComparable { label });
        }
        self.signer(&held.note, size).map_err(unusable)?;
        if size > self.index {
            return Err(Gap::Cut { label, signed: size, here: self.index });
        }
        let logged = self.logged.as_ref().filter(|logged| logged.fits).map(|logged| &logged.roots);
        match logged.unwrap_or(&self.roots).get(&size) {
            Some(root) if *root == checkpoint.root => Ok(size),
            Some(_) => Err(Gap::Forked { label, size }),
            None => Err(Gap::NotComparable { label }),
        }
    }
}
