//! Tamper tests: every change of a published log is detected, and an unchanged log always verifies.

use serde_json::{Value, json};
use tribune_ledger::entry::{EntryRef, EntryText};
use tribune_ledger::tree::Hash;
use tribune_ledger::verify::{Completeness, Gap, Integrity, VerifyFault, VerifyReport};
use tribune_ledger::{Cid, LedgerEntry, jcs};

use crate::fixture::{Log, TestRng, sign, signer, signer_at, signer_key};

fn sound(report: &VerifyReport) -> bool {
    report.integrity == Integrity::Sound && !matches!(report.completeness, Completeness::Failed(_))
}

fn first_fault(report: &VerifyReport) -> (Option<u64>, VerifyFault) {
    match &report.integrity {
        Integrity::Sound => panic!("the log verified"),
        Integrity::Broken(findings) => (findings[0].index, findings[0].fault.clone()),
    }
}

#[test]
fn unchanged_logs_verify() {
    for seed in 1..200 {
        let n = 1 + seed % 70;
        let log = Log::sample(n, &mut TestRng::new(seed));
        let held = log.checkpoint_at(n as usize);
        let label = "the held checkpoint".to_owned();
        for report in [log.verify(&[&held]), log.verify_entries_alone(&[&held])] {
            assert_eq!(report.integrity, Integrity::Sound, "seed {seed}");
            assert_eq!(report.completeness, Completeness::Shown { size: n, label: label.clone() });
            assert_eq!(report.entries, n);
        }
        assert_eq!(log.verify(&[]).completeness, Completeness::NotChecked);
        // A verifier with an older checkpoint, or with the newest key only, accepts it too.
        let older = log.checkpoint_at(n as usize / 2);
        assert!(sound(&log.verify(&[&older])));
        assert!(sound(&Log { key: signer_key(if n > 1 { 2 } else { 1 }), ..log }.verify(&[])));
    }
}

#[test]
fn every_flipped_bit_is_detected() {
    let log = Log::sample(12, &mut TestRng::new(7));
    for index in 0..log.lines.len() {
        for at in 0..log.lines[index].len() {
            for bit in [0, 3, 5, 7] {
                let mut tampered = log.clone();
                tampered.lines[index][at] ^= 1 << bit;
                let (found, _) = first_fault(&tampered.verify(&[]));
                assert_eq!(found, Some(index as u64), "byte {at} of entry {index}");
                assert!(!sound(&tampered.verify_entries_alone(&[])));
            }
        }
    }
    for at in 0..log.checkpoint.len() {
        let mut bytes = log.checkpoint.clone().into_bytes();
        bytes[at] ^= 1;
        if let Ok(checkpoint) = String::from_utf8(bytes) {
            let report = Log { checkpoint, ..log.clone() }.verify(&[]);
            assert!(
                matches!(first_fault(&report), (None, VerifyFault::Checkpoint(_))),
                "byte {at}: {report:?}"
            );
        }
    }
    for leaf in 0..log.leaves.len() {
        let mut tampered = log.clone();
        tampered.leaves[leaf] = Hash::empty();
        assert_eq!(first_fault(&tampered.verify(&[])), (None, VerifyFault::Tiles));
    }
}

