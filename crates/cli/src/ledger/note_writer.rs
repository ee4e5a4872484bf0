//! Writes notes: through the daemon if one runs, otherwise directly, with the lock on the home.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use tribune_client::{ClientError, RpcClient};
use tribune_ledger::{Cid, Draft, EntryQuality};
use tribune_storage::clock::{Clock as _, SystemClock};
use tribune_storage::home::Home;
use tribune_storage::store::LedgerWriter;
use tribune_storage::store::{Reader, Store, StoreOrigin};

use super::note::NoteTarget;
use crate::daemon;
use crate::error::CliError;
use crate::output::Output;

/// The longest silence after which a connection is used again. The daemon closes silent connections, after five seconds
/// at the earliest, and a request on a connection that is just being closed may or may not have been handled.
const MAX_IDLE: Duration = Duration::from_secs(2);

/// The parents of notes.
#[derive(Debug)]
pub(super) enum NoteParents {
    /// These entries, or none.
    After(Vec<Cid>),
    /// The entity's newest entry, if there is one.
    AfterHead,
}

/// A durable note.
#[derive(Debug)]
pub(super) struct WrittenNote {
    pub(super) index: u64,
    pub(super) cid: String,
    pub(super) seq: u64,
}

#[derive(Debug)]
pub(super) enum NoteWriter {
    Direct(DirectWriter),
    Daemon(Box<DaemonWriter>),
}

/// Writes to the store itself.
#[derive(Debug)]
pub(super) struct DirectWriter {
    home: Home,
    writer: LedgerWriter,
    _store: Store,
}

/// Sends notes to the daemon.
#[derive(Debug)]
pub(super) struct DaemonWriter {
    home: Home,
    runtime: Runtime,
    client: Option<RpcClient>,
    used: Instant,
}

impl NoteWriter {
    pub(super) fn open(home: &Home, output: &Output) -> Result<Self, CliError> {
        let home = home.clone();
        if daemon::is_running(&home).is_some() {
            let daemon =
                DaemonWriter { home, runtime: daemon::runtime()?, client: None, used: Instant::now() };
            return Ok(Self::Daemon(Box::new(daemon)));
        }
        let store = Store::open(&home, &SystemClock)?;
        if store.beginning() == StoreOrigin::Began {
            let key = Reader::open(&home)?.key_in_force()?;
            output
                .notice(&format!("started a new ledger in {}\nits public key: {key}", home.root().display()));
        }
        Ok(Self::Direct(DirectWriter { home, writer: store.writer()?, _store: store }))
    }

    /// Writes notes. They are durable when it returns.
    pub(super) fn write(
        &mut self,
        note: &NoteTarget,
        texts: &[String],
        placement: &NoteParents,
    ) -> Result<Vec<WrittenNote>, CliError> {
        match self {
            Self::Direct(direct) => direct.write(note, texts, placement),
            Self::Daemon(daemon) => {
                let answer = daemon.append(&params(note, texts, placement))?;
                read(&answer).ok_or(CliError::Daemon(ClientError::InvalidMessage))
            }
        }
    }
}

impl DirectWriter {
    fn write(
        &self,
        note: &NoteTarget,
        texts: &[String],
        placement: &NoteParents,
    ) -> Result<Vec<WrittenNote>, CliError> {
        let parents = match placement {
            NoteParents::After(parents) => parents.clone(),
            NoteParents::AfterHead => {
                Reader::open(&self.home)?.head(&note.entity)?.map(|head| head.entry.cid).into_iter().collect()
            }
        };
        let drafts: Vec<Draft> = texts.iter().map(|text| draft(note, text, parents.clone())).collect();
        let receipt = self.writer.submit_blocking(&drafts)?;
        let appended = self.writer.wait_blocking(receipt)?.into_iter();
        Ok(appended
            .map(|entry| WrittenNote { index: entry.index, cid: entry.cid.to_string(), seq: entry.seq })
            .collect())
    }
}

impl DaemonWriter {
    fn append(&mut self, params: &Value) -> Result<Value, CliError> {
        let Self { home, runtime, client, used } = self;
        let answer = runtime.block_on(async {
            let mut connection = match client.take().filter(|_| used.elapsed() < MAX_IDLE) {
                Some(connection) => connection,
                None => daemon::connect(home).await?,
            };
            let answer = connection.call("ledger.note", params).await?;
            *client = Some(connection);
            Ok::<Value, CliError>(answer)
        })?;
        *used = Instant::now();
        Ok(answer)
    }
}

fn draft(note: &NoteTarget, text: &str, parents: Vec<Cid>) -> Draft {
    Draft {
        entity_id: note.entity.clone(),
        target: note.entity.clone(),
        quality: EntryQuality::Note,
        timestamp: SystemClock.now(),
        source: note.entity.clone(),
        actor: "operator".to_owned(),
        parents,
        tags: note.tags.clone(),
        payload: Map::from_iter([("text".to_owned(), text.into())]),
        attested_by: None,
        envelope: None,
    }
}

fn params(note: &NoteTarget, texts: &[String], placement: &NoteParents) -> Value {
    let (parents, after_head) = match placement {
        NoteParents::After(parents) => (parents.iter().map(ToString::to_string).collect(), false),
        NoteParents::AfterHead => (Vec::new(), true),
    };
    json!({ "texts": texts, "entity": note.entity, "tags": note.tags, "parents": parents, "after_head": after_head })
}

fn read(answer: &Value) -> Option<Vec<WrittenNote>> {
    let written = |entry: &Value| {
        Some(WrittenNote {
            index: entry["index"].as_u64()?,
            cid: entry["cid"].as_str()?.to_owned(),
            seq: entry["seq"].as_u64()?,
        })
    };
    answer["written"].as_array()?.iter().map(written).collect()
}
