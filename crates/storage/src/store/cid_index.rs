//! The index from a CID to its position, built like a log-structured merge tree without merges. CIDs are random, so an
//! ordinary index would dirty one page per entry and slow the log down as it grows. Instead the newest CIDs are kept in
//! memory, and every 65,536 entries a sorted run is written once and never changed. A lookup reads one block per run.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _, params};
use tribune_ledger::cid::{Cid, CidBuildHasher};

/// Entries in one run: as many as a tile of level 1 covers.
pub(super) const RUN: u64 = 1 << 16;

/// Blocks in a run, divided by the first bits of the CID: about 10 kB each.
const BLOCKS: u8 = 64;

/// Bytes of a key: eight of the CID and two of the offset in the run.
const KEY: usize = 10;

/// The CIDs after the last full run.
#[derive(Debug, Default)]
pub(super) struct RecentCids {
    cids: Vec<Cid>,
    known: HashSet<Cid, CidBuildHasher>,
    base: u64,
}

impl RecentCids {
    pub(super) fn starting_at(base: u64) -> Self {
        Self { base, ..Self::default() }
    }

    pub(super) fn push(&mut self, cid: Cid) {
        self.known.insert(cid);
        self.cids.push(cid);
    }

    pub(super) fn contains(&self, cid: &Cid) -> bool {
        self.known.contains(cid)
    }

    /// The newest `n`.
    pub(super) fn last(&self, n: usize) -> &[Cid] {
        &self.cids[self.cids.len().saturating_sub(n)..]
    }

    /// Writes a full run and begins the next.
    pub(super) fn flush(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        debug_assert_eq!(self.cids.len() as u64, RUN);
        let mut keys: Vec<[u8; KEY]> =
            self.cids.iter().zip(0..=u16::MAX).map(|(cid, offset)| key(cid, offset)).collect();
        keys.sort_unstable();
        let mut insert =
            connection.prepare_cached("INSERT INTO cid_runs (run, block, keys) VALUES (?1, ?2, ?3)")?;
        let mut rest = keys.as_slice();
        for block in 0..BLOCKS {
            let end = rest.partition_point(|key| key[0] >> 2 <= block);
            let (here, after) = rest.split_at(end);
            insert.execute(params![self.base / RUN, block, here.as_flattened()])?;
            rest = after;
        }
        *self = Self::starting_at(self.base + RUN);
        Ok(())
    }
}

fn key(cid: &Cid, offset: u16) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&cid.as_bytes()[..8]);
    key[8..].copy_from_slice(&offset.to_be_bytes());
    key
}

/// Positions in the first `runs` runs whose CID begins with `prefix`, newest run first. Only the first eight bytes are
/// compared; the caller compares the whole CID.
pub(super) fn candidates(
    connection: &Connection,
    runs: u64,
    prefix: Prefix<'_>,
) -> rusqlite::Result<Vec<u64>> {
    let mut select = connection.prepare_cached("SELECT keys FROM cid_runs WHERE run = ?1 AND block = ?2")?;
    let (low, high) = prefix.bounds();
    let mut places = Vec::new();
    for run in (0..runs).rev() {
        for block in low[0] >> 2..=high[0] >> 2 {
            let keys: Option<Vec<u8>> = select.query_row(params![run, block], |row| row.get(0)).optional()?;
            let keys = keys.unwrap_or_default();
            let (keys, _) = keys.as_chunks::<KEY>();
            let start = keys.partition_point(|key| key[..8] < low[..]);
            let hits = keys[start..].iter().take_while(|key| key[..8] <= high[..]);
            places.extend(hits.map(|key| run * RUN + u64::from(u16::from_be_bytes([key[8], key[9]]))));
        }
    }
    Ok(places)
}

/// The first hex digits of a CID, or all of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefix<'a>(&'a str);

impl<'a> Prefix<'a> {
    /// Lowercase hex digits, at least one.
    pub(super) fn new(hex: &'a str) -> Option<Self> {
        let fits =
            (1..=64).contains(&hex.len()) && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        fits.then_some(Self(hex))
    }

    /// Whether a CID can begin with this prefix, by its first eight bytes.
    pub(super) fn near(self) -> impl Fn(&Cid) -> bool {
        let (low, high) = self.bounds();
        move |cid| (&low[..]..=&high[..]).contains(&&cid.as_bytes()[..8])
    }

    fn bounds(self) -> ([u8; 8], [u8; 8]) {
        let bound = |fill: char| {
            let digits: String = self.0.chars().chain(std::iter::repeat(fill)).take(16).collect();
            u64::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
        };
        (bound('0'), bound('f'))
    }
}
