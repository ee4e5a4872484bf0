//! Append rate and open time as the log grows.

use std::error::Error;
use std::time::Instant;

use tribune_storage::store::Reader;

use crate::log::{self, BenchHome, median};

const BATCH: u64 = 64;
const MEASURED: u64 = 20_000;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!("growth: from 1e4 to 1e6 entries; goals: append flat, open < 100 ms");
    println!("  {:>9} {:>16} {:>12} {:>12}", "entries", "append/s (x64)", "open", "open reader");
    let home = BenchHome::new()?;
    let mut size = 0;
    let mut first = None;
    for target in [10_000_u64, 100_000, 1_000_000] {
        let store = home.store()?;
        log::append(&store.writer()?, size, target, 512)?;
        let rate =
            MEASURED as f64 / log::append(&store.writer()?, target, target + MEASURED, BATCH)?.as_secs_f64();
        size = target + MEASURED;
        store.close();
        let (mut opens, mut readers) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            let started = Instant::now();
            let store = home.store()?;
            opens.push(started.elapsed().as_secs_f64() * 1e3);
            let started = Instant::now();
            Reader::open(&home.home)?.size()?;
            readers.push(started.elapsed().as_secs_f64() * 1e3);
            store.close();
        }
        let ratio = rate / *first.get_or_insert(rate);
        println!(
            "  {target:>9} {rate:>11.0} ({ratio:.2}) {:>9.1} ms {:>9.1} ms",
            median(opens),
            median(readers)
        );
    }
    Ok(())
}
