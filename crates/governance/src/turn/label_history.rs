//! The origin of the labels of a session: what it read, and when, that made it less trusted or private. Shown to the
//! person who decides about a call, from names that are in the ledger anyway.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use tribune_constitution::{CallArgs, Labels};
use tribune_ledger::{Cid, EntryQuality};
use tribune_records::ledger_payloads::{Lifecycle, MailboxRecord, ToolResultRecord, Turn, VerdictRecord};
use tribune_records::outcome::Resource;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::SessionKey;
use tribune_storage::store::{EntryFilter, Reader, StoreError, StoredEntry};

use crate::gate::LabelName;

/// Entries of a session that are searched.
const MAX_ENTRIES_SEARCHED: usize = 2_000;

/// Maximum number of steps: the newest ones, which led to the current labels.
const MAX_STEPS: usize = 4;

/// Something that a session read and that lowered its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub at: String,
    /// Such as `web_fetch of example.org`.
    pub what: String,
    /// The lowest trust of anything in the context of the session from then on.
    pub trust: String,
    /// Whether the context contains private data from then on.
    pub private: bool,
    /// The session that wrote what was read here, and when, if it is known.
    pub written: Option<String>,
}

/// The steps that led to the labels of a session at the time of `request`, oldest first.
pub fn trail(reader: &Reader, session: &str, request: &Cid) -> Result<Vec<Step>, StoreError> {
    let newest = EntryFilter { entity_id: Some(session.to_owned()), quality: None };
    let mut entries = reader.tail(&newest, MAX_ENTRIES_SEARCHED)?;
    match entries.iter().position(|stored| stored.entry.cid == *request) {
        Some(at) => entries.truncate(at + 1),
        // The request is further back than the newest entries.
        None => match reader.find(request)? {
            Some(index) => entries = reader.tail_until(index, MAX_ENTRIES_SEARCHED)?,
            None => return Ok(Vec::new()),
        },
    }
    let key = session.parse::<SessionKey>().ok();
    let row = reader.session(session)?;
    let ground = row.zip(key).map(|(row, key)| row.ground(key.agent()));
    let begins = entries.first().is_none_or(|first| first.entry.seq == 0);
    let labels = begins.then_some(Labels::FRESH);
    let mut walk = HistoryWalk { reader, ground, labels, operands: HashMap::new(), steps: Vec::new() };
    for stored in &entries {
        walk.entry(stored)?;
    }
    let mut steps = walk.steps;
    steps.drain(..steps.len().saturating_sub(MAX_STEPS));
    Ok(steps)
}

struct HistoryWalk<'r> {
    reader: &'r Reader,
    /// The folders of the session; None if it is unknown.
    ground: Option<WorkspaceRoots>,
    /// The labels of the session before the current entry; None as long as that is too far back to know.
    labels: Option<Labels>,
    /// The operand of each call, by the entry of the call.
    operands: HashMap<Cid, Operand>,
    steps: Vec<Step>,
}

/// The operand of a call: its name for people, and the key of its label.
struct Operand {
    shown: String,
    resource: Option<String>,
}

impl HistoryWalk<'_> {
    fn entry(&mut self, stored: &StoredEntry) -> Result<(), StoreError> {
        let entry = &stored.entry;
        match entry.quality {
            EntryQuality::PolicyVerdict => {
                let call = entry.parent_cids().first().copied();
                if let (Some(call), Some(record)) = (call, read::<VerdictRecord>(stored)) {
                    self.operands.insert(call, operand(&record.facts.args, self.ground.as_ref()));
                }
            }
            EntryQuality::ToolResult => {
                let Some(record) = read::<ToolResultRecord>(stored) else { return Ok(()) };
                let operand = entry.parent_cids().first().and_then(|call| self.operands.remove(call));
                let shown = operand.as_ref().map_or("", |operand| operand.shown.as_str());
                let what = if shown.is_empty() { record.tool } else { format!("{} of {shown}", record.tool) };
                let resource = operand.and_then(|operand| operand.resource);
                self.add_step(stored, record.labels, what, resource)?;
            }
            EntryQuality::Turn => {
                if let Some(record) = read::<Turn>(stored) {
                    self.add_step(
                        stored,
                        record.labels,
                        "the input of a turn, or mailbox messages".to_owned(),
                        None,
                    )?;
                }
            }
            EntryQuality::MailboxInject => {
                if let Some(record) = read::<MailboxRecord>(stored) {
                    // Its labels are those of the message alone, not of the session.
                    if let Some(labels) = self.labels {
                        let labels = labels.meet(record.labels);
                        self.add_step(stored, labels, format!("a message from {}", record.from), None)?;
                    }
                }
            }
            EntryQuality::SessionLifecycle => {
                if let Some(Lifecycle::Opened(opening) | Lifecycle::Reopened(opening)) = read(stored) {
                    self.add_step(
                        stored,
                        opening.labels,
                        "the labels of its parent session".to_owned(),
                        None,
                    )?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds a step if the labels were lowered.
    fn add_step(
        &mut self,
        stored: &StoredEntry,
        labels: Labels,
        what: String,
        resource: Option<String>,
    ) -> Result<(), StoreError> {
        let (what, resource) = match self.labels.replace(labels) {
            Some(before) if before.meet(labels) == before => return Ok(()),
            Some(_) => (what, resource),
            None if labels == Labels::FRESH => return Ok(()),
            None => (format!("something before its last {MAX_ENTRIES_SEARCHED} entries"), None),
        };
        let written = match resource {
            Some(resource) => self.writer_of(&resource, stored.index)?,
            None => None,
        };
        let at = stored.entry.timestamp.to_string();
        let (trust, private) = (labels.trust.as_str().to_owned(), labels.private);
        self.steps.push(Step { at, what, trust, private, written });
        Ok(())
    }

    /// Who wrote a resource, if that was before it was read here.
    fn writer_of(&self, resource: &str, before: u64) -> Result<Option<String>, StoreError> {
        let Some(source) = self.reader.label_source(resource)? else { return Ok(None) };
        let Some(index) = source.parse::<Cid>().ok().map(|cid| self.reader.find(&cid)).transpose()?.flatten()
        else {
            return Ok(None);
        };
        let writer = self.reader.entry(index)?.filter(|writer| writer.index < before);
        Ok(writer.map(|writer| format!("{} at {}", writer.entry.entity_id, writer.entry.timestamp)))
    }
}

fn read<T: DeserializeOwned>(stored: &StoredEntry) -> Option<T> {
    serde_json::from_str(&stored.entry.payload).ok()
}

/// What a call is about. A name that was redacted in the facts leads to no labels.
fn operand(args: &CallArgs, ground: Option<&WorkspaceRoots>) -> Operand {
    let programs = args.programs.as_ref().map(|programs| programs.join(", "));
    let named = args.host.clone().or(programs).or_else(|| args.recipient.clone());
    let (shown, resource) = match (&args.path, named, &args.name) {
        (Some(path), ..) => {
            let resource = match &args.folder {
                Some(folder) => Resource::FileIn(folder.as_str().into(), path.clone()),
                None => Resource::File(path.clone()),
            };
            (path.clone(), Some(resource))
        }
        (None, Some(shown), _) => (shown, None),
        (None, None, Some(name)) => (name.clone(), Some(Resource::Memory(name.clone()))),
        (None, None, None) => (String::new(), None),
    };
    let name = ground.zip(resource).map(|(ground, resource)| LabelName::of(ground, &resource).into_text());
    Operand { shown, resource: name }
}
