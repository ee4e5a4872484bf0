//! What is to run, and what it gets.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::validate::{self, ProfileError};
use crate::{Limits, Mount, Workspace};

/// The version of the profile's format. Both halves are the same program, so there is one at a time.
pub const PROFILE_VERSION: u32 = 1;

/// One launch. Nothing that is not in here reaches what runs: no variable, no descriptor, no folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LaunchProfile {
    pub version: u32,
    pub session: Session,
    pub mode: Mode,
    /// Absolute, inside the sandbox.
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Absolute, inside the sandbox.
    pub cwd: PathBuf,
    /// The home folder, absolute, inside the sandbox.
    pub home: PathBuf,
    pub runs_as: RunsAs,
    pub mounts: Vec<Mount>,
    pub workspace: Option<Workspace>,
    /// Further folders that are worked in, each with the names in it that are hidden and frozen. None of them is an overlay, and
    /// none is in another or in the workspace.
    pub further: Vec<Workspace>,
    pub relays: Vec<Relay>,
    pub limits: Limits,
    /// The least version of Landlock that will do. With less, nothing is started.
    pub landlock_abi: u32,
}

impl LaunchProfile {
    /// A profile that runs `program` in `/` with nothing from the host but its system.
    #[must_use]
    pub fn new(session: Session, program: impl Into<PathBuf>) -> Self {
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/home/agent"), ("LANG", "C.UTF-8")];
        Self {
            version: PROFILE_VERSION,
            session,
            mode: Mode::Full,
            program: program.into(),
            args: Vec::new(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            cwd: "/".into(),
            home: "/home/agent".into(),
            runs_as: RunsAs::Dynamic,
            mounts: Vec::new(),
            workspace: None,
            further: Vec::new(),
            relays: Vec::new(),
            limits: Limits::default(),
            landlock_abi: 6,
        }
    }

    /// The workspace, if there is one, and the further folders.
    pub fn workspaces(&self) -> impl Iterator<Item = &Workspace> {
        self.workspace.iter().chain(&self.further)
    }

    /// Refuses a profile that is out of bounds or makes no sense.
    pub fn check(&self) -> Result<(), ProfileError> {
        validate::check(self)
    }
}

/// The name of a sandbox, which its cgroup and its process carry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Session(String);

impl Session {
    /// Bytes of a name; file systems take 255 and prefixes come before it.
    const MAX_BYTES: usize = 96;

    pub fn new(name: impl Into<String>) -> Result<Self, ProfileError> {
        let name = name.into();
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > Self::MAX_BYTES || !name.bytes().all(is_plain) {
            return Err(ProfileError::Session(name));
        }
        Ok(Self(name))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Session {
    type Error = ProfileError;

    fn try_from(name: String) -> Result<Self, ProfileError> {
        Self::new(name)
    }
}

impl From<Session> for String {
    fn from(session: Session) -> Self {
        session.0
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How much of a sandbox there is. Nobody moves from one to the other unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Namespaces, a root of its own, Landlock, seccomp.
    Full,
    /// Landlock and seccomp alone: host paths and processes stay visible by name, and there are no masks.
    Landlock,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Landlock => "landlock",
        })
    }
}

/// Whose user id the processes have on the host. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "kind")]
pub enum RunsAs {
    /// The launcher's own user, or, if that is root, one that nothing else has.
    Dynamic,
    /// This one. Only root can choose.
    User { uid: u32, gid: u32 },
}

/// A port of the sandbox's own loopback that leads to a socket of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Relay {
    /// Names the socket inside, `/run/tribune/<name>.sock`.
    pub name: String,
    /// In [`Mode::Full`] the port. In [`Mode::Landlock`] there is no loopback of its own: any free port is taken, and
    /// `${relay:<name>}` in the environment stands for its number.
    pub port: u16,
    /// The host's socket.
    pub socket: PathBuf,
    /// In [`Mode::Landlock`], what the first bytes of a connection must hold: others on this machine reach the port too.
    pub token: Option<String>,
}
