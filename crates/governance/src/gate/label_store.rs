//! Taint labels of stored data: a session that reads a resource takes on its labels, a session that writes one leaves its own
//! labels on it.

use std::path::PathBuf;

use tribune_constitution::{Labels, ToolManifest, Trust};
use tribune_records::ledger_payloads::LabelRecord;
use tribune_records::outcome::{Access, Resource};
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_redact::Redactor;
use tribune_storage::store::{Reader, Readers, StoreError};

use super::label_name::{LabelName, containing_folder};

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

/// Files that are labelled one by one. Beyond that, the whole folder is.
const MAX_LABELLED: usize = 4_096;

/// What a sandbox writes in a folder of the operator.
#[derive(Debug, Clone, Copy)]
pub enum SandboxWrites<'a> {
    /// These paths in it.
    Paths(&'a [PathBuf]),
    Anywhere,
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
            wrote.extend(store.records(resource, labels)?);
        }
    }
    Ok(LabelChange { session, wrote })
}

/// The labels of files that a sandbox changes in a folder of the operator: `ground` is that folder, `sandbox` are the labels
/// of the session. Files whose labels stay as they are are left out. The names are hashed, whatever they contain.
pub(super) fn sandbox_writes(
    store: LabelStore<'_>,
    sandbox: Labels,
    writes: SandboxWrites<'_>,
) -> Result<Vec<LabelRecord>, StoreError> {
    // The program could read everything in the folder, as a command can.
    let all = store.stored_or_fresh(&Resource::Workspace)?;
    let brought = sandbox.meet(all);
    let resources: Vec<Resource> = match writes {
        SandboxWrites::Paths(paths) if paths.len() <= MAX_LABELLED => {
            paths.iter().map(|path| Resource::File(path.display().to_string())).collect()
        }
        SandboxWrites::Paths(_) | SandboxWrites::Anywhere => vec![Resource::Workspace],
    };
    let mut wrote = Vec::new();
    for resource in resources {
        // A file without a label is read as verified.
        let before = match resource {
            Resource::Workspace => all,
            _ => store.stored_or_fresh(&resource)?,
        };
        let before = before.meet(Labels::new(Trust::Verified, true));
        if before.meet(brought) != before {
            let name = LabelName::of(store.ground, &resource).hashed();
            wrote.push(LabelRecord { resource: name, labels: before.meet(brought) });
        }
    }
    Ok(wrote)
}

impl LabelStore<'_> {
    fn stored_or_fresh(&self, resource: &Resource) -> Result<Labels, StoreError> {
        Ok(self.stored(resource)?.unwrap_or(Labels::FRESH))
    }

    /// The stored labels of a resource. A file has its own labels and those of its workspace, because a program may have
    /// written anywhere in it.
    fn stored(&self, resource: &Resource) -> Result<Option<Labels>, StoreError> {
        if let Resource::Session(key) = resource {
            // The output of a session may be derived from everything it has read.
            let session = self.readers.now(|reader| reader.session(key))?;
            return Ok(Some(session.map_or(Labels::UNKNOWN, |session| session.labels)));
        }
        let mut lookup = LabelLookup::default();
        lookup.at(&LabelName::of(self.ground, resource), self.redactor);
        let ground = containing_folder(self.ground, resource);
        let inside = match resource {
            Resource::File(path) | Resource::FileIn(_, path) => Some(path.as_str()),
            Resource::Workspace | Resource::Folder(_) => {
                for kind in ["file", "workspace"] {
                    lookup.below(&LabelName::from_text(format!("{kind}:{}", ground.name())));
                }
                Some("")
            }
            _ => None,
        };
        for name in inside.map(|path| ground.ancestor_labels(path)).unwrap_or_default() {
            lookup.at(&LabelName::from_text(name), self.redactor);
        }
        self.readers.now(|reader| lookup.run(reader))
    }

    /// The records that give a resource its labels: under its name, and under every other form of it that has labels.
    fn records(&self, resource: &Resource, labels: Labels) -> Result<Vec<LabelRecord>, StoreError> {
        let name = LabelName::of(self.ground, resource);
        let forms = name.forms(self.redactor);
        let mut names = vec![name.stored(self.redactor)];
        self.readers.now(|reader| {
            for form in forms {
                if !names.contains(&form) && reader.labels(&form)?.is_some() {
                    names.push(form);
                }
            }
            Ok(())
        })?;
        Ok(names.into_iter().map(|resource| LabelRecord { resource, labels }).collect())
    }
}

/// The labels stored under a name.
pub(super) fn labels_under(
    name: &LabelName,
    readers: &Readers,
    redactor: &Redactor,
) -> Result<Option<Labels>, StoreError> {
    let mut lookup = LabelLookup::default();
    lookup.at(name, redactor);
    readers.now(|reader| lookup.run(reader))
}

/// A lookup of the labels of several names. Their meet is the result.
#[derive(Default)]
struct LabelLookup {
    names: Vec<String>,
    /// Every resource whose name begins with one of these.
    prefixes: Vec<String>,
}

impl LabelLookup {
    fn at(&mut self, name: &LabelName, redactor: &Redactor) {
        self.names.extend(name.forms(redactor));
    }

    fn below(&mut self, folder: &LabelName) {
        self.prefixes.extend(folder.prefixes());
    }

    fn run(&self, reader: &Reader) -> Result<Option<Labels>, StoreError> {
        let at = self.names.iter().map(|name| reader.labels(name));
        let below = self.prefixes.iter().map(|prefix| reader.labels_below(prefix));
        at.chain(below).try_fold(None, |before, found| Ok(meet_optional(before, found?)))
    }
}

fn meet_optional(one: Option<Labels>, other: Option<Labels>) -> Option<Labels> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.meet(other)),
        (one, other) => one.or(other),
    }
}
