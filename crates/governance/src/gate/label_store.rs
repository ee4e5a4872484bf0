//! Taint labels of stored data: a session that reads a resource takes on its labels, a session that writes one leaves its own
//! labels on it.

use std::borrow::Cow;
use std::path::Path;

use tribune_constitution::{Labels, ToolManifest};
use tribune_ledger::Cid;
use tribune_ledger::cid::Domain;
use tribune_records::ledger_payloads::LabelRecord;
use tribune_records::outcome::{Access, Resource};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_redact::Redactor;
use tribune_runtime::AgentId;
use tribune_storage::store::{Readers, StoreError};

/// The label changes after a call: those of its session and those of the resources it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelChange {
    /// The session's labels from now on.
    pub session: Labels,
    pub(crate) wrote: Vec<LabelRecord>,
}

/// Whether a call succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    Well,
    Badly,
}

/// Looks up labels: `ground` says whose data it is, `readers` hold the labels, `redactor` keeps secrets out of resource names.
#[derive(Clone, Copy)]
pub(super) struct LabelStore<'g> {
    pub(super) ground: &'g WorkspaceRoots,
    pub(super) readers: &'g Readers,
    pub(super) redactor: &'g Redactor,
}

/// The label changes after a call of a session. `output` is the manifest of the tool that ran, if one ran.
pub(super) fn propagate_labels(
    store: LabelStore<'_>,
    session: Labels,
    output: Option<Option<&ToolManifest>>,
    touched: &[Access],
    end: CallEnd,
) -> Result<LabelChange, StoreError> {
    let mut content: Option<Labels> = None;
    let mut wrote = Vec::new();
    for touched in touched {
        match touched {
            Access::Read(resource) => {
                let stored = store.stored(resource)?;
                content = match (content, stored) {
                    (Some(a), Some(b)) => Some(a.meet(b)),
                    (a, b) => a.or(b),
                };
            }
            Access::Wrote(_) => {}
        }
    }
    let session = output.map_or(session, |manifest| session.meet(Labels::for_output(manifest, content)));
    for touched in touched {
        if let Access::Wrote(resource) = touched {
            let labels = match resource {
                // The write may have changed one file of many: the others keep their labels.
                Resource::Workspace | Resource::Folder(_) => store.stored_or_fresh(resource)?.meet(session),
                // After a failure the old content may still be there.
                _ if end == CallEnd::Badly => store.stored_or_fresh(resource)?.meet(session),
                _ => session.for_written(),
            };
            wrote.push(LabelRecord { resource: store.name(resource), labels });
        }
    }
    Ok(LabelChange { session, wrote })
}

impl LabelStore<'_> {
    fn stored_or_fresh(&self, resource: &Resource) -> Result<Labels, StoreError> {
        Ok(self.stored(resource)?.unwrap_or(Labels::FRESH))
    }

    /// The stored labels of a resource. A file has its own labels and those of its workspace, because a program may have
    /// written anywhere in it.
    fn stored(&self, resource: &Resource) -> Result<Option<Labels>, StoreError> {
        let readers = self.readers;
        if let Resource::Session(key) = resource {
            // The output of a session may be derived from everything it has read.
            let session = readers.now(|reader| reader.session(key))?;
            return Ok(Some(session.map_or(Labels::UNKNOWN, |session| session.labels)));
        }
        let own = readers.now(|reader| reader.labels(&self.name(resource)))?;
        let ground = containing_folder(self.ground, resource);
        let inherited = match resource {
            Resource::File(path) | Resource::FileIn(_, path) => {
                self.all(ground.ancestor_labels(path).into_iter().map(LabelLookup::At))?
            }
            Resource::Workspace | Resource::Folder(_) => {
                let below = ["file", "workspace"]
                    .map(|kind| LabelLookup::Below(format!("{kind}:{}/", ground.name())));
                self.all(ground.ancestor_labels("").into_iter().map(LabelLookup::At).chain(below))?
            }
            _ => None,
        };
        Ok(meet_optional(own, inherited))
    }

    /// The meet of the labels found by several lookups.
    fn all(&self, lookups: impl IntoIterator<Item = LabelLookup>) -> Result<Option<Labels>, StoreError> {
        lookups.into_iter().try_fold(None, |before, lookup| {
            let found = match lookup {
                LabelLookup::At(name) => self.readers.now(|reader| reader.labels(&name))?,
                LabelLookup::Below(prefix) => self.readers.now(|reader| reader.labels_below(&prefix))?,
            };
            Ok(meet_optional(before, found))
        })
    }

    /// The name of a resource in the ledger. A name that contains a secret is redacted and gets its hash appended, so that it
    /// stays unique.
    fn name(&self, resource: &Resource) -> String {
        let name = name(self.ground, resource);
        match self.redactor.redact(&name) {
            Cow::Borrowed(_) => name,
            Cow::Owned(shown) => {
                let hash = Cid::from_bytes(Domain::Action.hash(&[b"name", name.as_bytes()])).to_string();
                format!("{shown}#{}", hash.trim_start_matches("b3:"))
            }
        }
    }
}

/// A lookup of labels.
enum LabelLookup {
    At(String),
    /// Every resource whose name begins with this prefix.
    Below(String),
}

fn meet_optional(one: Option<Labels>, other: Option<Labels>) -> Option<Labels> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.meet(other)),
        (one, other) => one.or(other),
    }
}

/// The name of a schedule in the ledger. Its id is unique per agent.
pub fn schedule(agent: &AgentId, id: &str) -> String {
    format!("schedule:{agent}/{id}")
}

/// The folder that contains a resource. A resource in an additional directory is named as in a session that works there.
fn containing_folder<'g>(ground: &'g WorkspaceRoots, resource: &Resource) -> Cow<'g, WorkspaceRoots> {
    match resource {
        Resource::FileIn(folder, _) | Resource::Folder(folder) => {
            Cow::Owned(WorkspaceRoots::new(ground.agent().clone(), Some(Path::new(&**folder).into())))
        }
        _ => Cow::Borrowed(ground),
    }
}

/// The unredacted name of a resource.
fn name(ground: &WorkspaceRoots, resource: &Resource) -> String {
    let (agent, folder) = (ground.agent(), containing_folder(ground, resource));
    match resource {
        Resource::File(path) | Resource::FileIn(_, path) => format!("file:{}/{path}", folder.name()),
        Resource::Workspace | Resource::Folder(_) => format!("workspace:{}", folder.name()),
        Resource::Memory(key) => format!("memory:{agent}/{key}"),
        Resource::MailboxMessage(id) => format!("letter:{id}"),
        Resource::Schedule(id) => schedule(agent, id),
        Resource::Url(host) => format!("host:{host}"),
        Resource::Session(key) => format!("session:{key}"),
    }
}
