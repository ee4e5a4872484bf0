//! The folder of one session's sockets: below `run/s`, accessible to its owner only, with a random name. The name carries no
//! information, because programs in a sandbox can see the source path of a mount.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tribune_storage::home::Home;

use super::SessionSocketError;

/// Maximum length of a socket path in the kernel, without the terminating zero.
const MAX_SOCKET_PATH: usize = 107;

/// The socket folder of one session. Dropping this removes it.
#[derive(Debug)]
pub(super) struct SocketDir {
    path: PathBuf,
}

impl SocketDir {
    /// Removes the folders of an earlier daemon. They are unused, because this daemon holds the home exclusively.
    pub(super) fn sweep(home: &Home) -> Result<(), SessionSocketError> {
        let path = sockets_root(home);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SessionSocketError { path, error }),
            _ => Ok(()),
        }
    }

    /// Creates a folder.
    pub(super) fn new(home: &Home) -> Result<Self, SessionSocketError> {
        let sockets_root = sockets_root(home);
        let mut bytes = [0_u8; 8];
        let path = sockets_root.join(match getrandom::fill(&mut bytes) {
            Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            Err(error) => {
                return Err(SessionSocketError {
                    path: sockets_root,
                    error: io::Error::other(error.to_string()),
                });
            }
        });
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&sockets_root)
            // Not recursive: this fails if the folder exists.
            .and_then(|()| DirBuilder::new().mode(0o700).create(&path));
        match made {
            Ok(()) => Ok(Self { path }),
            Err(error) => Err(SessionSocketError { path, error }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the owner of the folder and of everything in it.
    pub(super) fn give_to(&self, user: u32, group: u32) -> Result<(), SessionSocketError> {
        let give = || {
            for socket in fs::read_dir(&self.path)? {
                lchown(socket?.path(), Some(user), Some(group))?;
            }
            lchown(&self.path, Some(user), Some(group))
        };
        give().map_err(|error| SessionSocketError { path: self.path.clone(), error })
    }

    /// Creates a listening socket in the folder, accessible to its owner only.
    pub(super) fn listen(&self, name: &str) -> Result<UnixListener, SessionSocketError> {
        let path = self.path.join(name);
        let listen = || {
            let listener = if path.as_os_str().as_bytes().len() <= MAX_SOCKET_PATH {
                UnixListener::bind(&path)?
            } else {
                // The path is too long for the kernel; the path through `/proc/self/fd` is short and names the same folder.
                let folder = File::open(&self.path)?;
                UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?
            };
            // No other user could connect before this line: the mode of the folder is 0700.
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        listen().map_err(|error| SessionSocketError { path, error })
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            // The next start removes it.
            tracing::warn!(%error, "removing the sockets of a session failed");
        }
    }
}

fn sockets_root(home: &Home) -> PathBuf {
    home.root().join("run").join("s")
}
