//! Opens databases, with the settings that the writers rely on. No other code opens one.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::error::StoreError;
use super::schema;
use crate::files;
use crate::home::HomeError;

/// Page cache per connection, in KiB: enough for the hot pages of the writer, and small for an idle daemon.
const CACHE_KIB: i64 = 4096;

/// How long to wait for a lock. Only opening and schema changes wait for one.
const BUSY: Duration = Duration::from_secs(5);

/// Prepared statements kept per connection: more than the store has.
const STATEMENTS: usize = 64;

/// Bytes of the smallest page that SQLite supports, and so of the smallest database.
const SMALLEST: u64 = 512;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The single writer. The caller holds the home's lock.
    Write,
    /// A reader. It sees one snapshot per transaction and never waits for the writer.
    Read,
}

/// Opens the database at `path`; as writer, creates it if it is missing.
pub(super) fn open(path: &Path, access: Access) -> Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| StoreError::from_sqlite(path, &error);
    let connection = match access {
        Access::Write => {
            create_file(path)?;
            refuse_stubs(path)?;
            connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?
        }
        Access::Read => open_reader(path)?,
    };
    if access == Access::Write {
        // The page size counts only before the first page is written. 8 KiB holds several entries, which halves the
        // frames a batch writes.
        connection.execute_batch("PRAGMA page_size = 8192;").map_err(failed)?;
    }
    set_up(&connection, access, path)?;
    schema::check(&connection, path)?;
    Ok(connection)
}

/// Opens the SQLCipher database at `path` under a raw key of 64 hex digits; as writer, creates it if it is missing.
pub(crate) fn open_keyed(path: &Path, key: &str, access: Access) -> Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| StoreError::from_sqlite(path, &error);
    let flags = match access {
        Access::Write => {
            create_file(path)?;
            OpenFlags::SQLITE_OPEN_READ_WRITE
        }
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let connection = connect(path, flags).map_err(failed)?;
    // A build without a cipher would take the key and write in the clear.
    let cipher: Option<String> =
        connection.query_row("PRAGMA cipher_version", [], |row| row.get(0)).optional().map_err(failed)?;
    if cipher.is_none_or(|version| version.is_empty()) {
        let what = "this build of SQLite has no cipher".to_owned();
        return Err(StoreError::Io { path: path.to_owned(), what });
    }
    connection.execute_batch("PRAGMA cipher_log_level = NONE;").map_err(failed)?;
    let pragma = zeroize::Zeroizing::new(format!("PRAGMA key = \"x'{key}'\";"));
    connection.execute_batch(&pragma).map_err(failed)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(failed)?;
    set_up(&connection, access, path)?;
    Ok(connection)
}

fn set_up(connection: &Connection, access: Access, path: &Path) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| StoreError::from_sqlite(path, &error);
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let settings = format!(
        "PRAGMA cache_size = -{CACHE_KIB};
         PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF;
         PRAGMA cell_size_check = ON;
         PRAGMA foreign_keys = ON;"
    );
    connection.execute_batch(&settings).map_err(failed)?;
    if access == Access::Write {
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
        if mode != "wal" {
            let what = format!("its filesystem cannot hold a write-ahead log (journal mode stayed `{mode}`)");
            return Err(StoreError::Io { path: path.to_owned(), what });
        }
        // NORMAL: a commit alone is not synced. Its records are in Tribune's WAL, or the writer syncs SQLite's log before it
        // replies (`super::sqlite_wal`). The writer also decides when to checkpoint.
        connection
            .execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;")
            .map_err(failed)?;
    }
    Ok(())
}

/// A temporary database, deleted when it is closed.
pub(super) fn scratch() -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = connect(Path::new(""), flags)?;
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")?;
    Ok(connection)
}

#[expect(clippy::disallowed_methods, reason = "this function is the only place that opens a connection")]
fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

