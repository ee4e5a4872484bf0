//! What crosses the seam between the host and a sandbox: what is to run and how ([`LaunchProfile`]), and what the other
//! side says of it ([`Report`]).
//!
//! Both are JSON on a descriptor between two processes of the same program. Still nothing is taken on trust: unknown
//! members, other versions and anything beyond the bounds are refused on both sides. This crate holds types and their
//! checks; it opens nothing and starts nothing.

mod autorun;
mod limits;
mod messages;
mod mount;
mod pattern;
mod profile;
mod validate;
mod workspace;

pub use autorun::{HOST_TRAPS, host_traps, is_host_trap, is_host_trap_in, own_names};
pub use limits::{Limits, Tmpfs};
pub use messages::{Bounded, Ended, Exit, Failed, LimitedBy, Order, Report, Signalled, Stage, Started};
pub use mount::{Mount, SYSTEM_FOLDERS, is_the_systems};
pub use pattern::{Pattern, Patterns, Reached};
pub use profile::{LaunchProfile, Mode, PROFILE_VERSION, Relay, RunsAs, Session};
pub use validate::{MAX_FURTHER, MAX_PROFILE_BYTES, ProfileError};
pub use workspace::{Workspace, WorkspaceSource};
