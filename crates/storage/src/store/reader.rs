//! Reads the log from one snapshot, without waiting for the writer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use tribune_ledger::key_change::KeyChange;
use tribune_ledger::tree::Hash;
use tribune_ledger::tree::prove::TileSource;
use tribune_ledger::tree::tile::{self, TileId};
use tribune_ledger::{Cid, EntryQuality, VerifierKey};

use super::cid_index::{Prefix, RUN};
use super::connection::Access;
use super::error::StoreError;
use super::rows::StoredEntry;
use super::{cid_index, connection, damaged, rows, schema, views};
use crate::clock::SystemClock;
use crate::home::Home;
use crate::keys;
use crate::wal::{UnappliedRecord, Wal, WalEpoch, WalPosition};

/// Smallest number of hex digits that can name an entry: fewer would rarely be unique.
const MIN_PREFIX: usize = 4;

/// How often to check whether the writing process has applied what it acknowledged, and how long to wait between checks.
const MAX_CHECKS: usize = 2_000;
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// A view of the log as it was when this was opened or last refreshed.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    connection: Connection,
}

/// Which entries to read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntryFilter {
    pub entity_id: Option<String>,
    pub quality: Option<EntryQuality>,
}

/// The result of a lookup by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryLookup {
    Found(Box<StoredEntry>),
    /// No entry has that name. The sentence says what was searched for.
    Nothing(String),
    /// The CIDs of several entries begin with it.
    Several(Vec<Cid>),
}

impl Reader {
    /// Opens the log of `home` as it is now, with everything that the process writing there has acknowledged.
    pub fn open(home: &Home) -> Result<Self, StoreError> {
        let reader = Self::of_this_process(home)?;
        wait_applied(home, &reader)?;
        Ok(reader)
    }

    /// Opens the log of `home` as far as it is applied. The caller waits for the WAL itself.
    pub(super) fn of_this_process(home: &Home) -> Result<Self, StoreError> {
        if home.root().is_file() {
            return Err(crate::home::HomeError::IsAFile(home.root().to_owned()).into());
        }
        let path = home.database();
        // A key at its final path has signed a log; without it there never was a log.
        let none = || match keys::secret_path(home) {
            key if key.exists() => StoreError::LogIsGone { path: home.database(), key },
            _ => StoreError::NoLedger(home.root().to_owned()),
        };
        let connection = match connection::open(&path, Access::Read) {
            Err(StoreError::NoLedger(_)) => return Err(none()),
            opened => opened?,
        };
        let begun = schema::version(&connection).map_err(|error| StoreError::from_sqlite(&path, &error))?;
        let reader = Self { path, connection };
        reader.begin()?;
        if begun == 0 || reader.size()? == 0 {
            return Err(none());
        }
        Ok(reader)
    }

    /// Releases the snapshot. While one is held, SQLite cannot restart its write-ahead log, which grows. A caller that waits
    /// releases it first and then calls [`Self::refresh`].
    pub fn release(&self) -> Result<(), StoreError> {
        self.connection.execute_batch("COMMIT").map_err(|error| self.failed(&error))
    }

    /// Takes a snapshot of the log as far as it is applied now.
    pub fn refresh(&self) -> Result<(), StoreError> {
        if !self.connection.is_autocommit() {
            self.release()?;
        }
        self.begin()
    }

    /// The number of acknowledged WAL records that are not applied to this database.
    pub fn unapplied_records(&self, home: &Home) -> Result<usize, StoreError> {
        Ok(self.unapplied(home)?.map_or(0, |(_, numbers)| numbers.len()))
    }

    /// The sequence numbers of the ledger records that the WAL holds and this database has not applied, with the WAL's epoch.
    /// None if the WAL does not belong to this log.
    fn unapplied(&self, home: &Home) -> Result<Option<(WalEpoch, Vec<u64>)>, StoreError> {
        let Some(WalPosition { epoch, applied }) = self.wal_position()? else { return Ok(None) };
        let Some((_, records)) = Wal::peek(home).filter(|(found, _)| *found == epoch) else {
            return Ok(None);
        };
        let is_unapplied = |record: &UnappliedRecord| !record.ledger.is_empty() && record.number > applied;
        Ok(Some((epoch, records.into_iter().filter(is_unapplied).map(|record| record.number).collect())))
    }

