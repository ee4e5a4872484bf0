//! What writes notes: the daemon if one runs in the home, or else this process, which then holds the home itself.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;
use tribune_client::{Client, ClientError};
use tribune_host::store::{Beginning, Reader};
use tribune_host::{Clock as _, Home, LedgerWriter, Store, SystemClock};
use tribune_ledger::{Cid, Draft, EntryQuality};

use super::note::Note;
use crate::daemon;
use crate::error::CliError;
use crate::output::Output;

/// A connection that was silent for longer is replaced before it is used: the daemon closes silent ones, at the least
/// after five seconds, and what is sent to one that just closed may or may not have been heard.
const FRESH: Duration = Duration::from_secs(2);

/// Where notes go in their entity's history.
#[derive(Debug)]
pub(super) enum Place {
    /// They follow from these entries, or from none.
    After(Vec<Cid>),
    /// They follow from the entity's newest entry, if it has one.
    AfterHead,
}

/// A note that is durable.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) index: u64,
    pub(super) cid: String,
    pub(super) seq: u64,
}

#[derive(Debug)]
pub(super) enum Pen {
    Own(Own),
    Daemon(Box<Line>),
}

/// The store, held by this process.
#[derive(Debug)]
pub(super) struct Own {
    home: Home,
    writer: LedgerWriter,
    _store: Store,
}

/// The line to a daemon.
#[derive(Debug)]
pub(super) struct Line {
    home: Home,
    runtime: Runtime,
    client: Option<Client>,
    used: Instant,
}

impl Pen {
    pub(super) fn open(home: &Home, output: &Output) -> Result<Self, CliError> {
        let home = home.clone();
        if daemon::is_running(&home).is_some() {
            let line = Line { home, runtime: daemon::runtime()?, client: None, used: Instant::now() };
            return Ok(Self::Daemon(Box::new(line)));
        }
        let store = Store::open(&home, &SystemClock)?;
        if store.beginning() == Beginning::Began {
            let key = Reader::open(&home)?.key_in_force()?;
            output.aside(&format!("a new log begins in {}\nits public key: {key}", home.root().display()));
        }
        Ok(Self::Own(Own { home, writer: store.writer()?, _store: store }))
    }

    /// Writes notes; they are durable when this returns.
    pub(super) fn write(
        &mut self,
        note: &Note,
        texts: &[String],
        place: &Place,
    ) -> Result<Vec<Written>, CliError> {
        match self {
            Self::Own(own) => own.write(note, texts, place),
            Self::Daemon(line) => {
                let answer = line.ask(&params(note, texts, place))?;
                read(&answer).ok_or(CliError::Daemon(ClientError::Garbled))
            }
        }
    }
}

impl Own {
    fn write(&self, note: &Note, texts: &[String], place: &Place) -> Result<Vec<Written>, CliError> {
        let parents = match place {
            Place::After(parents) => parents.clone(),
            Place::AfterHead => {
                Reader::open(&self.home)?.head(&note.entity)?.map(|head| head.entry.cid).into_iter().collect()
            }
        };
        let drafts: Vec<Draft> = texts.iter().map(|text| draft(note, text, parents.clone())).collect();
        let receipt = self.writer.submit_blocking(&drafts)?;
        let appended = self.writer.wait_blocking(receipt)?.into_iter();
        Ok(appended
            .map(|entry| Written { index: entry.index, cid: entry.cid.to_string(), seq: entry.seq })
            .collect())
    }
}

impl Line {
    fn ask(&mut self, params: &Value) -> Result<Value, CliError> {
        let Self { home, runtime, client, used } = self;
        let answer = runtime.block_on(async {
            let mut connection = match client.take().filter(|_| used.elapsed() < FRESH) {
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

fn draft(note: &Note, text: &str, parents: Vec<Cid>) -> Draft {
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

fn params(note: &Note, texts: &[String], place: &Place) -> Value {
    let (parents, after_head) = match place {
        Place::After(parents) => (parents.iter().map(ToString::to_string).collect(), false),
        Place::AfterHead => (Vec::new(), true),
    };
    json!({ "texts": texts, "entity": note.entity, "tags": note.tags, "parents": parents, "after_head": after_head })
}

fn read(answer: &Value) -> Option<Vec<Written>> {
    let written = |entry: &Value| {
        Some(Written {
            index: entry["index"].as_u64()?,
            cid: entry["cid"].as_str()?.to_owned(),
            seq: entry["seq"].as_u64()?,
        })
    };
    answer["written"].as_array()?.iter().map(written).collect()
}
