//! Resolves the bytes that a command would execute: the executable that a program's name leads to, and the files among the
//! operands of an interpreter. Their hashes bind an approval to the content that was approved.
//!
//! Does not see what these bytes load or start later. Takes words as they are: a caller with shell text parses it first.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Maximum bytes of an executable: the largest interpreters have a fifth of this.
const MAX_EXECUTABLE_BYTES: u64 = 512 * 1024 * 1024;

/// Maximum bytes of a script.
const MAX_SCRIPT_BYTES: u64 = 16 * 1024 * 1024;

/// Maximum number of files among the operands of an interpreter.
const MAX_SCRIPTS: usize = 32;

/// Programs that execute what their operands contain. A version at the end of the name is ignored (`python3.12`).
const INTERPRETERS: [&str; 18] = [
    "sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "python", "pypy", "node", "nodejs", "deno", "bun",
    "perl", "ruby", "php", "lua", "awk",
];

/// The files that a command would execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// The path without symbolic links.
    pub(crate) executable: PathBuf,
    /// BLAKE3 of its bytes.
    pub(crate) b3: blake3::Hash,
    /// The files among the operands of an interpreter, in order.
    pub(crate) scripts: Vec<Operand>,
}

/// A file that is an operand of an interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The path without symbolic links.
    pub(crate) path: PathBuf,
    /// BLAKE3 of its bytes.
    pub(crate) b3: blake3::Hash,
}

/// Why a command cannot be resolved. Each sentence ends with what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("the command is empty: say what to run")]
    Empty,
    #[error("there is no executable program `{0}`: check its name")]
    NotFound(String),
    #[error("`{path}` has more than {most} bytes: run something smaller", path = .path.display())]
    TooLarge { path: PathBuf, most: u64 },
    #[error("the command names more than {MAX_SCRIPTS} files: name fewer")]
    TooMany,
    #[error("`{path}` cannot be read ({error}): check its mode", path = .path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Resolves `words` in `cwd`, with programs looked up in the folders of `path`.
pub(crate) fn resolve(words: &[String], cwd: &Path, path: &str) -> Result<Resolved, ResolveError> {
    let (program, operands) = words.split_first().ok_or(ResolveError::Empty)?;
    let found = find(program, cwd, path).ok_or_else(|| ResolveError::NotFound(program.clone()))?;
    let (executable, b3) =
        hashed(&found, MAX_EXECUTABLE_BYTES)?.ok_or_else(|| ResolveError::NotFound(program.clone()))?;
    let mut scripts = Vec::new();
    if is_interpreter(Path::new(program)) || is_interpreter(&executable) {
        for operand in operands {
            // `--require=a.js` names a file too.
            let value = operand.split_once('=').map(|(_, value)| value);
            for name in [Some(operand.as_str()), value].into_iter().flatten() {
                let Some((path, b3)) = hashed(&cwd.join(name), MAX_SCRIPT_BYTES)? else { continue };
                if scripts.len() == MAX_SCRIPTS {
                    return Err(ResolveError::TooMany);
                }
                scripts.push(Operand { path, b3 });
            }
        }
    }
    Ok(Resolved { executable, b3, scripts })
}

/// Finds a program as a shell does: a name with a slash is a path, any other is looked up.
fn find(program: &str, cwd: &Path, path: &str) -> Option<PathBuf> {
    if program.is_empty() {
        return None;
    }
    if program.contains('/') {
        return Some(cwd.join(program)).filter(|path| is_executable(path));
    }
    // An empty entry stands for the current folder.
    path.split(':').map(|folder| cwd.join(folder).join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn is_interpreter(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(|symbol: char| symbol.is_ascii_digit() || ".-".contains(symbol));
    INTERPRETERS.contains(&name) || ["gawk", "mawk", "nawk"].contains(&name)
}

/// The path without symbolic links and the hash of the bytes; `None` if it is not a plain file.
pub(crate) fn hashed(path: &Path, most: u64) -> Result<Option<(PathBuf, blake3::Hash)>, ResolveError> {
    // A path that cannot be found, or is not valid, is not a file.
    let Ok(path) = path.canonicalize() else { return Ok(None) };
    let failed = |error| ResolveError::Io { path: path.clone(), error };
    let mut options = File::options();
    // Neither wait for the writer of a pipe nor take a terminal.
    options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    if !fs::metadata(&path).map_err(failed)?.is_file() {
        return Ok(None);
    }
    let file = options.open(&path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Ok(None);
    }
    let mut bytes = file.take(most + 1);
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&mut bytes).map_err(failed)?;
    if hasher.count() > most {
        return Err(ResolveError::TooLarge { path, most });
    }
    Ok(Some((path, hasher.finalize())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_command_resolves_to_the_hashes_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path().canonicalize().unwrap();
        fs::create_dir(cwd.join("bin")).unwrap();
        for (name, mode) in [("bin/tool", 0o755), ("bin/plain", 0o644), ("bin/python3.12", 0o755)] {
            fs::write(cwd.join(name), name).unwrap();
            fs::set_permissions(cwd.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("python3.12", cwd.join("bin/py")).unwrap();
        fs::write(cwd.join("a.py"), "1").unwrap();
        fs::write(cwd.join("b.py"), "2").unwrap();
        let find = |text: &str| resolve(&words(text), &cwd, "/nowhere:bin");

        let tool = find("tool a.py").unwrap();
        assert_eq!(tool.executable, cwd.join("bin/tool"));
        assert_eq!((tool.b3, tool.scripts), (blake3::hash(b"bin/tool"), vec![]));
        assert_eq!(find("./bin/../bin/tool").unwrap().executable, cwd.join("bin/tool"));
        for missing in ["plain", "./tool", "bin", "./bin", "x", "", "../bin/tool"] {
            assert!(matches!(find(missing), Err(ResolveError::NotFound(_))), "{missing}");
        }
        assert!(matches!(resolve(&[], &cwd, ""), Err(ResolveError::Empty)));

        let script = |name: &str, content: &[u8]| Operand { path: cwd.join(name), b3: blake3::hash(content) };
        for interpreter in ["python3.12", "py", "./bin/py"] {
            let resolved = find(&format!("{interpreter} -u a.py --with=b.py gone.py")).unwrap();
            assert_eq!(resolved.executable, cwd.join("bin/python3.12"));
            assert_eq!(resolved.scripts, [script("a.py", b"1"), script("b.py", b"2")]);
        }
        let before = find("py a.py").unwrap();
        fs::write(cwd.join("a.py"), "other").unwrap();
        assert_ne!(find("py a.py").unwrap(), before);
        assert!(matches!(find(&format!("py {}", "a.py ".repeat(33).trim_end())), Err(ResolveError::TooMany)));
    }

    #[test]
    fn special_and_oversized_files_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path();
        rustix::fs::mkfifoat(rustix::fs::CWD, cwd.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(
            resolve(&words("sh pipe /dev/zero /"), cwd, tribune_records::exec::PATH).unwrap().scripts,
            []
        );
        File::create(cwd.join("huge")).unwrap().set_len(MAX_SCRIPT_BYTES + 1).unwrap();
        assert!(matches!(
            resolve(&words("sh huge"), cwd, tribune_records::exec::PATH),
            Err(ResolveError::TooLarge { .. })
        ));
    }
}
