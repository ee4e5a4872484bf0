//! The global stop. While it is on, no call is allowed and no turn begins.

use std::sync::atomic::{AtomicBool, Ordering};

use tribune_ledger::{Draft, EntryQuality};
use tribune_records::approval::record::{ApprovalRecord, FREEZE_ENTITY};
use tribune_records::ledger_payloads::payload;
use tribune_storage::clock::Clock;
use tribune_storage::store::{LedgerWriter, Readers, StoreError};

#[derive(Debug)]
pub(super) struct Freeze(AtomicBool);

impl Freeze {
    /// Restores the state from the ledger.
    pub(super) fn load(readers: &Readers) -> Result<Self, StoreError> {
        Ok(Self(AtomicBool::new(readers.now(|reader| reader.frozen())?.is_some())))
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Stops everything. Takes effect before it is recorded, so that the write cannot delay the stop.
    pub(super) async fn freeze(
        &self,
        ledger: &LedgerWriter,
        clock: &dyn Clock,
        by: &str,
    ) -> Result<(), StoreError> {
        self.0.store(true, Ordering::SeqCst);
        let record = ApprovalRecord::Frozen { by: by.to_owned() };
        ledger.append(&draft(clock, by, &record)).await.map(drop)
    }

    /// Ends the stop. Is recorded before it takes effect.
    pub(super) async fn resume(
        &self,
        ledger: &LedgerWriter,
        clock: &dyn Clock,
        by: &str,
    ) -> Result<(), StoreError> {
        let record = ApprovalRecord::Resumed { by: by.to_owned() };
        ledger.append(&draft(clock, by, &record)).await?;
        self.0.store(false, Ordering::SeqCst);
        Ok(())
    }
}

fn draft(clock: &dyn Clock, by: &str, record: &ApprovalRecord) -> Draft {
    Draft {
        entity_id: FREEZE_ENTITY.to_owned(),
        target: FREEZE_ENTITY.to_owned(),
        quality: EntryQuality::Approval,
        timestamp: clock.now(),
        source: "gate".to_owned(),
        actor: by.to_owned(),
        parents: Vec::new(),
        tags: Vec::new(),
        payload: payload(record),
        attested_by: None,
        envelope: None,
    }
}
