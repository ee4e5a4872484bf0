//! `tribune ledger show`: one entry in full.

use serde_json::json;
use tribune_storage::store::Reader;
use tribune_storage::store::StoreError;

use super::find;
use crate::error::CliError;
use crate::output::{Output, clean};

pub(super) fn run(reader: &Reader, name: &str, output: &mut Output) -> Result<(), CliError> {
    let stored = find(reader, name)?;
    let entry = stored.entry.to_entry().map_err(StoreError::from)?;
    let value = json!({ "index": stored.index, "entry": entry });
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let parents: Vec<String> = entry.parents.iter().map(ToString::to_string).collect();
    let attested = entry.attested_by.map_or_else(|| "nobody".to_owned(), |key| key.to_string());
    let payload =
        serde_json::to_string_pretty(&entry.payload).unwrap_or_else(|_| stored.entry.payload.clone());
    output.result(
        |paint| {
            let rows = [
                ("index", stored.index.to_string()),
                ("cid", entry.cid.to_string()),
                ("quality", entry.quality.to_string()),
                ("entity", format!("{} (number {})", entry.entity_id, entry.seq)),
                ("target", entry.target.clone()),
                ("time", entry.timestamp.to_string()),
                ("actor", entry.actor.clone()),
                ("source", entry.source.clone()),
                ("parents", list(&parents)),
                ("tags", list(&entry.tags)),
                ("attested by", attested),
            ];
            let rows: Vec<String> = rows
                .iter()
                .map(|(name, value)| format!("{}{}", paint.faint(&format!("{name:<13}")), clean(value)))
                .collect();
            let payload: Vec<String> = payload.lines().map(clean).collect();
            format!("{}\n{}", rows.join("\n"), payload.join("\n"))
        },
        &value,
    )?;
    Ok(())
}
