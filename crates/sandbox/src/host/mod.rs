//! The host half: starts launchers, sends them their requests, and holds the running sandboxes.

mod cgroup;
mod child;
mod cleanup;
mod error;
mod fork_server;
mod instance;
mod launcher;
mod streams;
mod uid_pool;

pub use child::Child;
pub use cleanup::{CleanupReport, clean_up, remove_stale_cgroups};
pub use error::LaunchError;
pub use instance::InstanceId;
pub use launcher::SandboxLauncher;
pub use streams::{ProgramStream, ProgramStreams};
pub use uid_pool::next as fresh_user;