    fn wal_position(&self) -> Result<Option<WalPosition>, StoreError> {
        super::wal_position(&self.connection).map_err(|error| self.failed(&error))
    }

    fn begin(&self) -> Result<(), StoreError> {
        // The first read fixes the snapshot.
        let begun = self.connection.execute_batch("BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1;");
        begun.map_err(|error| self.failed(&error))
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn failed(&self, error: &rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, error)
    }

    /// Number of entries.
    pub fn size(&self) -> Result<u64, StoreError> {
        let max =
            self.connection.query_row("SELECT coalesce(max(idx) + 1, 0) FROM ledger", [], |row| row.get(0));
        max.map_err(|error| self.failed(&error))
    }

    /// Whether there are rows before position 0, where no entry can be.
    pub(crate) fn has_rows_before_the_first(&self) -> Result<bool, StoreError> {
        let min = self
            .connection
            .query_row("SELECT coalesce(min(idx) < 0, FALSE) FROM ledger", [], |row| row.get(0));
        min.map_err(|error| self.failed(&error))
    }

    /// The newest signed checkpoint. It covers every entry of this snapshot.
    pub fn checkpoint(&self) -> Result<String, StoreError> {
        checkpoint(&self.connection, &self.path)
    }

    /// The key that signs the log now.
    pub fn key_in_force(&self) -> Result<VerifierKey, StoreError> {
        key_in_force(&self.connection, &self.path)
    }

    /// The sequence number of the next entry of `entity_id`.
    pub fn next_seq(&self, entity_id: &str) -> Result<u64, StoreError> {
        let select = self.connection.query_row(
            "SELECT next_seq FROM entities WHERE entity_id = ?1",
            [entity_id],
            |row| row.get(0),
        );
        Ok(select.optional().map_err(|error| self.failed(&error))?.unwrap_or(0))
    }

    /// The newest entry of `entity_id`.
    pub fn head(&self, entity_id: &str) -> Result<Option<StoredEntry>, StoreError> {
        let query = format!(
            "SELECT {} FROM ledger WHERE idx = (SELECT last_idx FROM entities WHERE entity_id = ?1)",
            rows::COLUMNS
        );
        let select = self
            .connection
            .prepare_cached(&query)
            .and_then(|mut select| select.query_row([entity_id], rows::read).optional());
        select.map_err(|error| self.failed(&error))
    }

    /// The entry at a position.
    pub fn entry(&self, index: u64) -> Result<Option<StoredEntry>, StoreError> {
        entry(&self.connection, &self.path, index)
    }

    /// The position of an entry.
    pub fn find(&self, cid: &Cid) -> Result<Option<u64>, StoreError> {
        let text = cid.to_string();
        Ok(self.places(&text[3..])?.into_iter().find(|(_, found)| found == cid).map(|(index, _)| index))
    }

