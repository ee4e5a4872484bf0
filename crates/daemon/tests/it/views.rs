//! L6: views are rebuilt from the entries, and a view that differs is detected.

use rusqlite::Connection;
use tribune_ledger::Checkpoint;
use tribune_ledger::tree::{Hash, prove};
use tribune_ledger::verify::Integrity;
use tribune_storage::store::{Store, StoreError};
use tribune_storage::{audit, store};

use crate::fixture::{FixedClock, TempHome, draft};

fn sql(home: &TempHome, statement: &str) {
    #[expect(clippy::disallowed_methods, reason = "the test changes the database directly")]
    let connection = Connection::open(home.home.database()).unwrap();
    assert!(connection.execute(statement, []).unwrap() > 0, "the statement must change a row: {statement}");
}

fn check(home: &TempHome) -> Option<String> {
    store::check_views(&home.home, &mut |_| {}).unwrap().fault.map(|fault| fault.to_string())
}

#[test]
fn l6_every_view_equals_its_rebuild() {
    for n in [0, 1, 254, 255, 256, 700] {
        let home = TempHome::with(n);
        assert_eq!(check(&home), None, "{n} entries");
    }
}

#[test]
fn l6_changed_view_is_detected_and_repaired_by_a_rebuild() {
    let acts = [
        (
            "UPDATE entities SET next_seq = next_seq + 1 WHERE entity_id = 'entity-1'",
            "entities: stored (`entity-1`",
        ),
        (
            "UPDATE entities SET head = 'b3:' || hex(zeroblob(32)) WHERE entity_id = 'entity-0'",
            "entities: stored (`entity-0`",
        ),
        ("DELETE FROM entities WHERE entity_id = 'entity-2'", "where the entries give (`entity-2`"),
        ("INSERT INTO entities VALUES ('zombie', 1, 1, 'x')", "which no entry gives"),
        ("DELETE FROM tree_tiles WHERE n = 1", "tree_tiles:"),
        ("UPDATE tree_tiles SET root = zeroblob(32) WHERE n = 0", "tree_tiles:"),
        ("UPDATE tree_tiles SET nodes = zeroblob(8192) WHERE n = 0", "tree_tiles:"),
        ("INSERT INTO cid_runs VALUES (0, 0, x'00')", "cid_runs:"),
        (
            "UPDATE ledger SET prev_idx = 3 WHERE idx = 20",
            "ledger.prev_idx: entry 20 does not point back to entry 17",
        ),
    ];
    for (act, expected) in acts {
        let home = TempHome::with(600);
        sql(&home, act);
        let fault = check(&home).unwrap_or_else(|| panic!("not found: {act}"));
        assert!(fault.contains(expected), "{act}: {fault}");
        assert_eq!(store::rebuild_views(&home.home, &mut |_| {}).unwrap(), 601);
        assert_eq!(check(&home), None, "{act}");
        home.store().writer().unwrap().append_blocking(&draft("entity-1", 0)).unwrap();
    }
}

#[test]
fn rebuild_does_not_hide_altered_entries() {
    for act in [
        "DELETE FROM ledger WHERE idx = 300",
        "DELETE FROM ledger WHERE idx > 290",
        "UPDATE checkpoint SET note = replace(note, '301', '300')",
    ] {
        let home = TempHome::with(300);
        sql(&home, act);
        let refused = store::rebuild_views(&home.home, &mut |_| {}).unwrap_err();
        assert!(
            matches!(&refused, StoreError::Damaged { what, .. } if what.ends_with("nothing was changed")),
            "{act}: {refused}"
        );
        assert!(check(&home).is_some(), "{act}");
        assert!(matches!(Store::open(&home.home, &FixedClock), Err(StoreError::Damaged { .. })), "{act}");
    }
}

/// After 65,536 entries the lookup of a CID goes through the stored runs of the index.
#[test]
fn long_ledger_is_indexed_proven_and_rebuilt() {
    let n = 66_000;
    let home = TempHome::with(n);
    assert_eq!(check(&home), None);
    let reader = home.reader();
    let size = reader.size().unwrap();
    assert_eq!(size, n + 1);
    let checkpoint = Checkpoint::parse(&reader.checkpoint().unwrap()).unwrap();
    for index in [0, 1, 255, 65_535, 65_536, 65_792, n] {
        let cid = reader.entry(index).unwrap().unwrap().entry.cid;
        assert_eq!(reader.find(&cid).unwrap(), Some(index));
        let path = prove::inclusion(&reader, index, size).unwrap();
        assert_eq!(prove::check_inclusion(Hash::leaf(&cid), index, size, &checkpoint.root, &path), Ok(()));
    }
    let old = prove::root_at(&reader, 65_537).unwrap();
    let path = prove::consistency(&reader, 65_537, size).unwrap();
    assert_eq!(prove::check_consistency(65_537, &old, size, &checkpoint.root, &path), Ok(()));
    // An entry may name any older entry as its parent.
    let oldest = reader.entry(7).unwrap().unwrap().entry.cid;
    let store = home.store();
    store.writer().unwrap().append_blocking(&crate::fixture::child_of(vec![oldest])).unwrap();
    store.close();
    let reader = home.reader();
    let report =
        audit::verify_home(&reader, &reader.key_in_force().unwrap(), Vec::new(), &mut |_| {}).unwrap();
    assert_eq!((report.entries, report.integrity), (n + 2, Integrity::Sound));
}
