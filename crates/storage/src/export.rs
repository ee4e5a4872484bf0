//! Exports the log to a folder that any third party can verify with tools of their own.
//!
//! `entries.jsonl` holds every entry in canonical form, one per line; `checkpoint` the signed root over them; `ledger.vkey`
//! the public key; `tile/` the tree in the layout of C2SP tlog-tiles. An export contains nothing else.

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use tribune_ledger::Cid;
use tribune_ledger::tree::Hash;
use tribune_ledger::tree::tile::{self, TileEdge};

use crate::store::{Reader, StoreError};

/// The file of the entries, one canonical line each.
pub const ENTRIES: &str = "entries.jsonl";
/// The file of the signed root over the entries.
pub const CHECKPOINT: &str = "checkpoint";
/// The file of the public key that signed the checkpoint.
pub const KEY: &str = "ledger.vkey";

/// Entries between two reports of progress.
const PROGRESS_EVERY: u64 = 4096;

/// Why an export failed. Nothing is left under the name that was given.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("`{0}` exists already: name a folder that does not exist yet")]
    Exists(PathBuf),
    #[error("`{path}`: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// Writes the log as `reader` sees it to the new folder `to`, which appears once it is complete.
pub fn write(reader: &Reader, to: &Path, progress: &mut dyn FnMut(u64)) -> Result<u64, ExportError> {
    if to.symlink_metadata().is_ok() {
        return Err(ExportError::Exists(to.to_owned()));
    }
    let mut name = to.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = to.with_file_name(name);
    let written = write_folder(reader, &partial, progress).and_then(|entries| {
        fs::rename(&partial, to).map_err(|error| io_error(to, error))?;
        Ok(entries)
    });
    if written.is_err() {
        // The first error matters; if this fails too, a folder named `.partial` remains.
        let _ = fs::remove_dir_all(&partial);
    }
    written
}

fn write_folder(reader: &Reader, folder: &Path, progress: &mut dyn FnMut(u64)) -> Result<u64, ExportError> {
    create_dir(folder)?;
    let path = folder.join(ENTRIES);
    let mut entries = BufWriter::new(File::create(&path).map_err(|error| io_error(&path, error))?);
    let mut tiles = Tiles { folder, edge: TileEdge::default(), bundle: Vec::new() };
    let mut line = Vec::with_capacity(4096);
    let mut written = 0;
    reader.for_each(0, |stored| {
        let stored = stored?;
        line.clear();
        stored.entry.write_line(&mut line);
        line.push(b'\n');
        entries.write_all(&line).map_err(|error| io_error(&path, error))?;
        tiles.push(stored.entry.cid)?;
        written += 1;
        if written % PROGRESS_EVERY == 0 {
            progress(written);
        }
        Ok::<(), ExportError>(())
    })?;
    let file = entries.into_inner().map_err(|error| io_error(&path, error.into_error()))?;
    file.sync_all().map_err(|error| io_error(&path, error))?;
    tiles.finish()?;
    write_file(&folder.join(CHECKPOINT), reader.checkpoint()?.as_bytes())?;
    write_file(&folder.join(KEY), format!("{}\n", reader.key_in_force()?).as_bytes())?;
    Ok(written)
}

struct Tiles<'a> {
    folder: &'a Path,
    edge: TileEdge,
    bundle: Vec<Cid>,
}

impl Tiles<'_> {
    fn push(&mut self, cid: Cid) -> Result<(), ExportError> {
        self.bundle.push(cid);
        for full in self.edge.push(Hash::leaf(&cid)) {
            self.write(&tile::path(full.id, tile::WIDTH), &tile::to_bytes(&full.hashes))?;
            if full.id.level == 0 {
                self.write(
                    &tile::bundle_path(full.id.index, tile::WIDTH),
                    &tile::bundle_bytes(&self.bundle),
                )?;
                self.bundle.clear();
            }
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), ExportError> {
        for (id, hashes) in self.edge.partial() {
            let width = hashes.len() as u64;
            self.write(&tile::path(id, width), &tile::to_bytes(hashes))?;
            if id.level == 0 {
                self.write(&tile::bundle_path(id.index, width), &tile::bundle_bytes(&self.bundle))?;
            }
        }
        Ok(())
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), ExportError> {
        let path = self.folder.join(path);
        create_dir(path.parent().unwrap_or(self.folder))?;
        write_file(&path, bytes)
    }
}

fn create_dir(path: &Path) -> Result<(), ExportError> {
    DirBuilder::new().recursive(true).create(path).map_err(|error| io_error(path, error))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ExportError> {
    fs::write(path, bytes).map_err(|error| io_error(path, error))
}

fn io_error(path: &Path, error: io::Error) -> ExportError {
    ExportError::Io { path: path.to_owned(), error }
}
