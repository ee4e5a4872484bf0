//! The file that is changed: read, changed and put in place of itself by one process at a time.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tribune_storage::files;
use tribune_storage::files::Secrecy;

use super::{EditError, Existing, NewProvider, with_provider};
use crate::{ConfigError, MAX_CONFIG_BYTES};

/// A file that is not there says nothing.
const NOTHING: &str = "{}\n";

/// Adds a provider to the configuration at `path`. Whatever happens, the file is the old one or the new one; a link to it
/// stays a link.
pub fn add_provider(path: &Path, provider: &NewProvider, existing: Existing) -> Result<(), EditError> {
    let failed = |error| EditError::File { path: path.to_owned(), error };
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(failed(error)),
    };
    let folder = File::open(real.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    // Two who add at the same time would each forget the other. Given up with the handle.
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
        // One byte more than may be there, for the reader to refuse.
        Ok(file) => file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_string(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(NOTHING.to_owned()),
        Err(error) => return Err(error),
    };
    Ok(text)
}
