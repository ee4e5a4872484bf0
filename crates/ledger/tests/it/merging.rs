//! E6: merging sets of entries is a join, and heads converge.

use proptest::prelude::*;
use tribune_ledger::LedgerEntry;
use tribune_ledger::entry::EntryRef;
use tribune_ledger::merge::{EntrySet, InvalidEntry};

use crate::fixture::{Log, TestRng};

fn entries(seed: u64) -> Vec<LedgerEntry> {
    let log = Log::sample(40, &mut TestRng::new(seed));
    log.lines.iter().map(|line| EntryRef::read(line).unwrap().to_entry().unwrap()).collect()
}

fn subset(all: &[LedgerEntry], mask: u64) -> EntrySet {
    let mut set = EntrySet::default();
    for (i, entry) in all.iter().enumerate() {
        if mask >> i & 1 == 1 {
            set.insert(entry.clone()).unwrap();
        }
    }
    set
}

fn merged(a: &EntrySet, b: &EntrySet) -> EntrySet {
    let mut set = a.clone();
    set.merge(b);
    set
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn merging_is_commutative_associative_and_idempotent(seed in 1_u64..20, x: u64, y: u64, z: u64) {
        let all = entries(seed);
        let (a, b, c) = (subset(&all, x), subset(&all, y), subset(&all, z));
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(merged(&a, &a), a.clone());
        prop_assert_eq!(merged(&a, &EntrySet::default()), a);
    }

    #[test]
    fn nodes_converge_for_any_order_of_arrival(seed in 1_u64..20, mask: u64, shuffle: u64) {
        let all = entries(seed);
        let mut late = all.clone();
        let mut rng = TestRng::new(shuffle);
        for i in (1..late.len()).rev() {
            late.swap(i, rng.below(i + 1));
        }
        let whole = subset(&all, u64::MAX);
        let mut node = subset(&all, mask);
        for entry in late {
            node.insert(entry).unwrap();
        }
        prop_assert_eq!(node.heads(), whole.heads());
        prop_assert!(node.missing().is_empty());
        let order = whole.in_causal_order();
        prop_assert_eq!(node.in_causal_order(), order.clone());
        prop_assert_eq!(order.len(), all.len());
        for (i, entry) in order.iter().enumerate() {
            for parent in &entry.parents {
                prop_assert!(order[..i].iter().any(|before| before.cid == *parent), "a parent comes first");
            }
        }
    }
}

#[test]
fn missing_parents_and_forks_are_named() {
    let (all, other) = (entries(3), entries(4));
    let child = all.iter().find(|entry| !entry.parents.is_empty()).unwrap();
    let mut lone = EntrySet::default();
    lone.insert(child.clone()).unwrap();
    assert_eq!(lone.missing().into_iter().collect::<Vec<_>>(), {
        let mut parents = child.parents.clone();
        parents.sort();
        parents
    });
    assert!(subset(&all, u64::MAX).forks().is_empty());
    let forks = merged(&subset(&all, u64::MAX), &subset(&other, u64::MAX)).forks();
    assert!(!forks.is_empty(), "two histories of the same entities are forks");
    assert!(forks.iter().all(|fork| fork.entries.len() == 2));
}

#[test]
fn altered_entries_are_refused() {
    let mut entry = entries(5).remove(7);
    entry.actor = "another-actor".into();
    assert!(matches!(EntrySet::default().insert(entry), Err(InvalidEntry::Cid(_))));
    let mut stripped = entries(5).remove(10);
    assert!(stripped.attested_by.is_some());
    stripped.proof = tribune_ledger::Proof::Null;
    assert!(matches!(EntrySet::default().insert(stripped), Err(InvalidEntry::Proof(_))));
}
