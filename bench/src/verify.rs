//! How fast a stranger reads an export.

use std::error::Error;
use std::time::Instant;

use tribune_host::store::Reader;
use tribune_host::{audit, export};
use tribune_ledger::Cid;

use crate::log::{self, TempHome, cpu_time};

const ENTRIES: u64 = 200_000;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let home = TempHome::new()?;
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
    let lines = std::fs::read(folder.join(export::ENTRIES))?;
    let each: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let cpu = cpu_time();
    for line in &each {
        std::hint::black_box(Cid::of_entry(&[line]));
    }
    let hashes = each.len() as f64 / (cpu_time() - cpu).as_secs_f64();
    println!("  {:<16} {hashes:>9.0} entries/s per core", "BLAKE3 alone");
    for (what, live) in [("exported folder", false), ("live home", true)] {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let report = if live {
            audit::verify_home(&reader, &key, Vec::new(), &mut |_| {})?
        } else {
            audit::verify_export(&folder, &key, Vec::new(), &mut |_| {})?
        };
        let (wall, cpu) = (wall.elapsed().as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
        let n = report.entries as f64;
        let (per_core, by_clock) = (n / cpu, n / wall);
        println!(
            "  {what:<16} {per_core:>9.0} entries/s per core ({:.2} of hashing alone), {by_clock:>9.0} by the clock: {:?}",
            per_core / hashes,
            report.integrity
        );
    }
    Ok(())
}
