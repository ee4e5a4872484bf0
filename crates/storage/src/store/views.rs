//! The views: everything that is derived from the entries and committed with them, such as entities, the tree's tiles and the
//! index from a CID to its position. All of it can be deleted and rebuilt; `rebuild --check` proves that the result is the
//! same.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, params};
use tribune_ledger::Cid;
use tribune_ledger::entry::EntryText;
use tribune_ledger::tree::Hash;
use tribune_ledger::tree::tile::{self, TileEdge};

use super::cid_index::{RUN, RecentCids};
use super::{cid_index, policy_views, rows, schema, session_views, spend_views};

/// The tables of the log itself, each with its columns and key order.
const OWN_TABLES: [(&str, &str, &str); 3] = [
    ("entities", "entity_id, next_seq, last_idx, head", "entity_id"),
    ("tree_tiles", "level, n, root, nodes", "level, n"),
    ("cid_runs", "run, block, keys", "run, block"),
];

/// Every table that [`Views`] maintains.
fn tables() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let of_sessions = OWN_TABLES.into_iter().chain(session_views::TABLES);
    of_sessions.chain(policy_views::TABLES).chain(spend_views::TABLES)
}

/// Entries applied per step of a rebuild; enough to spread the cost, few enough to hold in memory.
const REBUILD_BATCH: usize = 512;

/// The in-memory state of the views: the right edge of the tree and the newest CIDs. Entries are applied in order.
#[derive(Debug)]
pub(super) struct Views {
    edge: TileEdge,
    recent: RecentCids,
}

/// The end of an entity's history.
#[derive(Debug, Clone)]
pub(super) struct EntityState {
    pub(super) next_seq: u64,
    pub(super) last_index: Option<u64>,
    head: Option<Cid>,
}

/// The entities a batch touches: each is read once and written once.
#[derive(Debug, Default)]
pub(super) struct EntityBatch {
    states: HashMap<String, EntityState>,
}

impl EntityBatch {
    /// The current state of `entity_id`.
    pub(super) fn state(
        &mut self,
        connection: &Connection,
        entity_id: &str,
    ) -> rusqlite::Result<&mut EntityState> {
        Ok(match self.states.entry(entity_id.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let mut select = connection
                    .prepare_cached("SELECT next_seq, last_idx FROM entities WHERE entity_id = ?1")?;
                let found = select.query_row([entity_id], |row| {
                    Ok(EntityState { next_seq: row.get(0)?, last_index: Some(row.get(1)?), head: None })
                });
                let fresh = EntityState { next_seq: 0, last_index: None, head: None };
                unknown.insert(found.optional()?.unwrap_or(fresh))
            }
        })
    }

    /// Writes every state that changed.
    pub(super) fn flush(self, connection: &Connection) -> rusqlite::Result<()> {
        let mut upsert = connection.prepare_cached(
            "INSERT INTO entities (entity_id, next_seq, last_idx, head) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (entity_id) DO UPDATE SET next_seq = ?2, last_idx = ?3, head = ?4",
        )?;
        for (entity_id, state) in self.states {
            if let (Some(last), Some(head)) = (state.last_index, state.head) {
                upsert.execute(params![entity_id, state.next_seq, last, head.to_string()])?;
            }
        }
        Ok(())
    }
}

impl EntityState {
    /// Advances by the entry at `index`.
    pub(super) fn advance(&mut self, index: u64, cid: Cid) {
        self.next_seq += 1;
        self.last_index = Some(index);
        self.head = Some(cid);
    }
}

impl Views {
    pub(super) fn empty() -> Self {
        Self { edge: TileEdge::default(), recent: RecentCids::default() }
    }

