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
    pub async fn record_run_start(
        &self,
        handle: &Handle,
        command: &[u8],
        record: impl FnOnce(Commitment) -> RunRecord,
    ) -> Result<(), StoreError> {
        let writer = self.session_writer(handle).await?;
        let mut writer = writer.lock().await;
        let mut batch = writer.new_batch();
        let record = record(writer.content(&mut batch, command)?);
        let target = handle.session_id.to_string();
        let quality = EntryQuality::SessionLifecycle;
        writer.entry(
            &mut batch,
            EntryDraft { quality, target: &target, parents: Vec::new(), record: &record },
        )?;
        writer.write(batch).await.map(drop)
    }

    /// Records how the program ended.
    pub async fn record_run(&self, key: &SessionKey, record: &RunRecord) -> Result<(), StoreError> {
        let name = key.to_string();
        let Some(row) = self.storage.readers.read(move |reader| reader.session(&name)).await? else {
            return Ok(());
        };
        let handle = Handle { key: Arc::new(key.clone()), session_id: row.id.as_str().into() };
        let writer = self.session_writer(&handle).await?;
        let mut writer = writer.lock().await;
        let mut batch = writer.new_batch();
        let target = handle.session_id.to_string();
        let quality = EntryQuality::SessionLifecycle;
        writer.entry(&mut batch, EntryDraft { quality, target: &target, parents: Vec::new(), record })?;
        writer.write(batch).await.map(drop)
    }
}