/// One random change by an attacker without the log's key. The attacker recomputes everything that needs no key.
fn tamper(log: &mut Log, rng: &mut TestRng) -> &'static str {
    let n = log.lines.len();
    let at = rng.below(n);
    match rng.below(12) {
        0 => {
            let byte = rng.below(log.lines[at].len());
            log.lines[at][byte] ^= 1 + rng.below(255) as u8;
            "byte flip"
        }
        1 => {
            let line = &mut log.lines[at];
            line.insert(rng.below(line.len()), rng.next() as u8);
            "byte inserted"
        }
        2 => {
            let line = &mut log.lines[at];
            line.remove(rng.below(line.len()));
            "byte removed"
        }
        3 => {
            edit_field(log, at, rng, Forge::Naively);
            "field edited"
        }
        4 => {
            edit_field(log, at, rng, Forge::WithNewCid);
            "field edited, cid recomputed"
        }
        5 => {
            edit_field(log, at, rng, Forge::WithNewCidAndLeaf);
            "field edited, cid and leaf recomputed"
        }
        6 => {
            log.lines.remove(at);
            "entry deleted"
        }
        7 => {
            log.lines.remove(at);
            log.leaves.remove(at);
            "entry and leaf deleted"
        }
        8 => {
            log.lines.swap(at, (at + 1 + rng.below(n - 1)) % n);
            "entries swapped"
        }
        9 => {
            let keep = rng.below(n);
            log.lines.truncate(keep);
            if rng.below(2) == 0 {
                log.leaves.truncate(keep);
            }
            "tail cut"
        }
        10 => {
            let tail = log.lines[at..].to_vec();
            log.lines.extend(tail);
            "tail duplicated"
        }
        _ => {
            log.lines[at] = strip_proof(&log.lines[at]);
            if EntryRef::read(&log.lines[at]).unwrap().attested_by.is_none() {
                log.lines.remove(at);
            }
            "proof stripped"
        }
    }
}

#[derive(PartialEq)]
enum Forge {
    Naively,
    WithNewCid,
    WithNewCidAndLeaf,
}

fn edit_field(log: &mut Log, at: usize, rng: &mut TestRng, forge: Forge) {
    let mut value: Value = serde_json::from_slice(&log.lines[at]).unwrap();
    let fields = [
        "actor",
        "target",
        "source",
        "entity_id",
        "quality",
        "seq",
        "tags",
        "payload",
        "timestamp",
        "parents",
    ];
    let field = fields[rng.below(fields.len())];
    value[field] = match field {
        "quality" if value["quality"] == "note" => json!("turn"),
        "quality" => json!("note"),
        "seq" => json!(value["seq"].as_u64().unwrap() + 1 + rng.below(3) as u64),
        "tags" => json!(["forged", rng.next().to_string()]),
        "payload" => json!({ "forged": rng.next().to_string() }),
        "timestamp" => json!("2031-01-01T00:00:00.000000Z"),
        "parents" => json!([Cid::of_entry(&[&rng.next().to_be_bytes()])]),
        _ => json!(format!("forged {}", rng.next())),
    };
    if forge != Forge::Naively {
        let text = jcs::to_vec(&value).unwrap();
        let cid = EntryRef::read(&text).unwrap().compute_cid();
        value["cid"] = json!(cid);
        if forge == Forge::WithNewCidAndLeaf {
            log.leaves[at] = Hash::leaf(&cid);
        }
    }
    log.lines[at] = jcs::to_vec(&value).unwrap();
}

fn strip_proof(line: &[u8]) -> Vec<u8> {
    let mut value: Value = serde_json::from_slice(line).unwrap();
    value["proof"] = Value::Null;
    jcs::to_vec(&value).unwrap()
}

#[test]
fn thousands_of_random_mutations_are_detected() {
    let mut found = 0;
    for seed in 0..6_000 {
        let mut rng = TestRng::new(seed + 1);
        let log = Log::sample(2 + seed % 30, &mut TestRng::new(seed % 40 + 1));
        let mut tampered = log.clone();
        let act = tamper(&mut tampered, &mut rng);
        if tampered.lines == log.lines {
            assert!(sound(&tampered.verify(&[])) || tampered.leaves != log.leaves);
            continue;
        }
        let report = tampered.verify(&[]);
        assert!(!sound(&report), "{act}, seed {seed}: not found");
        assert!(!sound(&tampered.verify_entries_alone(&[])), "{act}, seed {seed}: not found without leaves");
        found += 1;
    }
    assert!(found > 5_500, "{found}");
}

