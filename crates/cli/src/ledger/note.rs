//! `tribune ledger note`: words that the operator wants in the log.

use std::io::{self, BufRead, Read as _};
use std::sync::mpsc;

use serde_json::json;
use tribune_host::Home;
use tribune_host::record::SESSION_ENTITIES;
use tribune_host::store::Reader;
use tribune_ledger::Cid;

use super::find;
use super::note_writer::{Pen, Place, Written};
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
    let parents = note.check(home)?;
    let place = if parents.is_empty() { Place::AfterHead } else { Place::After(parents) };
    let mut pen = Pen::open(home, output)?;
    for written in pen.write(note, &[text.to_owned()], &place)? {
        answer(&written, output)?;
    }
    Ok(())
}

pub(super) fn write_lines(home: &Home, note: &Note, output: &mut Output) -> Result<(), CliError> {
    let place = Place::After(note.check(home)?);
    let mut pen = Pen::open(home, output)?;
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
        let mut texts = vec![first?];
        let mut wrong = None;
        while texts.len() < AT_ONCE && wrong.is_none() {
            match lines.try_recv() {
                Ok(Ok(text)) => texts.push(text),
                Ok(Err(error)) => wrong = Some(error),
                Err(_) => break,
            }
        }
        for written in pen.write(note, &texts, &place)? {
            answer(&written, output).map_err(|error| match error {
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
    /// Refuses a place that is not the operator's, and finds the parents that were named.
    fn check(&self, home: &Home) -> Result<Vec<Cid>, CliError> {
        if self.entity.starts_with(SESSION_ENTITIES) {
            return Err(CliError::Input(format!(
                "histories that begin with `{SESSION_ENTITIES}` are written by their sessions alone: name another entity"
            )));
        }
        if self.parents.is_empty() {
            return Ok(Vec::new());
        }
        let reader = Reader::open(home)?;
        self.parents.iter().map(|name| Ok(find(&reader, name)?.entry.cid)).collect()
    }
}

fn check(text: &str) -> Result<(), CliError> {
    match text.len() {
        0 => Err(CliError::Input("the note is empty".to_owned())),
        1..=MAX_NOTE_TEXT => Ok(()),
        bytes => Err(CliError::Input(format!("the note has {bytes} bytes; the limit is {MAX_NOTE_TEXT}"))),
    }
}

fn answer(written: &Written, output: &mut Output) -> Result<(), CliError> {
    let Written { index, cid, seq } = written;
    output.result(|_| format!("{index} {cid}"), &json!({ "index": index, "cid": cid, "seq": seq }))?;
    Ok(())
}
