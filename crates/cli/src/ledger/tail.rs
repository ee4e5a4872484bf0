//! `tribune ledger tail`: the newest entries, one line each.

use std::time::Duration;

use serde_json::json;
use tribune_host::Home;
use tribune_host::store::{Filter, Reader, Stored};

use crate::error::CliError;
use crate::output::Output;

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
        std::thread::sleep(LOOK_AGAIN);
        reader.refresh()?;
        reader.for_each(next, |stored| {
            let stored = stored?;
            next = stored.index + 1;
            if filter.passes(&stored) {
                print(&stored, output)?;
            }
            Ok::<(), CliError>(())
        })?;
    }
}

fn print(stored: &Stored, output: &mut Output) -> Result<(), CliError> {
    let entry = &stored.entry;
    let value =
        json!({ "index": stored.index, "entry": entry.to_entry().map_err(tribune_host::StoreError::from)? });
    output.result(
        |paint| {
            format!(
                "{:>7}  {}  {:<17} {}  {}  {}",
                stored.index,
                paint.faint(&entry.timestamp.to_string()),
                entry.quality,
                entry.entity_id,
                entry.target,
                paint.faint(&entry.cid.to_string()[..15]),
            )
        },
        &value,
    )?;
    Ok(())
}
