//! The record of who may decide or act: each change of the approvers and of the roster is an entry of the ledger, with who did
//! it. A change of a file that the daemon did not make is found and recorded when it starts.

use std::collections::BTreeMap;

use tokio::sync::Mutex;
use tribune_ledger::{Draft, EntryQuality};
use tribune_records::deciders::{BY_FILE, ChangeKind, DECIDERS_ENTITY, Decider, DeciderChange, DeciderKind};
use tribune_records::ledger_payloads::payload;
use tribune_storage::store::{EntryFilter, Reader, StoreError, StoredEntry};

use crate::storage_handles::StorageHandles;

/// Most changes that are read back; many times the length of both lists.
const MAX_CHANGES: usize = 100_000;

/// Entries per write.
const WRITTEN_AT_ONCE: usize = 64;

/// A recorded change, with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedChange {
    pub at: String,
    pub change: DeciderChange,
}

/// Records the changes of the lists. Changes happen one after the other.
#[derive(Debug)]
pub struct DeciderLog {
    storage: StorageHandles,
    changing: Mutex<()>,
}

impl DeciderLog {
    pub fn new(storage: StorageHandles) -> Self {
        Self { storage, changing: Mutex::default() }
    }

    /// Records a change and applies it. The entry is durable first; if the change cannot be applied, a second entry says so.
    pub async fn change<T, E>(
        &self,
        change: DeciderChange,
        apply: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<Result<T, E>, StoreError>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        let _changing = self.changing.lock().await;
        self.append(std::slice::from_ref(&change)).await?;
        let applied = tokio::task::spawn_blocking(apply).await.map_err(|_| StoreError::Closed)?;
        if applied.is_err() {
            self.append(&[DeciderChange { change: ChangeKind::Failed, ..change }]).await?;
        }
        Ok(applied)
    }

    /// All recorded changes, oldest first.
    pub async fn changes(&self) -> Result<Vec<RecordedChange>, StoreError> {
        self.storage.readers.read(recorded).await
    }

    /// Records how the lists differ from what is recorded. `initial` are the lines of a new home, which nobody added.
    pub async fn record_file_changes(
        &self,
        listed: Vec<Decider>,
        initial: &[Decider],
    ) -> Result<usize, StoreError> {
        let _changing = self.changing.lock().await;
        let known = current(self.changes().await?);
        let differences = differences(&known, listed, initial);
        for some in differences.chunks(WRITTEN_AT_ONCE) {
            self.append(some).await?;
        }
        Ok(differences.len())
    }

    async fn append(&self, changes: &[DeciderChange]) -> Result<(), StoreError> {
        let draft = |change: &DeciderChange| Draft {
            entity_id: DECIDERS_ENTITY.to_owned(),
            target: change.decider.id.clone(),
            quality: EntryQuality::Change,
            timestamp: self.storage.clock.now(),
            source: "registry".to_owned(),
            actor: change.by.clone(),
            parents: Vec::new(),
            tags: Vec::new(),
            payload: payload(change),
            attested_by: None,
            envelope: None,
        };
        let drafts: Vec<Draft> = changes.iter().map(draft).collect();
        self.storage.ledger.append_all(&drafts).await.map(drop)
    }
}

fn recorded(reader: &Reader) -> Result<Vec<RecordedChange>, StoreError> {
    let filter =
        EntryFilter { entity_id: Some(DECIDERS_ENTITY.to_owned()), quality: Some(EntryQuality::Change) };
    let entries = reader.tail(&filter, MAX_CHANGES)?;
    let change = |stored: StoredEntry| {
        let change = serde_json::from_str(&stored.entry.payload).ok()?;
        Some(RecordedChange { at: stored.entry.timestamp.to_string(), change })
    };
    Ok(entries.into_iter().filter_map(change).collect())
}

type Listed = BTreeMap<(DeciderKind, String), Decider>;

/// The lists as the changes made them.
fn current(changes: Vec<RecordedChange>) -> Listed {
    let mut lists = Listed::new();
    for RecordedChange { change: DeciderChange { change, decider, .. }, .. } in changes {
        let name = (decider.kind, decider.id.clone());
        match change {
            ChangeKind::Added | ChangeKind::Changed => drop(lists.insert(name, decider)),
            ChangeKind::Removed | ChangeKind::Failed => drop(lists.remove(&name)),
        }
    }
    lists
}

fn differences(known: &Listed, listed: Vec<Decider>, initial: &[Decider]) -> Vec<DeciderChange> {
    let by_file =
        |change: ChangeKind, decider: Decider| DeciderChange { change, by: BY_FILE.to_owned(), decider };
    let mut left = known.clone();
    let mut found = Vec::new();
    for decider in listed {
        match left.remove(&(decider.kind, decider.id.clone())) {
            Some(same) if same == decider => {}
            None if initial.contains(&decider) => {}
            Some(_) => found.push(by_file(ChangeKind::Changed, decider)),
            None => found.push(by_file(ChangeKind::Added, decider)),
        }
    }
    found.extend(left.into_values().map(|decider| by_file(ChangeKind::Removed, decider)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decider(id: &str, fingerprint: &str) -> Decider {
        Decider {
            kind: DeciderKind::Approver,
            id: id.to_owned(),
            roles: Vec::new(),
            fingerprint: fingerprint.to_owned(),
        }
    }

    fn recorded(change: ChangeKind, decider: Decider) -> RecordedChange {
        let change = DeciderChange { change, by: "operator".to_owned(), decider };
        RecordedChange { at: String::new(), change }
    }

    #[test]
    fn difference_between_a_list_and_its_record_is_found() {
        use ChangeKind::{Added, Changed, Failed, Removed};
        let known = current(vec![
            recorded(Added, decider("kept", "1")),
            recorded(Added, decider("rekeyed", "1")),
            recorded(Added, decider("gone", "1")),
            recorded(Added, decider("left", "1")),
            recorded(Removed, decider("left", "1")),
            recorded(Added, decider("unwritten", "1")),
            recorded(Failed, decider("unwritten", "1")),
        ]);
        let listed = [("kept", "1"), ("rekeyed", "2"), ("new", "1"), ("first", "1")];
        let listed = listed.map(|(id, fingerprint)| decider(id, fingerprint)).to_vec();
        let found = differences(&known, listed.clone(), &[decider("first", "1")]);
        let said: Vec<_> = found.iter().map(|found| (found.change, found.decider.id.as_str())).collect();
        assert_eq!(said, [(Changed, "rekeyed"), (Added, "new"), (Removed, "gone")]);
        // What is recorded is not found again.
        let again = found.into_iter().map(|change| RecordedChange { at: String::new(), change });
        let known = known.into_values().map(|decider| recorded(Added, decider));
        let known = current(known.chain(again).collect());
        assert_eq!(differences(&known, listed, &[decider("first", "1")]), []);
    }
}
