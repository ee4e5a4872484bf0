//! `tribune ledger tail`: the newest entries, one line each.

use std::time::Duration;

use serde_json::json;
use tribune_storage::home::Home;
use tribune_storage::store::StoreError;
use tribune_storage::store::{Filter, Reader, Stored};

use crate::error::CliError;
use crate::output::{Output, clean};

/// Entries a following reader takes at once.
const READ_AHEAD: usize = 256;

/// How often a following reader looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(super) fn run(
    home: &Home,
    filter: &Filter,
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
        // A snapshot is held only while a few entries are read, never while they are printed or waited for.
        let mut fresh = Vec::new();
        reader
            .for_each(next, |stored| match fresh.len() {
                READ_AHEAD => Err(Pause::Enough),
                _ => {
                    fresh.push(stored?);
                    Ok(())
                }
            })
            .or_else(Pause::unless_failed)?;
        reader.release()?;
        if fresh.is_empty() {
            std::thread::sleep(LOOK_AGAIN);
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
enum Pause {
    Enough,
    Failed(StoreError),
}

impl Pause {
    fn unless_failed(self) -> Result<(), StoreError> {
        match self {
            Self::Enough => Ok(()),
            Self::Failed(error) => Err(error),
        }
    }
}

impl From<StoreError> for Pause {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

fn print(stored: &Stored, output: &mut Output) -> Result<(), CliError> {
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
