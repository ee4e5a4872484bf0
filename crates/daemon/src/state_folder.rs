//! Folders and first files of the state folder. The store, which locks it, makes its own.

use std::path::Path;

use tribune_storage::files;
use tribune_storage::files::Secrecy;
use tribune_storage::home::Home;

use crate::start_error::StartError;

/// Makes the folders of the state folder that several parts of the daemon use.
pub(crate) fn make_folders(home: &Home) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt as _;
    for folder in ["data", "agents", "logs"] {
        let path = home.root().join(folder);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|error| StartError::File { path, error })?;
    }
    Ok(())
}

/// Writes a file unless it exists. Returns whether it was written.
pub fn write_if_missing(path: &Path, content: &[u8]) -> Result<bool, StartError> {
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    files::replace(path, content, Secrecy::Owner)
        .map_err(|error| StartError::File { path: path.to_owned(), error })?;
    Ok(true)
}
