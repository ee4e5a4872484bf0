//! `tribune ledger`.

mod graph;
mod note;
mod note_writer;
mod prove;
mod show;
mod tail;
mod verify;

use std::path::{Path, PathBuf};

use serde_json::json;
use tribune_host::files::{self, Secrecy};
use tribune_host::store::{self, Lookup, Reader, Stored};
use tribune_host::{Home, export};
use tribune_ledger::{Checkpoint, Cid};

use crate::args::LedgerCommand;
use crate::error::{CliError, Outcome};
use crate::output::{Output, clean};
use crate::progress::Progress;

pub(crate) fn run(command: LedgerCommand, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    match command {
        LedgerCommand::Tail { lines, entity, quality, follow } => {
            let filter = store::Filter { entity_id: entity, quality };
            tail::run(home, &filter, lines as usize, follow, output)?;
        }
        LedgerCommand::Show { entry } => show::run(&Reader::open(home)?, &entry, output)?,
        LedgerCommand::Verify { path, key, checkpoint } => {
            return verify::run(home, path.as_deref(), key.as_deref(), &checkpoint, output);
        }
        LedgerCommand::Export { folder } => export_log(home, &folder, output)?,
        LedgerCommand::Prove { entry: Some(entry), output: to, .. } => {
            prove::inclusion(&Reader::open(home)?, &entry, to, output)?;
        }
        LedgerCommand::Prove { entry: None, since, output: to } => {
            prove::consistency(&Reader::open(home)?, since.unwrap_or(0), to, output)?;
        }
        LedgerCommand::Checkpoint { output: to } => checkpoint(&Reader::open(home)?, to, output)?,
        LedgerCommand::Note { text, entity, tag, parent, .. } => {
            let note = note::Note { entity, tags: tag, parents: parent };
            match text {
                Some(text) => note::write_one(home, &note, &text, output)?,
                None => note::write_lines(home, &note, output)?,
            }
        }
        LedgerCommand::Rebuild { without_daybook: true, .. } => return without_daybook(home, output),
        LedgerCommand::Rebuild { check, .. } => return rebuild(home, check, output),
        LedgerCommand::Graph { mermaid, lines, entity } => {
            let filter = store::Filter { entity_id: entity, quality: None };
            graph::run(&Reader::open(home)?, &filter, lines as usize, mermaid, output)?;
        }
    }
    Ok(Outcome::Done)
}

/// The entry that `name` stands for.
pub(crate) fn find(reader: &Reader, name: &str) -> Result<Stored, CliError> {
    match reader.lookup(name)? {
        Lookup::Found(stored) => Ok(*stored),
        Lookup::Nothing(what) => Err(CliError::Input(what)),
        Lookup::Several(cids) => Err(several(name, &cids)),
    }
}

/// A name that stands for several entries.
pub(crate) fn several(name: &str, cids: &[Cid]) -> CliError {
    let cids: Vec<String> = cids.iter().take(5).map(ToString::to_string).collect();
    CliError::Input(format!("several entries begin with `{name}`: {}", cids.join(", ")))
}

/// Writes a result that is a file to where it was asked for.
fn deliver(
    text: &str,
    to: Option<PathBuf>,
    value: &serde_json::Value,
    output: &mut Output,
) -> Result<(), CliError> {
    match to {
        None => output.verbatim(text, value)?,
        Some(path) => {
            // A pipe, a device or a link is written to, not replaced.
            let special = path.symlink_metadata().is_ok_and(|found| !found.is_file());
            let written = match special {
                true => std::fs::write(&path, text),
                false => files::replace(&path, text.as_bytes(), Secrecy::Public),
            };
            written.map_err(CliError::file(&path))?;
            output.result(|_| format!("written to {}", path.display()), value)?;
        }
    }
    Ok(())
}

fn export_log(home: &Home, folder: &Path, output: &mut Output) -> Result<(), CliError> {
    let reader = Reader::open(home)?;
    let mut progress = Progress::new("exporting", reader.size()?);
    let entries = export::write(&reader, folder, &mut |done| progress.tell(done))?;
    drop(progress);
    let key = reader.key_in_force()?;
    let value = json!({ "folder": folder, "entries": entries, "key": key.to_string() });
    output.result(
        |_| {
            format!(
                "{entries} entries exported to {0}\nverify with: tribune ledger verify {0} --key {key}",
                folder.display()
            )
        },
        &value,
    )?;
    Ok(())
}

fn checkpoint(reader: &Reader, to: Option<PathBuf>, output: &mut Output) -> Result<(), CliError> {
    let note = reader.checkpoint()?;
    let said = Checkpoint::parse(&note).map_err(|error| CliError::Input(error.to_string()))?;
    let value =
        json!({ "origin": said.origin, "size": said.size, "root": said.root.to_string(), "note": note });
    deliver(&note, to, &value, output)
}

fn without_daybook(home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let mut progress = Progress::new("rebuilding", Reader::open(home)?.size()?);
    let (entries, aside) = store::rebuild_without_daybook(home, &mut |done| progress.tell(done))?;
    drop(progress);
    let aside = aside.map(|path| path.display().to_string());
    output.result(
        |paint| {
            let book = match &aside {
                Some(path) => format!("the daybook lies in {}", clean(path)),
                None => "there was no daybook".to_owned(),
            };
            format!("views: {} from {entries} entries; {book}", paint.good("rebuilt"))
        },
        &json!({ "entries": entries, "rebuilt": true, "daybook": aside }),
    )?;
    Ok(Outcome::Done)
}

fn rebuild(home: &Home, check: bool, output: &mut Output) -> Result<Outcome, CliError> {
    let mut progress = Progress::new("rebuilding", Reader::open(home)?.size()?);
    if !check {
        let entries = store::rebuild_views(home, &mut |done| progress.tell(done))?;
        drop(progress);
        output.result(
            |paint| format!("views: {} from {entries} entries", paint.good("rebuilt")),
            &json!({ "entries": entries, "rebuilt": true }),
        )?;
        return Ok(Outcome::Done);
    }
    let checked = store::check_views(home, &mut |done| progress.tell(done))?;
    drop(progress);
    let entries = checked.entries;
    let fault = checked.fault.map(|fault| fault.to_string());
    output.verdict(
        |paint| match &fault {
            None => format!("views: {}, {entries} entries give exactly what is stored", paint.good("sound")),
            Some(fault) => format!(
                "views: {}: {}\n`tribune ledger rebuild` makes them anew from the entries",
                paint.bad("BROKEN"),
                clean(fault)
            ),
        },
        &json!({ "entries": entries, "sound": fault.is_none(), "fault": fault }),
    )?;
    Ok(if fault.is_some() { Outcome::Broken } else { Outcome::Done })
}
