//! Verifies a log: the one in a home, or an export. This module reads the data; `tribune_ledger::verify` checks it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use tribune_ledger::limits::{MAX_ENTRY_BYTES, MAX_NOTE_BYTES};
use tribune_ledger::tree::Hash;
use tribune_ledger::tree::tile;
use tribune_ledger::verify::{HeldCheckpoint, Verifier, VerifyReport};
use tribune_ledger::{Checkpoint, VerifierKey};

use crate::export::{CHECKPOINT, ENTRIES, KEY};
use crate::store::{Reader, StoreError};

/// Entries between two reports of progress.
const PROGRESS_EVERY: u64 = 4096;

/// Longest line read from an export. A longer one is not an entry and is reported.
const MAX_LINE: u64 = 2 * MAX_ENTRY_BYTES as u64;

/// Bytes of the largest file under `tile/`, a full bundle.
const MAX_TILE: u64 = tile::WIDTH * 34;

/// Verifies the log of a home as `reader` sees it.
pub fn verify_home(
    reader: &Reader,
    trusted: &VerifierKey,
    held: Vec<HeldCheckpoint>,
    progress: &mut dyn FnMut(u64),
) -> Result<VerifyReport, StoreError> {
    let note = match reader.checkpoint() {
        Ok(note) => note,
        // A missing checkpoint is a finding, which the verifier makes from an empty note.
        Err(StoreError::Damaged { .. }) => String::new(),
        Err(error) => return Err(error),
    };
    let mut verifier = Verifier::new(trusted.clone(), &note, held);
    match reader.tree_cids() {
        Ok(cids) => verifier.set_stored_leaves(cids.iter().map(Hash::leaf).collect(), |_, _, _| {}),
        // If the cause is a damaged entry, it is reported below and comes first.
        Err(StoreError::Damaged { what, .. }) => verifier.record_file_fault("tribune.db", what),
        Err(error) => return Err(error),
    }
    if reader.has_rows_before_the_first()? {
        verifier.record_file_fault("tribune.db", "the ledger has rows before entry 0");
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
        if expected.is_multiple_of(PROGRESS_EVERY) {
            progress(expected);
        }
        Ok::<(), StoreError>(())
    })?;
    Ok(verifier.finish())
}

/// Verifies an exported folder.
pub fn verify_export(
    folder: &Path,
    trusted: &VerifierKey,
    held: Vec<HeldCheckpoint>,
    progress: &mut dyn FnMut(u64),
) -> io::Result<VerifyReport> {
    let note = read_small(&folder.join(CHECKPOINT)).unwrap_or_default();
    let mut verifier = Verifier::new(trusted.clone(), &note, held);
    if let Ok(checkpoint) = Checkpoint::parse(&note)
        && let Some(leaves) = read_leaves(folder, checkpoint.size, &mut verifier)
    {
        let mut expected = HashSet::new();
        verifier.set_stored_leaves(leaves, |verifier, id, hashes| {
            check_tile(folder, id, hashes, verifier, &mut expected);
        });
        report_strays(folder, &expected, &mut verifier);
    }
    let entries = match open_regular(&folder.join(ENTRIES)) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            verifier.record_file_fault(ENTRIES, "it is missing");
            None
        }
        Err(error) => return Err(error),
    };
    let Some(entries) = entries else { return Ok(verifier.finish()) };
    let mut lines = BufReader::with_capacity(1 << 18, entries);
    let mut line = Vec::with_capacity(4096);
    loop {
        // Most lines are complete in the buffer and need no copy.
        let buffered = lines.fill_buf()?;
        if let Some(end) = memchr::memchr(b'\n', buffered) {
            verifier.push(&buffered[..end]);
            lines.consume(end + 1);
            if verifier.entries().is_multiple_of(PROGRESS_EVERY) {
                progress(verifier.entries());
            }
            continue;
        }
        line.clear();
        if lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match line.strip_suffix(b"\n") {
            Some(entry) => verifier.push(entry),
            None => {
                verifier.push(&line);
                verifier.record_file_fault(ENTRIES, "its last line does not end, or is too long");
                break;
            }
        }
        if verifier.entries().is_multiple_of(PROGRESS_EVERY) {
            progress(verifier.entries());
        }
    }
    // A truncated log may lack the newest change of key; then the key in force is not known here.
    let whole = Checkpoint::parse(&note).is_ok_and(|own| own.size <= verifier.entries());
    if let Some(in_force) = verifier.key_in_force().filter(|_| whole) {
        let wanted = format!("{in_force}\n");
        match read_small(&folder.join(KEY)) {
            Ok(found) if found == wanted => {}
            Ok(_) => verifier.record_file_fault(KEY, "it is not the key in force at the end of the log"),
            Err(error) => verifier.record_file_fault(KEY, error.to_string()),
        }
    }
    Ok(verifier.finish())
}

