//! Edits the configuration file: reads, changes and atomically replaces it, under a lock for one process at a time.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tribune_storage::files;
use tribune_storage::files::Secrecy;

use super::{EditError, Existing, NewProvider, with_provider};
use crate::{ConfigError, MAX_CONFIG_BYTES};

/// The text of a missing file.
const EMPTY_CONFIG: &str = "{}\n";

/// Adds a provider to the configuration at `path`. The replacement is atomic: after a crash the file is the old one or the
/// new one. A symlink at `path` stays a symlink.
pub fn add_provider(path: &Path, provider: &NewProvider, existing: Existing) -> Result<(), EditError> {
    let failed = |error| EditError::File { path: path.to_owned(), error };
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    let folder = File::open(real.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    // Two concurrent edits would each lose the other's change. Dropping the handle releases the lock.
    flock(&folder, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let name = path.to_string_lossy();
    let text =
        read(&real).map_err(|error| EditError::Before(ConfigError::Io { path: path.to_owned(), error }))?;
    let changed = with_provider(&name, &text, provider, existing)?;
    files::replace(&real, changed.as_bytes(), Secrecy::Owner).map_err(failed)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    match File::open(path) {
        // One byte more than allowed, so that the parser rejects a file that is too large.
        Ok(file) => file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_string(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(EMPTY_CONFIG.to_owned()),
        Err(error) => return Err(error),
    };
    Ok(text)
}
