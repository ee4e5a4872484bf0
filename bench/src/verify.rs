//! How fast a stranger reads an export.

use std::error::Error;
use std::time::Instant;

use tribune_host::store::Reader;
use tribune_host::{audit, export};

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
    println!("verify: {entries} entries of 1 KB; goal: >= 300,000 per second of one core");
    for (what, live) in [("exported folder", false), ("live home", true)] {
        let (wall, cpu) = (Instant::now(), cpu_time());
        let report = if live {
            audit::verify_home(&reader, &key, Vec::new(), &mut |_| {})?
        } else {
            audit::verify_export(&folder, &key, Vec::new(), &mut |_| {})?
        };
        let (wall, cpu) = (wall.elapsed().as_secs_f64(), (cpu_time() - cpu).as_secs_f64());
        let n = report.entries as f64;
        println!(
            "  {what:<16} {:>9.0} entries/s per core, {:>9.0} entries/s by the clock ({:?})",
            n / cpu,
            n / wall,
            report.integrity
        );
    }
    Ok(())
}
