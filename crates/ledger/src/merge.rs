//! Merges the entries of several nodes (a Merkle-CRDT). The union of two sets is commutative, associative and
//! idempotent. Parents are named by hash, so the causal order is part of the entries.

use std::collections::{BTreeMap, BTreeSet};

use crate::cid::Cid;
use crate::entry::{FieldError, LedgerEntry};
use crate::proof::ProofError;

/// A set of valid entries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EntrySet {
    entries: BTreeMap<Cid, LedgerEntry>,
}

/// Why an entry is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    #[error("{0}")]
    Field(#[from] FieldError),
    #[error("its text hashes to {0}")]
    Cid(Cid),
    #[error("{0}")]
    Proof(#[from] ProofError),
}

/// Different entries of one entity with the same number: its author wrote two histories.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fork {
    pub entity_id: String,
    pub seq: u64,
    pub entries: Vec<Cid>,
}

impl EntrySet {
    /// Adds an entry if its hash is its CID and it has the attestation it requires.
    pub fn insert(&mut self, entry: LedgerEntry) -> Result<(), InvalidEntry> {
        let computed = entry.to_text()?.compute_cid();
        if computed != entry.cid {
            return Err(InvalidEntry::Cid(computed));
        }
        entry.proof.check(entry.attested_by.as_ref(), &entry.cid)?;
        self.add(entry);
        Ok(())
    }

    /// Adds all entries of `other`.
    pub fn merge(&mut self, other: &Self) {
        for entry in other.entries.values() {
            self.add(entry.clone());
        }
    }

    fn add(&mut self, entry: LedgerEntry) {
        match self.entries.entry(entry.cid) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(entry);
            }
            // Entries with one CID can differ in `proof` only. Two valid signatures can exist; every node keeps the
            // smaller one, so that all keep the same.
            std::collections::btree_map::Entry::Occupied(mut slot) => {
                if format!("{:?}", entry.proof) < format!("{:?}", slot.get().proof) {
                    slot.insert(entry);
                }
            }
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, cid: &Cid) -> Option<&LedgerEntry> {
        self.entries.get(cid)
    }

    /// Entries that no other entry names as a parent: the newest of each branch.
    pub fn heads(&self) -> BTreeSet<Cid> {
        let mut heads: BTreeSet<Cid> = self.entries.keys().copied().collect();
        for parent in self.entries.values().flat_map(|entry| &entry.parents) {
            heads.remove(parent);
        }
        heads
    }

    /// Parents that are named but not in the set.
    pub fn missing(&self) -> BTreeSet<Cid> {
        let parents = self.entries.values().flat_map(|entry| &entry.parents);
        parents.filter(|parent| !self.entries.contains_key(parent)).copied().collect()
    }

    /// All numbers under which one entity has more than one entry.
    pub fn forks(&self) -> Vec<Fork> {
        let mut by_number: BTreeMap<(&str, u64), Vec<Cid>> = BTreeMap::new();
        for entry in self.entries.values() {
            by_number.entry((&entry.entity_id, entry.seq)).or_default().push(entry.cid);
        }
        let forked = by_number.into_iter().filter(|(_, entries)| entries.len() > 1);
        forked
            .map(|((entity_id, seq), entries)| Fork { entity_id: entity_id.to_owned(), seq, entries })
            .collect()
    }

    /// All entries, each after its parents. The order depends on the set only.
    pub fn in_causal_order(&self) -> Vec<&LedgerEntry> {
        let mut waiting: BTreeMap<Cid, usize> = BTreeMap::new();
        let mut children: BTreeMap<Cid, Vec<Cid>> = BTreeMap::new();
        let mut ready: BTreeSet<Cid> = BTreeSet::new();
        for entry in self.entries.values() {
            let present: Vec<_> =
                entry.parents.iter().filter(|parent| self.entries.contains_key(parent)).collect();
            for parent in &present {
                children.entry(**parent).or_default().push(entry.cid);
            }
            if present.is_empty() {
                ready.insert(entry.cid);
            } else {
                waiting.insert(entry.cid, present.len());
            }
        }
        let mut ordered = Vec::with_capacity(self.entries.len());
        while let Some(cid) = ready.pop_first() {
            ordered.extend(self.entries.get(&cid));
            for child in children.remove(&cid).unwrap_or_default() {
                if let Some(left) = waiting.get_mut(&child) {
                    *left -= 1;
                    if *left == 0 {
                        ready.insert(child);
                    }
                }
            }
        }
        // A cycle would need a hash that contains itself, so no entry stays in `waiting`.
        ordered
    }
}