#[test]
fn bad_entry_is_named_when_only_the_tree_reveals_it() {
    let log = Log::sample(20, &mut TestRng::new(11));
    let mut tampered = log.clone();
    let mut value: Value = serde_json::from_slice(&log.lines[13]).unwrap();
    value["target"] = json!("tool:write");
    let text = jcs::to_vec(&value).unwrap();
    value["cid"] = json!(EntryRef::read(&text).unwrap().compute_cid());
    tampered.lines[13] = jcs::to_vec(&value).unwrap();
    assert_eq!(first_fault(&tampered.verify(&[])), (Some(13), VerifyFault::LeafMismatch));
    let report = tampered.verify(&[]);
    let Integrity::Broken(findings) = report.integrity else { panic!() };
    assert_eq!(
        findings[0].to_string(),
        format!(
            "entry 13 ({}): it is not the entry that was logged here: the signed tree has another leaf at this index",
            findings[0].cid.unwrap()
        )
    );
}

#[test]
fn cut_log_is_incomplete_and_the_rest_still_verifies() {
    let mut log = Log::sample(20, &mut TestRng::new(12));
    log.lines.truncate(15);
    let report = log.verify(&[]);
    assert_eq!(report.integrity, Integrity::Sound);
    assert_eq!(
        report.completeness,
        Completeness::Failed(vec![Gap::Cut {
            label: "the log's own checkpoint".into(),
            signed: 20,
            here: 15
        }])
    );
    // Without the leaves nothing links the rest to the signed root, so the verdict must not be "sound".
    assert_eq!(first_fault(&log.verify_entries_alone(&[])), (None, VerifyFault::Unlinked));
}

/// The operator has the key and can rewrite and sign the history again. Only a checkpoint kept outside the log reveals
/// it.
#[test]
fn held_checkpoint_reveals_a_history_rewritten_with_the_key() {
    for seed in 1..300 {
        let n = 6 + seed % 30;
        let log = Log::sample(n, &mut TestRng::new(seed));
        let held = log.checkpoint_at(1 + TestRng::new(seed).below(n as usize));
        let mut other = Log::sample(n, &mut TestRng::new(seed + 1000));
        assert!(sound(&other.verify(&[])), "the forged log alone verifies");
        let held_size = tribune_ledger::Checkpoint::parse(&held).unwrap().size;
        let label = "the held checkpoint".to_owned();
        let report = other.verify(&[&held]);
        if log.leaves[..held_size as usize] == other.leaves[..held_size as usize] {
            assert!(sound(&report));
        } else {
            assert_eq!(
                report.completeness,
                Completeness::Failed(vec![Gap::Forked { label: label.clone(), size: held_size }])
            );
        }
        // Cut and signed again.
        let cut = (held_size - 1) as usize;
        other = log.clone();
        other.lines.truncate(cut);
        other.leaves.truncate(cut);
        other.checkpoint = sign(&other.leaves, &signer_at(cut, n as usize));
        let Completeness::Failed(gaps) = other.verify(&[&held]).completeness else {
            panic!("seed {seed}: not found")
        };
        if cut == n as usize / 2 {
            // The change of key was cut too, so the log does not contain the key that signed the held checkpoint.
            assert!(matches!(gaps[0], Gap::Unusable { .. }), "{gaps:?}");
        } else {
            assert_eq!(gaps, [Gap::Cut { label, signed: held_size, here: cut as u64 }], "seed {seed}");
        }
    }
}

#[test]
fn replaced_key_is_detected() {
    let log = Log::sample(20, &mut TestRng::new(13));
    let unknown_key = Log { key: signer_key(3), ..log.clone() };
    assert!(matches!(first_fault(&unknown_key.verify(&[])), (None, VerifyFault::UntrustedKey { .. })));
    let resigned = Log { checkpoint: sign(&log.leaves, &signer(3)), ..log.clone() };
    assert!(matches!(first_fault(&resigned.verify(&[])), (None, VerifyFault::Checkpoint(_))));
    // The first key was replaced in the middle: its signatures over later sizes are invalid.
    let retired = Log { checkpoint: sign(&log.leaves, &signer(1)), ..log.clone() };
    assert!(matches!(first_fault(&retired.verify(&[])), (None, VerifyFault::Checkpoint(_))));
    let held = sign(&log.leaves, &signer(1));
    assert!(matches!(log.verify(&[&held]).completeness, Completeness::Failed(_)));
}

