//! One entry: what its CID covers and what is refused.

use serde_json::{Value, json};
use tribune_ledger::bundle::{BundleError, ProofBundle};
use tribune_ledger::entry::{EntryRef, EntryText, FieldError};
use tribune_ledger::limits::{MAX_ENTRY_BYTES, MAX_PARENTS};
use tribune_ledger::tree::Hash;
use tribune_ledger::{Cid, Draft, EntryQuality, LedgerEntry, Timestamp};

use crate::fixture::{Log, TestRng, sign, signer, signer_key, timestamp};

fn draft() -> Draft {
    Draft {
        entity_id: "agent:main".into(),
        target: "tool:read".into(),
        quality: EntryQuality::ToolCall,
        timestamp: timestamp(0),
        source: "agent:main".into(),
        actor: "main".into(),
        parents: vec![],
        tags: vec!["b".into(), "a".into()],
        payload: json!({"z": 1, "a": "é"}).as_object().unwrap().clone(),
        attested_by: None,
        envelope: None,
    }
}

#[test]
fn the_format_is_pinned() {
    let entry = EntryText::seal(&draft(), 3).unwrap();
    let mut line = Vec::new();
    entry.write_line(&mut line);
    assert_eq!(
        String::from_utf8(line).unwrap(),
        r#"{"actor":"main","attested_by":null,"cid":"b3:HERE","entity_id":"agent:main","envelope":null,"parents":[],"payload":{"a":"é","z":1},"proof":null,"quality":"tool_call","seq":3,"source":"agent:main","tags":["b","a"],"target":"tool:read","timestamp":"2026-09-21T14:13:20.000000Z"}"#
            .replace("b3:HERE", &entry.cid.to_string())
    );
    assert_eq!(entry.cid.to_string(), "b3:46e584db25313309ec2e0e6c4446d71225f6f1f222c4d0f20b83254eaca1a602");
}

#[test]
fn the_cid_covers_everything_but_cid_and_proof() {
    let mut log = Log::sample(12, &mut TestRng::new(1));
    let line = log.lines.swap_remove(10);
    let entry = EntryRef::read(&line).unwrap();
    assert_eq!(entry.compute_cid(), entry.cid);
    let value: Value = serde_json::from_slice(&line).unwrap();
    for field in value.as_object().unwrap().keys() {
        let mut edited = value.clone();
        edited[field] = match field.as_str() {
            "parents" => json!([Cid::of_entry(&[b"x"])]),
            "tags" => json!(["other"]),
            "payload" => json!({"other": 1}),
            "seq" => json!(999),
            "quality" => json!("note"),
            "timestamp" => json!("2027-01-01T00:00:00.000000Z"),
            "attested_by" => json!(signer_key(7).attestation_key()),
            "envelope" => {
                json!({"scheme": "xchacha20poly1305+x25519", "epoch": 1, "ciphertext": Cid::of_entry(&[b"x"]), "audience": []})
            }
            "cid" => json!(Cid::of_entry(&[b"x"])),
            "proof" => json!({"type": "zk_stark", "system": "s", "statement": "s", "proof": "p"}),
            _ => json!("other"),
        };
        let text = tribune_ledger::jcs::to_vec(&edited).unwrap();
        let edited = EntryRef::read(&text).unwrap();
        let covered = !matches!(field.as_str(), "cid" | "proof");
        assert_eq!(edited.compute_cid() != entry.cid, covered, "{field}");
    }
}

#[test]
fn entry_round_trips_through_text_and_types() {
    for line in Log::sample(30, &mut TestRng::new(2)).lines {
        let entry: LedgerEntry = EntryRef::read(&line).unwrap().to_entry().unwrap();
        let mut again = Vec::new();
        entry.to_text().unwrap().write_line(&mut again);
        assert_eq!(String::from_utf8(again).unwrap(), String::from_utf8(line).unwrap());
        let json = serde_json::to_vec(&entry).unwrap();
        assert_eq!(serde_json::from_slice::<LedgerEntry>(&json).unwrap(), entry);
    }
}

#[test]
fn unknown_missing_and_misshapen_fields_are_refused_by_name() {
    let line = {
        let mut line = Vec::new();
        EntryText::seal(&draft(), 0).unwrap().write_line(&mut line);
        serde_json::from_slice::<Value>(&line).unwrap()
    };
    let read = |value: &Value| match EntryRef::read(&tribune_ledger::jcs::to_vec(value).unwrap()) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(read(&line), "accepted");
    let edits = [
        ("more", json!(1), "`more` is not a field of an entry"),
        ("zzz", json!(1), "`zzz` is not a field of an entry"),
        ("quality", json!("gossip"), "`quality`: `gossip` is not a kind of ledger entry"),
        ("seq", json!(-1), "`seq`: it must be a whole number"),
        ("seq", json!("0"), "`seq`: it must be a whole number"),
        ("seq", json!(0.5), "`seq`: it must be a whole number"),
        ("payload", json!([]), "`payload`: it must be an object"),
        ("parents", json!(["b3:00"]), "`parents`: a CID is `b3:`"),
        ("parents", json!({}), "`parents`: it must be an array"),
        ("timestamp", json!("2026-09-21T14:13:20Z"), "`timestamp`: a timestamp has the form"),
        ("entity_id", json!(""), "`entity_id`: it is empty"),
        ("actor", json!("a\u{7}"), "`actor`: it has a control character"),
        ("source", json!("x".repeat(513)), "`source`: it has 513 bytes; the limit is 512"),
        ("tags", json!(["x".repeat(129)]), "`tags`: a tag has 1 to 128 bytes, this one 129"),
        ("tags", json!([1]), "`tags`: it must be a string"),
        ("tags", json!(["a", 1]), "`tags`: it must be a string"),
        ("tags", json!(["a", 1, "b"]), "`tags`: each must be a string"),
        ("tags", json!(["a", ["b"], "c"]), "`tags`: each must be a string"),
        ("tags", json!({}), "`tags`: it must be an array"),
        ("tags", json!(["\\", 1]), "`tags`: invalid type"),
        ("tags", json!(["a\u{7}"]), "`tags`: a tag has a control character"),
        ("tags", json!(vec!["t"; 33]), "`tags`: there are 33; the limit is 32"),
        ("attested_by", json!("ed25519:00"), "`attested_by`: an attestation key is"),
        ("envelope", json!({"scheme": "rot13"}), "`envelope`: unknown variant `rot13`"),
        ("proof", json!({"type": "oath"}), "`proof`: unknown variant `oath`"),
        ("cid", json!(null), "`cid`: it must be a string"),
    ];
    for (field, value, expected) in edits {
        let mut edited = line.clone();
        edited[field] = value;
        assert!(read(&edited).starts_with(expected), "{field}: {}", read(&edited));
    }
    for field in line.as_object().unwrap().keys() {
        let mut edited = line.clone();
        edited.as_object_mut().unwrap().remove(field);
        assert_eq!(read(&edited), format!("`{field}` is missing"));
    }
}

