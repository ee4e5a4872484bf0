//! Entries of several nodes, merged (a Merkle-CRDT): the union of two sets is the same whoever merges first, however
//! often, in whatever order. Causes are named by hash, so the causal order travels with the entries.

use std::collections::{BTreeMap, BTreeSet};

use crate::cid::Cid;
use crate::entry::{FieldError, LedgerEntry};
use crate::proof::ProofError;

/// A set of sound entries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EntrySet {
    entries: BTreeMap<Cid, LedgerEntry>,
}

/// Why an entry is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsound {
    #[error("{0}")]
    Field(#[from] FieldError),
    #[error("its text hashes to {0}")]
    Cid(Cid),
    #[error("{0}")]
    Proof(#[from] ProofError),
}

/// Two different entries of one entity under one number: its author told two stories.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fork {
    pub entity_id: String,
    pub seq: u64,
    pub entries: Vec<Cid>,
}

impl EntrySet {
    /// Adds an entry if it hashes to its name and carries the attestation it owes.
    pub fn insert(&mut self, entry: LedgerEntry) -> Result<(), Unsound> {
        let computed = entry.to_text()?.compute_cid();
        if computed != entry.cid {
            return Err(Unsound::Cid(computed));
        }
        entry.proof.check(entry.attested_by.as_ref(), &entry.cid)?;
        self.admit(entry);
        Ok(())
    }

    /// Adds everything `other` has.
    pub fn merge(&mut self, other: &Self) {
        for entry in other.entries.values() {
            self.admit(entry.clone());
        }
    }

    fn admit(&mut self, entry: LedgerEntry) {
        match self.entries.entry(entry.cid) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(entry);
            }
            // Equal CIDs mean equal entries but for `proof`. Two valid signatures can exist; every node keeps the
            // smaller, so that all keep the same.
            std::collections::btree_map::Entry::Occupied(mut place) => {
                if format!("{:?}", entry.proof) < format!("{:?}", place.get().proof) {
                    place.insert(entry);
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

    /// Entries that no other names as a parent: where each line of events has got to.
    pub fn heads(&self) -> BTreeSet<Cid> {
        let mut heads: BTreeSet<Cid> = self.entries.keys().copied().collect();
        for parent in self.entries.values().flat_map(|entry| &entry.parents) {
            heads.remove(parent);
        }
        heads
    }

    /// Parents that are named but not here yet.
    pub fn missing(&self) -> BTreeSet<Cid> {
        let parents = self.entries.values().flat_map(|entry| &entry.parents);
        parents.filter(|parent| !self.entries.contains_key(parent)).copied().collect()
    }

    /// Places where one entity has two entries of the same number.
    pub fn forks(&self) -> Vec<Fork> {
        let mut places: BTreeMap<(&str, u64), Vec<Cid>> = BTreeMap::new();
        for entry in self.entries.values() {
            places.entry((&entry.entity_id, entry.seq)).or_default().push(entry.cid);
        }
        let forked = places.into_iter().filter(|(_, entries)| entries.len() > 1);
        forked
            .map(|((entity_id, seq), entries)| Fork { entity_id: entity_id.to_owned(), seq, entries })
            .collect()
    }

    /// All entries, every one after its parents; the order depends on the set alone.
    pub fn in_causal_order(&self) -> Vec<&LedgerEntry> {
        let mut waiting: BTreeMap<Cid, usize> = BTreeMap::new();
        let mut children: BTreeMap<Cid, Vec<Cid>> = BTreeMap::new();
        let mut ready: BTreeSet<Cid> = BTreeSet::new();
        for entry in self.entries.values() {
            let here: Vec<_> =
                entry.parents.iter().filter(|parent| self.entries.contains_key(parent)).collect();
            for parent in &here {
                children.entry(**parent).or_default().push(entry.cid);
            }
            if here.is_empty() {
                ready.insert(entry.cid);
            } else {
                waiting.insert(entry.cid, here.len());
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
        // A cycle would need a hash that contains itself, so nothing is left waiting.
        ordered
    }
}