#[test]
fn edited_held_checkpoint_fails_completeness() {
    let log = Log::sample(20, &mut TestRng::new(14));
    let held = log.checkpoint_at(20).replacen("\n20\n", "\n19\n", 1);
    let Completeness::Failed(gaps) = log.verify(&[&held]).completeness else { panic!() };
    assert!(matches!(&gaps[0], Gap::Unusable { .. }), "{gaps:?}");
    let Completeness::Failed(gaps) = log.verify(&["not a checkpoint"]).completeness else { panic!() };
    assert!(matches!(&gaps[0], Gap::Unusable { .. }));
}

#[test]
fn removed_replaced_or_added_proof_is_detected() {
    let log = Log::sample(20, &mut TestRng::new(15));
    let attested: LedgerEntry = EntryRef::read(&log.lines[5]).unwrap().to_entry().unwrap();
    assert!(attested.attested_by.is_some());
    let with_proof = |index: usize, proof: Value| {
        let mut tampered = log.clone();
        let mut value: Value = serde_json::from_slice(&log.lines[index]).unwrap();
        value["proof"] = proof;
        tampered.lines[index] = jcs::to_vec(&value).unwrap();
        first_fault(&tampered.verify(&[]))
    };
    let proof_of =
        |index: usize| serde_json::from_slice::<Value>(&log.lines[index]).unwrap()["proof"].clone();
    assert!(matches!(with_proof(5, Value::Null), (Some(5), VerifyFault::Proof(_))));
    assert!(matches!(with_proof(5, proof_of(15)), (Some(5), VerifyFault::Proof(_))));
    assert!(matches!(with_proof(6, proof_of(5)), (Some(6), VerifyFault::Proof(_))));
    let mut other: EntryText = attested.to_text().unwrap();
    other.attest(signer(8).signing_key()).unwrap();
    assert!(matches!(
        with_proof(5, serde_json::from_str(&other.proof.unwrap()).unwrap()),
        (Some(5), VerifyFault::Proof(_))
    ));
    let stark = json!({"type": "zk_stark", "system": "s", "statement": "s", "proof": ""});
    let (index, fault) = with_proof(6, stark);
    assert_eq!(index, Some(6));
    assert_eq!(
        fault.to_string(),
        "it carries a ZkStark proof, which this version cannot check, so it is not accepted"
    );
}

#[test]
fn broken_log_is_never_complete() {
    let mut log = Log::sample(20, &mut TestRng::new(16));
    let (early, late) = (log.checkpoint_at(4), log.checkpoint_at(20));
    log.lines[5..].iter_mut().for_each(|line| *line = b"garbage".to_vec());
    assert!(matches!(log.verify(&[&early]).completeness, Completeness::Shown { size: 4, .. }));
    let Completeness::Failed(gaps) = log.verify(&[&early, &late]).completeness else { panic!() };
    assert!(matches!(gaps[..], [Gap::NotComparable { .. }]), "{gaps:?}");
}

#[test]
fn log_cut_before_its_key_change_is_reported_as_cut_to_holders_of_the_newest_key() {
    let log = Log::sample(20, &mut TestRng::new(17));
    let held = log.checkpoint_at(20);
    let mut cut = Log { key: signer_key(2), ..log.clone() };
    cut.lines.truncate(7);
    let report = cut.verify(&[&held]);
    assert_eq!(report.integrity, Integrity::Sound);
    let Completeness::Failed(gaps) = report.completeness else { panic!() };
    assert!(gaps.iter().all(|gap| matches!(gap, Gap::Cut { signed: 20, here: 7, .. })), "{gaps:?}");
    // With the first key only, the signer is unknown, so the verdict must not be "sound".
    cut.key = signer_key(1);
    assert_ne!(cut.verify(&[&held]).integrity, Integrity::Sound);
}
