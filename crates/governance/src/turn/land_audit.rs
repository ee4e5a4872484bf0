//! Ledger entries about landing the changes of a sandbox. The changes are not applied here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tribune_constitution::Labels;
use tribune_ledger::commitment::Commitment;
use tribune_ledger::{Cid, Draft, EntryQuality};
use tribune_records::ledger_payloads::{LabelRecord, WorkspaceRecord};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::{SessionKey, ToolCall};
use tribune_storage::store::StoreError;

use super::out_of_turn::{Denied, OutOfTurn, SideLog};
use crate::gate::{Admission, SandboxWrites};

/// How long a person may take to decide about landing changes, while the caller waits.
const WAIT: Duration = Duration::from_secs(10 * 60);

/// Labels in one ledger entry.
const LABELS_PER_ENTRY: usize = 512;

impl OutOfTurn {
    /// Authorizes landing changes of a session. Returns the admission when the verdict that allows it is durable.
    pub async fn authorize_landing(
        &self,
        key: &Arc<SessionKey>,
        call: ToolCall,
        gone: impl Future<Output = ()>,
    ) -> Result<Admission, Denied> {
        self.authorize(key, None, call, Vec::new(), WAIT, gone).await
    }

    /// Gives what the sandbox of a session writes in a folder of the operator its labels. Is recorded before changes land
    /// there, so that nobody reads them without.
    pub async fn label_sandbox_writes(
        &self,
        key: &SessionKey,
        folder: &Path,
        writes: SandboxWrites<'_>,
        verdict: Option<Cid>,
    ) -> Result<(), StoreError> {
        let name = key.to_string();
        let row = self.storage.readers.read(move |reader| reader.session(&name)).await?;
        let session = row.map_or(Labels::UNKNOWN, |row| row.labels).meet(self.egress_labels(key));
        let ground = WorkspaceRoots::new(key.agent().clone(), Some(folder.into()));
        let wrote = self.gate.sandbox_writes(&ground, session, writes)?;
        let draft = |some: &[LabelRecord]| {
            let record = WorkspaceRecord::Labelled { wrote: some.to_vec() };
            let parents = verdict.into_iter().collect();
            self.side_log_draft(SideLog::Workspace, key, EntryQuality::Delivery, parents, &record)
        };
        let drafts: Vec<Draft> = wrote.chunks(LABELS_PER_ENTRY).map(draft).collect();
        if drafts.is_empty() {
            return Ok(());
        }
        self.storage.ledger.append_all(&drafts).await.map(drop)
    }

    /// Records the result of landing, under the verdict that allowed it if there is one.
    pub async fn record_landing(
        &self,
        key: &SessionKey,
        verdict: Option<Cid>,
        record: &WorkspaceRecord,
    ) -> Result<(), StoreError> {
        let parents = verdict.into_iter().collect();
        let draft = self.side_log_draft(SideLog::Workspace, key, EntryQuality::Delivery, parents, record);
        self.storage.ledger.append(&draft).await.map(drop)
    }

    /// Stores content of a session encrypted in the vault. None if the session was forgotten.
    pub async fn store_content(
        &self,
        key: &SessionKey,
        content: &[u8],
    ) -> Result<Option<Commitment>, StoreError> {
        let name = key.to_string();
        let row = self.storage.readers.read(move |reader| reader.session(&name)).await?;
        match row {
            Some(row) => self.storage.vault.keep(&row.id, content).await,
            None => Ok(None),
        }
    }
}
