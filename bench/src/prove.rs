//! The inclusion proof and the lookup by CID of one entry of a million.

use std::error::Error;
use std::time::Instant;

use tribune_ledger::tree::prove;
use tribune_storage::store::{EntryLookup, Reader};

use crate::log::{self, BenchHome, median};

const ENTRIES: u64 = 1_000_000;
const SAMPLES: u64 = 200;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let home = BenchHome::new()?;
    let store = home.store()?;
    log::append(&store.writer()?, 0, ENTRIES, 512)?;
    let reader = Reader::open(&home.home)?;
    let size = reader.size()?;
    let (mut proofs, mut look_ups, mut hashes) = (Vec::new(), Vec::new(), 0);
    for sample in 0..SAMPLES {
        let index = sample * 7919 * 31 % size;
        let started = Instant::now();
        hashes = prove::inclusion(&reader, index, size)?.len();
        proofs.push(started.elapsed().as_secs_f64() * 1e3);
        let cid = reader.entry(index)?.ok_or("the entry is missing")?.entry.cid.to_string();
        let started = Instant::now();
        if !matches!(reader.lookup(&cid)?, EntryLookup::Found(found) if found.index == index) {
            return Err(format!("{cid} was not found").into());
        }
        look_ups.push(started.elapsed().as_secs_f64() * 1e3);
    }
    println!("prove: one entry of {size}");
    println!("  inclusion proof: {:.2} ms median, {hashes} hashes ({} bytes)", median(proofs), hashes * 32);
    println!("  entry by CID:    {:.2} ms median", median(look_ups));
    Ok(())
}
