//! A log in memory, in the form that an operator exports.

use serde_json::json;
use tribune_ledger::entry::EntryText;
use tribune_ledger::key_change::KeyChange;
use tribune_ledger::tree::{Frontier, Hash};
use tribune_ledger::verify::{HeldCheckpoint, Verifier, VerifyReport};
use tribune_ledger::{
    AttestationKey, Checkpoint, Cid, Draft, Ed25519Signer, EntryQuality, NoteSigner as _, Timestamp,
    VerifierKey,
};

/// Pseudo-random numbers from a fixed seed.
#[derive(Debug, Clone)]
pub(crate) struct TestRng(u64);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

pub(crate) fn signer(seed: u8) -> Ed25519Signer {
    Ed25519Signer::from_seed("log.example", &[seed; 32]).unwrap()
}

pub(crate) fn timestamp(second: u64) -> Timestamp {
    Timestamp::new(jiff::Timestamp::from_second(1_790_000_000 + second as i64).unwrap())
}

/// Entries as canonical lines, their stored leaves, and the log's own checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) lines: Vec<Vec<u8>>,
    pub(crate) leaves: Vec<Hash>,
    pub(crate) checkpoint: String,
    /// The first key of the log.
    pub(crate) key: VerifierKey,
}

impl Log {
    /// `n` entries of three entities, some attested by an agent, with one change of the log's key in the middle.
    pub(crate) fn sample(n: u64, rng: &mut TestRng) -> Self {
        let (first, second, agent) = (signer(1), signer(2), signer(9));
        let mut entries: Vec<EntryText> = Vec::new();
        for index in 0..n {
            let change = match index {
                0 => Some((KeyChange { old: None, new: first.verifier_key().clone() }, &first)),
                _ if index == n / 2 => {
                    let (old, new) = (first.verifier_key().clone(), second.verifier_key().clone());
                    Some((KeyChange { old: Some(old), new }, &first))
                }
                _ => None,
            };
            let (draft, attester) = match change {
                Some((change, attester)) => (change.draft(timestamp(index), "operator"), Some(attester)),
                None => {
                    let attester = (index % 5 == 0).then_some(&agent);
                    (
                        draft(index, attester.map(|a| a.verifier_key().attestation_key()), &entries, rng),
                        attester,
                    )
                }
            };
            let seq = entries.iter().filter(|entry| entry.entity_id == draft.entity_id).count() as u64;
            let mut entry = EntryText::seal(&draft, seq).unwrap();
            if let Some(attester) = attester {
                entry.attest(attester.signing_key()).unwrap();
            }
            entries.push(entry);
        }
        Self::publish(&entries, &signer_at(entries.len(), entries.len()), signer_key(1))
    }

    pub(crate) fn publish(entries: &[EntryText], signer: &Ed25519Signer, key: VerifierKey) -> Self {
        let lines: Vec<Vec<u8>> = entries
            .iter()
            .map(|entry| {
                let mut line = Vec::new();
                entry.write_line(&mut line);
                line
            })
            .collect();
        let leaves: Vec<Hash> = entries.iter().map(|entry| Hash::leaf(&entry.cid)).collect();
        let checkpoint = sign(&leaves, signer);
        Self { lines, leaves, checkpoint, key }
    }

    pub(crate) fn verify(&self, held: &[&str]) -> VerifyReport {
        let held = held
            .iter()
            .map(|note| HeldCheckpoint { label: "the held checkpoint".into(), note: (*note).into() });
        let mut verifier = Verifier::new(self.key.clone(), &self.checkpoint, held.collect());
        verifier.set_stored_leaves(self.leaves.clone(), |_, _, _| {});
        self.lines.iter().for_each(|line| verifier.push(line));
        verifier.finish()
    }

    /// The same without the stored leaves.
    pub(crate) fn verify_entries_alone(&self, held: &[&str]) -> VerifyReport {
        let held = held
            .iter()
            .map(|note| HeldCheckpoint { label: "the held checkpoint".into(), note: (*note).into() });
        let mut verifier = Verifier::new(self.key.clone(), &self.checkpoint, held.collect());
        self.lines.iter().for_each(|line| verifier.push(line));
        verifier.finish()
    }

    /// A checkpoint of the first `size` entries, signed with the key then in force.
    pub(crate) fn checkpoint_at(&self, size: usize) -> String {
        sign(&self.leaves[..size], &signer_at(size, self.leaves.len()))
    }
}

/// The key that signs checkpoints of `size` in a sample of `n` entries: it changes with entry `n / 2`.
pub(crate) fn signer_at(size: usize, n: usize) -> Ed25519Signer {
    signer(if n > 1 && size > n / 2 { 2 } else { 1 })
}

pub(crate) fn signer_key(seed: u8) -> VerifierKey {
    signer(seed).verifier_key().clone()
}

pub(crate) fn sign(leaves: &[Hash], signer: &Ed25519Signer) -> String {
    let mut tree = Frontier::default();
    leaves.iter().for_each(|leaf| tree.push(*leaf));
    let checkpoint = Checkpoint { origin: "log.example".into(), size: tree.size(), root: tree.root() };
    checkpoint.sign(signer).unwrap()
}

fn draft(index: u64, attested_by: Option<AttestationKey>, before: &[EntryText], rng: &mut TestRng) -> Draft {
    let parents: Vec<Cid> = match rng.below(3) {
        0 => Vec::new(),
        1 => vec![before[rng.below(before.len())].cid],
        _ => {
            let mut two = vec![before[rng.below(before.len())].cid, before[before.len() - 1].cid];
            two.dedup();
            two
        }
    };
    let payload = json!({"n": index, "ratio": 0.1 * index as f64, "what": "entry \"\u{1F600}\"\n", "list": [1, null, true]});
    Draft {
        entity_id: format!("agent:main:cli:local:dm:peer{}", rng.below(3)),
        target: "tool:read".into(),
        quality: EntryQuality::ALL[rng.below(9)],
        timestamp: timestamp(index),
        source: "agent:main".into(),
        actor: "main".into(),
        parents,
        tags: if rng.below(2) == 0 { vec![] } else { vec!["a".into(), "\u{e9}\"".into()] },
        payload: payload.as_object().unwrap().clone(),
        attested_by,
        envelope: None,
    }
}
