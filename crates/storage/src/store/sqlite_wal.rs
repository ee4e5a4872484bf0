//! Syncs SQLite's own write-ahead log of a database, for commits that must be durable without Tribune's WAL.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::error::StoreError;

/// The SQLite write-ahead log of one database.
#[derive(Debug)]
pub(crate) struct SqliteWal {
    database: PathBuf,
    file: Option<File>,
}

impl SqliteWal {
    pub(crate) fn of(database: &Path) -> Self {
        Self { database: database.to_owned(), file: None }
    }

    /// Syncs the log: everything that was committed is on disk when this returns.
    pub(crate) fn sync(&mut self) -> Result<(), StoreError> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut path: OsString = self.database.clone().into();
                path.push("-wal");
                // SQLite creates the file with the first commit and keeps it while the database is open.
                match File::open(path) {
                    Ok(file) => file,
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                    Err(error) => return Err(self.failed(&error)),
                }
            }
        };
        file.sync_data().map_err(|error| self.failed(&error))?;
        self.file = Some(file);
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> StoreError {
        let what = match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::IO.raw_os_error() => "disk I/O error".to_owned(),
            _ => error.to_string(),
        };
        StoreError::Io { path: self.database.clone(), what }
    }
}
