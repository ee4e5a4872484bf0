//! Ledger appends: how an entry becomes durable, and which entries are refused.

use std::collections::HashSet;

use tribune_ledger::entry::EntryText;
use tribune_ledger::{Cid, Draft, Ed25519Signer, EntryQuality, NoteSigner as _};
use tribune_storage::home::Home;
use tribune_storage::store::LedgerWriter;
use tribune_storage::store::Reader;
use tribune_storage::store::{EntryLookup, Store, StoreError, StoreOrigin};

use crate::fixture::{FixedClock, TempHome, child_of, draft};

fn writer(store: &Store) -> LedgerWriter {
    store.writer().unwrap()
}

#[test]
fn ledger_begins_with_its_key_and_continues_after_a_restart() {
    let home = TempHome::new();
    let store = home.store();
    assert_eq!(store.beginning(), StoreOrigin::Began);
    let first = writer(&store).append_blocking(&draft("a", 1)).unwrap();
    assert_eq!((first.index, first.seq), (1, 0));
    store.close();
    let store = home.store();
    assert_eq!(store.beginning(), StoreOrigin::Found);
    let second = writer(&store).append_blocking(&draft("a", 2)).unwrap();
    assert_eq!((second.index, second.seq), (2, 1));
    let reader = home.reader();
    assert_eq!(reader.size().unwrap(), 3);
    assert_eq!(reader.entry(0).unwrap().unwrap().entry.quality, EntryQuality::KeyChange);
    assert_eq!(reader.entry(2).unwrap().unwrap().entry.cid, second.cid);
}

