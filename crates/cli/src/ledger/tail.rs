//! `tribune ledger tail`: the newest entries, one line each.

use std::time::Duration;

use serde_json::json;
use tribune_storage::home::Home;
use tribune_storage::store::StoreError;
use tribune_storage::store::{EntryFilter, Reader, StoredEntry};

use crate::error::CliError;
use crate::output::{Output, clean};

/// Entries that `--follow` reads at a time.
const READ_AHEAD: usize = 256;

/// Interval at which `--follow` polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn run(
    home: &Home,
    filter: &EntryFilter,
    lines: usize,
    follow: bool,
    output: &mut Output,
) -> Result<(), CliError> {
    let reader = Reader::open(home)?;
    let mut next = reader.size()?;
    for stored in reader.tail(filter, lines)? {
        print(&stored, output)?;
    }
    if !follow {
        return Ok(());
    }
    loop {
        // The read snapshot is held only while a few entries are read, never while printing or waiting.
        let mut fresh = Vec::new();
        reader
            .for_each(next, |stored| match fresh.len() {
                READ_AHEAD => Err(StopReading::Enough),
                _ => {
                    fresh.push(stored?);
                    Ok(())
                }
            })
            .or_else(StopReading::into_result)?;
        reader.release()?;
        if fresh.is_empty() {
            std::thread::sleep(POLL_INTERVAL);
        }
        for stored in fresh {
            next = stored.index + 1;
            if filter.passes(&stored) {
                print(&stored, output)?;
            }
        }
        reader.refresh()?;
    }
}

/// Why reading stopped.
enum StopReading {
    Enough,
    Failed(StoreError),
}

impl StopReading {
    fn into_result(self) -> Result<(), StoreError> {
        match self {
            Self::Enough => Ok(()),
            Self::Failed(error) => Err(error),
        }
    }
}

impl From<StoreError> for StopReading {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

fn print(stored: &StoredEntry, output: &mut Output) -> Result<(), CliError> {
    let entry = &stored.entry;
    let value = json!({ "index": stored.index, "entry": entry.to_entry().map_err(StoreError::from)? });
    output.result(
        |paint| {
            format!(
                "{:>7}  {}  {:<17} {}  {}  {}",
                stored.index,
                paint.faint(&entry.timestamp.to_string()),
                entry.quality,
                clean(&entry.entity_id),
                clean(&entry.target),
                paint.faint(&entry.cid.to_string()[..15]),
            )
        },
        &value,
    )?;
    Ok(())
}
