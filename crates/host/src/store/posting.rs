//! How a request to the ledger stands in the daybook, and how it is read again.

use tribune_ledger::Draft;
use tribune_ledger::entry::{EntryRef, FieldError, Unplaced};

use super::writer::Work;

const DRAFTS: u8 = 0;
const PLACED: u8 = 1;

/// What a line has beside its payload, about.
const BESIDE: usize = 512;

/// What is written of a request. Those that are not [`Work::Drafts`] or [`Work::Placed`] never come here.
pub(super) fn write(work: &Work) -> Vec<u8> {
    let mut out = Vec::new();
    match work {
        Work::Drafts(drafts) => {
            out.reserve(drafts.iter().map(|draft| draft.line().len() + 4).sum::<usize>() + 1);
            out.push(DRAFTS);
            drafts.iter().for_each(|draft| push(&mut out, |line| line.extend_from_slice(draft.line())));
        }
        Work::Placed(entries) => {
            out.reserve(entries.iter().map(|entry| entry.payload.len() + BESIDE).sum());
            out.push(PLACED);
            entries.iter().for_each(|entry| push(&mut out, |line| entry.write_line(line)));
        }
        Work::Sealed(_) | Work::Rotate { .. } | Work::Sync | Work::Stop { .. } => {}
    }
    out
}

fn push(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    // INVARIANT: entries are bounded far below four gigabytes.
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

/// The request again. None if these bytes are none.
pub(super) fn read(bytes: &[u8]) -> Option<Work> {
    let (kind, mut rest) = bytes.split_first()?;
    let mut lines = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (line, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        lines.push(line);
        rest = after;
    }
    match *kind {
        DRAFTS => lines.into_iter().map(draft).collect::<Result<_, _>>().ok().map(Work::Drafts),
        PLACED => {
            let placed = lines.into_iter().map(|line| EntryRef::read(line)?.to_entry()?.to_text());
            placed.collect::<Result<_, _>>().ok().map(Work::Placed)
        }
        _ => None,
    }
}

fn draft(line: &[u8]) -> Result<Unplaced, FieldError> {
    let entry = EntryRef::read(line)?.to_entry()?;
    Unplaced::new(&Draft {
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
