//! `tribune ledger`: reads, verifies, exports and proves the ledger, and adds notes.

mod graph;
mod note;
mod note_writer;
mod prove;
mod show;
mod tail;
mod verify;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;
use tribune_ledger::{Checkpoint, Cid, EntryQuality};
use tribune_storage::files::Secrecy;
use tribune_storage::home::Home;
use tribune_storage::store::{EntryLookup, Reader, StoredEntry};
use tribune_storage::{export, files, store};

use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, clean};
use crate::progress::EntryProgress;

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Show the newest entries.
    Tail {
        /// How many entries.
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        lines: u32,
        /// Only entries of this entity.
        #[arg(long, value_name = "ID")]
        entity: Option<String>,
        /// Only entries of this kind.
        #[arg(long, value_name = "KIND")]
        quality: Option<EntryQuality>,
        /// Keep printing new entries until interrupted.
        #[arg(short, long)]
        follow: bool,
    },
    /// Show one entry in full.
    Show {
        /// Its position in the ledger, its CID, or the start of its CID.
        entry: String,
    },
    /// Verify a ledger: that of the home, an exported folder, or a proof file.
    ///
    /// It reports two results. Integrity: every entry is what was recorded. Completeness: nothing was cut or rewritten
    /// since a checkpoint that you kept (--checkpoint); without a checkpoint this cannot be known.
    ///
    /// Exit codes: 0 sound, 2 integrity broken, 3 incomplete.
    #[command(
        after_help = "Examples:\n  tribune ledger verify\n  tribune ledger verify export/ --key ledger.vkey --checkpoint kept-since-may\n  tribune ledger verify entry-17.tlog-proof --key ledger.vkey"
    )]
    Verify {
        /// A home, an exported folder or a proof file [default: the home].
        path: Option<PathBuf>,
        /// The public key that you trust, as text or as a file. By default the key next to the ledger is used, which
        /// does not prove whose ledger it is.
        #[arg(long, value_name = "KEY|FILE")]
        key: Option<String>,
        /// A checkpoint that you kept elsewhere; may be repeated.
        #[arg(long, value_name = "FILE")]
        checkpoint: Vec<PathBuf>,
    },
    /// Export the ledger to a new folder, with everything that another person needs to verify it.
    Export {
        /// A folder that does not exist yet.
        folder: PathBuf,
    },
    /// Prove that an entry is in the ledger (C2SP tlog-proof), or that the ledger extends an older state.
    Prove {
        /// Its position in the ledger, its CID, or the start of its CID.
        #[arg(required_unless_present = "since")]
        entry: Option<String>,
        /// Prove instead that the first SIZE entries are unchanged.
        #[arg(long, value_name = "SIZE", conflicts_with = "entry")]
        since: Option<u64>,
        /// Write to a file instead of standard output.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print the newest signed checkpoint. Keep it where the operator of this ledger cannot change it.
    Checkpoint {
        /// Write to a file instead of standard output.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Add a note to the ledger. Notes are public: everyone who gets an export can read them.
    #[command(
        after_help = "Examples:\n  tribune ledger note \"rotated the deploy key\"\n  journalctl -f | tribune ledger note --lines --entity host:journal"
    )]
    Note {
        /// The text of the note.
        #[arg(required_unless_present = "lines")]
        text: Option<String>,
        /// Add each line of standard input as a note; each gets an answer when it is durable.
        #[arg(long, conflicts_with = "text")]
        lines: bool,
        /// The entity whose history gets the note.
        #[arg(long, value_name = "ID", default_value = "tribune:notes")]
        entity: String,
        /// A tag; may be repeated.
        #[arg(long)]
        tag: Vec<String>,
        /// An entry that the note follows from; may be repeated [default: the entity's newest entry; none with
        /// --lines].
        #[arg(long, value_name = "ENTRY")]
        parent: Vec<String>,
    },
    /// Rebuild the derived tables (entities, tree, index) from the entries.
    Rebuild {
        /// Only compare the stored tables with the entries; exit code 2 if they differ.
        #[arg(long)]
        check: bool,
        /// Move a write-ahead log that is damaged or does not match out of the way. Acknowledged entries that were only
        /// in it are then missing from the ledger.
        #[arg(long = "without-daybook", conflicts_with = "check")]
        without_wal: bool,
    },
    /// Print entries and their parents as a graph (DOT).
    Graph {
        /// Print Mermaid instead of DOT.
        #[arg(long)]
        mermaid: bool,
        /// How many of the newest entries.
        #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        lines: u32,
        /// Only entries of this entity.
        #[arg(long, value_name = "ID")]
        entity: Option<String>,
    },
}

