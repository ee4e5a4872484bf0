//! What the outcome of a call depends on beside its input: the programs and scripts that a command runs, the file that a
//! write replaces. A person approves these too, so they are looked at again when the call is about to start.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tribune_agents::ToolCall;
use tribune_constitution::command;

use super::exec::{self, PATH, resolve};
use super::ground::Ground;
use super::target::{Parents, Target};
use super::workspace::Workspace;
use super::{Code, HostTools, edit, write};

/// Files looked at for one command.
const MAX_FILES: usize = 64;

/// Bytes of a file that a write replaces; a larger one is not looked into.
const MAX_TARGET_BYTES: usize = 16 << 20;

/// The hash of a file that is not there, or cannot be looked at.
pub(crate) const ABSENT: &str = "absent";

/// The hash of a file that is too large to be read.
const TOO_LARGE: &str = "too large";

/// What a call depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// Paths, in the workspace or absolute, with the hash of their content.
    pub files: BTreeMap<String, String>,
    pub cwd: Option<String>,
    /// Names of the variables that a command is given.
    pub env: Vec<String>,
}

impl HostTools {
    /// What the outcome of a call depends on beside its input. Blocks on the disk.
    pub fn surroundings(&self, ground: &Ground, call: &ToolCall) -> Surroundings {
        let text = |name: &str| call.input.get(name).and_then(Value::as_str);
        match call.name.as_str() {
            exec::NAME => {
                let workspace = ground.path(&self.home);
                // Files are found behind all links, and told by their place in the workspace.
                let workspace = workspace.canonicalize().unwrap_or(workspace);
                let cwd = exec::folder(text("cwd"));
                let files = programs(text("command").unwrap_or_default(), &workspace, &workspace.join(cwd));
                let env = exec::ENV.iter().map(|&name| name.to_owned()).collect();
                Surroundings { files, cwd: Some(cwd.to_owned()), env }
            }
            write::NAME | edit::NAME => {
                let path = text("path").unwrap_or_default();
                let target = Workspace::open(&self.home, ground)
                    .and_then(|workspace| Target::open(&workspace, path, Parents::Find));
                let hash = match target.and_then(|target| target.read(MAX_TARGET_BYTES)) {
                    Ok((content, _)) => blake3::hash(&content).to_hex().to_string(),
                    Err(refused) if refused.code == Code::TooLarge => TOO_LARGE.to_owned(),
                    Err(_) => ABSENT.to_owned(),
                };
                Surroundings { files: [(path.to_owned(), hash)].into(), ..Surroundings::default() }
            }
            _ => Surroundings::default(),
        }
    }
}

/// The programs and scripts that a command line runs, with their hashes. Of a line that is not understood, every word is
/// looked at as if it might be a script.
fn programs(line: &str, workspace: &Path, cwd: &Path) -> BTreeMap<String, String> {
    let commands: Vec<Vec<String>> = match command::parse(line) {
        Ok(parsed) => parsed
            .commands()
            .iter()
            .map(|simple| simple.words.iter().map(|word| word.text.clone()).collect())
            .collect(),
        Err(_) => vec![std::iter::once("sh").chain(line.split_whitespace()).map(str::to_owned).collect()],
    };
    let mut files = BTreeMap::new();
    for words in commands {
        // A wrapper such as `env` or `timeout` runs what stands behind it.
        for start in 0..words.len() {
            let Ok(found) = resolve(&words[start..], cwd, PATH) else {
                if start == 0 {
                    files.insert(words[0].clone(), ABSENT.to_owned());
                }
                continue;
            };
            if start > 0 && found.scripts.is_empty() {
                continue;
            }
            let scripts = found.scripts.into_iter().map(|script| (script.path, script.b3));
            for (path, hash) in std::iter::once((found.executable, found.b3)).chain(scripts) {
                let name = path.strip_prefix(workspace).unwrap_or(&path).to_string_lossy().into_owned();
                if files.len() < MAX_FILES {
                    files.insert(name, hash.to_hex().to_string());
                }
            }
        }
    }
    files
}
