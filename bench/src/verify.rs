//! The rate at which an auditor verifies an export.

use std::error::Error;
use std::path::Path;

use tribune_ledger::Cid;
use tribune_ledger::verify::Integrity;
use tribune_storage::store::Reader;
use tribune_storage::{audit, export};

use crate::log::{self, BenchHome, cpu_time, median};

const ENTRIES: u64 = 200_000;
const ROUNDS: usize = 7;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let home = BenchHome::new()?;
    let store = home.store()?;
    log::append(&store.writer()?, 0, ENTRIES, 512)?;
    let reader = Reader::open(&home.home)?;
    let key = reader.key_in_force()?;
    let folder = home.home.root().join("export");
    let entries = export::write(&reader, &folder, &mut |_| {})?;
    let size = std::fs::metadata(folder.join(export::ENTRIES))?.len();
    println!(
        "verify: {entries} entries of {} bytes; goal: >= 300,000 per second of one core",
        size / entries
    );
    let hashes = hashing_alone(&folder)?;
    println!("  {:<16} {hashes:>9.0} entries/s per core", "BLAKE3 alone");
    for (what, live) in [("exported folder", false), ("live home", true)] {
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            let cpu = cpu_time();
            let report = if live {
                audit::verify_home(&reader, &key, Vec::new(), &mut |_| {})?
            } else {
                audit::verify_export(&folder, &key, Vec::new(), &mut |_| {})?
            };
            if report.integrity != Integrity::Sound {
                return Err(format!("{what}: {:?}", report.integrity).into());
            }
            rates.push(report.entries as f64 / (cpu_time() - cpu).as_secs_f64());
        }
        let (slowest, fastest) =
            (rates.iter().copied().fold(f64::MAX, f64::min), rates.iter().copied().fold(0.0, f64::max));
        let rate = median(rates);
        println!(
            "  {what:<16} {rate:>9.0} entries/s per core ({slowest:.0} to {fastest:.0}), {:.2} of hashing alone",
            rate / hashes
        );
    }
    Ok(())
}

/// Lines hashed per second of one core, without any other work.
fn hashing_alone(folder: &Path) -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read(folder.join(export::ENTRIES))?;
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let cpu = cpu_time();
    for line in &lines {
        std::hint::black_box(Cid::of_entry(&[line]));
    }
    Ok(lines.len() as f64 / (cpu_time() - cpu).as_secs_f64())
}
