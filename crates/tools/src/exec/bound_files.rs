//! The files that decide what a command runs, with the hashes of their content, and what of them cannot be told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::Stat;
use tokio_util::sync::CancellationToken;
use tribune_constitution::command::{RunInputs, run_inputs};
use tribune_governance::turn::CallDependencies;
use tribune_records::approval::action::ABSENT;
use tribune_records::text::shown;

use super::command_view::{CommandView, SeenFile, SeenPath};
use super::tree_stamp::tree_stamp;
use crate::call_dependencies::keep;

/// Files of one command.
const MAX_FILES: usize = 64;

/// Bytes of all files of one command.
const MAX_BYTES: u64 = 512 << 20;

/// Bytes between two looks at whether the result is still wanted.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes of a file whose text may be shown.
const MAX_TEXT_BYTES: u64 = 64 << 10;

/// Programs of the system whose hashes are remembered.
const MAX_REMEMBERED: usize = 64;

/// Hashes of the system's programs by device, inode, size and change time.
static REMEMBERED: Mutex<BTreeMap<FileIdentity, String>> = Mutex::new(BTreeMap::new());

type FileIdentity = (u64, u64, i64, i64, i64);

/// Whether the tree of the workspace is part of what is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WithTree {
    Yes,
    No,
}

/// Adds what decides what the line runs.
pub(crate) fn bind_command(
    found: &mut CallDependencies,
    line: &str,
    cwd: &str,
    view: &CommandView,
    tree: WithTree,
    stop: &CancellationToken,
) {
    let inputs = run_inputs(line);
    let mut files = FileBinder { view, found, seen: BTreeSet::new(), bytes_left: MAX_BYTES, stop };
    files.bind(&inputs, cwd);
    if tree == WithTree::Yes && inputs.loads_code {
        let roots: Vec<_> = view.roots().collect();
        found.tree = Some(tree_stamp(&roots, stop));
    }
}

struct FileBinder<'a> {
    view: &'a CommandView,
    found: &'a mut CallDependencies,
    /// The paths that were looked at.
    seen: BTreeSet<PathBuf>,
    bytes_left: u64,
    stop: &'a CancellationToken,
}

impl FileBinder<'_> {
    fn bind(&mut self, inputs: &RunInputs, cwd: &str) {
        self.found.not_bound.extend(inputs.not_bound.iter().map(ToString::to_string));
        let start = self.view.folder(cwd);
        let folders: Vec<PathBuf> = inputs.folders.iter().map(|folder| start.join(folder)).collect();
        for program in &inputs.programs {
            if program.contains('/') {
                self.required(program, &folders);
            } else if let Some(file) = self.view.program(program) {
                self.add(file, &folders);
            } else {
                // A builtin of the shell, or nothing.
                self.found.files.insert(program.clone(), ABSENT.to_owned());
            }
        }
        for script in &inputs.scripts {
            self.required(script, &folders);
        }
        for name in &inputs.operands {
            for folder in &folders {
                self.look_up(name, folder, &folders);
            }
        }
    }

    /// A file without which it is not known what runs.
    fn required(&mut self, name: &str, folders: &[PathBuf]) {
        let mut is_there = false;
        for folder in folders {
            if self.look_up(name, folder, folders) {
                is_there = true;
            } else {
                let absent = self.view.name(&self.view.path(folder, name));
                self.found.files.insert(absent, ABSENT.to_owned());
            }
        }
        if !is_there {
            self.open(format!("`{}`, which the command does not find now", shown(name)));
        }
    }

    /// Binds the file of this name in a folder, if there is one.
    fn look_up(&mut self, name: &str, folder: &Path, folders: &[PathBuf]) -> bool {
        match self.view.find(&self.view.path(folder, name)) {
            SeenPath::File(file) => {
                self.add(file, folders);
                true
            }
            SeenPath::Closed(why) => {
                self.open(format!("`{}`: {why}", shown(name)));
                true
            }
            SeenPath::Folder | SeenPath::Missing => false,
        }
    }

    fn open(&mut self, what: String) {
        if !self.found.not_bound.contains(&what) {
            self.found.not_bound.push(what);
        }
    }

    fn add(&mut self, file: SeenFile, folders: &[PathBuf]) {
        if !self.seen.insert(file.path.clone()) {
            return;
        }
        if self.seen.len() > MAX_FILES {
            return self.open(format!("more than {MAX_FILES} files"));
        }
        let name = file.name.clone();
        let Some((hash, text)) = self.read(file) else {
            return self.open(format!("`{}`, which is too large to be read", shown(&name)));
        };
        self.found.files.insert(name.clone(), hash);
        let interpreter = text.as_deref().and_then(shebang);
        if let Some(words) = interpreter {
            for word in words.iter().filter(|word| word.contains('/')) {
                for folder in folders {
                    self.look_up(word, folder, folders);
                }
            }
        }
        if let Some(text) = text {
            keep(self.found, &name, text);
        }
    }

    /// The hash of a file, read once, and its content if it may be shown.
    fn read(&mut self, file: SeenFile) -> Option<(String, Option<Vec<u8>>)> {
        let SeenFile { mut file, stat, path, in_session, .. } = file;
        let is_system = !in_session && path.starts_with("/usr");
        let is_shown = in_session && stat.st_nlink == 1;
        let identity = identity(&stat);
        let remembered = || REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = is_system.then(|| remembered().get(&identity).cloned()).flatten() {
            return Some((hash, None));
        }
        if stat.st_size.cast_unsigned() > self.bytes_left {
            return None;
        }
        let (mut hasher, mut text, mut chunk) = (blake3::Hasher::new(), Vec::new(), vec![0; CHUNK_BYTES]);
        loop {
            let got = file.read(&mut chunk).ok().filter(|_| !self.stop.is_cancelled())?;
            let bytes = &chunk[..got];
            self.bytes_left = self.bytes_left.checked_sub(got as u64)?;
            hasher.update(bytes);
            if is_shown && hasher.count() <= MAX_TEXT_BYTES {
                text.extend_from_slice(bytes);
            }
            if got == 0 {
                break;
            }
        }
        let text = (is_shown && hasher.count() <= MAX_TEXT_BYTES).then_some(text);
        let hash = hasher.finalize().to_hex().to_string();
        if is_system {
            let mut remembered = remembered();
            if remembered.len() >= MAX_REMEMBERED {
                remembered.clear();
            }
            remembered.insert(identity, hash.clone());
        }
        Some((hash, text))
    }
}

fn identity(stat: &Stat) -> FileIdentity {
    let nanoseconds = i64::try_from(stat.st_ctime_nsec).unwrap_or_default();
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_ctime, nanoseconds)
}

/// The words of the first line of a script, if it names what runs it.
fn shebang(content: &[u8]) -> Option<Vec<String>> {
    let line = content.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().map(str::to_owned).collect())
}
