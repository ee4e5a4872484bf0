//! `tribune ledger note`: words that the operator wants in the log.

use std::io::{self, BufRead, Read as _};
use std::sync::mpsc;

use serde_json::{Map, json};
use tribune_host::store::{Appended, Beginning, Reader};
use tribune_host::{Clock as _, Home, Store, SystemClock};
use tribune_ledger::{Cid, Draft, EntryQuality};

use super::find;
use crate::error::CliError;
use crate::output::Output;

/// Bytes of one note: a paragraph. Longer texts belong elsewhere, with their hash in a note.
const MAX_NOTE_TEXT: usize = 8 * 1024;

/// Notes in one commit at most: what fits a request even if each is of the largest size.
const AT_ONCE: usize = 100;

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
    let mut parents = note.parents(home)?;
    let store = open(home, output)?;
    if parents.is_empty() {
        parents.extend(Reader::open(home)?.head(&note.entity)?.map(|head| head.entry.cid));
    }
    let appended = store.writer()?.append_blocking(&note.draft(text, parents))?;
    answer(&appended, output)
}

pub(super) fn write_lines(home: &Home, note: &Note, output: &mut Output) -> Result<(), CliError> {
    let parents = note.parents(home)?;
    let store = open(home, output)?;
    let writer = store.writer()?;
    // Reading goes on while a commit is under way, so that the next one takes whatever has come. The thread holds
    // nothing of the store: if the disk fails, this command ends even if the next line never comes.
    let (send, lines) = mpsc::sync_channel::<Result<String, CliError>>(AT_ONCE);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        for number in 1_u64.. {
            let line = match read_line(&mut input) {
                Ok(None) => break,
                // A blank line separates; it says nothing.
                Ok(Some(text)) if text.is_empty() => continue,
                Ok(Some(text)) => Ok(text),
                Err(error) => Err(CliError::Input(format!("line {number}: {error}"))),
            };
            let last = line.is_err();
            if send.send(line).is_err() || last {
                break;
            }
        }
    });
    while let Ok(first) = lines.recv() {
        let mut drafts = vec![note.draft(&first?, parents.clone())];
        let mut wrong = None;
        while drafts.len() < AT_ONCE && wrong.is_none() {
            match lines.try_recv() {
                Ok(Ok(text)) => drafts.push(note.draft(&text, parents.clone())),
                Ok(Err(error)) => wrong = Some(error),
                Err(_) => break,
            }
        }
        let receipt = writer.submit_blocking(&drafts)?;
        for appended in writer.wait_blocking(receipt)? {
            answer(&appended, output).map_err(|error| match error {
                CliError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => CliError::Unanswered,
                error => error,
            })?;
        }
        if let Some(error) = wrong {
            return Err(error);
        }
    }
    Ok(())
}

/// The next line without its end; none at the end of the input. Never reads more than a note may have.
fn read_line(input: &mut impl BufRead) -> Result<Option<String>, CliError> {
    let mut line = Vec::new();
    let limit = MAX_NOTE_TEXT as u64 + 1;
    if input.take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() as u64 == limit {
        return Err(CliError::Input(format!(
            "the note has more than {MAX_NOTE_TEXT} bytes, which is the limit"
        )));
    }
    match String::from_utf8(line) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(CliError::Input("the note is not UTF-8".to_owned())),
    }
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
