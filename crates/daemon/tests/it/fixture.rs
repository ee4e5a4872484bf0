//! Temporary homes, and ledger entries for them.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;
use tempfile::TempDir;
use tribune_ledger::{Cid, Draft, EntryQuality, Timestamp};
use tribune_storage::clock::Clock;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::store::Store;

/// A clock with a fixed time.
#[derive(Debug)]
pub(crate) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        "2026-11-15T12:00:00.000000Z".parse().unwrap()
    }
}

/// A clock that the test sets.
#[derive(Debug)]
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) const fn at(second: i64) -> Self {
        Self(AtomicI64::new(second))
    }

    pub(crate) fn set(&self, second: i64) {
        self.0.store(second, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::new(jiff::Timestamp::from_second(self.0.load(Ordering::SeqCst)).unwrap())
    }
}

#[derive(Debug)]
pub(crate) struct TempHome {
    pub(crate) home: Home,
    pub(crate) folder: TempDir,
}

impl TempHome {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { home: Home::at(folder.path().join("home")), folder }
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.home, &FixedClock).unwrap()
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::open(&self.home).unwrap()
    }

    /// A home with a ledger of `n` notes after its first entry.
    pub(crate) fn with(n: u64) -> Self {
        let home = Self::new();
        let store = home.store();
        let writer = store.writer().unwrap();
        let drafts: Vec<Draft> = (0..n).map(|i| draft(&format!("entity-{}", i % 3), i)).collect();
        for chunk in drafts.chunks(256) {
            let receipt = writer.submit_blocking(chunk).unwrap();
            writer.wait_blocking(receipt).unwrap();
        }
        drop(writer);
        store.close();
        home
    }
}

pub(crate) fn draft(entity: &str, n: u64) -> Draft {
    Draft {
        entity_id: entity.to_owned(),
        target: "test".to_owned(),
        quality: EntryQuality::Note,
        timestamp: FixedClock.now(),
        source: entity.to_owned(),
        actor: "tester".to_owned(),
        parents: Vec::new(),
        tags: Vec::new(),
        payload: json!({ "n": n }).as_object().unwrap().clone(),
        attested_by: None,
        envelope: None,
    }
}

pub(crate) fn child_of(parents: Vec<Cid>) -> Draft {
    Draft { parents, ..draft("child", 0) }
}
