//! The sandbox that agents and their commands run in.
//!
//! The host half ([`SandboxLauncher`]) re-executes its own program as the entering half ([`enter()`]). That one builds
//! namespaces, an own root file system, limits, Landlock and seccomp around one program, as the launch profile says. It
//! needs no other program, no daemon and no rights beyond those of an ordinary user. A missing kernel mechanism is an
//! error with a cause and a remedy; nothing is skipped silently.
//!
//! It does not decide who may run what (the gate does), it does not connect the sandbox to the outside (the host does,
//! over sockets that the profile names), and it does not protect from errors in the kernel.
//!
//! Where to start: `enter/mod.rs` for the order of the steps, `enter/mount_plan.rs` for what is mounted,
//! `enter/seccomp.rs` for the system calls that are denied, `host/launcher.rs` for the host half.

mod dir_entries;
mod enter;
mod host;
mod isolation;
mod self_test;
mod sys;
pub mod unsandboxed;
mod wiping_allocator;
mod wire;
pub mod workspace;

#[cfg(feature = "controls")]
pub use enter::enter_without;
#[cfg(feature = "bare")]
pub use enter::run_baseline;
pub use enter::{enter, hidden_in};
pub use host::{
    Child, CleanupReport, InstanceId, LaunchError, ProgramStream, ProgramStreams, SandboxLauncher, clean_up,
    fresh_user, remove_stale_cgroups,
};
pub use isolation::Isolation;
pub use self_test::{SelfTest, SelfTestError, self_test};
pub use wiping_allocator::WipingAllocator;
