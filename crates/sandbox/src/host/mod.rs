//! The host half: starts the entering half, gives it its order, and holds what it started.

mod cgroup;
mod child;
mod launcher;
mod streams;
mod sweep;
mod users;
mod usher;

pub use child::Child;
pub use launcher::{House, LaunchError, Launcher};
pub use streams::{Stream, Streams};
pub use sweep::{Swept, sweep, sweep_cgroups};
pub use users::next as fresh_user;