    /// Loads the state from the database. `None` if its tables are inconsistent.
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let size: u64 =
            connection.query_row("SELECT coalesce(max(idx) + 1, 0) FROM ledger", [], |row| row.get(0))?;
        let mut levels = Vec::new();
        for level in 0..tile::levels_of(size) as u32 {
            let end = size >> (tile::HEIGHT * level);
            let start = end - tile::partial_width(size, level);
            levels.push(if level == 0 {
                cids_of_rows(connection, start, end)?.iter().map(Hash::leaf).collect()
            } else {
                tile_roots(connection, level - 1, start, end)?
            });
        }
        let Some(edge) = TileEdge::restore(size, levels) else { return Ok(None) };
        let mut recent = RecentCids::starting_at(size / RUN * RUN);
        for cid in cids(connection, size / RUN * RUN, size)? {
            recent.push(cid);
        }
        Ok(Some(Self { edge, recent }))
    }

    pub(super) fn size(&self) -> u64 {
        self.edge.size()
    }

    pub(super) fn root(&self) -> Hash {
        self.edge.frontier().root()
    }

    /// Whether an entry with this CID was applied.
    pub(super) fn contains(&self, connection: &Connection, cid: &Cid) -> rusqlite::Result<bool> {
        if self.recent.contains(cid) {
            return Ok(true);
        }
        Ok(find_in_runs(connection, self.size() / RUN, cid)?.is_some())
    }

    /// Applies the next entry, which is in the log already.
    pub(super) fn apply(&mut self, connection: &Connection, entry: &EntryText) -> rusqlite::Result<()> {
        session_views::apply(connection, self.size(), entry)?;
        let leaf = Hash::leaf(&entry.cid);
        self.recent.push(entry.cid);
        for full in self.edge.push(leaf) {
            let nodes = match full.id.level {
                0 => self.recent.last(tile::WIDTH as usize).iter().flat_map(|cid| *cid.as_bytes()).collect(),
                _ => tile::to_bytes(&full.hashes),
            };
            let mut insert = connection
                .prepare_cached("INSERT INTO tree_tiles (level, n, root, nodes) VALUES (?1, ?2, ?3, ?4)")?;
            insert.execute(params![full.id.level, full.id.index, full.root.as_bytes(), nodes])?;
            if full.id.level == 1 {
                self.recent.flush(connection)?;
            }
        }
        Ok(())
    }
}

/// The CIDs of entries `start..end`, from their rows.
pub(super) fn cids_of_rows(connection: &Connection, start: u64, end: u64) -> rusqlite::Result<Vec<Cid>> {
    let mut select =
        connection.prepare_cached("SELECT cid FROM ledger WHERE idx >= ?1 AND idx < ?2 ORDER BY idx")?;
    let rows = select.query_map([start, end], |row| {
        let text = row.get_ref(0)?.as_str()?;
        text.parse().map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
        })
    })?;
    rows.collect()
}

/// The CIDs of entries `start..end`, from full tiles where they exist. `start` must be a multiple of 256.
pub(super) fn cids(connection: &Connection, start: u64, end: u64) -> rusqlite::Result<Vec<Cid>> {
    let tiled = end / tile::WIDTH * tile::WIDTH;
    // No capacity is reserved from `end`: in an altered database it can be any number.
    let mut found = Vec::new();
    let mut select = connection
        .prepare_cached("SELECT nodes FROM tree_tiles WHERE level = 0 AND n >= ?1 AND n < ?2 ORDER BY n")?;
    let mut rows = select.query([start / tile::WIDTH, tiled / tile::WIDTH])?;
    while let Some(row) = rows.next()? {
        let (chunks, _) = row.get_ref(0)?.as_blob()?.as_chunks::<32>();
        found.extend(chunks.iter().map(|bytes| Cid::from_bytes(*bytes)));
    }
    found.extend(cids_of_rows(connection, tiled.max(start), end)?);
    Ok(found)
}

/// The roots of full tiles `start..end` of `level`.
pub(super) fn tile_roots(
    connection: &Connection,
    level: u32,
    start: u64,
    end: u64,
) -> rusqlite::Result<Vec<Hash>> {
    let mut select = connection
        .prepare_cached("SELECT root FROM tree_tiles WHERE level = ?1 AND n >= ?2 AND n < ?3 ORDER BY n")?;
    let rows = select.query_map(params![level, start, end], |row| Ok(Hash::from_bytes(row.get(0)?)))?;
    rows.collect()
}

