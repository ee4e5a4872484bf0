//! Writing small files so that a crash leaves the old one or the new one, never a piece of either.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    /// 0600.
    Owner,
    /// 0644.
    Public,
}

/// Puts `content` in place of `path`, durable when this returns.
pub fn replace(path: &Path, content: &[u8], secrecy: Secrecy) -> io::Result<()> {
    replace_with(path, secrecy, |file| file.write_all(content))
}

/// Puts what `fill` writes in place of `path`, durable when this returns.
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
        // A link planted under this name would have its target emptied.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = options.open(&fresh)?;
        fill(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    write().inspect_err(|_| {
        // The error that matters is the one above; what is left behind is a stray `.new` file.
        let _ = std::fs::remove_file(&fresh);
    })?;
    sync_parent(path)
}

/// Makes the names in the folder of `path` durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
