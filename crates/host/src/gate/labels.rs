//! Labels on what is stored: who reads it takes them along, who writes it leaves its own.

use tribune_agents::AgentId;
use tribune_constitution::{Labels, Manifest};

use crate::record::Labelled;
use crate::store::{Readers, StoreError};
use crate::tools::{Resource, Touched};

/// What a call's result brings into its session, and what the call leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The session from now on.
    pub(crate) session: Labels,
    pub(crate) wrote: Vec<Labelled>,
}

/// Whether a call did what it was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly,
}

/// How labels move when a call of a session is over. `output` is the manifest of the tool that ran, if one ran.
pub(super) fn moved(
    agent: &AgentId,
    session: Labels,
    output: Option<Option<&Manifest>>,
    (touched, ended): (&[Touched], Ended),
    readers: &Readers,
) -> Result<Moved, StoreError> {
    let mut content: Option<Labels> = None;
    let mut wrote = Vec::new();
    for touched in touched {
        match touched {
            Touched::Read(resource) => {
                let stored = stored(agent, resource, readers)?;
                content = match (content, stored) {
                    (Some(a), Some(b)) => Some(a.meet(b)),
                    (a, b) => a.or(b),
                };
            }
            Touched::Wrote(_) => {}
        }
    }
    let session = output.map_or(session, |manifest| session.meet(Labels::of_output(manifest, content)));
    for touched in touched {
        if let Touched::Wrote(resource) = touched {
            let labels = match resource {
                // One file of many: the rest keeps what it has.
                Resource::Workspace => old(agent, resource, readers)?.meet(session),
                // What was there before may still be there.
                _ if ended == Ended::Badly => old(agent, resource, readers)?.meet(session),
                _ => session.of_written(),
            };
            wrote.push(Labelled { resource: name(agent, resource), labels });
        }
    }
    Ok(Moved { session, wrote })
}

fn old(agent: &AgentId, resource: &Resource, readers: &Readers) -> Result<Labels, StoreError> {
    Ok(stored(agent, resource, readers)?.unwrap_or(Labels::FRESH))
}

/// The labels of what is stored there. A file has its own and those of its workspace, where a program may have been at
/// work.
fn stored(agent: &AgentId, resource: &Resource, readers: &Readers) -> Result<Option<Labels>, StoreError> {
    if let Resource::Session(key) = resource {
        // Whatever a session says is made from all that it has taken in.
        let session = readers.now(|reader| reader.session(key))?;
        return Ok(Some(session.map_or(Labels::UNKNOWN, |session| session.labels)));
    }
    let own = readers.now(|reader| reader.labels(&name(agent, resource)))?;
    let around = match resource {
        Resource::File(_) => readers.now(|reader| reader.labels(&name(agent, &Resource::Workspace)))?,
        Resource::Workspace => readers.now(|reader| reader.labels_below(&format!("file:{agent}/")))?,
        _ => None,
    };
    Ok(match (own, around) {
        (Some(own), Some(around)) => Some(own.meet(around)),
        (own, around) => own.or(around),
    })
}

/// What a schedule is called in the record. Its id is its agent's own.
pub(crate) fn schedule(agent: &AgentId, id: &str) -> String {
    format!("schedule:{agent}/{id}")
}

/// What a resource is called in the record.
fn name(agent: &AgentId, resource: &Resource) -> String {
    match resource {
        Resource::File(path) => format!("file:{agent}/{path}"),
        Resource::Workspace => format!("workspace:{agent}"),
        Resource::Memory(key) => format!("memory:{agent}/{key}"),
        Resource::Letter(id) => format!("letter:{id}"),
        Resource::Schedule(id) => schedule(agent, id),
        Resource::Url(host) => format!("host:{host}"),
        Resource::Session(key) => format!("session:{key}"),
    }
}