    /// Finds an entry by what a person types: its position, its CID, or the CID's first digits with or without `b3:`.
    pub fn lookup(&self, name: &str) -> Result<EntryLookup, StoreError> {
        let hex = name.strip_prefix("b3:").unwrap_or(name);
        // Short numbers are positions; a CID is recognised by its length or its prefix.
        if hex.len() == name.len()
            && (1..16).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_digit())
        {
            let size = self.size()?;
            return Ok(match name.parse().ok().map(|index| self.entry(index)).transpose()?.flatten() {
                Some(found) => EntryLookup::Found(Box::new(found)),
                None => EntryLookup::Nothing(format!("there is no entry {name} in a log of {size}")),
            });
        }
        if hex.len() < MIN_PREFIX || Prefix::new(hex).is_none() {
            let what =
                format!("`{name}` is neither a place in the log nor at least {MIN_PREFIX} digits of a CID");
            return Ok(EntryLookup::Nothing(what));
        }
        let mut places = self.places(hex)?;
        places.sort_unstable();
        Ok(match places.as_slice() {
            [] => EntryLookup::Nothing(format!("no entry's CID begins with `{name}`")),
            [(index, _)] => match self.entry(*index)? {
                Some(found) => EntryLookup::Found(Box::new(found)),
                None => EntryLookup::Nothing(format!("entry {index} is missing from the log")),
            },
            several => EntryLookup::Several(several.iter().map(|(_, cid)| *cid).collect()),
        })
    }

    /// Every entry whose CID begins with these digits.
    fn places(&self, hex: &str) -> Result<Vec<(u64, Cid)>, StoreError> {
        let failed = |error: rusqlite::Error| self.failed(&error);
        let Some(prefix) = Prefix::new(hex) else { return Ok(Vec::new()) };
        let size = self.size()?;
        let runs = size / RUN;
        // Eight bytes distinguish most CIDs, without their text.
        let near = prefix.near();
        let fits = |cid: &Cid| near(cid) && cid.to_string()[3..].starts_with(hex);
        let mut found = Vec::new();
        for index in cid_index::candidates(&self.connection, runs, prefix).map_err(failed)? {
            let cids = views::cids_of_rows(&self.connection, index, index + 1).map_err(failed)?;
            found.extend(cids.into_iter().filter(fits).map(|cid| (index, cid)));
        }
        let tail = views::cids(&self.connection, runs * RUN, size).map_err(failed)?;
        found.extend((runs * RUN..).zip(tail).filter(|(_, cid)| fits(cid)));
        Ok(found)
    }

    /// The newest `n` entries that pass `filter`, oldest first.
    pub fn tail(&self, filter: &EntryFilter, n: usize) -> Result<Vec<StoredEntry>, StoreError> {
        let mut found = Vec::new();
        match &filter.entity_id {
            Some(entity_id) => return self.back_from(self.head(entity_id)?, filter, n),
            None => {
                let query = format!(
                    "SELECT {} FROM ledger WHERE ?1 IS NULL OR quality = ?1 ORDER BY idx DESC LIMIT ?2",
                    rows::COLUMNS
                );
                let quality = filter.quality.map(EntryQuality::as_str);
                let mut select = self.connection.prepare(&query).map_err(|error| self.failed(&error))?;
                let rows = select
                    .query_map(params![quality, n as u64], rows::read)
                    .map_err(|error| self.failed(&error))?;
                for stored in rows {
                    found.push(stored.map_err(|error| self.failed(&error))?);
                }
            }
        }
        found.reverse();
        Ok(found)
    }

    /// The newest `n` entries of the entity of the entry at `index`, up to and including that entry.
    pub fn tail_until(&self, index: u64, n: usize) -> Result<Vec<StoredEntry>, StoreError> {
        self.back_from(self.entry(index)?, &EntryFilter::default(), n)
    }

    /// Reads an entity's history backwards from `next`.
    fn back_from(
        &self,
        mut next: Option<StoredEntry>,
        filter: &EntryFilter,
        n: usize,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let mut found = Vec::new();
        while let Some(stored) = next.take().filter(|_| found.len() < n) {
            next = self.previous(stored.index)?.map(|index| self.entry(index)).transpose()?.flatten();
            found.extend(Some(stored).filter(|stored| filter.passes(stored)));
        }
        found.reverse();
        Ok(found)
    }

    fn previous(&self, index: u64) -> Result<Option<u64>, StoreError> {
        let select = self
            .connection
            .prepare_cached("SELECT prev_idx FROM ledger WHERE idx = ?1")
            .and_then(|mut select| select.query_row([index], |row| row.get(0)).optional());
        let previous: Option<u64> = select.map_err(|error| self.failed(&error))?.flatten();
        match previous {
            Some(previous) if previous >= index => Err(damaged(
                &self.path,
                format!("entry {index} points back to entry {previous}: run `tribune ledger rebuild`"),
            )),
            previous => Ok(previous),
        }
    }

    /// Calls `take` with every entry from `start` on, in order, until it returns an error. An entry that cannot be read is
    /// passed as its error.
    pub fn for_each<E: From<StoreError>>(
        &self,
        start: u64,
        mut take: impl FnMut(Result<StoredEntry, StoreError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |error: rusqlite::Error| self.failed(&error);
        let query = format!("SELECT {} FROM ledger WHERE idx >= ?1 ORDER BY idx", rows::COLUMNS);
        let mut select = self.connection.prepare(&query).map_err(failed)?;
        let mut rows = select.query([start]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            take(rows::read(row).map_err(failed))?;
        }
        Ok(())
    }

    /// Every CID in order, from the stored tree.
    pub(crate) fn tree_cids(&self) -> Result<Vec<Cid>, StoreError> {
        views::cids(&self.connection, 0, self.size()?).map_err(|error| self.failed(&error))
    }
}

