//! Labels on what is stored: who reads it takes them along, who writes it leaves its own.

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

/// What a call's result brings into its session, and what the call leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelChange {
    /// The session from now on.
    pub session: Labels,
    pub(crate) wrote: Vec<LabelRecord>,
}

/// Whether a call did what it was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    Well,
    Badly,
}

/// Who looks up labels: whose data it is, where labels stand, and what keeps secrets out of their names.
#[derive(Clone, Copy)]
pub(super) struct LabelStore<'g> {
    pub(super) ground: &'g WorkspaceRoots,
    pub(super) readers: &'g Readers,
    pub(super) redactor: &'g Redactor,
}

/// How labels move when a call of a session is over. `output` is the manifest of the tool that ran, if one ran.
pub(super) fn moved(
    shelf: LabelStore<'_>,
    session: Labels,
    output: Option<Option<&ToolManifest>>,
    (touched, ended): (&[Access], CallEnd),
) -> Result<LabelChange, StoreError> {
    let mut content: Option<Labels> = None;
    let mut wrote = Vec::new();
    for touched in touched {
        match touched {
            Access::Read(resource) => {
                let stored = shelf.stored(resource)?;
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
                // One file of many: the rest keeps what it has.
                Resource::Workspace | Resource::Folder(_) => shelf.old(resource)?.meet(session),
                // What was there before may still be there.
                _ if ended == CallEnd::Badly => shelf.old(resource)?.meet(session),
                _ => session.for_written(),
            };
            wrote.push(LabelRecord { resource: shelf.name(resource), labels });
        }
    }
    Ok(LabelChange { session, wrote })
}

impl LabelStore<'_> {
    fn old(&self, resource: &Resource) -> Result<Labels, StoreError> {
        Ok(self.stored(resource)?.unwrap_or(Labels::FRESH))
    }

    /// The labels of what is stored there. A file has its own and those of its workspace, where a program may have been
    /// at work.
    fn stored(&self, resource: &Resource) -> Result<Option<Labels>, StoreError> {
        let readers = self.readers;
        if let Resource::Session(key) = resource {
            // Whatever a session says is made from all that it has taken in.
            let session = readers.now(|reader| reader.session(key))?;
            return Ok(Some(session.map_or(Labels::UNKNOWN, |session| session.labels)));
        }
        let own = readers.now(|reader| reader.labels(&self.name(resource)))?;
        let ground = within(self.ground, resource);
        let around = match resource {
            Resource::File(path) | Resource::FileIn(_, path) => {
                self.all(ground.ancestor_labels(path).into_iter().map(Looked::At))?
            }
            Resource::Workspace | Resource::Folder(_) => {
                let below =
                    ["file", "workspace"].map(|kind| Looked::Below(format!("{kind}:{}/", ground.name())));
                self.all(ground.ancestor_labels("").into_iter().map(Looked::At).chain(below))?
            }
            _ => None,
        };
        Ok(met(own, around))
    }

    /// What several of them have in common.
    fn all(&self, looked: impl IntoIterator<Item = Looked>) -> Result<Option<Labels>, StoreError> {
        looked.into_iter().try_fold(None, |before, looked| {
            let found = match looked {
                Looked::At(name) => self.readers.now(|reader| reader.labels(&name))?,
                Looked::Below(prefix) => self.readers.now(|reader| reader.labels_below(&prefix))?,
            };
            Ok(met(before, found))
        })
    }

    /// What a resource is called in the record. A name with a secret in it is told apart by its hash.
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

/// Where labels are looked up.
enum Looked {
    At(String),
    /// Everything whose name begins like this.
    Below(String),
}

fn met(one: Option<Labels>, other: Option<Labels>) -> Option<Labels> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.meet(other)),
        (one, other) => one.or(other),
    }
}

/// What a schedule is called in the record. Its id is its agent's own.
pub fn schedule(agent: &AgentId, id: &str) -> String {
    format!("schedule:{agent}/{id}")
}

/// The one folder that a resource is in: what is in a further one is called as in a session that works there.
fn within<'g>(ground: &'g WorkspaceRoots, resource: &Resource) -> Cow<'g, WorkspaceRoots> {
    match resource {
        Resource::FileIn(folder, _) | Resource::Folder(folder) => {
            Cow::Owned(WorkspaceRoots::new(ground.agent().clone(), Some(Path::new(&**folder).into())))
        }
        _ => Cow::Borrowed(ground),
    }
}

/// The name of a resource.
fn name(ground: &WorkspaceRoots, resource: &Resource) -> String {
    let (agent, folder) = (ground.agent(), within(ground, resource));
    match resource {
        Resource::File(path) | Resource::FileIn(_, path) => format!("file:{}/{path}", folder.name()),
        Resource::Workspace | Resource::Folder(_) => format!("workspace:{}", folder.name()),
        Resource::Memory(key) => format!("memory:{agent}/{key}"),
        Resource::Letter(id) => format!("letter:{id}"),
        Resource::Schedule(id) => schedule(agent, id),
        Resource::Url(host) => format!("host:{host}"),
        Resource::Session(key) => format!("session:{key}"),
    }
}
