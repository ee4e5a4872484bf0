//! Entries of 1 KB, and temporary homes for them.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use serde_json::json;
use tempfile::TempDir;
use tribune_ledger::{Draft, EntryQuality};
use tribune_storage::clock::{Clock as _, SystemClock};
use tribune_storage::home::Home;
use tribune_storage::store::LedgerWriter;
use tribune_storage::store::Store;

/// Filler bytes that make the line of an entry 1,000 bytes long.
const FILL: usize = 419;

/// Entities, in turn.
const ENTITIES: u64 = 8;

/// Drafts that are made before a series of appends is timed.
const MADE_AHEAD: u64 = 32_768;

/// The folder of all benchmark data: on the disk of the build, in its target folder.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bench");

/// A folder that is removed on drop.
pub(crate) fn folder() -> io::Result<TempDir> {
    std::fs::create_dir_all(FOLDER)?;
    tempfile::tempdir_in(FOLDER)
}

/// A home in such a folder, and the folder itself.
pub(crate) struct BenchHome {
    pub(crate) home: Home,
    _folder: TempDir,
}

impl BenchHome {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let folder = folder()?;
        Ok(Self { home: Home::at(folder.path().join("home")), _folder: folder })
    }

    pub(crate) fn store(&self) -> Result<Store, Box<dyn Error>> {
        Ok(Store::open(&self.home, &SystemClock)?)
    }
}

/// An entry whose canonical line has about 1,000 bytes.
pub(crate) fn draft(n: u64) -> Draft {
    let session = format!("agent:main:cli:local:dm:operator-{}", n % ENTITIES);
    let payload = json!({
        "n": n,
        "tool": "read",
        "constitution": "b3:7d1c5c0b0e6f4a3f9d8b7a6c5e4d3c2b1a09f8e7d6c5b4a392817060504030201",
        "facts": { "mode": "enforce", "risk": "low", "trust": "owner", "taint": [], "ratio": 0.25 },
        "reason": "x".repeat(FILL),
    });
    Draft {
        entity_id: session.clone(),
        target: "tool:read".into(),
        quality: EntryQuality::PolicyVerdict,
        timestamp: SystemClock.now(),
        source: session,
        actor: "main".into(),
        parents: Vec::new(),
        tags: vec!["bench".into()],
        payload: payload.as_object().cloned().unwrap_or_default(),
        attested_by: None,
        envelope: None,
    }
}

/// Appends entries `from..to` with `batch` entries per commit, and returns how long it took. It submits the next batch
/// while the previous one is being committed, as concurrent callers would. The time does not include making the drafts.
pub(crate) fn append(
    writer: &LedgerWriter,
    from: u64,
    to: u64,
    batch: u64,
) -> Result<Duration, Box<dyn Error>> {
    let mut taken = Duration::ZERO;
    let mut next = from;
    while next < to {
        let end = to.min(next + MADE_AHEAD.max(batch));
        let drafts: Vec<Draft> = (next..end).map(draft).collect();
        next = end;
        let started = Instant::now();
        let mut in_flight = None;
        for batch in drafts.chunks(batch as usize) {
            let receipt = writer.submit_blocking(batch)?;
            if let Some(before) = in_flight.replace(receipt) {
                writer.wait_blocking(before)?;
            }
        }
        if let Some(last) = in_flight {
            writer.wait_blocking(last)?;
        }
        taken += started.elapsed();
    }
    Ok(taken)
}

/// CPU time of this process.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
