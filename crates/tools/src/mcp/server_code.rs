//! The code of a server that lies in the workspace: the files among its command and its arguments. Agents can rewrite them,
//! and the server runs with variables that agents do not have. So a start is bound to their content, as an approval of a
//! command is to its scripts: if it is not the content of the last start, a person is asked.
//!
//! Does not see what these files load.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tribune_records::exec::WORKSPACE;
use tribune_storage::files::{self, Secrecy};

use super::server_spec::{ServerSpec, digest};

/// Maximum bytes of a file of a server's code.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Maximum number of servers whose code is remembered, and of files of each. The oldest name in order gives way.
const MAX_REMEMBERED: usize = 1000;
const MAX_FILES: usize = 64;

/// Stands for the hash of a file that is too large to read: it counts as changed.
const TOO_LARGE: &str = "too large";

/// Files by their paths in the workspace, with the hash of their content.
pub(super) type CodeFiles = BTreeMap<String, String>;

/// The code that servers had when they were last started, in `data/mcp-servers.json` of the home.
#[derive(Debug)]
pub(super) struct KnownCode {
    path: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredCode {
    servers: BTreeMap<String, CodeFiles>,
}

/// The files of a server's code in the workspace, which has no symbolic link in its path. Reads the disk.
pub(super) fn files_of(spec: &ServerSpec, workspace: &Path) -> CodeFiles {
    let values =
        spec.args.iter().flat_map(|arg| [Some(arg.as_str()), arg.split_once('=').map(|(_, value)| value)]);
    let mut found = CodeFiles::new();
    for word in std::iter::once(spec.command.as_str()).chain(values.flatten()) {
        // The arguments of a server name paths of the host, of the sandbox, or of its working folder, the workspace.
        let path = match Path::new(word).strip_prefix(WORKSPACE) {
            Ok(inner) => workspace.join(inner),
            Err(_) if word.contains('/') || word != spec.command => workspace.join(word),
            // The name of a program, which is looked up in system folders.
            Err(_) => continue,
        };
        let Ok(real) = path.canonicalize() else { continue };
        let Ok(inner) = real.strip_prefix(workspace) else { continue };
        let Some(hash) = hash_of(&real) else { continue };
        if found.len() < MAX_FILES {
            found.insert(inner.to_string_lossy().into_owned(), hash);
        }
    }
    found
}

/// The hash of a file's content, and [`TOO_LARGE`] for one that cannot be read; `None` if this is not a plain file.
fn hash_of(path: &Path) -> Option<String> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    // Does not wait for the writer of a pipe that took the file's place.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let hash = || {
        let mut hasher = blake3::Hasher::new();
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        hasher.update_reader(file.take(MAX_FILE_BYTES + 1))?;
        io::Result::Ok(hasher)
    };
    let hash = hash().ok().filter(|hasher| hasher.count() <= MAX_FILE_BYTES);
    Some(hash.map_or_else(|| TOO_LARGE.to_owned(), |hasher| hasher.finalize().to_hex().to_string()))
}

impl KnownCode {
    pub(super) fn of_home(home: &Path) -> Self {
        Self { path: home.join("data/mcp-servers.json") }
    }

    /// The files that differ from the last start of this server in this workspace; none at its first start.
    pub(super) fn changed(&self, spec: &ServerSpec, workspace: &Path, now: &CodeFiles) -> Vec<String> {
        let stored = self.read();
        let Some(before) = stored.servers.get(&key(spec, workspace)) else { return Vec::new() };
        let differs = |path: &&String| {
            before.get(*path) != now.get(*path) || now.get(*path).is_some_and(|hash| hash == TOO_LARGE)
        };
        let names = before.keys().chain(now.keys().filter(|path| !before.contains_key(*path)));
        names.filter(differs).cloned().collect()
    }

    /// Remembers the files of a server that is started now.
    pub(super) fn remember(&self, spec: &ServerSpec, workspace: &Path, now: CodeFiles) -> io::Result<()> {
        let (mut stored, key) = (self.read(), key(spec, workspace));
        if stored.servers.get(&key) == Some(&now) || now.is_empty() && !stored.servers.contains_key(&key) {
            return Ok(());
        }
        stored.servers.insert(key, now);
        while stored.servers.len() > MAX_REMEMBERED {
            stored.servers.pop_first();
        }
        let text = serde_json::to_vec_pretty(&stored)?;
        fs::create_dir_all(self.path.parent().unwrap_or(Path::new("")))?;
        files::replace(&self.path, &text, Secrecy::Owner)
    }

    /// What is remembered; nothing if it cannot be read, as before the first start.
    fn read(&self) -> StoredCode {
        let text = fs::read(&self.path).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// Identifies a server in a workspace: by its command, its arguments and the names of its variables.
fn key(spec: &ServerSpec, workspace: &Path) -> String {
    let mut described = spec.described();
    described["workspace"] = workspace.to_string_lossy().into();
    digest(&described)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_code_in_the_workspace_is_named() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let (workspace, known) = (root.join("project"), KnownCode::of_home(&root.join("home")));
        fs::create_dir_all(workspace.join("tools")).unwrap();
        for name in ["project/server.py", "project/tools/run", "project/conf.json", "outside.py"] {
            fs::write(root.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("tools/run", workspace.join("link")).unwrap();
        let host = |name: &str| workspace.join(name).display().to_string();
        let sent = json!({
            "name": "x", "command": "/usr/bin/python3",
            "args": [host("server.py"), "--config=conf.json", "/workspace/link", root.join("outside.py"), "-v"],
        });
        let spec = ServerSpec::read(&sent).unwrap();
        let first = files_of(&spec, &workspace);
        assert_eq!(first.keys().collect::<Vec<_>>(), ["conf.json", "server.py", "tools/run"]);
        assert_eq!(known.changed(&spec, &workspace, &first), Vec::<String>::new(), "the first start");
        known.remember(&spec, &workspace, first.clone()).unwrap();
        assert_eq!(known.changed(&spec, &workspace, &first), Vec::<String>::new());
        fs::write(workspace.join("tools/run"), "evil").unwrap();
        fs::remove_file(workspace.join("conf.json")).unwrap();
        let now = files_of(&spec, &workspace);
        assert_eq!(known.changed(&spec, &workspace, &now), ["conf.json", "tools/run"]);
        let other = ServerSpec { name: "y".to_owned(), ..spec };
        assert_eq!(known.changed(&other, &workspace, &now), Vec::<String>::new(), "another server");
    }
}