#[test]
fn many_callers_share_commits_and_every_history_is_gapless() {
    let home = TempHome::new();
    let store = home.store();
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let writer = writer(&store);
            std::thread::spawn(move || {
                (0..50_u64)
                    .map(|n| {
                        let appended = writer.append_blocking(&draft(&format!("agent-{thread}"), n)).unwrap();
                        assert_eq!(appended.seq, n, "a caller's entries keep their order");
                        appended
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let appended: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let reader = home.reader();
    let places: HashSet<u64> = appended.iter().map(|appended| appended.index).collect();
    assert_eq!(places, (1..=400).collect());
    for appended in appended {
        let stored = reader.entry(appended.index).unwrap().unwrap();
        assert_eq!((stored.entry.cid, stored.entry.seq), (appended.cid, appended.seq));
    }
}

#[test]
fn async_callers_wait_for_the_same_commits() {
    let home = TempHome::new();
    let store = home.store();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let writer = writer(&store);
        let one = writer.append(&draft("a", 0)).await.unwrap();
        let more = writer.append_all(&[draft("a", 1), draft("b", 2), child_of(vec![one.cid])]).await.unwrap();
        assert_eq!(more.iter().map(|appended| appended.index).collect::<Vec<_>>(), [2, 3, 4]);
    });
}

#[test]
fn batch_append_is_atomic() {
    let home = TempHome::new();
    let store = home.store();
    let missing_parent = Cid::of_entry(&[b"no such entry"]);
    let receipt = writer(&store)
        .submit_blocking(&[draft("a", 0), child_of(vec![missing_parent]), draft("a", 1)])
        .unwrap();
    let refused = writer(&store).wait_blocking(receipt).unwrap_err();
    assert!(matches!(refused, StoreError::NoSuchParent(parent) if parent == missing_parent));
    assert_eq!(
        writer(&store).append_blocking(&draft("a", 2)).unwrap().seq,
        0,
        "nothing of the refused request stayed"
    );
    assert_eq!(home.reader().size().unwrap(), 2);
}

#[test]
fn refused_append_does_not_affect_its_neighbours() {
    let home = TempHome::new();
    let store = home.store();
    let good = writer(&store).submit_blocking(&[draft("a", 0)]).unwrap();
    let bad = writer(&store).submit_blocking(&[child_of(vec![Cid::of_entry(&[b"x"])])]).unwrap();
    let also_good = writer(&store).submit_blocking(&[draft("a", 1)]).unwrap();
    assert!(writer(&store).wait_blocking(good).is_ok());
    assert!(writer(&store).wait_blocking(bad).is_err());
    assert_eq!(writer(&store).wait_blocking(also_good).unwrap()[0].seq, 1);
    assert_eq!(writer(&store).failure(), None);
}

#[test]
fn attested_entry_requires_its_position_name_and_signature() {
    let home = TempHome::new();
    let store = home.store();
    let agent = Ed25519Signer::from_seed("agent", &[5; 32]).unwrap();
    let owed = Draft { attested_by: Some(agent.verifier_key().attestation_key()), ..draft("agent", 0) };
    assert!(matches!(writer(&store).append_blocking(&owed), Err(StoreError::Proof(_))), "unsigned");

    let sealed = |seq: u64, sign: bool| {
        let mut entry = EntryText::seal(&owed, seq).unwrap();
        if sign {
            entry.attest(agent.signing_key()).unwrap();
        }
        entry
    };
    let append = |entry| writer(&store).append_sealed_blocking(entry);
    assert!(matches!(append(sealed(0, false)), Err(StoreError::Proof(_))));
    assert!(matches!(append(sealed(1, true)), Err(StoreError::OutOfTurn { expected: 0, found: 1 })));
    let mut renamed = sealed(0, true);
    renamed.actor = "another actor".to_owned();
    assert!(matches!(append(renamed), Err(StoreError::WrongCid)));
    assert_eq!(append(sealed(0, true)).unwrap().seq, 0);
    assert!(
        matches!(append(sealed(0, true)), Err(StoreError::OutOfTurn { expected: 1, found: 0 })),
        "a second time"
    );
}

#[test]
fn key_history_is_written_only_by_a_rotation() {
    let home = TempHome::new();
    let store = home.store();
    let forged = Draft { quality: EntryQuality::KeyChange, ..draft("tribune:ledger", 0) };
    let elsewhere = Draft { quality: EntryQuality::KeyChange, ..draft("a", 0) };
    let harmless = draft("tribune:ledger", 0);
    for draft in [forged, elsewhere, harmless] {
        assert!(matches!(writer(&store).append_blocking(&draft), Err(StoreError::Reserved(_))));
        let sealed = EntryText::seal(&draft, 1).unwrap();
        assert!(matches!(writer(&store).append_sealed_blocking(sealed), Err(StoreError::Reserved(_))));
    }
    store.close();
    home.store();
}

#[test]
fn l9_requests_are_bounded_and_the_limit_is_named() {
    let home = TempHome::new();
    let store = home.store();
    let many: Vec<Draft> = (0..513).map(|n| draft("a", n)).collect();
    assert_eq!(
        writer(&store).submit_blocking(&many).unwrap_err().to_string(),
        "at most 512 entries may be appended at once"
    );
    let mut large = draft("a", 0);
    large.payload.insert("x".into(), "y".repeat(200_000).into());
    let many = vec![large.clone(); 6];
    assert_eq!(
        writer(&store).submit_blocking(&many).unwrap_err().to_string(),
        "at most 1048576 bytes may be appended at once"
    );
    large.payload.insert("x".into(), "y".repeat(300_000).into());
    let refused = writer(&store).append_blocking(&large).unwrap_err().to_string();
    assert!(
        refused.starts_with("the entry is refused: the entry has 300")
            && refused.ends_with("the limit is 262144"),
        "{refused}"
    );
}

#[test]
fn l9_full_queue_blocks_callers_and_drops_nothing() {
    let home = TempHome::new();
    let store = home.store();
    let writer = writer(&store);
    // More than the queue holds, without waiting for any of them.
    let receipts: Vec<_> = (0..3_000).map(|n| writer.submit_blocking(&[draft("a", n)]).unwrap()).collect();
    for (n, receipt) in receipts.into_iter().enumerate() {
        assert_eq!(writer.wait_blocking(receipt).unwrap()[0].seq, n as u64);
    }
    assert_eq!(home.reader().size().unwrap(), 3_001);
}

#[test]
fn closing_finishes_what_was_queued() {
    let home = TempHome::new();
    let store = home.store();
    let queue = writer(&store);
    let receipts: Vec<_> = (0..300).map(|n| queue.submit_blocking(&[draft("a", n)]).unwrap()).collect();
    drop(queue);
    store.close();
    assert_eq!(receipts.len(), 300);
    assert_eq!(home.reader().size().unwrap(), 301);
}

#[test]
fn readers_keep_their_snapshot_and_never_block_the_writer() {
    let home = TempHome::with(10);
    let reader = home.reader();
    let store = home.store();
    for n in 0..200 {
        writer(&store).append_blocking(&draft("late", n)).unwrap();
    }
    assert_eq!(reader.size().unwrap(), 11);
    assert_eq!(tribune_ledger::Checkpoint::parse(&reader.checkpoint().unwrap()).unwrap().size, 11);
    // The last entry is in the write-ahead log when it is acknowledged; it is applied to the database later.
    store.close();
    reader.refresh().unwrap();
    assert_eq!(reader.size().unwrap(), 211);
}

#[test]
fn l9_sqlite_wal_is_truncated_unless_a_snapshot_is_held() {
    let home = TempHome::with(1);
    let reader = home.reader();
    let store = home.store();
    let log_after_64_mib = || {
        let mut large = draft("a", 0);
        large.payload.insert("x".into(), "y".repeat(200_000).into());
        for _ in 0..320 {
            writer(&store).append_blocking(&large).unwrap();
        }
        std::fs::metadata(home.home.root().join("tribune.db-wal")).unwrap().len()
    };
    reader.release().unwrap();
    let released = log_after_64_mib();
    assert!(released < 24 << 20, "{released}");
    reader.refresh().unwrap();
    let held = log_after_64_mib();
    assert!(held > 60 << 20, "a snapshot keeps its pages: {held}");
}

#[test]
fn one_process_at_a_time_writes() {
    let home = TempHome::new();
    let store = home.store();
    let second = Store::open(&home.home, &FixedClock).unwrap_err().to_string();
    assert!(second.contains(&format!("held by another process (pid {})", std::process::id())), "{second}");
    store.close();
    home.store();
}

#[test]
fn entries_are_found_by_position_cid_and_cid_prefix() {
    let home = TempHome::with(600);
    let reader = home.reader();
    for index in [0, 1, 255, 256, 257, 511, 512, 600] {
        let stored = reader.entry(index).unwrap().unwrap();
        let cid = stored.entry.cid.to_string();
        assert_eq!(reader.find(&stored.entry.cid).unwrap(), Some(index));
        for name in [index.to_string(), cid.clone(), cid[3..].to_owned(), cid[..19].to_owned()] {
            assert_eq!(reader.lookup(&name).unwrap(), EntryLookup::Found(Box::new(stored.clone())), "{name}");
        }
    }
    let nothing = |name: &str| match reader.lookup(name).unwrap() {
        EntryLookup::Nothing(what) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(nothing("601"), "there is no entry 601 in a log of 601");
    assert_eq!(nothing("b3:zz"), "`b3:zz` is neither a place in the log nor at least 4 digits of a CID");
    assert_eq!(nothing("b3:0000000000000000"), "no entry's CID begins with `b3:0000000000000000`");
    assert_eq!(reader.find(&Cid::of_entry(&[b"x"])).unwrap(), None);
}

#[test]
fn history_follows_its_own_chain() {
    let home = TempHome::with(100);
    let reader = home.reader();
    let filter =
        tribune_storage::store::EntryFilter { entity_id: Some("entity-1".to_owned()), quality: None };
    let tail = reader.tail(&filter, 5).unwrap();
    assert_eq!(tail.iter().map(|stored| stored.entry.seq).collect::<Vec<_>>(), [28, 29, 30, 31, 32]);
    assert!(tail.iter().all(|stored| stored.entry.entity_id == "entity-1"));
    let none = tribune_storage::store::EntryFilter { entity_id: Some("nobody".to_owned()), quality: None };
    assert!(reader.tail(&none, 5).unwrap().is_empty());
}

#[test]
fn history_that_points_forward_is_damage_not_a_loop() {
    let home = TempHome::with(100);
    #[expect(clippy::disallowed_methods, reason = "the test changes the database directly")]
    let connection = rusqlite::Connection::open(home.home.database()).unwrap();
    connection.execute("UPDATE ledger SET prev_idx = 98 WHERE idx = 50", []).unwrap();
    drop(connection);
    let entity = home.reader().entry(50).unwrap().unwrap().entry.entity_id;
    let filter =
        tribune_storage::store::EntryFilter { entity_id: Some(entity), quality: Some(EntryQuality::Turn) };
    let error = home.reader().tail(&filter, 5).unwrap_err().to_string();
    assert!(error.contains("entry 50 points back to entry 98"), "{error}");
}

#[test]
fn home_without_a_ledger_says_how_to_create_one() {
    let home = TempHome::new();
    let error = Reader::open(&home.home).unwrap_err().to_string();
    assert!(error.contains("there is no ledger in") && error.contains("tribune up"), "{error}");
    assert!(!home.home.root().exists(), "a read creates nothing");
    assert!(matches!(Reader::open(&Home::at("/dev/null/x")), Err(StoreError::NoLedger(_))));
}
