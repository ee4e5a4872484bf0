//! The errors of the store, each with a sentence and a next step.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use tribune_ledger::Cid;
use tribune_ledger::entry::FieldError;
use tribune_runtime::{ErrorKind, RuntimeError};

use crate::home::HomeError;
use crate::keys::KeyFileError;

/// Why the store cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error("there is no ledger in `{0}` yet: `tribune up` begins one")]
    NoLedger(PathBuf),
    #[error(
        "`{path}` was written by a newer version (format {found}; this one knows {known}): update tribune"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("`{0}` is not a Tribune database: name another home with --home")]
    NotOurs(PathBuf),
    #[error(
        "`{path}` is damaged ({what}): copy the folder away, restore the last good copy, and run `tribune ledger verify --checkpoint FILE` with a checkpoint kept elsewhere to see whether anything is missing"
    )]
    Damaged { path: PathBuf, what: String },
    #[error("the write-ahead log `{path}` cannot be used ({what}): restore it and the databases from one copy, or, if it is lost for good, move it aside with `tribune ledger rebuild --without-daybook` and go on with what the databases have", path = .path.display())]
    WriteAheadLog { path: PathBuf, what: String },
    #[error("`{path}` holds no log, but `{key}` has signed one: restore the database from a backup, or move the keys folder away to begin another log", path = .path.display(), key = .key.display())]
    LogIsGone { path: PathBuf, key: PathBuf },
    #[error("the vault's key `{path}` cannot be used ({what}): restore it from a backup, or move `vault.db` away to start another vault; all content of earlier sessions is then lost", path = .path.display())]
    VaultKey { path: PathBuf, what: &'static str },
    #[error("the disk of `{0}` is full, nothing of this was acknowledged: free some space and start again")]
    DiskFull(PathBuf),
    #[error(
        "the disk of `{path}` failed ({what}), nothing of this was acknowledged: check the disk and start again"
    )]
    Io { path: PathBuf, what: String },
    #[error("the store is read-only since an earlier error: {0}")]
    ReadOnly(String),
    #[error("the store was closed")]
    Closed,
    #[error("content could not be encrypted, so nothing was recorded: {0}")]
    Sealing(String),
    #[error("the entry is refused: {0}")]
    Entry(#[from] FieldError),
    #[error("the entry is refused: its parent {0} is not in the log")]
    NoSuchParent(Cid),
    #[error(
        "the entry is refused: its sequence number is {found}, and the next one of its entity is {expected}"
    )]
    OutOfTurn { expected: u64, found: u64 },
    #[error("the entry is refused: its CID does not match its content")]
    WrongCid,
    #[error("the entry is refused: {0}")]
    Proof(#[from] tribune_ledger::proof::ProofError),
    #[error("at most {limit} {what} may be appended at once")]
    TooMuchAtOnce { what: &'static str, limit: usize },
    #[error(
        "the entry is refused: the history `{0}` is for changes of the log's key, which `tribune keys rotate` writes"
    )]
    Reserved(&'static str),
}

impl StoreError {
    /// What an SQLite error about the database at `path` means.
    pub(crate) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_owned();
        let what = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull(path),
            // SQLite reports a missing table or column as `Unknown`.
            Some(
                ErrorCode::NotADatabase
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::ConstraintViolation
                | ErrorCode::Unknown,
            ) => Self::Damaged { path, what },
            Some(ErrorCode::ReadOnly) => HomeError::ReadOnlyDisk(path).into(),
            Some(ErrorCode::PermissionDenied) => HomeError::NotWritable(path).into(),
            _ => match error {
                // A column does not hold a value of the type that the store writes.
                rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::FromSqlConversionFailure(..) => Self::Damaged { path, what },
                _ => Self::Io { path, what },
            },
        }
    }
}

/// A storage error as a turn and its client see it. The sentence names files of this home, never content.
impl From<StoreError> for RuntimeError {
    fn from(error: StoreError) -> Self {
        Self::new(ErrorKind::Storage, error.to_string())
    }
}
