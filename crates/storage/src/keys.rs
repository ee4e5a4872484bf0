//! The log's signing key on disk: the secret `keys/ledger.key`, which only its owner can read, and the public
//! `keys/ledger.vkey`.
//!
//! A new key, the first one too, is written to `keys/ledger.key.next`, recorded in the log, and then renamed. Wherever a crash
//! interrupts these steps, the log says which key is in force and [`signer_for`] finds it. A home with `ledger.key` and
//! without a log has lost its log. All of this happens under the home's lock.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tribune_ledger::note::KeyError;
use tribune_ledger::{Ed25519Signer, NoteSigner as _, VerifierKey};
use zeroize::Zeroizing;

use crate::files::{self, Secrecy};
use crate::home::Home;

/// Why a key cannot be used. Each sentence ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("there is no ledger key at `{0}`: restore it from a backup")]
    Missing(PathBuf),
    #[error("`{path}` has mode {mode:04o}, so others could read it: run `chmod {wanted:o} {path}`, and rotate the key if they may have", path = .path.display())]
    TooOpen { path: PathBuf, mode: u32, wanted: u32 },
    #[error("`{path}` does not hold a ledger key ({error}): restore it from a backup")]
    Unreadable { path: PathBuf, error: KeyError },
    #[error(
        "the log is signed by {in_force}, and neither key file holds that key: restore `{path}` from a backup"
    )]
    NotInForce { in_force: String, path: PathBuf },
    #[error("a key cannot have that name: {0}")]
    Name(KeyError),
    #[error("the system gave no random bytes: {0}")]
    Random(getrandom::Error),
    #[error("`{path}`: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// The path of the secret key.
pub fn secret_path(home: &Home) -> PathBuf {
    home.keys().join("ledger.key")
}

/// The path of the public key.
pub fn public_path(home: &Home) -> PathBuf {
    home.keys().join("ledger.vkey")
}

fn next_path(home: &Home) -> PathBuf {
    home.keys().join("ledger.key.next")
}

/// Generates a new key under `name`, or under a name derived from the key.
pub fn generate(name: Option<&str>) -> Result<Ed25519Signer, KeyFileError> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(KeyFileError::Random)?;
    match name {
        Some(name) => Ed25519Signer::from_seed(name, &seed),
        None => Ed25519Signer::from_seed("tribune", &seed).and_then(|key| {
            let digest = Sha256::digest(key.verifier_key().attestation_key().as_bytes());
            let id: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            Ed25519Signer::from_seed(&format!("tribune/{id}"), &seed)
        }),
    }
    .map_err(KeyFileError::Name)
}

/// Reads the key in `keys/ledger.key`.
pub fn load(home: &Home) -> Result<Ed25519Signer, KeyFileError> {
    read(home, &secret_path(home))
}

/// The signer whose key is `in_force`. Finishes a rotation that was interrupted after the log recorded it.
pub(crate) fn signer_for(home: &Home, in_force: &VerifierKey) -> Result<Ed25519Signer, KeyFileError> {
    let path = secret_path(home);
    let current = load(home);
    if let Ok(signer) = &current
        && signer.verifier_key() == in_force
    {
        return current;
    }
    let next = next_path(home);
    if next.exists() {
        let signer = read(home, &next)?;
        if signer.verifier_key() == in_force {
            adopt(home, in_force)?;
            return Ok(signer);
        }
    }
    match current {
        Ok(_) | Err(KeyFileError::Missing(_)) => {
            Err(KeyFileError::NotInForce { in_force: in_force.to_string(), path })
        }
        Err(error) => Err(error),
    }
}

/// Stores the next key beside the current one until the log has recorded it.
pub fn prepare_next(home: &Home, signer: &Ed25519Signer) -> Result<(), KeyFileError> {
    save(home, &next_path(home), signer)
}

/// Replaces the current key with the prepared one. The old secret is gone after this.
pub(crate) fn adopt(home: &Home, key: &VerifierKey) -> Result<(), KeyFileError> {
    let (from, to) = (next_path(home), secret_path(home));
    fs::rename(&from, &to).and_then(|()| files::sync_parent(&to)).map_err(|error| io_error(&to, error))?;
    publish(home, key)
}

/// Writes `key` to the public key file, unless it holds it already.
pub fn publish(home: &Home, key: &VerifierKey) -> Result<(), KeyFileError> {
    let (path, text) = (public_path(home), format!("{key}\n"));
    if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    files::replace(&path, text.as_bytes(), Secrecy::Public).map_err(|error| io_error(&path, error))
}

/// Removes the temporary files of an interrupted write of a key: they hold secrets that are not needed.
pub fn sweep(home: &Home) -> Result<(), KeyFileError> {
    let folder = home.keys();
    let entries = fs::read_dir(&folder).map_err(|error| io_error(&folder, error))?;
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "new") {
            fs::remove_file(&path).map_err(|error| io_error(&path, error))?;
        }
    }
    Ok(())
}

fn save(home: &Home, path: &Path, signer: &Ed25519Signer) -> Result<(), KeyFileError> {
    check_mode(&home.keys(), 0o700)?;
    let text = Zeroizing::new(format!("{}\n", *signer.to_secret_text()));
    files::replace(path, text.as_bytes(), Secrecy::Owner).map_err(|error| io_error(path, error))
}

fn read(home: &Home, path: &Path) -> Result<Ed25519Signer, KeyFileError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(KeyFileError::Missing(path.to_owned()));
        }
        Err(error) => return Err(io_error(path, error)),
    };
    check_mode(&home.keys(), 0o700)?;
    check_mode(path, 0o600)?;
    Ed25519Signer::from_text(text.trim_end_matches('\n'))
        .map_err(|error| KeyFileError::Unreadable { path: path.to_owned(), error })
}

fn check_mode(path: &Path, wanted: u32) -> Result<(), KeyFileError> {
    let mode = fs::metadata(path).map_err(|error| io_error(path, error))?.permissions().mode() & 0o7777;
    if mode & !wanted != 0 {
        return Err(KeyFileError::TooOpen { path: path.to_owned(), mode, wanted });
    }
    Ok(())
}

fn io_error(path: &Path, error: io::Error) -> KeyFileError {
    KeyFileError::Io { path: path.to_owned(), error }
}