/// Creates an empty database file that only its owner can read, and makes its name durable. SQLite gives its side files the
/// same mode.
fn create_file(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => files::sync_parent(path)
            .map_err(|error| StoreError::Io { path: path.to_owned(), what: error.to_string() }),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(match error.kind() {
            std::io::ErrorKind::PermissionDenied => HomeError::NotWritable(path.to_owned()).into(),
            std::io::ErrorKind::ReadOnlyFilesystem => HomeError::ReadOnlyDisk(path.to_owned()).into(),
            std::io::ErrorKind::StorageFull => StoreError::DiskFull(path.to_owned()),
            _ => StoreError::Io { path: path.to_owned(), what: error.to_string() },
        }),
    }
}

/// Refuses a file that is too short to be a database. SQLite takes a file shorter than its header for an empty database and
/// overwrites it; it checks longer files itself. This does not open the file: closing it again would release the locks that
/// SQLite holds on it in this process, and another program could then believe that it is the only one and delete the log.
fn refuse_stubs(path: &Path) -> Result<(), StoreError> {
    match std::fs::metadata(path) {
        Ok(found) if (1..SMALLEST).contains(&found.len()) => {
            Err(StoreError::Damaged { path: path.to_owned(), what: "file is not a database".to_owned() })
        }
        Ok(_) => Ok(()),
        Err(error) => Err(StoreError::Io { path: path.to_owned(), what: error.to_string() }),
    }
}

fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let failed = |error: rusqlite::Error| StoreError::from_sqlite(path, &error);
    match std::fs::metadata(path) {
        Ok(found) if found.len() > 0 => refuse_stubs(path)?,
        Ok(_) => return Err(StoreError::NoLedger(path.parent().unwrap_or(path).to_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(StoreError::Io {
                path: path.to_owned(),
                what: "this user may not read it".to_owned(),
            });
        }
        Err(_) => return Err(StoreError::NoLedger(path.parent().unwrap_or(path).to_owned())),
    }
    let probe = |connection: Connection| {
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map(|()| connection)
    };
    let error = match connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(probe) {
        Ok(connection) => return Ok(connection),
        Err(error) => error,
    };
    // Readers of SQLite's write-ahead log need a shared-memory file beside it. A read-only disk cannot have one, and none is
    // needed if the log is empty.
    let log = path.with_file_name("tribune.db-wal");
    let log_is_empty = std::fs::metadata(&log).map_or(true, |log| log.len() == 0);
    let unwritable = matches!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::ReadOnly)
    );
    if !(log_is_empty && unwritable) {
        return Err(failed(error));
    }
    let uri = format!("file:{}?immutable=1", percent_encode(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    connect(Path::new(&uri), flags).and_then(probe).map_err(failed)
}

fn percent_encode(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let keep = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    path.as_os_str()
        .as_bytes()
        .iter()
        .map(|byte| if keep(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database of SQLCipher 4.12 over OpenSSL 3.6, under [`FIXTURE_KEY`].
    const WRITTEN_WITH_OPENSSL: &[u8] = include_bytes!("../../fixtures/written_with_openssl.db");
    const FIXTURE_KEY: &str = "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5";

    fn fixture(folder: &tempfile::TempDir) -> std::path::PathBuf {
        let path = folder.path().join("keyed.db");
        std::fs::write(&path, WRITTEN_WITH_OPENSSL).unwrap();
        path
    }

    #[test]
    fn a_database_written_with_openssl_opens() {
        let folder = tempfile::tempdir().unwrap();
        let keyed = open_keyed(&fixture(&folder), FIXTURE_KEY, Access::Write).unwrap();
        let text: String = keyed.query_row("SELECT text FROM texts", [], |row| row.get(0)).unwrap();
        assert_eq!(text, "written with OpenSSL");
    }

    #[test]
    fn a_wrong_key_or_a_changed_page_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = fixture(&folder);
        assert!(open_keyed(&path, &FIXTURE_KEY.replace('a', "b"), Access::Read).is_err());
        let mut bytes = WRITTEN_WITH_OPENSSL.to_vec();
        bytes[100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(open_keyed(&path, FIXTURE_KEY, Access::Read).is_err());
    }
}
