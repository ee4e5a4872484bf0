//! The messages between the host and a sandbox: what to run and how ([`LaunchProfile`]), and what the launcher reports
//! ([`LauncherReport`]).
//!
//! Both are JSON on a socket between two processes of the same program. Each side validates them all the same: unknown
//! members, other versions and out-of-range values are rejected.
//!
//! This crate defines types and their validation. It opens nothing and starts nothing.

mod autorun;
mod limits;
mod messages;
mod mount;
mod pattern;
mod profile;
mod validate;
mod workspace;

pub use autorun::{HOST_TRAPS, autorun_patterns, autorun_prefix, is_host_trap, is_host_trap_in};
pub use limits::{Limits, Tmpfs};
pub use messages::{
    CgroupAssignment, Exit, ExitReport, Failed, LaunchRequest, LaunchStage, LauncherReport, LimitedBy,
    SignalRequest, Started, UserIds,
};
pub use mount::{Mount, SYSTEM_FOLDERS, is_the_systems};
pub use pattern::{Pattern, PatternProgress, PatternSet};
pub use profile::{LaunchProfile, Mode, PROFILE_VERSION, Relay, RunsAs, Session};
pub use validate::{MAX_FURTHER, MAX_PROFILE_BYTES, ProfileError};
pub use workspace::{Workspace, WorkspaceSource};
