//! Durable appends, compared with a raw file that is written and synced in the same batches.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::time::Instant;

use crate::log::{self, BenchHome, median};

/// Commits per round, and rounds. File and ledger alternate, so that a slow period affects both.
const COMMITS: u64 = 150;
const ROUNDS: usize = 7;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!("append: 1 KB entries per second, each batch durable; goal: ledger/file >= 0.5 at batch 64");
    println!("  {:>6} {:>12} {:>12} {:>8}", "batch", "raw file", "ledger", "ratio");
    for batch in [1_u64, 8, 64, 512] {
        let home = BenchHome::new()?;
        let store = home.store()?;
        let writer = store.writer()?;
        let raw = log::folder()?;
        let mut file = File::create(raw.path().join("raw"))?;
        let mut next = log::append(&writer, 0, 20 * batch, batch).map(|_| 20 * batch)?;
        let (mut files, mut ledgers) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let entries = COMMITS * batch;
            let chunk = vec![b'x'; 1024 * batch as usize];
            let started = Instant::now();
            for _ in 0..COMMITS {
                file.write_all(&chunk)?;
                file.sync_data()?;
            }
            files.push(entries as f64 / started.elapsed().as_secs_f64());
            ledgers.push(entries as f64 / log::append(&writer, next, next + entries, batch)?.as_secs_f64());
            next += entries;
        }
        let ratio = median(files.iter().zip(&ledgers).map(|(file, ledger)| ledger / file).collect());
        println!("  {batch:>6} {:>12.0} {:>12.0} {ratio:>8.2}", median(files), median(ledgers));
    }
    Ok(())
}
