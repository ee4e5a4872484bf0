//! The host half: starts the entering half, gives it its order, and holds what it started.

mod cgroup;
mod child;
mod cleanup;
mod fork_server;
mod launcher;
mod streams;
mod uid_pool;

pub use child::Child;
pub use cleanup::{CleanupReport, sweep, sweep_cgroups};
pub use launcher::{House, LaunchError, Launcher};
pub use streams::{Stream, Streams};
pub use uid_pool::next as fresh_user;
