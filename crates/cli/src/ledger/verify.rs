//! `tribune ledger verify`: reports integrity and completeness, as text and as exit codes.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tribune_ledger::VerifierKey;
use tribune_ledger::bundle::{BundleError, ConsistencyProof, ProofBundle};
use tribune_ledger::checkpoint::CheckpointError;
use tribune_ledger::note::NoteError;
use tribune_ledger::verify::{Completeness, HeldCheckpoint, Integrity, VerifyReport};
use tribune_storage::audit::read_small;
use tribune_storage::home::Home;
use tribune_storage::store::{Reader, StoreError};
use tribune_storage::{audit, export, keys};

use crate::error::{CliError, CommandOutcome};
use crate::output::{Output, Paint, clean};
use crate::progress::EntryProgress;

/// Where the trusted key came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeySource {
    Given,
    /// It was next to the ledger, so it only shows that the ledger agrees with itself.
    BesideTheLog,
}

pub(super) fn run(
    home: &Home,
    path: Option<&Path>,
    key: Option<&str>,
    checkpoints: &[PathBuf],
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let given = key.map(read_key).transpose()?;
    let held = checkpoints.iter().map(|path| read_held(path)).collect::<Result<Vec<_>, _>>()?;
    match path {
        Some(path) if path.is_file() && !held.is_empty() => Err(CliError::Input(format!(
            "--checkpoint goes with a home or an export; `{}` is a proof file, which has its own",
            path.display()
        ))),
        Some(path) if path.is_file() => verify_proof(path, given.as_ref(), output),
        Some(path) if path.join("tribune.db").exists() => verify_home(&Home::at(path), given, held, output),
        Some(path) if [export::ENTRIES, export::CHECKPOINT].iter().any(|name| path.join(name).exists()) => {
            verify_export(path, given, held, output)
        }
        Some(path) => Err(CliError::Input(format!(
            "`{}` is neither a home (no tribune.db), an export (no {}) nor a proof file",
            path.display(),
            export::ENTRIES
        ))),
        None => verify_home(home, given, held, output),
    }
}

fn verify_home(
    home: &Home,
    given: Option<VerifierKey>,
    held: Vec<HeldCheckpoint>,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    match check_home(home, given, held) {
        Ok((report, key, source, waiting)) => {
            if waiting > 0 {
                let what = format!(
                    "{waiting} records are in the write-ahead log and not in the ledger yet: check the disk with `tribune doctor`, then start the daemon"
                );
                output.notice(&what);
            }
            print_report(&report, &key, source, output)
        }
        // A damaged database is a verdict, not an error.
        Err(StoreError::Damaged { what, .. }) => print_unreadable(&what, output),
        Err(error) => Err(error.into()),
    }
}

fn check_home(
    home: &Home,
    given: Option<VerifierKey>,
    held: Vec<HeldCheckpoint>,
) -> Result<(VerifyReport, VerifierKey, KeySource, usize), StoreError> {
    let reader = Reader::open(home)?;
    let waiting = if home.holder().is_none() { reader.unapplied_records(home)? } else { 0 };
    let (key, source) = match given {
        Some(key) => (key, KeySource::Given),
        None => {
            let beside =
                read_small(&keys::public_path(home)).ok().and_then(|text| text.trim_end().parse().ok());
            (beside.map_or_else(|| reader.key_in_force(), Ok)?, KeySource::BesideTheLog)
        }
    };
    let mut progress = EntryProgress::new("verifying", reader.size()?);
    let report = audit::verify_home(&reader, &key, held, &mut |done| progress.set(done))?;
    Ok((report, key, source, waiting))
}

fn verify_export(
    folder: &Path,
    given: Option<VerifierKey>,
    held: Vec<HeldCheckpoint>,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let (key, source) = match given {
        Some(key) => (key, KeySource::Given),
        None => {
            let path = folder.join(export::KEY);
            let text = read_small(&path).map_err(CliError::file(&path))?;
            let key = text
                .trim_end()
                .parse()
                .map_err(|error| CliError::Input(format!("`{}`: {error}", path.display())))?;
            (key, KeySource::BesideTheLog)
        }
    };
    let mut progress = EntryProgress::new("verifying", 0);
    let report = audit::verify_export(folder, &key, held, &mut |done| progress.set(done));
    drop(progress);
    print_report(&report.map_err(CliError::file(folder.join(export::ENTRIES)))?, &key, source, output)
}

/// Reads a key from its text or from a file.
fn read_key(key: &str) -> Result<VerifierKey, CliError> {
    let text = match Path::new(key) {
        path if path.is_file() => read_small(path).map_err(CliError::file(path))?,
        _ => key.to_owned(),
    };
    text.trim_end()
        .parse()
        .map_err(|error| CliError::Input(format!("`{key}` is neither a key nor a file with one: {error}")))
}

fn read_held(path: &Path) -> Result<HeldCheckpoint, CliError> {
    let note = read_small(path).map_err(CliError::file(path))?;
    Ok(HeldCheckpoint { label: path.display().to_string(), note })
}

fn print_report(
    report: &VerifyReport,
    key: &VerifierKey,
    source: KeySource,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    output.verdict(|paint| text(report, key, source, paint), &value(report, key, source))?;
    Ok(match (&report.integrity, &report.completeness) {
        (Integrity::Broken(_), _) => CommandOutcome::Broken,
        (Integrity::Sound, Completeness::Failed(_)) => CommandOutcome::Incomplete,
        (Integrity::Sound, Completeness::Shown { .. } | Completeness::NotChecked) => CommandOutcome::Done,
    })
}

