//! Writes log files of bounded size and number.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;

/// A log file that is rotated when it is full. `tribune.log` is the newest file, `tribune.1.log` the one before it.
#[derive(Debug, Clone)]
pub struct RotatingFile {
    inner: Arc<Mutex<Rotating>>,
}

#[derive(Debug)]
struct Rotating {
    folder: PathBuf,
    file: File,
    bytes: u64,
    max_bytes: u64,
    files: usize,
}

impl RotatingFile {
    pub fn open(folder: &Path, max_bytes: u64, files: usize) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let file = newest(folder)?;
        let bytes = file.metadata()?.len();
        let inner = Rotating { folder: folder.to_owned(), file, bytes, max_bytes, files };
        Ok(Self { inner: Arc::new(Mutex::new(inner)) })
    }
}

fn newest(folder: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options.open(folder.join("tribune.log"))
}

impl Rotating {
    fn rotate(&mut self) -> io::Result<()> {
        let name = |n: usize| match n {
            0 => self.folder.join("tribune.log"),
            n => self.folder.join(format!("tribune.{n}.log")),
        };
        for n in (0..self.files.saturating_sub(1)).rev() {
            match fs::rename(name(n), name(n + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.files <= 1 {
            fs::remove_file(name(0))?;
        }
        self.file = newest(&self.folder)?;
        self.bytes = 0;
        Ok(())
    }
}

impl Write for &RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.bytes > 0 && inner.bytes + line.len() as u64 > inner.max_bytes {
            inner.rotate()?;
        }
        inner.file.write_all(line)?;
        inner.bytes += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_bounds_the_size_and_number_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let logs = folder.path().join("logs");
        let file = RotatingFile::open(&logs, 100, 3).unwrap();
        for n in 0..100 {
            writeln!(&file, "line {n} of the log, which is not short").unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(&logs)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["tribune.1.log", "tribune.2.log", "tribune.log"]);
        for name in names {
            assert!(fs::metadata(logs.join(name)).unwrap().len() <= 100);
        }
        let newest = fs::read_to_string(logs.join("tribune.log")).unwrap();
        assert!(newest.contains("line 99"), "{newest}");
    }
}
