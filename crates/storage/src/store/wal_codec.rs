//! The encoding of ledger requests as WAL records.

use tribune_ledger::Draft;
use tribune_ledger::entry::{EntryRef, EntryText, FieldError, UnsequencedEntry};

use super::writer::WriteOp;

const DRAFTS: u8 = 0;
const PLACED: u8 = 1;

/// Approximate size of a line without its payload, in bytes.
const LINE_OVERHEAD: usize = 512;

/// Encodes entries whose positions the writer assigns. Returns the entries too.
pub(super) fn drafts(drafts: &[Draft]) -> Result<(Vec<UnsequencedEntry>, Vec<u8>), FieldError> {
    let mut out = Vec::with_capacity(drafts.len() * 3 * LINE_OVERHEAD);
    out.push(DRAFTS);
    let entries =
        drafts.iter().map(|draft| framed(&mut out, |line| UnsequencedEntry::with_line(draft, line)));
    Ok((entries.collect::<Result<_, _>>()?, out))
}

/// Encodes entries that have their positions.
pub(super) fn placed(entries: &[EntryText]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.iter().map(|entry| entry.payload.len() + LINE_OVERHEAD).sum());
    out.push(PLACED);
    for entry in entries {
        framed(&mut out, |line| entry.write_line(line));
    }
    out
}

/// Appends a line, prefixed with its length.
fn framed<T>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let written = write(out);
    // INVARIANT: entries are bounded far below four gigabytes.
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    written
}

/// Decodes a request. None if the bytes are not one.
pub(super) fn read(bytes: &[u8]) -> Option<WriteOp> {
    let (kind, mut rest) = bytes.split_first()?;
    let mut lines = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (line, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        lines.push(line);
        rest = after;
    }
    match *kind {
        DRAFTS => lines.into_iter().map(draft).collect::<Result<_, _>>().ok().map(WriteOp::Drafts),
        PLACED => {
            let placed = lines.into_iter().map(|line| EntryRef::read(line)?.to_entry()?.to_text());
            placed.collect::<Result<_, _>>().ok().map(WriteOp::Placed)
        }
        _ => None,
    }
}

fn draft(line: &[u8]) -> Result<UnsequencedEntry, FieldError> {
    let entry = EntryRef::read(line)?.to_entry()?;
    UnsequencedEntry::new(&Draft {
        entity_id: entry.entity_id,
        target: entry.target,
        quality: entry.quality,
        timestamp: entry.timestamp,
        source: entry.source,
        actor: entry.actor,
        parents: entry.parents,
        tags: entry.tags,
        payload: entry.payload,
        attested_by: entry.attested_by,
        envelope: entry.envelope,
    })
}
