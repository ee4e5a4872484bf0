//! The state of an agent's session between its starts: `agents/<id>/cli/<session>/`, with its home folder (`home/`), the
//! conversation id that the agent gave, and the tail of its standard error.
//!
//! The agent can write its home folder, so nothing in it is opened by a path that a symbolic link could redirect: each folder is
//! opened by itself, and a link in the way is removed. At a start only the paths that the profile keeps survive, so that an
//! earlier command cannot determine what the agent does later.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use tribune_cli_agents::profile::HomePath;
use tribune_runtime::Handle;
use tribune_storage::files;
use tribune_storage::files::Secrecy;
use tribune_storage::home::Home;
use tribune_storage::store::StoreError;

use super::clear_dir::clear;

/// The longest conversation id, in bytes.
const MAX_CONVERSATION: usize = 512;

/// The state folder of one session.
#[derive(Debug, Clone)]
pub(super) struct AgentSessionDir {
    folder: PathBuf,
}

/// Removes the state folder of a session that is forgotten.
pub fn forget_session(home: &Home, session: &Handle) -> Result<(), StoreError> {
    let dir = AgentSessionDir::of(home, session);
    dir.forget().map_err(|error| StoreError::Io { path: dir.folder.clone(), what: error.to_string() })
}

impl AgentSessionDir {
    pub(super) fn of(home: &Home, session: &Handle) -> Self {
        let agent = session.key.agent().as_str();
        let folder = home.root().join("agents").join(agent).join("cli").join(&*session.session_id);
        Self { folder }
    }

    /// Prepares the agent's home folder, which then holds these files, the kept paths and nothing else. Returns its path.
    pub(super) fn prepare_home(&self, files: &[(String, String)], keep: &[HomePath]) -> io::Result<PathBuf> {
        let home = self.folder.join("home");
        DirBuilder::new().recursive(true).mode(0o700).create(&home)?;
        let root = rustix::fs::open(&home, folder_flags(), Mode::empty())?;
        let keep: Vec<&Path> = keep.iter().map(|path| Path::new(path.as_str())).collect();
        let trash = self.folder.join("trash");
        DirBuilder::new().recursive(true).mode(0o700).create(&trash)?;
        clear(&root, &keep, &rustix::fs::open(&trash, folder_flags(), Mode::empty())?)?;
        for (path, text) in files {
            write_beneath(&root, Path::new(path), text)?;
        }
        Ok(home)
    }

    /// An empty folder, in place of a workspace that the agent may not see.
    pub(super) fn empty_workspace(&self) -> io::Result<PathBuf> {
        let folder = self.folder.join("no-workspace");
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        match DirBuilder::new().mode(0o755).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(folder),
        }
    }

    /// The stored id of the agent's last conversation.
    pub(super) fn conversation(&self) -> Option<String> {
        fs::read_to_string(self.folder.join("conversation")).ok().filter(|id| !id.is_empty())
    }

    pub(super) fn remember(&self, conversation: &str) {
        if conversation.len() <= MAX_CONVERSATION && self.conversation().as_deref() != Some(conversation) {
            self.keep("conversation", conversation);
        }
    }

    pub(super) fn forget_conversation(&self) {
        let path = self.folder.join("conversation");
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the conversation id of an agent could not be removed");
        }
    }

    pub(super) fn keep_stderr(&self, text: &str) {
        // A session that was forgotten meanwhile stores nothing.
        if !text.is_empty() && self.folder.is_dir() {
            self.keep("stderr", text);
        }
    }

    /// The tail of the agent's standard error.
    pub(super) fn stderr(&self) -> Option<String> {
        fs::read_to_string(self.folder.join("stderr")).ok()
    }

    /// Removes the whole folder.
    fn forget(&self) -> io::Result<()> {
        // Clears the home folder first, because `remove_dir_all` fails on folders as deep as an agent can make them.
        if self.folder.join("home").is_dir() {
            self.prepare_home(&[], &[])?;
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn keep(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        if let Err(error) = files::replace(&path, text.as_bytes(), Secrecy::Owner) {
            tracing::warn!(%error, name, "the state of an agent's session could not be stored");
        }
    }
}

const fn folder_flags() -> OFlags {
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC)
}

/// Writes a file beneath a folder. Removes entries on the path that are not folders.
fn write_beneath(root: &OwnedFd, path: &Path, text: &str) -> io::Result<()> {
    let mut folder = root.try_clone()?;
    if let Some(parents) = path.parent() {
        for name in parents {
            folder = match rustix::fs::openat(&folder, name, folder_flags(), Mode::empty()) {
                Ok(inner) => inner,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(error) => return Err(error.into()),
                    }
                    rustix::fs::mkdirat(&folder, name, Mode::RWXU)?;
                    rustix::fs::openat(&folder, name, folder_flags(), Mode::empty())?
                }
                Err(error) => return Err(error.into()),
            };
        }
    }
    let Some(name) = path.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
    match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    File::from(file).write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l3_links_planted_in_the_home_folder_are_not_followed() {
        let outside = tempfile::tempdir().unwrap();
        let temp = tempfile::tempdir().unwrap();
        let dir = AgentSessionDir { folder: temp.path().join("session") };
        let files = [(".agent/settings.json".to_owned(), "ask".to_owned())];
        let keep: Vec<HomePath> = serde_json::from_str(r#"[".agent/talks"]"#).unwrap();
        let home = dir.prepare_home(&files, &keep).unwrap();
        let settings = home.join(".agent/settings.json");
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        // The agent replaces a folder with a link, and then a file.
        fs::remove_dir_all(home.join(".agent")).unwrap();
        std::os::unix::fs::symlink(outside.path(), home.join(".agent")).unwrap();
        dir.prepare_home(&files, &keep).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        let secret = outside.path().join("secret");
        fs::write(&secret, "mine").unwrap();
        fs::remove_file(&settings).unwrap();
        std::os::unix::fs::symlink(&secret, &settings).unwrap();
        dir.prepare_home(&files, &keep).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "mine");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        // Each start restores changed files, whatever is in the way, and removes files that the agent added.
        fs::write(&settings, "do not ask").unwrap();
        fs::write(home.join(".agent/hooks.json"), "run this").unwrap();
        fs::create_dir(home.join(".agent/talks")).unwrap();
        fs::write(home.join(".agent/talks/1"), "hello").unwrap();
        dir.prepare_home(&files, &keep).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        assert!(!home.join(".agent/hooks.json").exists());
        assert_eq!(fs::read_to_string(home.join(".agent/talks/1")).unwrap(), "hello");
        fs::remove_file(&settings).unwrap();
        fs::create_dir(&settings).unwrap();
        dir.prepare_home(&files, &keep).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        dir.forget().unwrap();
        dir.forget().unwrap();
    }
}
