//! `tribune ledger prove`: inclusion and consistency proofs.

use std::path::PathBuf;

use serde_json::json;
use tribune_ledger::Checkpoint;
use tribune_ledger::bundle::{ConsistencyProof, ProofBundle};
use tribune_ledger::tree::Hash;
use tribune_ledger::tree::prove::{self, ProveError};
use tribune_storage::store::Reader;

use super::{deliver, find};
use crate::error::CliError;
use crate::output::Output;

pub(super) fn inclusion(
    reader: &Reader,
    name: &str,
    to: Option<PathBuf>,
    output: &mut Output,
) -> Result<(), CliError> {
    let stored = find(reader, name)?;
    let (checkpoint, size) = newest(reader)?;
    let mut entry = Vec::new();
    stored.entry.write_line(&mut entry);
    let path = prove::inclusion(reader, stored.index, size).map_err(failed)?;
    let value = json!({
        "index": stored.index, "cid": stored.entry.cid, "size": size, "path": texts(&path), "checkpoint": checkpoint,
    });
    let bundle = ProofBundle { entry, index: stored.index, path, checkpoint };
    deliver(&bundle.to_string(), to, &value, output)
}

pub(super) fn consistency(
    reader: &Reader,
    since: u64,
    to: Option<PathBuf>,
    output: &mut Output,
) -> Result<(), CliError> {
    let (checkpoint, size) = newest(reader)?;
    if since == 0 {
        return Err(CliError::Input(
            "every ledger extends the empty one: name a size of at least 1".to_owned(),
        ));
    }
    let path = prove::consistency(reader, since, size).map_err(failed)?;
    let old_root = prove::root_at(reader, since).map_err(failed)?;
    let value = json!({
        "old_size": since, "old_root": old_root.to_string(), "size": size, "path": texts(&path), "checkpoint": checkpoint,
    });
    let proof = ConsistencyProof { old_size: since, old_root, path, checkpoint };
    deliver(&proof.to_string(), to, &value, output)
}

fn newest(reader: &Reader) -> Result<(String, u64), CliError> {
    let note = reader.checkpoint()?;
    let size = Checkpoint::parse(&note).map_err(|error| CliError::Input(error.to_string()))?.size;
    Ok((note, size))
}

fn texts(path: &[Hash]) -> Vec<String> {
    path.iter().map(ToString::to_string).collect()
}

fn failed(error: ProveError<tribune_storage::store::StoreError>) -> CliError {
    match error {
        ProveError::Tiles(error) => error.into(),
        ProveError::ShortTile(_) => {
            CliError::Tree(format!("{error}: rebuild the tree with `tribune ledger rebuild`"))
        }
        ProveError::NoSuchEntry { .. } | ProveError::Shrunk { .. } => CliError::Input(error.to_string()),
    }
}