/// The position of `cid` among the entries of the first `runs` runs.
pub(super) fn find_in_runs(connection: &Connection, runs: u64, cid: &Cid) -> rusqlite::Result<Option<u64>> {
    let text = cid.to_string();
    let Some(prefix) = cid_index::Prefix::new(&text[3..]) else { return Ok(None) };
    let mut select = connection.prepare_cached("SELECT 1 FROM ledger WHERE idx = ?1 AND cid = ?2")?;
    for place in cid_index::candidates(connection, runs, prefix)? {
        if select.exists(params![place, text])? {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// A difference between a stored view and the entries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{table}: {what}")]
pub struct ViewFault {
    pub table: String,
    pub what: String,
}

/// The result of a rebuild, beside the tables that it wrote.
pub(super) struct Rebuild {
    pub(super) views: Views,
    /// Entries whose back-pointer is wrong, with what it should be.
    pub(super) back_pointers: Vec<(u64, Option<u64>)>,
}

/// Rebuilds every view in `target` from the entries in `source`. `progress` gets the number of entries done.
pub(super) fn rebuild(
    source: &Connection,
    target: &Connection,
    progress: &mut dyn FnMut(u64),
) -> rusqlite::Result<Rebuild> {
    for (table, _, _) in tables() {
        target.execute(&format!("DELETE FROM {table}"), [])?;
    }
    let mut views = Views::empty();
    let mut back_pointers = Vec::new();
    let mut select =
        source.prepare(&format!("SELECT {}, prev_idx FROM ledger ORDER BY idx", rows::COLUMNS))?;
    let mut entries = select.query([])?;
    let mut batch = EntityBatch::default();
    let mut in_batch = 0;
    while let Some(row) = entries.next()? {
        let stored = rows::read(row)?;
        let previous: Option<u64> = row.get(15)?;
        let state = batch.state(target, &stored.entry.entity_id)?;
        if previous != state.last_index {
            back_pointers.push((stored.index, state.last_index));
        }
        state.advance(stored.index, stored.entry.cid);
        views.apply(target, &stored.entry)?;
        in_batch += 1;
        if in_batch == REBUILD_BATCH {
            std::mem::take(&mut batch).flush(target)?;
            in_batch = 0;
            progress(views.size());
        }
    }
    batch.flush(target)?;
    Ok(Rebuild { views, back_pointers })
}

/// Corrects the back-pointers that a rebuild found wrong.
pub(super) fn mend_back_pointers(
    connection: &Connection,
    wrong: &[(u64, Option<u64>)],
) -> rusqlite::Result<()> {
    let mut update = connection.prepare("UPDATE ledger SET prev_idx = ?2 WHERE idx = ?1")?;
    for (index, previous) in wrong {
        update.execute(params![index, previous])?;
    }
    Ok(())
}

/// Rebuilds every view beside the stored ones and compares row by row.
pub(super) fn check(
    source: &Connection,
    scratch: &Connection,
    progress: &mut dyn FnMut(u64),
) -> rusqlite::Result<(Views, Option<ViewFault>)> {
    schema::migrate(scratch)?;
    scratch.execute_batch("BEGIN")?;
    let Rebuild { views, back_pointers } = rebuild(source, scratch, progress)?;
    let mut fault = back_pointers.first().map(|(index, previous)| ViewFault {
        table: "ledger.prev_idx".to_owned(),
        what: match previous {
            Some(previous) => format!("entry {index} does not point back to entry {previous}"),
            None => format!("entry {index} points back, though it is its entity's first"),
        },
    });
    for (table, columns, key) in tables() {
        if fault.is_none() {
            fault = compare(source, scratch, table, columns, key)?;
        }
    }
    Ok((views, fault))
}

fn compare(
    stored: &Connection,
    rebuilt: &Connection,
    table: &str,
    columns: &str,
    key: &str,
) -> rusqlite::Result<Option<ViewFault>> {
    let query = format!("SELECT {columns} FROM {table} ORDER BY {key}");
    let (mut stored, mut rebuilt) = (stored.prepare(&query)?, rebuilt.prepare(&query)?);
    let (mut stored, mut rebuilt) = (stored.query([])?, rebuilt.query([])?);
    let width = columns.split(',').count();
    let next = |rows: &mut rusqlite::Rows<'_>| -> rusqlite::Result<Option<Vec<Value>>> {
        rows.next()?.map(|row| (0..width).map(|i| row.get(i)).collect()).transpose()
    };
    loop {
        let what = match (next(&mut stored)?, next(&mut rebuilt)?) {
            (None, None) => return Ok(None),
            (Some(a), Some(b)) if a == b => continue,
            (Some(a), Some(b)) => format!("stored {} where the entries give {}", show(&a), show(&b)),
            (Some(a), None) => format!("stored {}, which no entry gives", show(&a)),
            (None, Some(b)) => format!("{} is missing", show(&b)),
        };
        return Ok(Some(ViewFault { table: table.to_owned(), what }));
    }
}

/// A row for an error sentence; long values are cut.
fn show(row: &[Value]) -> String {
    let values: Vec<String> = row
        .iter()
        .map(|value| match value {
            Value::Null => "null".to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => format!("`{text}`"),
            Value::Blob(bytes) => format!("{} bytes", bytes.len()),
        })
        .collect();
    format!("({})", values.join(", "))
}
