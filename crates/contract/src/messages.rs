//! The messages between the host half and the entering half.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::LaunchProfile;

/// The first message of the host half: what to launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LaunchRequest {
    pub profile: LaunchProfile,
    /// The user and group to switch to, if the launcher runs as root.
    #[serde(rename = "becomes")]
    pub switch_to: Option<UserIds>,
}

/// A user id and a group id of the host. Serialized as a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct UserIds {
    pub uid: u32,
    pub gid: u32,
}

impl From<(u32, u32)> for UserIds {
    fn from((uid, gid): (u32, u32)) -> Self {
        Self { uid, gid }
    }
}

impl From<UserIds> for (u32, u32) {
    fn from(ids: UserIds) -> Self {
        (ids.uid, ids.gid)
    }
}

/// The second message of the host half: the cgroups of the launch. They are created while the launcher starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CgroupAssignment {
    /// The `cgroup.procs` or `tasks` files through which a process joins the cgroups.
    pub cgroups: Vec<PathBuf>,
    pub limited_by: LimitedBy,
}

/// A message of the entering half. The first one is `Started` or `Failed`; after `Started` comes `Ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "kind")]
pub enum LauncherReport {
    Started(StartReport),
    Failed(LaunchFailure),
    Ended(ExitReport),
}

/// A signal to forward to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SignalRequest {
    pub signal: i32,
}

/// The properties of a sandbox that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StartReport {
    /// The user id on the host.
    pub uid: u32,
    pub gid: u32,
    pub limited_by: LimitedBy,
    /// The Landlock ABI version in force.
    pub landlock_abi: u32,
    /// The number of hidden and read-only names in the workspace.
    pub masked: u32,
    /// Folders of the workspace that are read-only as a whole, because too many of their names needed a mask of their
    /// own; `.` is the whole workspace.
    pub read_only: Vec<String>,
    /// Folders of the workspace that look empty as a whole, because too many of their names are hidden; `.` is the
    /// whole workspace.
    pub emptied: Vec<String>,
}

/// The mechanism that enforces memory, process and CPU limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitedBy {
    /// One hierarchy for all controllers.
    CgroupV2,
    /// One hierarchy per controller.
    CgroupV1,
    /// Per-process limits.
    Rlimits,
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CgroupV2 => "cgroup v2",
            Self::CgroupV1 => "cgroup v1",
            Self::Rlimits => "rlimits only",
        })
    }
}

/// Why a launch failed: the step, the cause, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[error("{stage}: {cause}. {remedy}")]
pub struct LaunchFailure {
    pub stage: LaunchStage,
    pub cause: String,
    pub remedy: String,
}

/// The steps of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LaunchStage {
    Profile,
    Keyring,
    Limits,
    User,
    Namespaces,
    Mounts,
    Workspace,
    Relays,
    Landlock,
    Seccomp,
    Program,
}

impl fmt::Display for LaunchStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Profile => "the launch profile",
            Self::Keyring => "the session keyring",
            Self::Limits => "the limits",
            Self::User => "the user of the sandbox",
            Self::Namespaces => "the namespaces",
            Self::Mounts => "the mounts",
            Self::Workspace => "the workspace",
            Self::Relays => "the relays",
            Self::Landlock => "Landlock",
            Self::Seccomp => "the system call filter",
            Self::Program => "the program",
        })
    }
}

/// The end of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExitReport {
    pub exit: ProgramExit,
}

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "by")]
pub enum ProgramExit {
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// The wall-clock limit was reached.
    OutOfTime,
    /// The sandbox was killed from outside.
    Killed,
}
