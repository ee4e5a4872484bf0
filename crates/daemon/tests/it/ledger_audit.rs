//! Audit of homes and exports that were changed on disk.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tribune_ledger::VerifierKey;
use tribune_ledger::verify::{Completeness, HeldCheckpoint, Integrity, VerifyReport};
use tribune_storage::{audit, export};

use crate::fixture::{FixedClock, TempHome};

struct Exported {
    home: TempHome,
    folder: PathBuf,
    key: VerifierKey,
}

/// An export of `n` notes and a key rotation after them.
fn exported(n: u64) -> Exported {
    let home = TempHome::with(n);
    let key = home.reader().key_in_force().unwrap();
    let store = home.store();
    store.rotate_key(&FixedClock).unwrap();
    store.close();
    let folder = home.folder.path().join("export");
    export::write(&home.reader(), &folder, &mut |_| {}).unwrap();
    Exported { home, folder, key }
}

impl Exported {
    fn verify(&self) -> VerifyReport {
        audit::verify_export(&self.folder, &self.key, Vec::new(), &mut |_| {}).unwrap()
    }
}

fn sound(report: &VerifyReport) -> bool {
    report.integrity == Integrity::Sound && !matches!(report.completeness, Completeness::Failed(_))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// The same pseudorandom numbers in every run.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    }
}

#[test]
fn unchanged_exports_of_many_sizes_verify() {
    for n in [0, 1, 253, 254, 255, 256, 600] {
        let export = exported(n);
        let report = export.verify();
        assert!(sound(&report), "{n}: {report:?}");
        assert_eq!(report.entries, n + 2);
    }
}

#[test]
fn every_flipped_byte_of_an_export_is_detected() {
    let export = exported(300);
    let files = files(&export.folder);
    assert!(files.len() >= 7, "{files:?}");
    let mut roll = random(1);
    for path in &files {
        let content = fs::read(path).unwrap();
        for round in 0..200 {
            let mut changed = content.clone();
            let at = if round < 4 { (content.len() - 1) * round / 3 } else { roll(content.len()) };
            changed[at] ^= 1 << roll(8);
            fs::write(path, &changed).unwrap();
            let report = export.verify();
            assert!(!sound(&report), "byte {at} of {}", path.display());
        }
        fs::write(path, &content).unwrap();
    }
    assert!(sound(&export.verify()));
}

#[test]
fn missing_truncated_and_extended_files_are_detected() {
    let export = exported(300);
    for path in files(&export.folder) {
        let content = fs::read(&path).unwrap();
        for changed in [
            None,
            Some(content[..content.len() - 1].to_vec()),
            Some(vec![]),
            Some([&content[..], b"\n"].concat()),
        ] {
            match changed {
                None => fs::remove_file(&path).unwrap(),
                Some(changed) => fs::write(&path, changed).unwrap(),
            }
            let result = audit::verify_export(&export.folder, &export.key, Vec::new(), &mut |_| {});
            assert!(!result.is_ok_and(|report| sound(&report)), "{}", path.display());
            fs::write(&path, &content).unwrap();
        }
    }
    assert!(sound(&export.verify()));
}

#[test]
fn deleted_swapped_and_repeated_lines_are_detected() {
    let export = exported(300);
    let path = export.folder.join(export::ENTRIES);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut roll = random(2);
    for round in 0..400 {
        let mut changed = lines.clone();
        let at = roll(changed.len());
        match round % 5 {
            0 => drop(changed.remove(at)),
            1 => changed.swap(at, (at + 1) % lines.len()),
            2 => changed.truncate(at),
            3 => changed.extend_from_slice(&lines[at..]),
            _ => changed.insert(at, lines[roll(lines.len())]),
        }
        let text: String = changed.iter().flat_map(|line| [*line, "\n"]).collect();
        fs::write(&path, text).unwrap();
        assert!(!sound(&export.verify()), "round {round}, line {at}");
    }
}

#[test]
fn absurd_checkpoint_size_allocates_nothing() {
    let export = exported(3);
    let path = export.folder.join(export::CHECKPOINT);
    let note = fs::read_to_string(&path).unwrap().replacen("\n5\n", "\n9223372036854775807\n", 1);
    fs::write(&path, note).unwrap();
    assert!(!sound(&export.verify()));
}

#[test]
fn tampering_with_the_database_is_detected_and_names_the_entry() {
    let columns = [
        "cid",
        "quality",
        "entity_id",
        "seq",
        "target",
        "actor",
        "source",
        "parents",
        "tags",
        "payload",
        "timestamp",
    ];
    for column in columns {
        let export = exported(40);
        let value = match column {
            "seq" => "seq + 1",
            "quality" => "'approval'",
            "parents" => "'[\"' || (SELECT cid FROM ledger WHERE idx = 3) || '\"]'",
            "tags" => "'[\"forged\"]'",
            "payload" => "'{\"forged\":true}'",
            "timestamp" => "'2031-01-01T00:00:00.000000Z'",
            "cid" => "(SELECT cid FROM ledger WHERE idx = 5)",
            _ => "'forged'",
        };
        sql(&export.home, &format!("UPDATE ledger SET {column} = {value} WHERE idx = 17"));
        let reader = export.home.reader();
        let report = audit::verify_home(&reader, &export.key, Vec::new(), &mut |_| {}).unwrap();
        let Integrity::Broken(findings) = report.integrity else { panic!("{column}: not found") };
        assert_eq!(findings[0].index, Some(17), "{column}: {}", findings[0]);
    }
    for (act, what) in [
        ("DELETE FROM ledger WHERE idx = 17", "entry 17"),
        ("DELETE FROM ledger WHERE idx > 30", ""),
        ("DELETE FROM checkpoint", "checkpoint"),
        ("UPDATE checkpoint SET note = replace(note, '42', '41')", "checkpoint"),
        ("UPDATE ledger SET payload = 'not json' WHERE idx = 17", "entry 17"),
        ("UPDATE ledger SET proof = NULL WHERE idx = 0", "entry 0"),
        ("UPDATE ledger SET cid = 'nonsense' WHERE idx = 17", "entry 17"),
    ] {
        let export = exported(40);
        sql(&export.home, act);
        let reader = export.home.reader();
        match audit::verify_home(&reader, &export.key, Vec::new(), &mut |_| {}) {
            Ok(report) => {
                let Integrity::Broken(findings) = &report.integrity else { panic!("{act}: not found") };
                let messages: Vec<String> = findings.iter().map(ToString::to_string).collect();
                assert!(messages.iter().any(|messages| messages.contains(what)), "{act}: {messages:?}");
            }
            Err(error) => panic!("{act}: {error}"),
        }
    }
}

