//! The launch profile: what to run, and what it gets.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::validate::{self, ProfileError};
use crate::{Mount, ResourceLimits, WorkspaceMount};

/// The version of the profile format. Both halves are the same program, so only one version exists at a time.
pub const PROFILE_VERSION: u32 = 1;

/// One launch. The program gets only what is listed here: no other variable, descriptor or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LaunchProfile {
    pub version: u32,
    pub session: SandboxName,
    pub mode: SandboxMode,
    /// Absolute path inside the sandbox.
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Absolute path inside the sandbox.
    pub cwd: PathBuf,
    /// The home folder, an absolute path inside the sandbox.
    pub home: PathBuf,
    pub runs_as: RunsAs,
    pub mounts: Vec<Mount>,
    pub workspace: Option<WorkspaceMount>,
    /// Additional directories that the program works in, each with its own hidden and read-only names. None is an
    /// overlay, and none contains or is inside another one or the workspace.
    #[serde(rename = "further")]
    pub additional_directories: Vec<WorkspaceMount>,
    pub relays: Vec<PortRelay>,
    pub limits: ResourceLimits,
    /// The lowest acceptable Landlock ABI version. On an older kernel the launch fails.
    pub landlock_abi: u32,
}

impl LaunchProfile {
    /// Returns a profile that runs `program` in `/` with nothing from the host but its system folders.
    #[must_use]
    pub fn new(session: SandboxName, program: impl Into<PathBuf>) -> Self {
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/home/agent"), ("LANG", "C.UTF-8")];
        Self {
            version: PROFILE_VERSION,
            session,
            mode: SandboxMode::Full,
            program: program.into(),
            args: Vec::new(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            cwd: "/".into(),
            home: "/home/agent".into(),
            runs_as: RunsAs::Dynamic,
            mounts: Vec::new(),
            workspace: None,
            additional_directories: Vec::new(),
            relays: Vec::new(),
            limits: ResourceLimits::default(),
            landlock_abi: 6,
        }
    }

    /// The workspace, if there is one, then the additional directories.
    pub fn workspaces(&self) -> impl Iterator<Item = &WorkspaceMount> {
        self.workspace.iter().chain(&self.additional_directories)
    }

    /// Validates the profile: sizes, paths, and combinations that make no sense.
    pub fn check(&self) -> Result<(), ProfileError> {
        validate::check(self)
    }
}

/// The name of a sandbox, which its cgroup and its process carry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxName(String);

impl SandboxName {
    /// Maximum length: file names have 255 bytes, and prefixes are added.
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

impl TryFrom<String> for SandboxName {
    type Error = ProfileError;

    fn try_from(name: String) -> Result<Self, ProfileError> {
        Self::new(name)
    }
}

impl From<SandboxName> for String {
    fn from(session: SandboxName) -> Self {
        session.0
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The isolation mode. The program never falls back from one mode to the other by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SandboxMode {
    /// Namespaces, an own root file system, Landlock and seccomp.
    Full,
    /// Landlock and seccomp only: host paths and processes stay visible by name, nothing is masked, and there are no
    /// sockets but pairs.
    Landlock,
}

impl fmt::Display for SandboxMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Landlock => "landlock",
        })
    }
}

/// The user id of the processes on the host. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "kind")]
pub enum RunsAs {
    /// The user of the launcher, or, if that is root, a user id that nothing else uses.
    Dynamic,
    /// This user. Only root can choose.
    User { uid: u32, gid: u32 },
}

/// A port on the sandbox's loopback that is forwarded to a Unix socket of the host. Only [`SandboxMode::Full`] has a
/// loopback of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PortRelay {
    /// The name of the socket inside, `/run/tribune/<name>.sock`.
    pub name: String,
    pub port: u16,
    /// The socket on the host.
    pub socket: PathBuf,
}
