//! Ledger entries about programs that the operator runs in a sandbox: the program, its sandbox, and how it ended. The
//! program is not run here.

use std::sync::Arc;

use tribune_ledger::EntryQuality;
use tribune_ledger::commitment::Commitment;
use tribune_records::ledger_payloads::RunRecord;
use tribune_runtime::{Handle, SessionKey};
use tribune_storage::store::StoreError;

use super::Governance;
use super::session_writer::EntryDraft;

impl Governance {
    /// Records that a program is about to run. Its command line goes to the vault.
    pub async fn run_began(
        &self,
        handle: &Handle,
        command: &[u8],
        record: impl FnOnce(Commitment) -> RunRecord,
    ) -> Result<(), StoreError> {
        let journal = self.journal(handle).await?;
        let mut journal = journal.lock().await;
        let mut page = journal.page();
        let record = record(journal.content(&mut page, command)?);
        let target = handle.session_id.to_string();
        let quality = EntryQuality::SessionLifecycle;
        journal.entry(
            &mut page,
            EntryDraft { quality, target: &target, parents: Vec::new(), record: &record },
        )?;
        journal.write(page).await.map(drop)
    }

    /// Records how the program ended.
    pub async fn note_run(&self, key: &SessionKey, record: &RunRecord) -> Result<(), StoreError> {
        let name = key.to_string();
        let Some(row) = self.storage.readers.read(move |reader| reader.session(&name)).await? else {
            return Ok(());
        };
        let handle = Handle { key: Arc::new(key.clone()), session_id: row.id.as_str().into() };
        let journal = self.journal(&handle).await?;
        let mut journal = journal.lock().await;
        let mut page = journal.page();
        let target = handle.session_id.to_string();
        let quality = EntryQuality::SessionLifecycle;
        journal.entry(&mut page, EntryDraft { quality, target: &target, parents: Vec::new(), record })?;
        journal.write(page).await.map(drop)
    }
}
