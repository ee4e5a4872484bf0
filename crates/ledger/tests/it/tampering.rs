//! The tamper campaign: whatever is done to a published log is found, and an untouched one is never accused.

use serde_json::{Value, json};
use tribune_ledger::entry::{EntryRef, EntryText};
use tribune_ledger::tree::Hash;
use tribune_ledger::verify::{Completeness, Fault, Gap, Integrity, Report};
use tribune_ledger::{Cid, LedgerEntry, jcs};

use crate::fixture::{Dice, Log, sign, signer, signer_at, signer_key};

fn sound(report: &Report) -> bool {
    report.integrity == Integrity::Sound && !matches!(report.completeness, Completeness::Failed(_))
}

fn first_fault(report: &Report) -> (Option<u64>, Fault) {
    match &report.integrity {
        Integrity::Sound => panic!("it was found sound"),
        Integrity::Broken(findings) => (findings[0].index, findings[0].fault.clone()),
    }
}

#[test]
fn untouched_logs_are_never_accused() {
    for seed in 1..200 {
        let n = 1 + seed % 70;
        let log = Log::sample(n, &mut Dice::new(seed));
        let held = log.checkpoint_at(n as usize);
        let label = "the held checkpoint".to_owned();
        for report in [log.verify(&[&held]), log.verify_entries_alone(&[&held])] {
            assert_eq!(report.integrity, Integrity::Sound, "seed {seed}");
            assert_eq!(report.completeness, Completeness::Shown { size: n, label: label.clone() });
            assert_eq!(report.entries, n);
        }
        assert_eq!(log.verify(&[]).completeness, Completeness::NotChecked);
        // Whoever holds an older checkpoint, or knows only the newest key, is satisfied too.
        let older = log.checkpoint_at(n as usize / 2);
        assert!(sound(&log.verify(&[&older])));
        assert!(sound(&Log { key: signer_key(if n > 1 { 2 } else { 1 }), ..log }.verify(&[])));
    }
}

#[test]
fn every_flipped_bit_of_every_byte_is_found() {
    let log = Log::sample(12, &mut Dice::new(7));
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
            assert!(matches!(first_fault(&report), (None, Fault::Checkpoint(_))), "byte {at}: {report:?}");
        }
    }
    for leaf in 0..log.leaves.len() {
        let mut tampered = log.clone();
        tampered.leaves[leaf] = Hash::empty();
        assert_eq!(first_fault(&tampered.verify(&[])), (None, Fault::Tiles));
    }
}