fn sql(home: &TempHome, statement: &str) {
    #[expect(clippy::disallowed_methods, reason = "the test changes the database directly")]
    let connection = Connection::open(home.home.database()).unwrap();
    assert!(connection.execute(statement, []).unwrap() > 0, "{statement}");
}

#[test]
fn saved_checkpoint_detects_truncation() {
    let export = exported(40);
    let kept = export.home.reader().checkpoint().unwrap();
    let held = || vec![HeldCheckpoint { label: "kept".into(), note: kept.clone() }];
    let report = audit::verify_export(&export.folder, &export.key, held(), &mut |_| {}).unwrap();
    assert_eq!(report.completeness, Completeness::Shown { size: 42, label: "kept".into() });

    // Another valid ledger is not this one.
    let other = exported(60);
    let report = audit::verify_export(&other.folder, &other.key, held(), &mut |_| {}).unwrap();
    assert!(matches!(report.completeness, Completeness::Failed(_)));
}

#[test]
fn export_is_atomic() {
    let home = TempHome::with(5);
    let reader = home.reader();
    let folder = home.folder.path().join("export");
    fs::write(&folder, "in the way").unwrap();
    let error = export::write(&reader, &folder, &mut |_| {}).unwrap_err();
    assert!(error.to_string().ends_with("exists already: name a folder that does not exist yet"));
    assert_eq!(fs::read_to_string(&folder).unwrap(), "in the way");
    let nowhere = home.folder.path().join("missing/export");
    export::write(&reader, &nowhere, &mut |_| {}).unwrap();
    assert!(nowhere.join(export::CHECKPOINT).exists());
    let under_a_file = folder.join("export");
    assert!(export::write(&reader, &under_a_file, &mut |_| {}).is_err());
    assert_eq!(
        files(home.folder.path()).iter().filter(|path| path.to_string_lossy().contains("partial")).count(),
        0
    );
}

#[test]
fn absurd_positions_in_the_database_are_findings_not_panics() {
    for (act, what) in [
        ("UPDATE ledger SET idx = 4611686018427387904 WHERE idx = 41", "entry 41: it is missing"),
        ("UPDATE ledger SET idx = 9223372036854775807 WHERE idx = 41", "is damaged"),
        ("UPDATE ledger SET idx = -1 WHERE idx = 41", "the ledger has rows before entry 0"),
        ("DROP TABLE tree_tiles", "no such table"),
    ] {
        let export = exported(40);
        sql_any(&export.home, act);
        let verified = tribune_storage::store::Reader::open(&export.home.home)
            .and_then(|reader| audit::verify_home(&reader, &export.key, Vec::new(), &mut |_| {}));
        let messages = match verified {
            Ok(report) => {
                let Integrity::Broken(findings) = report.integrity else { panic!("{act}: not found") };
                findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            }
            Err(error) => {
                assert!(
                    matches!(error, tribune_storage::store::StoreError::Damaged { .. }),
                    "{act}: {error}"
                );
                error.to_string()
            }
        };
        assert!(messages.contains(what), "{act}: {messages}");
        assert!(tribune_storage::store::Store::open(&export.home.home, &FixedClock).is_err(), "{act}");
    }
}

fn sql_any(home: &TempHome, statement: &str) {
    #[expect(clippy::disallowed_methods, reason = "the test changes the database directly")]
    let connection = Connection::open(home.home.database()).unwrap();
    connection.execute_batch(statement).unwrap();
}

#[test]
fn files_that_are_not_part_of_the_log_are_reported() {
    let export = exported(300);
    for name in ["tile/0/999", "tile/0/001.p/3", "tile/entries/000.p/9", "tile/7/000", "tile/notes.txt"] {
        let path = export.folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "x").unwrap();
        let Integrity::Broken(findings) = export.verify().integrity else { panic!("{name}: not found") };
        assert_eq!(findings[0].to_string(), format!("{name}: it is not part of this log"));
        fs::remove_file(&path).unwrap();
    }
    assert!(sound(&export.verify()));
}

#[test]
fn l9_hostile_files_do_not_hang_or_exhaust_memory() {
    let export = exported(300);
    let tile = export.folder.join("tile/0/000");
    // A sparse file of one terabyte.
    fs::File::options().write(true).open(&tile).unwrap().set_len(1 << 40).unwrap();
    assert!(!sound(&export.verify()));
    fs::remove_file(&tile).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &tile, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    assert!(!sound(&export.verify()), "a pipe without a writer");
    let entries = export.folder.join(export::ENTRIES);
    fs::File::options().write(true).open(&entries).unwrap().set_len(1 << 40).unwrap();
    assert!(!sound(&export.verify()));
}
