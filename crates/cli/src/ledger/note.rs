//! `tribune ledger note`: adds notes of the operator to the ledger.

use std::io::{self, BufRead, Read as _};
use std::sync::mpsc;

use serde_json::json;
use tribune_ledger::Cid;
use tribune_records::ledger_payloads::SESSION_ENTITIES;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;

use super::find;
use super::note_writer::{NoteParents, NoteWriter, WrittenNote};
use crate::error::CliError;
use crate::output::Output;

/// Bytes of one note: a paragraph. Longer texts belong elsewhere, with their hash in a note.
const MAX_NOTE_TEXT: usize = 8 * 1024;

/// Notes of one commit: as many as fit a request if each has the largest size.
const AT_ONCE: usize = 100;

/// Where notes go: entity, tags and parents.
#[derive(Debug)]
pub(super) struct NoteTarget {
    pub(super) entity: String,
    pub(super) tags: Vec<String>,
    /// As the user typed them.
    pub(super) parents: Vec<String>,
}

pub(super) fn write_one(
    home: &Home,
    note: &NoteTarget,
    text: &str,
    output: &mut Output,
) -> Result<(), CliError> {
    check(text)?;
    let parents = note.check(home)?;
    let placement = if parents.is_empty() { NoteParents::AfterHead } else { NoteParents::After(parents) };
    let mut writer = NoteWriter::open(home, output)?;
    for written in writer.write(note, &[text.to_owned()], &placement)? {
        answer(&written, output)?;
    }
    Ok(())
}

pub(super) fn write_lines(home: &Home, note: &NoteTarget, output: &mut Output) -> Result<(), CliError> {
    let placement = NoteParents::After(note.check(home)?);
    let mut writer = NoteWriter::open(home, output)?;
    // The thread reads during a commit, so that the next commit takes all lines that have arrived. The thread holds
    // nothing of the store: if the disk fails, this command ends even if the next line never comes.
    let (send, lines) = mpsc::sync_channel::<Result<String, CliError>>(AT_ONCE);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        for number in 1_u64.. {
            let line = match read_line(&mut input) {
                Ok(None) => break,
                // A blank line is no note.
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
        for written in writer.write(note, &texts, &placement)? {
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

/// Reads the next line without its line break; `None` at the end. Never reads more than the bytes of one note.
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

impl NoteTarget {
    /// Refuses entities that only sessions may write, and resolves the parents.
    fn check(&self, home: &Home) -> Result<Vec<Cid>, CliError> {
        if self.entity.starts_with(SESSION_ENTITIES) {
            return Err(CliError::Input(format!(
                "only sessions write histories that begin with `{SESSION_ENTITIES}`: name another entity"
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

fn answer(written: &WrittenNote, output: &mut Output) -> Result<(), CliError> {
    let WrittenNote { index, cid, seq } = written;
    output.result(|_| format!("{index} {cid}"), &json!({ "index": index, "cid": cid, "seq": seq }))?;
    Ok(())
}
