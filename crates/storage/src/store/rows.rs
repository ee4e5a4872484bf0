//! Converts entries to rows of the `ledger` table and back.

use rusqlite::types::Type;
use rusqlite::{Row, Statement, params};
use tribune_ledger::Timestamp;
use tribune_ledger::entry::EntryText;

/// The columns of an entry, in the order in which [`read`] expects them.
pub(super) const COLUMNS: &str = "idx, cid, quality, entity_id, seq, target, actor, source, parents, tags, payload, attested_by, proof, envelope, timestamp";

/// An entry and its position in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    pub index: u64,
    pub entry: EntryText,
}

/// The statement for [`insert`].
pub(super) const INSERT: &str =
    "INSERT INTO ledger (idx, cid, quality, entity_id, seq, prev_idx, target, actor, source, parents, tags, payload,
                         attested_by, proof, envelope, timestamp)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";

pub(super) fn insert(
    statement: &mut Statement<'_>,
    index: u64,
    previous: Option<u64>,
    entry: &EntryText,
) -> rusqlite::Result<()> {
    let cid = entry.cid.to_text();
    let mut timestamp = Vec::with_capacity(Timestamp::TEXT_BYTES);
    entry.timestamp.write(&mut timestamp);
    statement.execute(params![
        index,
        std::str::from_utf8(&cid).unwrap_or_default(),
        entry.quality.as_str(),
        entry.entity_id,
        entry.seq,
        previous,
        entry.target,
        entry.actor,
        entry.source,
        entry.parents,
        entry.tags,
        entry.payload,
        entry.attested_by.map(|key| key.to_string()),
        entry.proof,
        entry.envelope,
        std::str::from_utf8(&timestamp).unwrap_or_default(),
    ])?;
    Ok(())
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<StoredEntry> {
    Ok(StoredEntry {
        index: row.get(0)?,
        entry: EntryText {
            cid: parsed(row, 1)?,
            quality: parsed(row, 2)?,
            entity_id: row.get(3)?,
            seq: row.get(4)?,
            target: row.get(5)?,
            actor: row.get(6)?,
            source: row.get(7)?,
            parents: row.get(8)?,
            tags: row.get(9)?,
            payload: row.get(10)?,
            attested_by: row.get::<_, Option<String>>(11)?.map(|text| parse(11, &text)).transpose()?,
            proof: row.get(12)?,
            envelope: row.get(13)?,
            timestamp: parsed(row, 14)?,
        },
    })
}

fn parsed<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    parse(column, row.get_ref(column)?.as_str()?)
}

fn parse<T>(column: usize, text: &str) -> rusqlite::Result<T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    text.parse()
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}
