//! `tribune ledger note`: words that the operator wants in the log.

use std::io::{self, BufRead as _};
use std::sync::mpsc;

use serde_json::{Map, json};
use tribune_host::store::{Appended, Beginning, Reader, Receipt};
use tribune_host::{Clock as _, Home, Store, SystemClock};
use tribune_ledger::{Cid, Draft, EntryQuality};

use super::find;
use crate::error::CliError;
use crate::output::Output;

/// Bytes of one note: a paragraph. Longer texts belong elsewhere, with their hash in a note.
const MAX_NOTE_TEXT: usize = 8 * 1024;

/// Notes on their way to the disk at most. More would not make a commit fuller.
const IN_FLIGHT: usize = 512;

/// Where a note belongs.
#[derive(Debug)]
pub(super) struct Note {
    pub(super) entity: String,
    pub(super) tags: Vec<String>,
    /// As they were typed.
    pub(super) parents: Vec<String>,
}

pub(super) fn write_one(home: &Home, note: &Note, text: &str, output: &mut Output) -> Result<(), CliError> {
    check(text)?;
    let store = open(home, output)?;
    let mut parents = note.parents(home)?;
    if parents.is_empty() {
        parents.extend(Reader::open(home)?.head(&note.entity)?.map(|head| head.entry.cid));
    }
    let appended = store.writer()?.append_blocking(&note.draft(text, parents))?;
    answer(&appended, output)
}

pub(super) fn write_lines(home: &Home, note: &Note, output: &mut Output) -> Result<(), CliError> {
    let store = open(home, output)?;
    let parents = note.parents(home)?;
    let writer = store.writer()?;
    // One thread reads and queues while this one waits for the disk, so that a commit takes whatever has come.
    let (send, receipts) = mpsc::sync_channel::<Result<Receipt, CliError>>(IN_FLIGHT);
    std::thread::scope(|scope| {
        let queue = writer.clone();
        scope.spawn(move || {
            for (number, line) in io::stdin().lock().lines().enumerate() {
                let queued = line.map_err(CliError::file("standard input")).and_then(|text| {
                    check(&text).map_err(|error| CliError::Input(format!("line {}: {error}", number + 1)))?;
                    Ok(queue.submit_blocking(&[note.draft(&text, parents.clone())])?)
                });
                let failed = queued.is_err();
                if send.send(queued).is_err() || failed {
                    break;
                }
            }
        });
        for receipt in receipts {
            for appended in writer.wait_blocking(receipt?)? {
                answer(&appended, output)?;
            }
        }
        Ok(())
    })
}

impl Note {
    fn parents(&self, home: &Home) -> Result<Vec<Cid>, CliError> {
        if self.parents.is_empty() {
            return Ok(Vec::new());
        }
        let reader = Reader::open(home)?;
        self.parents.iter().map(|name| Ok(find(&reader, name)?.entry.cid)).collect()
    }

    fn draft(&self, text: &str, parents: Vec<Cid>) -> Draft {
        Draft {
            entity_id: self.entity.clone(),
            target: self.entity.clone(),
            quality: EntryQuality::Note,
            timestamp: SystemClock.now(),
            source: self.entity.clone(),
            actor: "operator".to_owned(),
            parents,
            tags: self.tags.clone(),
            payload: Map::from_iter([("text".to_owned(), text.into())]),
            attested_by: None,
            envelope: None,
        }
    }
}

fn open(home: &Home, output: &Output) -> Result<Store, CliError> {
    let store = Store::open(home, &SystemClock)?;
    if store.beginning() == Beginning::Began {
        let key = Reader::open(home)?.key_in_force()?;
        output.aside(&format!("a new log begins in {}\nits public key: {key}", home.root().display()));
    }
    Ok(store)
}

fn check(text: &str) -> Result<(), CliError> {
    match text.len() {
        0 => Err(CliError::Input("the note is empty".to_owned())),
        1..=MAX_NOTE_TEXT => Ok(()),
        bytes => Err(CliError::Input(format!("the note has {bytes} bytes; the limit is {MAX_NOTE_TEXT}"))),
    }
}

fn answer(appended: &Appended, output: &mut Output) -> Result<(), CliError> {
    let Appended { index, cid, seq } = appended;
    output.result(|_| format!("{index} {cid}"), &json!({ "index": index, "cid": cid, "seq": seq }))?;
    Ok(())
}
