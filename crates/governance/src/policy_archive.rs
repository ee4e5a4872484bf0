//! The archive of every law that was in force, so that its verdicts can be decided again: `constitutions/<hash>.json`
//! in the home.
//!
//! A file holds exactly the bytes that its name is the hash of, so that a change is detected.

use std::fs::DirBuilder;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;
use serde_json::{Value, json};
use tribune_constitution::{Constitution, ConstitutionHash, KERNEL_VERSION, LawTexts};
use tribune_ledger::cid::Domain;
use tribune_storage::files;
use tribune_storage::files::Secrecy;

use super::policy_files::LawError;

/// The folder in the home.
const FOLDER: &str = "constitutions";

/// Maximum size of one file: several times what all texts together may have.
const MAX_BYTES: u64 = 64 << 20;

/// The content of a file: the texts and the kernel, in the form that is hashed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArchivedLaw {
    constitution: String,
    mandates: std::collections::BTreeMap<String, String>,
    manifests: std::collections::BTreeMap<String, String>,
    policies: std::collections::BTreeMap<String, String>,
    law: Option<String>,
    kernel: Value,
}

/// Stores the texts of a law. Does nothing if they are stored already.
pub fn keep(root: &Path, law: &Constitution) -> Result<(), LawError> {
    let path = path(root, law.hash());
    let failed = |error| LawError::Keep { path: path.clone(), error };
    let canonical = law.canonical().map_err(|error| failed(io::Error::other(error)))?;
    if read(&path).is_ok_and(|kept| kept == canonical) {
        return Ok(());
    }
    let folder = root.join(FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
    files::replace(&path, &canonical, Secrecy::Owner).map_err(failed)
}

/// The law with this hash, if its texts were stored and are unchanged. `tools` are the names of the built-in tools.
pub fn kept(root: &Path, hash: ConstitutionHash, tools: &[&str]) -> Result<Constitution, LawError> {
    let path = path(root, hash);
    let bytes = match read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(LawError::NotKept(hash)),
        Err(error) => return Err(LawError::Io { path, error }),
    };
    if Domain::Constitution.hash(&[&bytes]) != *hash.as_bytes() {
        return Err(LawError::Altered { path });
    }
    let Ok(ArchivedLaw { constitution, mandates, manifests, policies, law, kernel }) =
        serde_json::from_slice(&bytes)
    else {
        // A file with the right hash was written by `keep`, so another version wrote it.
        return Err(LawError::OtherKernel { hash, kernel: "unknown".to_owned() });
    };
    if kernel != json!(KERNEL_VERSION) {
        return Err(LawError::OtherKernel { hash, kernel: kernel.to_string() });
    }
    let texts = LawTexts { constitution, mandates, manifests, policies, law };
    Constitution::new(texts, tools).map_err(|error| LawError::Refused { path, error: error.into() })
}

fn path(root: &Path, hash: ConstitutionHash) -> PathBuf {
    let name = hash.to_string();
    root.join(FOLDER).join(format!("{}.json", name.trim_start_matches("b3:")))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The built-in manifests describe the tools that the built-in mandates name.
    const TOOLS: &[&str] = &[];

    #[test]
    fn a_law_is_stored_under_its_hash_and_a_change_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let mut texts = LawTexts::built_in();
        texts.law = Some("{mode: 'audit'}".to_owned());
        let law = Constitution::new(texts, TOOLS).unwrap();
        assert!(matches!(kept(root, law.hash(), TOOLS), Err(LawError::NotKept(_))));
        keep(root, &law).unwrap();
        let loaded = kept(root, law.hash(), TOOLS).unwrap();
        assert_eq!((loaded.hash(), loaded.texts()), (law.hash(), law.texts()));

        let path = path(root, law.hash());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("audit", "off")).unwrap();
        assert!(matches!(kept(root, law.hash(), TOOLS), Err(LawError::Altered { .. })));
        keep(root, &law).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "restored by the next start");

        let (other, hash) = (text.replace("\"kernel\":", "\"kernel\":1"), |text: &str| {
            let bytes = Domain::Constitution.hash(&[text.as_bytes()]);
            tribune_ledger::Cid::from_bytes(bytes).to_string().parse::<ConstitutionHash>().unwrap()
        });
        fs::write(super::path(root, hash(&other)), &other).unwrap();
        assert!(matches!(kept(root, hash(&other), TOOLS), Err(LawError::OtherKernel { .. })));
    }
}