/// Reads a small text file; a larger one is an error.
pub fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = open_regular(path)?.take(MAX_NOTE_BYTES as u64 + 1).read_to_string(&mut text)?;
    if read > MAX_NOTE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {MAX_NOTE_BYTES} bytes"),
        ));
    }
    Ok(text)
}

/// Opens a regular file; refuses pipes and devices, which might never end.
fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    File::open(path)
}

/// Reads a tile or bundle. At most one byte more than the largest is read, so a larger file fails the check.
fn read_tile(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(MAX_TILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The leaf hashes in the level-0 tiles; none if a tile is missing or malformed.
fn read_leaves(folder: &Path, size: u64, verifier: &mut Verifier) -> Option<Vec<Hash>> {
    let mut leaves = Vec::new();
    for index in 0..size.div_ceil(tile::WIDTH) {
        let width = (size - index * tile::WIDTH).min(tile::WIDTH);
        let path = tile::path(tile::TileId { level: 0, index }, width);
        let hashes = read_tile(&folder.join(&path)).ok().and_then(|bytes| tile::from_bytes(&bytes));
        match hashes {
            Some(hashes) if hashes.len() as u64 == width => leaves.extend(hashes),
            Some(_) => {
                verifier.record_file_fault(&path, format!("it does not hold {width} hashes"));
                return None;
            }
            None => {
                verifier.record_file_fault(&path, "it is missing or not a tile");
                return None;
            }
        }
    }
    Some(leaves)
}

/// Compares a tile, or at level 0 its bundle, with the leaves.
fn check_tile(
    folder: &Path,
    id: tile::TileId,
    hashes: &[Hash],
    verifier: &mut Verifier,
    expected: &mut HashSet<PathBuf>,
) {
    let width = hashes.len() as u64;
    expected.insert(folder.join(tile::path(id, width)));
    if id.level == 0 {
        let path = tile::bundle_path(id.index, width);
        expected.insert(folder.join(&path));
        let fits = read_tile(&folder.join(&path)).is_ok_and(|bytes| bundle_fits(&bytes, hashes));
        if !fits {
            verifier.record_file_fault(&path, "it does not hold the CIDs whose hashes are in the tile");
        }
        return;
    }
    let path = tile::path(id, width);
    if !read_tile(&folder.join(&path)).is_ok_and(|bytes| bytes == tile::to_bytes(hashes)) {
        verifier.record_file_fault(&path, "it does not hold the roots of the tiles below it");
    }
}

/// Reports files under `tile/` that are not part of this tree, because another tool might take them for part of it.
fn report_strays(folder: &Path, expected: &HashSet<PathBuf>, verifier: &mut Verifier) {
    let mut folders = vec![folder.join("tile")];
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(&next).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
        {
            // Links are not followed, so the walk ends.
            if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                folders.push(path);
            } else if !expected.contains(&path) {
                let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
                verifier.record_file_fault(&name, "it is not part of this log");
            }
        }
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
