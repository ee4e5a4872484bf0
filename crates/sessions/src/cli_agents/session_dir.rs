//! What is kept of an agent's session between its starts: `agents/<id>/cli/<session>/`, with its home folder (`home/`), its
//! name for the conversation, and the newest of what it said on its standard error.
//!
//! The home folder is the agent's to change, so nothing in it is opened by a path that it could have laid elsewhere: each
//! folder is entered by itself, and a link in the way is removed. Of what it left there only what its profile keeps is there at
//! the next start: what it does then is not for an earlier command to say.

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

/// Bytes of an agent's name for a conversation.
const MAX_CONVERSATION: usize = 512;

/// The folder of a session.
#[derive(Debug, Clone)]
pub(super) struct AgentSessionDir {
    folder: PathBuf,
}

/// Removes what is kept of an agent's session that is forgotten.
pub fn forget_session(home: &Home, session: &Handle) -> Result<(), StoreError> {
    let room = AgentSessionDir::of(home, session);
    room.forget().map_err(|error| StoreError::Io { path: room.folder.clone(), what: error.to_string() })
}

impl AgentSessionDir {
    pub(super) fn of(home: &Home, session: &Handle) -> Self {
        let agent = session.key.agent().as_str();
        let folder = home.root().join("agents").join(agent).join("cli").join(&*session.session_id);
        Self { folder }
    }

    /// The agent's home folder, with these files in it, what is kept, and nothing else.
    pub(super) fn furnish(&self, files: &[(String, String)], keep: &[HomePath]) -> io::Result<PathBuf> {
        let home = self.folder.join("home");
        DirBuilder::new().recursive(true).mode(0o700).create(&home)?;
        let root = rustix::fs::open(&home, folder_flags(), Mode::empty())?;
        let keep: Vec<&Path> = keep.iter().map(|path| Path::new(path.as_str())).collect();
        let trash = self.folder.join("trash");
        DirBuilder::new().recursive(true).mode(0o700).create(&trash)?;
        clear(&root, &keep, &rustix::fs::open(&trash, folder_flags(), Mode::empty())?)?;
        for (path, text) in files {
            put(&root, Path::new(path), text)?;
        }
        Ok(home)
    }

    /// The agent's name for the conversation before.
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
            tracing::warn!(%error, "the name of an agent's conversation could not be removed");
        }
    }

    pub(super) fn keep_stderr(&self, said: &str) {
        // A session that was forgotten meanwhile keeps nothing.
        if !said.is_empty() && self.folder.is_dir() {
            self.keep("stderr", said);
        }
    }

    /// The newest of what the agent said on its standard error.
    pub(super) fn stderr(&self) -> Option<String> {
        fs::read_to_string(self.folder.join("stderr")).ok()
    }

    /// Removes everything.
    fn forget(&self) -> io::Result<()> {
        // However deep the agent's folders are.
        if self.folder.join("home").is_dir() {
            self.furnish(&[], &[])?;
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn keep(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        if let Err(error) = files::replace(&path, text.as_bytes(), Secrecy::Owner) {
            tracing::warn!(%error, name, "something of an agent's session could not be kept");
        }
    }
}

const fn folder_flags() -> OFlags {
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC)
}

/// Writes a file beneath a folder. What is in its way, and is no folder, goes.
fn put(root: &OwnedFd, path: &Path, text: &str) -> io::Result<()> {
    let mut folder = root.try_clone()?;
    if let Some(parents) = path.parent() {
        for name in parents {
            folder = match rustix::fs::openat(&folder, name, folder_flags(), Mode::empty()) {
                Ok(entered) => entered,
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
    fn l3_what_an_agent_laid_in_its_home_leads_nowhere() {
        let outside = tempfile::tempdir().unwrap();
        let place = tempfile::tempdir().unwrap();
        let room = AgentSessionDir { folder: place.path().join("session") };
        let files = [(".agent/settings.json".to_owned(), "ask".to_owned())];
        let keep: Vec<HomePath> = serde_json::from_str(r#"[".agent/talks"]"#).unwrap();
        let home = room.furnish(&files, &keep).unwrap();
        let settings = home.join(".agent/settings.json");
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        // A folder that became a link, and then a file that became one.
        fs::remove_dir_all(home.join(".agent")).unwrap();
        std::os::unix::fs::symlink(outside.path(), home.join(".agent")).unwrap();
        room.furnish(&files, &keep).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        let secret = outside.path().join("secret");
        fs::write(&secret, "mine").unwrap();
        fs::remove_file(&settings).unwrap();
        std::os::unix::fs::symlink(&secret, &settings).unwrap();
        room.furnish(&files, &keep).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "mine");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
        // What it changed is put back at each start, whatever is in the way, and what it brought is gone.
        fs::write(&settings, "do not ask").unwrap();
        fs::write(home.join(".agent/hooks.json"), "run this").unwrap();
        fs::create_dir(home.join(".agent/talks")).unwrap();
        fs::write(home.join(".agent/talks/1"), "hello").unwrap();
        room.furnish(&files, &keep).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        assert!(!home.join(".agent/hooks.json").exists());
        assert_eq!(fs::read_to_string(home.join(".agent/talks/1")).unwrap(), "hello");
        fs::remove_file(&settings).unwrap();
        fs::create_dir(&settings).unwrap();
        room.furnish(&files, &keep).unwrap();
        assert_eq!(fs::read_to_string(&settings).unwrap(), "ask");
        room.forget().unwrap();
        room.forget().unwrap();
    }
}
