//! The files that the outcome of a call depends on besides its input: the programs and scripts that a command executes, or
//! the file that a write replaces. The approval covers them, so they are read again just before the call starts.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tribune_constitution::command;
use tribune_governance::turn::CallDependencies;
use tribune_records::approval::action::ABSENT;
use tribune_records::exec::PATH;
use tribune_records::outcome::ToolErrorCode;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::ToolCall;

use super::exec::resolve;
use super::workspace_dir::Workspace;
use super::write_target::{Parents, Target};
use super::{HostTools, edit, exec, write};

/// Maximum number of files resolved for one command.
const MAX_FILES: usize = 64;

/// Maximum bytes of a file that a write replaces; a larger one is not read.
const MAX_TARGET_BYTES: usize = 16 << 20;

/// Maximum bytes of a file whose text is stored with an approval, and of all such files of a call.
const MAX_TEXT_BYTES: u64 = 64 << 10;
const MAX_TEXTS_BYTES: usize = 256 << 10;

/// Stands in place of the hash of a file that is too large to read.
const TOO_LARGE: &str = "too large";

impl HostTools {
    /// The files that the outcome of a call depends on besides its input. Blocks on the disk.
    pub(super) fn dependencies_of(&self, ground: &WorkspaceRoots, call: &ToolCall) -> CallDependencies {
        let text = |name: &str| call.input.get(name).and_then(Value::as_str);
        match call.name.as_str() {
            tribune_records::exec::EXEC => {
                let workspace = ground.path(&self.home);
                // Files are found behind symbolic links and named by their path in the workspace.
                let workspace = workspace.canonicalize().unwrap_or(workspace);
                let cwd = exec::folder(text("cwd"));
                let line = text("command").unwrap_or_default();
                let mut found = CallDependencies {
                    cwd: Some(cwd.to_owned()),
                    env: exec::ENV.iter().map(|&name| name.to_owned()).collect(),
                    ..CallDependencies::default()
                };
                add_programs(&mut found, line, &workspace, &workspace.join(cwd));
                found
            }
            write::NAME | edit::NAME => {
                let path = text("path").unwrap_or_default();
                let target = Workspace::open_at(&self.home, &ground.locate(path))
                    .and_then(|workspace| Target::open(&workspace, path, Parents::Find));
                let mut found = CallDependencies::default();
                let hash = match target.and_then(|target| target.read(MAX_TARGET_BYTES)) {
                    Ok((content, _)) => {
                        let hash = blake3::hash(&content).to_hex().to_string();
                        keep(&mut found, path, content);
                        hash
                    }
                    Err(refused) if refused.code == ToolErrorCode::TooLarge => TOO_LARGE.to_owned(),
                    Err(_) => ABSENT.to_owned(),
                };
                found.files.insert(path.to_owned(), hash);
                found
            }
            _ => CallDependencies::default(),
        }
    }
}

/// Adds the programs and scripts that a command line executes. If the line cannot be parsed, each of its words counts as a
/// possible script.
fn add_programs(found: &mut CallDependencies, line: &str, workspace: &Path, cwd: &Path) {
    let commands: Vec<Vec<String>> = match command::parse(line) {
        Ok(parsed) => parsed
            .commands()
            .iter()
            .map(|simple| simple.words.iter().map(|word| word.text.clone()).collect())
            .collect(),
        Err(_) => vec![std::iter::once("sh").chain(line.split_whitespace()).map(str::to_owned).collect()],
    };
    for words in commands {
        // A wrapper such as `env` or `timeout` executes the words behind it.
        for start in 0..words.len() {
            let Ok(program) = resolve(&words[start..], cwd, PATH) else {
                if start == 0 {
                    found.files.insert(words[0].clone(), ABSENT.to_owned());
                }
                continue;
            };
            if start > 0 && program.scripts.is_empty() {
                continue;
            }
            let scripts = program.scripts.into_iter().map(|script| (script.path, script.b3));
            for (path, hash) in std::iter::once((program.executable, program.b3)).chain(scripts) {
                let name = path.strip_prefix(workspace).unwrap_or(&path).to_string_lossy().into_owned();
                if found.files.len() < MAX_FILES {
                    if let Some(content) = small(&path).filter(|content| blake3::hash(content) == hash) {
                        keep(found, &name, content);
                    }
                    found.files.insert(name, hash.to_hex().to_string());
                }
            }
        }
    }
}

/// Stores the text of a file, if it fits.
fn keep(found: &mut CallDependencies, name: &str, content: Vec<u8>) {
    let kept: usize = found.texts.values().map(String::len).sum();
    let fits = content.len() as u64 <= MAX_TEXT_BYTES && kept + content.len() <= MAX_TEXTS_BYTES;
    if let Some(Ok(text)) = fits.then(|| String::from_utf8(content)) {
        found.texts.insert(name.to_owned(), text);
    }
}

/// The content of a plain file, if it is small enough to store.
fn small(path: &Path) -> Option<Vec<u8>> {
    let found = fs::metadata(path).ok()?;
    let is_small = found.is_file() && found.len() <= MAX_TEXT_BYTES;
    is_small.then(|| fs::read(path).ok()).flatten()
}