pub(crate) fn run(
    command: LedgerCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    match command {
        LedgerCommand::Tail { lines, entity, quality, follow } => {
            let filter = store::EntryFilter { entity_id: entity, quality };
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
            let note = note::NoteTarget { entity, tags: tag, parents: parent };
            match text {
                Some(text) => note::write_one(home, &note, &text, output)?,
                None => note::write_lines(home, &note, output)?,
            }
        }
        LedgerCommand::Rebuild { without_wal: true, .. } => return rebuild_without_wal(home, output),
        LedgerCommand::Rebuild { check, .. } => return rebuild(home, check, output),
        LedgerCommand::Graph { mermaid, lines, entity } => {
            let filter = store::EntryFilter { entity_id: entity, quality: None };
            graph::run(&Reader::open(home)?, &filter, lines as usize, mermaid, output)?;
        }
    }
    Ok(CommandOutcome::Done)
}

/// The entry that `name` refers to.
pub(crate) fn find(reader: &Reader, name: &str) -> Result<StoredEntry, CliError> {
    match reader.lookup(name)? {
        EntryLookup::Found(stored) => Ok(*stored),
        EntryLookup::Nothing(what) => Err(CliError::Input(what)),
        EntryLookup::Several(cids) => Err(ambiguous(name, &cids)),
    }
}

/// The error for a name that matches several entries.
pub(crate) fn ambiguous(name: &str, cids: &[Cid]) -> CliError {
    let cids: Vec<String> = cids.iter().take(5).map(ToString::to_string).collect();
    CliError::Input(format!("several entries begin with `{name}`: {}", cids.join(", ")))
}

/// Writes a result that is a file to standard output or to a path.
fn deliver(
    text: &str,
    to: Option<PathBuf>,
    value: &serde_json::Value,
    output: &mut Output,
) -> Result<(), CliError> {
    match to {
        None => output.verbatim(text, value)?,
        Some(path) => {
            // A pipe, a device or a link is written to; a file is replaced atomically.
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
    let mut progress = EntryProgress::new("exporting", reader.size()?);
    let entries = export::write(&reader, folder, &mut |done| progress.set(done))?;
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
    let parsed = Checkpoint::parse(&note).map_err(|error| CliError::Input(error.to_string()))?;
    let value = json!({ "origin": parsed.origin, "size": parsed.size, "root": parsed.root.to_string(), "note": note });
    deliver(&note, to, &value, output)
}

fn rebuild_without_wal(home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let mut progress = EntryProgress::new("rebuilding", Reader::open(home)?.size()?);
    let (entries, aside) = store::rebuild_without_wal(home, &mut |done| progress.set(done))?;
    drop(progress);
    let aside = aside.map(|path| path.display().to_string());
    output.result(
        |paint| {
            let wal = match &aside {
                Some(path) => format!("the write-ahead log was moved to {}", clean(path)),
                None => "there was no write-ahead log".to_owned(),
            };
            format!("views: {} from {entries} entries; {wal}", paint.good("rebuilt"))
        },
        &json!({ "entries": entries, "rebuilt": true, "daybook": aside }),
    )?;
    Ok(CommandOutcome::Done)
}

fn rebuild(home: &Home, check: bool, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let mut progress = EntryProgress::new("rebuilding", Reader::open(home)?.size()?);
    if !check {
        let entries = store::rebuild_views(home, &mut |done| progress.set(done))?;
        drop(progress);
        output.result(
            |paint| format!("views: {} from {entries} entries", paint.good("rebuilt")),
            &json!({ "entries": entries, "rebuilt": true }),
        )?;
        return Ok(CommandOutcome::Done);
    }
    let checked = store::check_views(home, &mut |done| progress.set(done))?;
    drop(progress);
    let entries = checked.entries;
    let fault = checked.fault.map(|fault| fault.to_string());
    output.verdict(
        |paint| match &fault {
            None => format!("views: {}, they match all {entries} entries", paint.good("sound")),
            Some(fault) => format!(
                "views: {}: {}\nrebuild them from the entries with `tribune ledger rebuild`",
                paint.bad("BROKEN"),
                clean(fault)
            ),
        },
        &json!({ "entries": entries, "sound": fault.is_none(), "fault": fault }),
    )?;
    Ok(if fault.is_some() { CommandOutcome::Broken } else { CommandOutcome::Done })
}
