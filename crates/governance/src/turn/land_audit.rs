//! Ledger entries about landing the changes of a sandbox. Applying the changes is not done here.

use std::sync::Arc;
use std::time::Duration;

use tribune_ledger::commitment::Commitment;
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::WorkspaceRecord;
use tribune_runtime::{SessionKey, ToolCall};
use tribune_storage::store::StoreError;

use super::out_of_turn::{Denied, OutOfTurn, SideLog};
use crate::gate::Admission;

/// For a person to decide about a landing, while whoever asked waits.
const WAIT: Duration = Duration::from_secs(10 * 60);

impl OutOfTurn {
    /// Leave to land changes of a session, once the verdict that allows it is durable.
    pub async fn leave_to_land(
        &self,
        key: &Arc<SessionKey>,
        call: ToolCall,
        gone: impl Future<Output = ()>,
    ) -> Result<Admission, Denied> {
        self.cross((key, None), (call, Vec::new()), WAIT, gone).await
    }

    /// Writes down what became of changes, under the verdict that allowed it if one did.
    pub async fn note_workspace(
        &self,
        key: &SessionKey,
        verdict: Option<Cid>,
        record: &WorkspaceRecord,
    ) -> Result<(), StoreError> {
        let line = (EntryQuality::Delivery, verdict.into_iter().collect());
        self.ledger.append(&self.draft_beside(SideLog::Workspace, key, line, record)).await.map(drop)
    }

    /// Keeps words of a session where they are sealed. None if everything said in it was forgotten.
    pub async fn keep_words(&self, key: &SessionKey, words: &[u8]) -> Result<Option<Commitment>, StoreError> {
        let name = key.to_string();
        let row = self.readers.read(move |reader| reader.session(&name)).await?;
        match row {
            Some(row) => self.vault.keep(&row.id, words).await,
            None => Ok(None),
        }
    }
}