fn text(report: &VerifyReport, key: &VerifierKey, source: KeySource, paint: Paint) -> String {
    let entries = report.entries;
    let mut lines = vec![match &report.integrity {
        Integrity::Sound => {
            format!("integrity: {}, {entries} entries are what was recorded", paint.good("sound"))
        }
        Integrity::Broken(_) => format!("integrity: {}", paint.bad("BROKEN")),
    }];
    if let Integrity::Broken(findings) = &report.integrity {
        lines.extend(findings.iter().map(|finding| format!("  {}", clean(&finding.to_string()))));
    }
    match &report.completeness {
        Completeness::Shown { size, label } => {
            let after = entries.saturating_sub(*size);
            let since = if after == 0 { String::new() } else { format!("; {after} entries came after it") };
            lines.push(format!(
                "completeness: {} up to entry {} by {label}{since}",
                paint.good("shown"),
                size.saturating_sub(1)
            ));
        }
        Completeness::NotChecked => lines.push(format!(
            "completeness: {}, because no checkpoint was given (--checkpoint)",
            paint.unsure("not checked")
        )),
        Completeness::Failed(gaps) => {
            lines.push(format!("completeness: {}", paint.bad("FAILED")));
            lines.extend(gaps.iter().map(|gap| format!("  {}", clean(&gap.to_string()))));
        }
    }
    lines.push(match source {
        KeySource::Given => format!("key: {key}"),
        KeySource::BesideTheLog => {
            format!(
                "key: {key}\n  {}",
                paint.unsure(
                    "this key was next to the ledger; only a key from elsewhere (--key) shows whose ledger this is"
                )
            )
        }
    });
    lines.join("\n")
}

fn value(report: &VerifyReport, key: &VerifierKey, source: KeySource) -> Value {
    let integrity = match &report.integrity {
        Integrity::Sound => json!({ "verdict": "sound", "findings": [] }),
        Integrity::Broken(findings) => {
            let findings: Vec<_> = findings
                .iter()
                .map(|finding| json!({ "index": finding.index, "cid": finding.cid, "what": finding.fault.to_string() }))
                .collect();
            json!({ "verdict": "broken", "findings": findings })
        }
    };
    let completeness = match &report.completeness {
        Completeness::Shown { size, label } => json!({ "verdict": "shown", "size": size, "by": label }),
        Completeness::NotChecked => json!({ "verdict": "not_checked" }),
        Completeness::Failed(gaps) => {
            let gaps: Vec<_> = gaps.iter().map(ToString::to_string).collect();
            json!({ "verdict": "failed", "gaps": gaps })
        }
    };
    let checkpoint = report
        .checkpoint
        .as_ref()
        .map(|own| json!({ "origin": own.origin, "size": own.size, "root": own.root.to_string() }));
    json!({
        "entries": report.entries,
        "integrity": integrity,
        "completeness": completeness,
        "checkpoint": checkpoint,
        "key": key.to_string(),
        "key_source": match source { KeySource::Given => "given", KeySource::BesideTheLog => "beside_the_log" },
    })
}

fn print_unreadable(what: &str, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let finding = clean(&format!("tribune.db: {what}"));
    let value = json!({ "integrity": { "verdict": "broken", "findings": [{ "index": null, "cid": null, "what": finding }] } });
    output.verdict(|paint| format!("integrity: {}\n  {finding}", paint.bad("BROKEN")), &value)?;
    Ok(CommandOutcome::Broken)
}

fn verify_proof(
    path: &Path,
    key: Option<&VerifierKey>,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let Some(key) = key else {
        return Err(CliError::Input(
            "a proof file proves nothing without the ledger's public key: give it with --key".to_owned(),
        ));
    };
    let file = std::fs::metadata(path).and_then(|found| {
        // An entry, its base64 form, a path and a checkpoint stay below this size.
        if found.len() > 1 << 20 {
            Err(std::io::ErrorKind::FileTooLarge.into())
        } else {
            std::fs::read_to_string(path)
        }
    });
    let text = file.map_err(CliError::file(path))?;
    let checked: Result<(String, Value), BundleError> = if ConsistencyProof::has_header(&text) {
        ConsistencyProof::parse(&text).and_then(|proof| {
            let newer = proof.check(key)?;
            let sentence = format!(
                "the ledger of {} entries extends the ledger of {} with root {}; compare that root with the checkpoint that you kept",
                newer.size, proof.old_size, proof.old_root
            );
            Ok((sentence, json!({ "old_size": proof.old_size, "old_root": proof.old_root.to_string(), "size": newer.size })))
        })
    } else {
        ProofBundle::parse(&text).and_then(|bundle| {
            let (entry, checkpoint) = bundle.check(key)?;
            let sentence = format!(
                "entry {} ({}) is in the ledger of {} entries",
                bundle.index, entry.cid, checkpoint.size
            );
            Ok((sentence, json!({ "index": bundle.index, "cid": entry.cid, "size": checkpoint.size })))
        })
    };
    match checked {
        Ok((sentence, proven)) => {
            output.verdict(
                |paint| format!("proof: {}, {sentence}", paint.good("sound")),
                &json!({ "proof": "sound", "proven": proven }),
            )?;
            Ok(CommandOutcome::Done)
        }
        Err(error) => {
            let foreign =
                matches!(error, BundleError::Checkpoint(CheckpointError::Note(NoteError::NotSigned(_))));
            let hint =
                if foreign { "; if the ledger's key was replaced since, use the newer one" } else { "" };
            let error = format!("{error}{hint}");
            let value = json!({ "proof": "broken", "what": error });
            output.verdict(|paint| format!("proof: {}: {}", paint.bad("BROKEN"), clean(&error)), &value)?;
            Ok(CommandOutcome::Broken)
        }
    }
}
