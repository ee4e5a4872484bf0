//! Replaces small files atomically: a crash leaves the old content or the new one, never a part of either.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// The mode of a file: who may read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    /// 0600.
    Owner,
    /// 0644.
    Public,
}

/// Replaces the file at `path` with `content`. It is durable when this returns.
pub fn replace(path: &Path, content: &[u8], secrecy: Secrecy) -> io::Result<()> {
    replace_with(path, secrecy, |file| file.write_all(content))
}

/// Replaces the file at `path` with what `fill` writes. It is durable when this returns.
pub fn replace_with(
    path: &Path,
    secrecy: Secrecy,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = path.with_file_name(name);
    let mode = match secrecy {
        Secrecy::Owner => 0o600,
        Secrecy::Public => 0o644,
    };
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode);
        // Following a symlink planted under this name would truncate its target.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(&fresh)?;
        fill(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    write().inspect_err(|_| {
        // The error above matters; if this fails too, a stray `.new` file remains.
        let _ = std::fs::remove_file(&fresh);
    })?;
    sync_parent(path)
}

/// Syncs the parent folder of `path`, so that the names in it are durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