/// One random act of tampering by someone without the log's key. They may recompute whatever needs no key.
fn tamper(log: &mut Log, dice: &mut Dice) -> &'static str {
    let n = log.lines.len();
    let at = dice.below(n);
    match dice.below(12) {
        0 => {
            let byte = dice.below(log.lines[at].len());
            log.lines[at][byte] ^= 1 + dice.below(255) as u8;
            "byte flip"
        }
        1 => {
            let line = &mut log.lines[at];
            line.insert(dice.below(line.len()), dice.next() as u8);
            "byte inserted"
        }
        2 => {
            let line = &mut log.lines[at];
            line.remove(dice.below(line.len()));
            "byte removed"
        }
        3 => {
            edit_field(log, at, dice, Forge::Naively);
            "field edited"
        }
        4 => {
            edit_field(log, at, dice, Forge::WithNewCid);
            "field edited, cid recomputed"
        }
        5 => {
            edit_field(log, at, dice, Forge::WithNewCidAndLeaf);
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
            log.lines.swap(at, (at + 1 + dice.below(n - 1)) % n);
            "entries swapped"
        }
        9 => {
            let keep = dice.below(n);
            log.lines.truncate(keep);
            if dice.below(2) == 0 {
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

fn edit_field(log: &mut Log, at: usize, dice: &mut Dice, forge: Forge) {
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
    let field = fields[dice.below(fields.len())];
    value[field] = match field {
        "quality" if value["quality"] == "note" => json!("turn"),
        "quality" => json!("note"),
        "seq" => json!(value["seq"].as_u64().unwrap() + 1 + dice.below(3) as u64),
        "tags" => json!(["forged", dice.next().to_string()]),
        "payload" => json!({ "forged": dice.next().to_string() }),
        "timestamp" => json!("2031-01-01T00:00:00.000000Z"),
        "parents" => json!([Cid::of_entry(&[&dice.next().to_be_bytes()])]),
        _ => json!(format!("forged {}", dice.next())),
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
fn thousands_of_random_mutations_are_all_found() {
    let mut found = 0;
    for seed in 0..6_000 {
        let mut dice = Dice::new(seed + 1);
        let log = Log::sample(2 + seed % 30, &mut Dice::new(seed % 40 + 1));
        let mut tampered = log.clone();
        let act = tamper(&mut tampered, &mut dice);
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
fn a_bad_entry_is_named_even_where_only_the_tree_tells() {
    let log = Log::sample(20, &mut Dice::new(11));
    let mut tampered = log.clone();
    let mut value: Value = serde_json::from_slice(&log.lines[13]).unwrap();
    value["target"] = json!("tool:write");
    let text = jcs::to_vec(&value).unwrap();
    value["cid"] = json!(EntryRef::read(&text).unwrap().compute_cid());
    tampered.lines[13] = jcs::to_vec(&value).unwrap();
    assert_eq!(first_fault(&tampered.verify(&[])), (Some(13), Fault::NotTheLogged));
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
fn a_cut_log_is_incomplete_and_what_is_left_is_still_proven() {
    let mut log = Log::sample(20, &mut Dice::new(12));
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
    // Without the leaves nothing ties the rest to the signed root, and saying "sound" would be a lie.
    assert_eq!(first_fault(&log.verify_entries_alone(&[])), (None, Fault::Unproven));
}

/// The operator has the key: history can be rewritten and signed again. Only a checkpoint kept elsewhere tells.
#[test]
fn a_history_rewritten_by_the_key_holder_is_found_by_a_held_checkpoint() {
    for seed in 1..300 {
        let n = 6 + seed % 30;
        let log = Log::sample(n, &mut Dice::new(seed));
        let held = log.checkpoint_at(1 + Dice::new(seed).below(n as usize));
        let mut other = Log::sample(n, &mut Dice::new(seed + 1000));
        assert!(sound(&other.verify(&[])), "by itself the forged log is perfect");
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
            // The change of key was cut as well, so the log does not know who signed what is held.
            assert!(matches!(gaps[0], Gap::Unusable { .. }), "{gaps:?}");
        } else {
            assert_eq!(gaps, [Gap::Cut { label, signed: held_size, here: cut as u64 }], "seed {seed}");
        }
    }
}

#[test]
fn a_swapped_key_is_found() {
    let log = Log::sample(20, &mut Dice::new(13));
    let stranger = Log { key: signer_key(3), ..log.clone() };
    assert!(matches!(first_fault(&stranger.verify(&[])), (None, Fault::StrangerKey { .. })));
    let resigned = Log { checkpoint: sign(&log.leaves, &signer(3)), ..log.clone() };
    assert!(matches!(first_fault(&resigned.verify(&[])), (None, Fault::Checkpoint(_))));
    // The first key left office in the middle: what it signs about later sizes is worth nothing.
    let retired = Log { checkpoint: sign(&log.leaves, &signer(1)), ..log.clone() };
    assert!(matches!(first_fault(&retired.verify(&[])), (None, Fault::Checkpoint(_))));
    let held = sign(&log.leaves, &signer(1));
    assert!(matches!(log.verify(&[&held]).completeness, Completeness::Failed(_)));
}

#[test]
fn an_edited_held_checkpoint_shows_nothing() {
    let log = Log::sample(20, &mut Dice::new(14));
    let held = log.checkpoint_at(20).replacen("\n20\n", "\n19\n", 1);
    let Completeness::Failed(gaps) = log.verify(&[&held]).completeness else { panic!() };
    assert!(matches!(&gaps[0], Gap::Unusable { .. }), "{gaps:?}");
    let Completeness::Failed(gaps) = log.verify(&["not a checkpoint"]).completeness else { panic!() };
    assert!(matches!(&gaps[0], Gap::Unusable { .. }));
}

#[test]
fn a_proof_that_was_stripped_swapped_or_invented_is_found() {
    let log = Log::sample(20, &mut Dice::new(15));
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
    assert!(matches!(with_proof(5, Value::Null), (Some(5), Fault::Proof(_))));
    assert!(matches!(with_proof(5, proof_of(15)), (Some(5), Fault::Proof(_))));
    assert!(matches!(with_proof(6, proof_of(5)), (Some(6), Fault::Proof(_))));
    let mut other: EntryText = attested.to_text().unwrap();
    other.attest(signer(8).signing_key()).unwrap();
    assert!(matches!(
        with_proof(5, serde_json::from_str(&other.proof.unwrap()).unwrap()),
        (Some(5), Fault::Proof(_))
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
fn a_broken_log_is_never_shown_to_be_complete() {
    let mut log = Log::sample(20, &mut Dice::new(16));
    let (early, late) = (log.checkpoint_at(4), log.checkpoint_at(20));
    log.lines[5..].iter_mut().for_each(|line| *line = b"garbage".to_vec());
    assert!(matches!(log.verify(&[&early]).completeness, Completeness::Shown { size: 4, .. }));
    let Completeness::Failed(gaps) = log.verify(&[&early, &late]).completeness else { panic!() };
    assert!(matches!(gaps[..], [Gap::NotComparable { .. }]), "{gaps:?}");
}

#[test]
fn a_log_cut_before_its_change_of_key_is_cut_and_not_foreign_to_holders_of_the_newest_key() {
    let log = Log::sample(20, &mut Dice::new(17));
    let held = log.checkpoint_at(20);
    let mut cut = Log { key: signer_key(2), ..log.clone() };
    cut.lines.truncate(7);
    let report = cut.verify(&[&held]);
    assert_eq!(report.integrity, Integrity::Sound);
    let Completeness::Failed(gaps) = report.completeness else { panic!() };
    assert!(gaps.iter().all(|gap| matches!(gap, Gap::Cut { signed: 20, here: 7, .. })), "{gaps:?}");
    // Who holds only the first key cannot tell who signed; that is no reason to call it sound.
    cut.key = signer_key(1);
    assert_ne!(cut.verify(&[&held]).integrity, Integrity::Sound);
}
