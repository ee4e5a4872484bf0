//! Where the sockets of one session lie: a folder of its own below `run/s`, open to its owner alone, with a name that says
//! nothing. Programs in a box can see where what they are shown comes from.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tribune_storage::home::Home;

use super::BrokerError;

/// Bytes of a socket's path that the kernel takes, without the zero behind it.
const MAX_SOCKET_PATH: usize = 107;

/// A session's folder. It goes away with this.
#[derive(Debug)]
pub(super) struct SocketDir {
    path: PathBuf,
}

impl SocketDir {
    /// Removes the folders of an earlier daemon. The home is this one's alone, so nobody uses them.
    pub(super) fn sweep(home: &Home) -> Result<(), BrokerError> {
        let path = rooms(home);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BrokerError { path, error }),
            _ => Ok(()),
        }
    }

    /// Makes a folder.
    pub(super) fn new(home: &Home) -> Result<Self, BrokerError> {
        let rooms = rooms(home);
        let mut bytes = [0_u8; 8];
        let path = rooms.join(match getrandom::fill(&mut bytes) {
            Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
            Err(error) => {
                return Err(BrokerError { path: rooms, error: io::Error::other(error.to_string()) });
            }
        });
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&rooms)
            // Not one that is there already.
            .and_then(|()| DirBuilder::new().mode(0o700).create(&path));
        match made {
            Ok(()) => Ok(Self { path }),
            Err(error) => Err(BrokerError { path, error }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder and what is in it another user's, and nobody else's.
    pub(super) fn give_to(&self, user: u32, group: u32) -> Result<(), BrokerError> {
        let give = || {
            for socket in fs::read_dir(&self.path)? {
                lchown(socket?.path(), Some(user), Some(group))?;
            }
            lchown(&self.path, Some(user), Some(group))
        };
        give().map_err(|error| BrokerError { path: self.path.clone(), error })
    }

    /// A socket in the folder, for its owner alone.
    pub(super) fn listen(&self, name: &str) -> Result<UnixListener, BrokerError> {
        let path = self.path.join(name);
        let listen = || {
            let listener = if path.as_os_str().as_bytes().len() <= MAX_SOCKET_PATH {
                UnixListener::bind(&path)?
            } else {
                // The kernel takes short paths only; this is one to the same folder.
                let folder = File::open(&self.path)?;
                UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?
            };
            // Nobody else could have connected before this: the folder is closed to others.
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        listen().map_err(|error| BrokerError { path, error })
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            // The next start sweeps it.
            tracing::warn!(%error, "the sockets of a session could not be removed");
        }
    }
}

fn rooms(home: &Home) -> PathBuf {
    home.root().join("run").join("s")
}
