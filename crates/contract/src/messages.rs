//! What the two halves say to each other.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::LaunchProfile;

/// What the host half tells the entering half, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LaunchRequest {
    pub profile: LaunchProfile,
    /// The user and group to become, if the launcher is root.
    pub becomes: Option<(u32, u32)>,
}

/// What it tells right after: what will hold the limits, which is made while the launcher begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CgroupAssignment {
    /// The files that take a process into the cgroups made for this launch.
    pub cgroups: Vec<PathBuf>,
    pub limited_by: LimitedBy,
}

/// What the entering half says. First `Started` or `Failed`; after `Started`, `Ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "kind")]
pub enum LauncherReport {
    Started(Started),
    Failed(Failed),
    Ended(ExitReport),
}

/// A signal for what runs inside, on its way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SignalRequest {
    pub signal: i32,
}

/// What holds a running sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Started {
    /// The user id on the host.
    pub uid: u32,
    pub gid: u32,
    pub limited_by: LimitedBy,
    /// The version of Landlock in force.
    pub landlock_abi: u32,
    /// How many names of the workspace are hidden or frozen.
    pub masked: u32,
    /// Folders of the workspace that are read-only as a whole, because what is in them could not be covered name by name; `.`
    /// is all of it.
    pub read_only: Vec<String>,
    /// Folders of the workspace that look empty as a whole, because too much in them is hidden; `.` is all of it.
    pub emptied: Vec<String>,
}

/// What holds the limits of memory, processes and processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitedBy {
    /// One hierarchy for all controllers.
    CgroupV2,
    /// A hierarchy per controller.
    CgroupV1,
    /// Bounds of each process by itself.
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

/// Why nothing was started: what was being done, what came of it, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[error("{stage}: {cause}. {remedy}")]
pub struct Failed {
    pub stage: LaunchStage,
    pub cause: String,
    pub remedy: String,
}

/// The steps of a start.
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

/// How a sandbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExitReport {
    pub exit: Exit,
}

/// What became of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", tag = "by")]
pub enum Exit {
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// Its time was over.
    OutOfTime,
    /// The whole sandbox was killed from outside.
    Killed,
}