#[test]
fn l9_an_entry_has_a_size_and_the_limit_is_named() {
    let with = |payload: Value, parents: Vec<Cid>| {
        EntryText::seal(&Draft { payload: payload.as_object().unwrap().clone(), parents, ..draft() }, 0)
    };
    assert!(with(json!({"x": "y".repeat(MAX_ENTRY_BYTES - 500)}), vec![]).is_ok());
    let ten_megabytes = with(json!({"x": "y".repeat(10 << 20)}), vec![]).unwrap_err();
    assert!(matches!(ten_megabytes, FieldError::TooLarge { limit: MAX_ENTRY_BYTES, .. }));
    assert!(ten_megabytes.to_string().ends_with("bytes; the limit is 262144"));
    let parents: Vec<Cid> = (0..=MAX_PARENTS).map(|i| Cid::of_entry(&[&i.to_be_bytes()])).collect();
    assert!(with(json!({}), parents.clone()).is_err());
    assert!(with(json!({}), parents[1..].to_vec()).is_ok());
    assert!(with(json!({}), vec![parents[0], parents[0]]).is_err());
    let deep = |depth| json!({"x": (1..depth).fold(json!(1), |inner, _| json!([inner]))});
    for depth in [1, 62, 63, 64, 65, 100] {
        if let Ok(entry) = with(deep(depth), vec![]) {
            let mut line = Vec::new();
            entry.write_line(&mut line);
            assert!(
                EntryRef::read(&line).is_ok(),
                "every entry that can be written can be read: depth {depth}"
            );
        }
    }
    assert!(with(deep(62), vec![]).is_ok() && with(deep(65), vec![]).is_err());
}

#[test]
fn proof_bundle_verifies_alone() {
    let log = Log::sample(9, &mut TestRng::new(3));
    // Nine leaves: the ninth is a direct child of the root, so its path is the root of the first eight.
    let mut left = tribune_ledger::tree::Frontier::default();
    log.leaves[..8].iter().for_each(|leaf| left.push(*leaf));
    let bundle = ProofBundle {
        entry: log.lines[8].clone(),
        index: 8,
        path: vec![left.root()],
        checkpoint: sign(&log.leaves, &signer(2)),
    };
    let text = bundle.to_string();
    assert!(text.starts_with("c2sp.org/tlog-proof@v1\nextra "));
    let parsed = ProofBundle::parse(&text).unwrap();
    assert_eq!(parsed, bundle);
    let (entry, checkpoint) = parsed.check(&signer_key(2)).unwrap();
    assert_eq!((Hash::leaf(&entry.cid), checkpoint.size), (log.leaves[8], 9));

    assert!(matches!(parsed.check(&signer_key(3)), Err(BundleError::Checkpoint(_))));
    let elsewhere = ProofBundle { index: 7, ..bundle.clone() };
    assert!(matches!(elsewhere.check(&signer_key(2)), Err(BundleError::Path(_))));
    let other_entry = ProofBundle { entry: log.lines[7].clone(), ..bundle };
    assert!(matches!(other_entry.check(&signer_key(2)), Err(BundleError::Path(_))));
    // A change of any byte is detected.
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] ^= 1;
        let held = String::from_utf8(bytes)
            .is_ok_and(|text| ProofBundle::parse(&text).is_ok_and(|b| b.check(&signer_key(2)).is_ok()));
        assert!(!held, "byte {at}");
    }
}

#[test]
fn timestamp_text_equals_the_text_of_jiff() {
    let mut state = 7_u64;
    let first = jiff::Timestamp::MIN.as_microsecond();
    let span = u64::try_from(jiff::Timestamp::MAX.as_microsecond() - first).unwrap();
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let micros = first + i64::try_from((state >> 1) % span).unwrap();
        let time = jiff::Timestamp::from_microsecond(micros).unwrap();
        assert_eq!(Timestamp::new(time).to_string(), format!("{time:.6}"));
    }
    let turn = |text: &str| text.parse::<Timestamp>().unwrap().to_string();
    for text in ["0000-01-01T00:00:00.000000Z", "2024-02-29T23:59:59.999999Z", "9999-12-30T22:00:00.000001Z"]
    {
        assert_eq!(turn(text), text);
    }
}
