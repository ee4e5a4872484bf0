//! Checking a log: the one in a home, or an export that somebody sent. The judgement itself is `tribune_ledger::verify`;
//! this reads what it needs.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use tribune_ledger::limits::{MAX_ENTRY_BYTES, MAX_NOTE_BYTES};
use tribune_ledger::tree::Hash;
use tribune_ledger::tree::tile;
use tribune_ledger::verify::{HeldCheckpoint, Report, Verifier};
use tribune_ledger::{Checkpoint, VerifierKey};

use crate::export::{CHECKPOINT, ENTRIES, KEY};
use crate::store::{Reader, StoreError};

/// How often progress is told.
const TELL_EVERY: u64 = 4096;

/// Longest line read from an export. A longer one is no entry, and is reported as such.
const MAX_LINE: u64 = 2 * MAX_ENTRY_BYTES as u64;

/// Checks the log of a home as `reader` sees it.
pub fn verify_home(
    reader: &Reader,
    trusted: &VerifierKey,
    held: Vec<HeldCheckpoint>,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, StoreError> {
    let note = match reader.checkpoint() {
        Ok(note) => note,
        // Its absence is a finding, which an empty note brings about.
        Err(StoreError::Damaged { .. }) => String::new(),
        Err(error) => return Err(error),
    };
    let mut verifier = Verifier::new(trusted.clone(), &note, held);
    match reader.tree_cids() {
        Ok(cids) => verifier.logged_leaves(cids.iter().map(Hash::leaf).collect(), |_, _, _| {}),
        // The entry that stands in the way is named below.
        Err(StoreError::Damaged { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut line = Vec::with_capacity(4096);
    let mut expected = 0;
    reader.for_each(0, |stored| {
        match stored {
            Ok(stored) if stored.index == expected => {
                line.clear();
                stored.entry.write_line(&mut line);
                verifier.push(&line);
            }
            Ok(stored) => verifier.push_unreadable(format!("it is missing; entry {} follows", stored.index)),
            Err(StoreError::Damaged { what, .. }) => {
                verifier.push_unreadable(format!("it cannot be read: {what}"))
            }
            Err(error) => return Err(error),
        }
        expected += 1;
        if expected.is_multiple_of(TELL_EVERY) {
            progress(expected);
        }
        Ok::<(), StoreError>(())
    })?;
    Ok(verifier.finish())
}

/// Checks an exported folder.
pub fn verify_export(
    folder: &Path,
    trusted: &VerifierKey,
    held: Vec<HeldCheckpoint>,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Report> {
    let note = read_small(&folder.join(CHECKPOINT)).unwrap_or_default();
    let mut verifier = Verifier::new(trusted.clone(), &note, held);
    if let Ok(checkpoint) = Checkpoint::parse(&note)
        && let Some(leaves) = read_leaves(folder, checkpoint.size, &mut verifier)
    {
        verifier.logged_leaves(leaves, |verifier, id, hashes| check_tile(folder, id, hashes, verifier));
    }
    let mut lines = BufReader::with_capacity(1 << 18, File::open(folder.join(ENTRIES))?);
    let mut line = Vec::with_capacity(4096);
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match line.strip_suffix(b"\n") {
            Some(entry) => verifier.push(entry),
            None => {
                verifier.push(&line);
                verifier.file_fault(ENTRIES, "its last line does not end, or is too long");
                break;
            }
        }
        if verifier.entries().is_multiple_of(TELL_EVERY) {
            progress(verifier.entries());
        }
    }
    if let Some(in_force) = verifier.key_in_force() {
        let wanted = format!("{in_force}\n");
        match read_small(&folder.join(KEY)) {
            Ok(found) if found == wanted => {}
            Ok(_) => verifier.file_fault(KEY, "it is not the key in force at the end of the log"),
            Err(error) => verifier.file_fault(KEY, error.to_string()),
        }
    }
    Ok(verifier.finish())
}

/// Reads a file that must be small and text.
pub fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(MAX_NOTE_BYTES as u64 + 1).read_to_string(&mut text)?;
    if read > MAX_NOTE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {MAX_NOTE_BYTES} bytes"),
        ));
    }
    Ok(text)
}

/// The leaf hashes in the level-0 tiles, or none if a tile is missing or misshapen.
fn read_leaves(folder: &Path, size: u64, verifier: &mut Verifier) -> Option<Vec<Hash>> {
    let mut leaves = Vec::new();
    for index in 0..size.div_ceil(tile::WIDTH) {
        let width = (size - index * tile::WIDTH).min(tile::WIDTH);
        let path = tile::path(tile::TileId { level: 0, index }, width);
        let hashes = fs::read(folder.join(&path)).ok().and_then(|bytes| tile::from_bytes(&bytes));
        match hashes {
            Some(hashes) if hashes.len() as u64 == width => leaves.extend(hashes),
            Some(_) => {
                verifier.file_fault(&path, format!("it does not hold {width} hashes"));
                return None;
            }
            None => {
                verifier.file_fault(&path, "it is missing or not a tile");
                return None;
            }
        }
    }
    Some(leaves)
}

/// Compares a tile, or at level 0 its bundle, with what the leaves give.
fn check_tile(folder: &Path, id: tile::TileId, hashes: &[Hash], verifier: &mut Verifier) {
    let width = hashes.len() as u64;
    if id.level == 0 {
        let path = tile::bundle_path(id.index, width);
        let fits = fs::read(folder.join(&path)).is_ok_and(|bytes| bundle_fits(&bytes, hashes));
        if !fits {
            verifier.file_fault(&path, "it does not hold the CIDs whose hashes are in the tile");
        }
        return;
    }
    let path = tile::path(id, width);
    if !fs::read(folder.join(&path)).is_ok_and(|bytes| bytes == tile::to_bytes(hashes)) {
        verifier.file_fault(&path, "it does not hold the roots of the tiles below it");
    }
}

fn bundle_fits(bytes: &[u8], hashes: &[Hash]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<34>();
    let leaf = |chunk: &[u8; 34]| {
        let cid = chunk.strip_prefix(&[0, 32]).and_then(|cid| cid.try_into().ok());
        cid.map(|cid| Hash::leaf(&tribune_ledger::Cid::from_bytes(cid)))
    };
    rest.is_empty()
        && chunks.len() == hashes.len()
        && chunks.iter().zip(hashes).all(|(chunk, hash)| leaf(chunk) == Some(*hash))
}
