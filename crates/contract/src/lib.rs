//! The messages between the host and a sandbox: what to run and how ([`LaunchProfile`]), and what the launcher reports
//! ([`LauncherReport`]).
//!
//! Both are JSON on a socket between two processes of the same program. Each side validates them all the same: unknown
//! members, other versions and out-of-range values are rejected.
//!
//! This crate defines types and their validation. It opens nothing and starts nothing.

mod autorun;
mod autorun_list;
mod limits;
mod messages;
mod mount;
mod pattern;
mod profile;
mod tribune_home;
mod validate;
mod workspace;

pub use autorun::{autorun_patterns, autorun_prefix, is_autorun_path, is_autorun_path_in};
pub use autorun_list::{AUTORUN_GROUPS, AUTORUN_PATHS, AutorunGroup};
pub use limits::{ResourceLimits, Tmpfs};
pub use messages::{
    CgroupAssignment, ExitReport, LaunchFailure, LaunchRequest, LaunchStage, LauncherReport, LimitedBy,
    ProgramExit, SignalRequest, StartReport, UserIds,
};
pub use mount::{Mount, SYSTEM_FOLDERS, is_system_path};
pub use pattern::{Pattern, PatternProgress, PatternSet};
pub use profile::{LaunchProfile, PROFILE_VERSION, PortRelay, RunsAs, SandboxMode, SandboxName};
pub use tribune_home::{is_tribune_home, tribune_home_around};
pub use validate::{MAX_ADDITIONAL_DIRECTORIES, MAX_PROFILE_BYTES, ProfileError};
pub use workspace::{WorkspaceMount, WorkspaceSource};
