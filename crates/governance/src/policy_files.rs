//! Reads the law of a home: `constitution.md`, `mandates/*.md`, `manifests/*.json`, `policy/*.cedar` and
//! `policy/law.json5`. The built-in texts apply where a file is missing. [`policy_archive`](crate::policy_archive) keeps
//! every law that was in force.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tribune_constitution::{Constitution, ConstitutionError, ConstitutionHash, KERNEL_VERSION, LawTexts};

pub use crate::policy_archive::{keep, kept};

/// Maximum number of files that are read: more than a constitution may have mandates, so that too many are rejected and
/// not overlooked.
const MAX_FILES: usize = 1_000;

/// Maximum size of one file; the bounds of the constitution are tighter.
const MAX_BYTES: u64 = 1 << 20;

/// Why the law could not be read. The daemon does not start without it.
#[derive(Debug, thiserror::Error)]
pub enum LawError {
    #[error("`{path}` cannot be read ({error}): fix it, or remove it to use the built-in text", path = .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{path}:{line}:{column}: this is not UTF-8: save the file as UTF-8 text", path = .path.display())]
    NotText { path: PathBuf, line: usize, column: usize },
    #[error("`{path}` has more than {MAX_BYTES} bytes: shorten it", path = .path.display())]
    TooLarge { path: PathBuf },
    #[error("`{path}` holds more than {MAX_FILES} files: keep only the law there", path = .path.display())]
    TooManyFiles { path: PathBuf },
    #[error("the law in `{path}` is not valid: {error}", path = .path.display())]
    Refused { path: PathBuf, error: Box<ConstitutionError> },
    #[error("the law in force cannot be stored in `{path}` ({error}): free some space, or let the daemon write there", path = .path.display())]
    Keep { path: PathBuf, error: io::Error },
    #[error(
        "the texts of the law {0} are not stored here: look for them in a copy of the home from that time"
    )]
    NotKept(ConstitutionHash),
    #[error("`{path}` was changed and does not match its hash: restore a copy of it", path = .path.display())]
    Altered { path: PathBuf },
    #[error(
        "the law {hash} was made for another kernel ({kernel}; this one is {KERNEL_VERSION}): use the version of tribune that wrote it"
    )]
    OtherKernel { hash: ConstitutionHash, kernel: String },
}

/// Reads the law of the home at `root`. `tools` are the names of the built-in tools.
pub fn load(root: &Path, tools: &[&str]) -> Result<Constitution, LawError> {
    let texts = texts(root)?;
    Constitution::new(texts, tools)
        .map_err(|error| LawError::Refused { path: root.to_owned(), error: error.into() })
}

/// The texts of the home at `root`, not validated.
pub fn texts(root: &Path) -> Result<LawTexts, LawError> {
    let mut texts = LawTexts::built_in();
    if let Some(text) = read(&root.join("constitution.md"))? {
        texts.constitution = text;
    }
    for (name, text) in folder(&root.join("mandates"), "md")? {
        texts.mandates.insert(name, text);
    }
    for (name, text) in folder(&root.join("manifests"), "json")? {
        texts.manifests.insert(name, text);
    }
    for (name, text) in folder(&root.join("policy"), "cedar")? {
        texts.policies.insert(format!("{name}.cedar"), text);
    }
    texts.law = read(&root.join("policy").join("law.json5"))?;
    Ok(texts)
}

/// The files of a folder with this extension, by name without it.
fn folder(folder: &Path, extension: &str) -> Result<Vec<(String, String)>, LawError> {
    let mut found = Vec::new();
    for path in files(folder, extension)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(text) = read(&path)? {
            found.push((name, text));
        }
    }
    Ok(found)
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, LawError> {
    let failed = |error| LawError::Io { path: folder.to_owned(), error };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for (n, entry) in entries.enumerate() {
        if n >= MAX_FILES {
            return Err(LawError::TooManyFiles { path: folder.to_owned() });
        }
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Option<String>, LawError> {
    let failed = |error| LawError::Io { path: path.to_owned(), error };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(LawError::TooLarge { path: path.to_owned() });
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or_default());
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        LawError::NotText { path: path.to_owned(), line, column }
    })
}
