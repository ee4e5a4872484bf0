//! Reads the law of a home: `constitution.md` and `mandates/*.md`. Where nobody wrote any, the built-in texts hold.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use tribune_constitution::{
    Constitution, ConstitutionError, DEFAULT_CONSTITUTION, DEFAULT_MANDATE, DEFAULT_MANDATE_TEXT,
};

use crate::tools;

/// Files read at most: more than a constitution may have mandates, so that too many are refused and not overlooked.
const MAX_FILES: usize = 1_000;

/// Bytes read of one file; the constitution's own bounds are tighter.
const MAX_BYTES: u64 = 1 << 20;

/// Why the law could not be read. Nothing starts without it.
#[derive(Debug, thiserror::Error)]
pub enum LawError {
    #[error("`{path}` cannot be read ({error}): mend it, or remove it to go back to the built-in text", path = .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("`{path}` holds more than {MAX_FILES} files: keep mandates only there", path = .path.display())]
    TooManyFiles { path: PathBuf },
    #[error("the law in `{path}` is refused: {error}", path = .path.display())]
    Refused { path: PathBuf, error: Box<ConstitutionError> },
}

/// Reads the law of the home at `root`.
pub fn load(root: &Path) -> Result<Constitution, LawError> {
    let text = read(&root.join("constitution.md"))?.unwrap_or_else(|| DEFAULT_CONSTITUTION.to_owned());
    let folder = root.join("mandates");
    let mut mandates = Vec::new();
    for path in markdown_files(&folder)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(text) = read(&path)? {
            mandates.push((name, text));
        }
    }
    if !mandates.iter().any(|(name, _)| name == DEFAULT_MANDATE) {
        mandates.push((DEFAULT_MANDATE.to_owned(), DEFAULT_MANDATE_TEXT.to_owned()));
    }
    Constitution::new(text, mandates, &tools::NAMES)
        .map_err(|error| LawError::Refused { path: root.to_owned(), error: error.into() })
}

fn markdown_files(folder: &Path) -> Result<Vec<PathBuf>, LawError> {
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
        if path.extension().is_some_and(|extension| extension == "md") {
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
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}
