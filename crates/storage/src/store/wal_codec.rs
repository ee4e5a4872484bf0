//! How a request to the ledger stands in the daybook, and how it is read again.

use tribune_ledger::Draft;
use tribune_ledger::entry::{EntryRef, EntryText, FieldError, UnsequencedEntry};

use super::writer::WriteOp;

const DRAFTS: u8 = 0;
const PLACED: u8 = 1;

/// What a line has beside its payload, about.
const BESIDE: usize = 512;

/// What is written of entries to be placed, and those entries.
pub(super) fn drafts(drafts: &[Draft]) -> Result<(Vec<UnsequencedEntry>, Vec<u8>), FieldError> {
    let mut out = Vec::with_capacity(drafts.len() * 3 * BESIDE);
    out.push(DRAFTS);
    let entries =
        drafts.iter().map(|draft| framed(&mut out, |line| UnsequencedEntry::with_line(draft, line)));
    Ok((entries.collect::<Result<_, _>>()?, out))
}

/// What is written of entries that have their place.
pub(super) fn placed(entries: &[EntryText]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.iter().map(|entry| entry.payload.len() + BESIDE).sum());
    out.push(PLACED);
    for entry in entries {
        framed(&mut out, |line| entry.write_line(line));
    }
    out
}

/// Appends a line behind its length.
fn framed<T>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    let written = write(out);
    // INVARIANT: entries are bounded far below four gigabytes.
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    written
}

/// The request again. None if these bytes are none.
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