impl EntryFilter {
    /// Whether an entry matches.
    pub fn passes(&self, stored: &StoredEntry) -> bool {
        self.quality.is_none_or(|quality| quality == stored.entry.quality)
            && self.entity_id.as_ref().is_none_or(|entity_id| *entity_id == stored.entry.entity_id)
    }
}

/// Proofs are built from the stored tiles, and from rows at the right edge.
impl TileSource for Reader {
    type Error = StoreError;

    fn tile(&self, id: TileId, width: u64) -> Result<Vec<Hash>, StoreError> {
        let failed = |error: rusqlite::Error| self.failed(&error);
        let start = id.index * tile::WIDTH;
        if id.level == 0 {
            let cids = views::cids(&self.connection, start, start + width).map_err(failed)?;
            return Ok(cids.iter().map(Hash::leaf).collect());
        }
        if width == tile::WIDTH {
            let mut select = self
                .connection
                .prepare_cached("SELECT nodes FROM tree_tiles WHERE level = ?1 AND n = ?2")
                .map_err(failed)?;
            let nodes: Option<Vec<u8>> =
                select.query_row(params![id.level, id.index], |row| row.get(0)).optional().map_err(failed)?;
            return Ok(nodes.and_then(|nodes| tile::from_bytes(&nodes)).unwrap_or_default());
        }
        views::tile_roots(&self.connection, id.level - 1, start, start + width).map_err(failed)
    }
}

pub(super) fn checkpoint(connection: &Connection, path: &Path) -> Result<String, StoreError> {
    let select =
        connection.query_row("SELECT note FROM checkpoint WHERE id = 0", [], |row| row.get(0)).optional();
    let note = select.map_err(|error| StoreError::from_sqlite(path, &error))?;
    note.ok_or_else(|| damaged(path, "its checkpoint is missing"))
}

pub(super) fn entry(
    connection: &Connection,
    path: &Path,
    index: u64,
) -> Result<Option<StoredEntry>, StoreError> {
    let query = format!("SELECT {} FROM ledger WHERE idx = ?1", rows::COLUMNS);
    let select = connection
        .prepare_cached(&query)
        .and_then(|mut select| select.query_row([index], rows::read).optional());
    select.map_err(|error| StoreError::from_sqlite(path, &error))
}

/// The key that the newest change of key put in force.
pub(super) fn key_in_force(connection: &Connection, path: &Path) -> Result<VerifierKey, StoreError> {
    let query = "SELECT payload FROM ledger WHERE idx = (SELECT last_idx FROM entities WHERE entity_id = ?1)";
    let payload: Option<String> = connection
        .query_row(query, [KeyChange::ENTITY], |row| row.get(0))
        .optional()
        .map_err(|error| StoreError::from_sqlite(path, &error))?;
    let payload = payload.ok_or_else(|| damaged(path, "it does not name the log's key"))?;
    match KeyChange::read(payload.as_bytes()) {
        Ok(change) => Ok(change.new),
        Err(error) => Err(damaged(path, format!("the log's key: {error}"))),
    }
}

/// Brings `reader` up to what was acknowledged. The process that holds the home applies it soon; if there is none, this one
/// does. What cannot be applied stays in the WAL, and [`Reader::unapplied_records`] counts it.
fn wait_applied(home: &Home, reader: &Reader) -> Result<(), StoreError> {
    let Some((epoch, numbers)) = reader.unapplied(home)? else { return Ok(()) };
    let newest = numbers.last().copied().unwrap_or(0);
    for _ in 0..MAX_CHECKS {
        // A log with another epoch, or none, has applied everything of this one.
        if reader.wal_position()?.is_none_or(|known| known.epoch != epoch || known.applied >= newest) {
            return Ok(());
        }
        if home.holder().is_none() {
            match super::Store::open(home, &SystemClock) {
                Ok(store) => store.close(),
                Err(error) => {
                    tracing::warn!(
                        "the newest entries are in the write-ahead log and cannot be applied now: {error}"
                    );
                    return Ok(());
                }
            }
        }
        std::thread::sleep(CHECK_INTERVAL);
        reader.refresh()?;
    }
    Ok(())
}
