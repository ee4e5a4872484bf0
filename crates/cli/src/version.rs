//! `tribune version`.

use serde_json::json;
use tribune_storage::store;

use crate::error::{CliError, CommandOutcome};
use crate::output::Output;

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn run(output: &mut Output) -> Result<CommandOutcome, CliError> {
    let built_in = store::versions();
    let value = json!({ "version": VERSION, "sqlite": built_in.sqlite, "sqlcipher": built_in.cipher });
    output.result(|_| format!("tribune {VERSION}"), &value)?;
    Ok(CommandOutcome::Done)
}
